"""task.json of a model folder, a checkpoint or an export: which keys of a recipe it holds, read as a recipe.

Whoever sends a folder writes its task.json. Only these keys are taken from it, and the files that it names are those of
the folder: export copies them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from nlpctl.config.keys import SECTIONS, all_keys, keys_of, use_of
from nlpctl.console import display
from nlpctl.documents import Document, whole_content
from nlpctl.errors import UserError
from nlpctl.layout import TASK, is_inside

AGAIN = "copy the whole model/ folder of a run again"
# Files that a recipe names and that go with the model: section, key, name in the model folder.
COPIED = (("decode", "terms", "terms.tsv"), ("masking", "dictionary", "words.txt"))
# Where the keys of section data stand in task.json. Others follow in the order of the schema.
_ORDER = ("columns", "max_seq_length", "doc_stride", "unit", "header", "label_separator")


@functools.cache
def kept_keys() -> tuple[str, ...]:
    """The keys that a trained model keeps (KeyUse.with_model), in the order of task.json.

    A section stands for all keys in it where all are kept: folders of older versions lack those that are new.
    """
    kept: list[str] = []
    for section in ("data", *(name for name in SECTIONS if name != "data")):
        leaves = [name for name, key in all_keys().items() if name.startswith(f"{section}.") and not key.section]
        left_out = [name for name in leaves if not use_of(name).with_model]
        names = [key.dotted for key in keys_of(SECTIONS[section], section).values()]
        whole = [name for name in names if not any(f"{leaf}.".startswith(f"{name}.") for leaf in left_out)]
        kept += [section] if not left_out else whole
    data = [f"data.{name}" for name in _ORDER]
    return tuple(sorted(kept, key=lambda name: data.index(name) if name in data else len(data)))


@dataclass(frozen=True)
class TaskFile(Document):
    """task.json, beside every model, checkpoint and export: written with them (models/folder.py), read here as a recipe
    and by whatever opens the folder.

    `trained`: whether the head of the task was; `content`: also the sections of a recipe, whose `kept_keys` are used.
    """

    FORMAT: ClassVar[int | None] = 1
    REPAIR: ClassVar[str] = AGAIN
    UPDATE: ClassVar[str] = "train the model again"

    task: str
    trained: bool
    data: Mapping[str, Any]
    content: Mapping[str, Any] = whole_content()

    @property
    def sections(self) -> dict[str, dict[str, Any]]:
        """The sections of a recipe, with all that they hold."""
        return {name: value for name, value in self.content.items() if isinstance(value, dict)}


def task_values(folder: Path) -> dict[str, Any]:
    """The values of a recipe that applies the model in `folder`, by section; all else has defaults.

    UserError: task.json is damaged, or names a file that is not in the folder.
    """
    file = folder / TASK
    content = TaskFile.load(file)
    sections = {name: kept_of_section(name, value) for name, value in content.sections.items()}
    model = {**sections.get("model", {}), "name_or_path": os.path.abspath(folder)}
    values = {**sections, "task": content.task, "model": model}
    for section, key, _ in COPIED:
        name = sections.get(section, {}).get(key)
        if isinstance(name, str) and (Path(name).name != name or not is_inside(name, folder)):
            message = f"{section}.{key} names {name}, which is no file of this folder"
            raise UserError(message, where=display(file), hint=f"{AGAIN}; yours is named by @[{section}.{key}=FILE]")
    return values


def kept_of_section(section: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """What the section holds of the keys that a model keeps."""
    known = {*kept_keys(), "model.network"}  # folders of older versions do not have the latter
    return {name: value for name, value in values.items() if section in known or f"{section}.{name}" in known}
