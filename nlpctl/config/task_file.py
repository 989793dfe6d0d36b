"""task.json of a model folder, a checkpoint or an export: which keys of a recipe it holds, read as a recipe.

Whoever sends a folder writes its task.json. Only these keys are taken from it, and the files that it names are those of
the folder: export copies them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nlpctl.config.positions import display
from nlpctl.errors import UserError
from nlpctl.files import json_of
from nlpctl.layout import TASK, is_inside

AGAIN = "copy the whole model/ folder of a run again"
# Files that a recipe names and that go with the model: section, key, name in the model folder.
COPIED = (("decode", "terms", "terms.tsv"), ("masking", "dictionary", "words.txt"))
# The keys of a recipe that affect a trained model's answers.
KEPT = (
    "data.columns",
    "data.max_seq_length",
    "data.doc_stride",
    "data.unit",
    "data.tokenizer",
    "data.header",
    "data.label_separator",
    "model.head",
    "decode",
    "masking",
    "prompt",
    "few_shot.method",
    "few_shot.pooling",
    "few_shot.layers",
    "retrieval",
)
_READ = (*KEPT, "model.network")  # folders of older versions do not have it


def task_values(folder: Path) -> dict[str, Any]:
    """The values of a recipe that applies the model in `folder`, by section; all else has defaults.

    UserError: task.json is damaged, or names a file that is not in the folder.
    """
    file = folder / TASK
    try:
        content = json_of(file)
        sections = {name: _kept(name, value) for name, value in content.items() if isinstance(value, dict)}
        model = {**sections.get("model", {}), "name_or_path": os.path.abspath(folder)}
        values = {**sections, "task": content["task"], "data": sections["data"], "model": model}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"not a task.json of nlpctl ({type(error).__name__}: {error})"
        raise UserError(message, where=display(file), hint=AGAIN) from error
    for section, key, _ in COPIED:
        name = sections.get(section, {}).get(key)
        if isinstance(name, str) and (Path(name).name != name or not is_inside(name, folder)):
            message = f"{section}.{key} names {name}, which is no file of this folder"
            raise UserError(message, where=display(file), hint=f"{AGAIN}; yours is named by --set {section}.{key}=FILE")
    return values


def _kept(section: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """What the section holds of _READ."""
    return {name: value for name, value in values.items() if section in _READ or f"{section}.{name}" in _READ}
