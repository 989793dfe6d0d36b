"""The recipe of a model folder that PaddleNLP or Transformers saved: its task, and how long a text it reads.

    config.json            the network's class names the task, problem_type tells multi-label classification
    tokenizer_config.json  may set a shorter length
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nlpctl.config.tasks import known_tasks
from nlpctl.config.tasks.info import TaskInfo
from nlpctl.errors import UserError
from nlpctl.files import parse_json, read_json
from nlpctl.layout import checkpoints_in

LONGEST = 512  # tokens that are read of a text, unless the network reads fewer
_TASK_OF_CLASS = re.compile(r"For([A-Z]\w*)$")


def recipe_values(folder: Path, file: Path, *, task_given: bool) -> dict[str, Any]:
    """The values of a recipe that applies the model in `folder`, by section; `file` is its config.

    `task_given`: the command line names the task. UserError: no task of nlpctl has such a head.
    """
    config = _flat(read_json(file))
    length = _length(config, folder)
    data = {"max_seq_length": length}
    model = {"name_or_path": os.path.abspath(folder)}
    if task_given:
        return {"model": model, "data": data}
    task = _task(config, file)
    stride = {"doc_stride": max(1, length // 4)} if task.reads("data.doc_stride") else {}
    return {"task": task.name, "model": model, "data": data | stride}


def without_config(folder: Path) -> str:
    """Advice for a folder that is neither a run nor a model."""
    steps = checkpoints_in(folder)
    if steps:
        return f"it holds checkpoints, each of which is a model: give {steps[-1]}"
    return "give a recipe file, a run directory, or a model folder with config.json, weights and vocabulary"


def _task(config: Mapping[str, Any], file: Path) -> TaskInfo:
    written = next((str(name) for name in config.get("architectures") or () if name), "")
    kind = _TASK_OF_CLASS.search(written)
    known = [task for task in known_tasks() if kind is not None and task.network_class == kind[1]]
    problem = config.get("problem_type")
    if known and not _is_regression(config):
        return next((task for task in known if task.problem_type == problem), known[0])
    if known:
        message, hint = "this network gives a number, not a label: nlpctl has no task for it", "use a classifier"
    elif kind is None:
        what = f"a {written}, an encoder" if written else "of no class"
        message = f"this network is {what}: it has no head to answer with"
        hint = "train it first: name the folder under model.name_or_path of a recipe; or name a task: --set task=..."
    else:
        message = f"no task is known by the class {written}"
        hint = "name the task: --set task=..., or the folder under model.name_or_path of a recipe"
    raise UserError(message, where=str(file), hint=hint)


def _is_regression(config: Mapping[str, Any]) -> bool:
    names = config.get("id2label")
    return config.get("problem_type") == "regression" or (isinstance(names, dict) and len(names) == 1)


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config as PaddleNLP writes it today; before 2.5 it nested the encoder's under init_args."""
    inner = [each for each in config.get("init_args") or () if isinstance(each, dict)]
    flat = {name: value for each in inner for name, value in each.items()} | dict(config)
    if "init_class" in config and not config.get("architectures"):
        flat["architectures"] = [config["init_class"]]
    return flat


def _length(config: Mapping[str, Any], folder: Path) -> int:
    """The longest sequence in tokens that the network and its tokenizer take, at most LONGEST."""
    rows, pad = config.get("max_position_embeddings"), config.get("pad_token_id", 0)
    roberta = any("Roberta" in str(name) for name in config.get("architectures") or ())
    rows = rows - (pad + 1) if isinstance(rows, int) and isinstance(pad, int) and roberta else rows
    try:
        tokenizer = parse_json((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        limit = tokenizer.get("model_max_length", tokenizer.get("max_len"))
    except (OSError, ValueError, AttributeError):  # loading the tokenizer tells of it
        limit = None
    return min(each for each in (rows, limit, LONGEST) if isinstance(each, int) and each > 0)
