"""plan.json: what a folder of compressed models was made of, and with which settings.

A later command goes on there where these are the same. What names of folders say (widths, algorithms, rows), and what
only chooses among candidates, may differ: the folder then gets more candidates. Imports no Paddle.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nlpctl.compression.plan.files import data_files, files_of_networks
from nlpctl.compression.strategies.base import CANDIDATES, EXPORTS, NETWORKS, ORIGINAL
from nlpctl.compression.strategies.fewer_words import FEWER_WORDS
from nlpctl.compression.strategies.registry import every_strategy
from nlpctl.config.dump import flat, recipe_values
from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.files import read_json, sha256_of, write_json_atomic
from nlpctl.runtime.run_directory import RunDirectory

PLAN = "plan.json"
FORMAT = 2
SHOWN = 3  # settings that a message names
_FREE = (
    "runtime",
    "inference",
    "guards",
    "training.output_dir",
    "training.logging_dir",
    "training.logging_first_step",
    "training.logging_strategy",
    "training.run_name",
    "training.skip_",
    "training.disable_tqdm",
    "training.dataloader_num_workers",
    "training.save_total_limit",
    "training.report_to",
    "training.per_device_eval_batch_size",
    "compression.strategy",
    "compression.evaluate",
    "compression.max_drop",
    "compression.target",
    "compression.budget",
    "compression.batch_sizes",
)
_OF_SOURCE = "model"  # the source says itself what it is
_STATIC = "compression.input_infer_model_path"
_STUDENT = "distillation.student"
_OF_STUDENT = ("model", "training", "optimizer", "early_stopping", "data.max_seq_length")  # what its recipe decides
_OF_TRAINING = (
    "training",
    "optimizer",
    "early_stopping",
    "loss",
    "distillation",
    "data.balance",
    "data.length_grouped",
)


def make_plan(recipe: Recipe, source: Path | str, static_model: Path | None = None) -> dict[str, Any]:
    """What decides about the folders that are made: the files of the source, of the data and of students, the settings.

    `static_model`: the prefix of the graph that is taken in place of the source's own.
    """
    folder = Path(source)
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    files += [] if static_model is None else sorted(static_model.parent.glob(f"{static_model.name}.pd*"))
    values = flat(recipe_values(recipe, everything=True))
    return {
        "format": FORMAT,
        "source": str(source),
        "sha256": {path.name: sha256_of(path) for path in files},
        "data": _sums(data_files(recipe)),
        "networks": _sums(files_of_networks(recipe)),
        "settings": {name: value for name, value in values.items() if not name.startswith((*_free(), _OF_SOURCE))}
        | _of_student(recipe),
    }


def check_plan(folder: Path, plan: Mapping[str, Any], recipe: Recipe, training: bool) -> None:
    """UserError where `folder` holds compressed models of another source, or made with other settings.

    `training`: whether this command trains; one that does not leaves the networks as they are, however they were made.
    """
    file = folder / PLAN
    old = read_json(file)
    hint = "use --overwrite to begin again, or name another folder: -o FOLDER"
    if old.get("format") != FORMAT or not isinstance(old.get("settings"), dict):
        raise UserError("is not a plan of this nlpctl", str(file), hint)
    before, now = old["settings"], _as_read(plan["settings"])
    if old["sha256"] != plan["sha256"]:
        what = f"another model ({old['source']})"
        if before.get(_STATIC) != now.get(_STATIC):
            what = f"another graph ({_STATIC}: {before.get(_STATIC)})"
        elif old["source"] == plan["source"]:
            what = "another state of this model: its files have changed since"
        raise UserError(f"holds compressed models of {what}", str(folder), hint)
    trained = training and _is_trained(folder)
    files = {"data": "the data"} | ({"networks": "what networks are made of"} if trained else {})
    for kind, message in files.items():
        changed = _differing(old[kind], plan[kind])
        if changed:
            raise UserError(f"{message} changed since these models were made: {changed[0]}", str(folder), hint)
    changed = [name for name in _differing(before, now) if trained or not name.startswith(_of_training())]
    if changed:
        made = [f"{name}: {'the default' if before.get(name) is None else before[name]}" for name in changed[:SHOWN]]
        more = f", and {len(changed) - SHOWN} settings more are others" if len(changed) > SHOWN else ""
        message = f"these models were made with {', '.join(made)}{more}"
        where = _STUDENT if changed[0].startswith(f"{_STUDENT}.") else changed[0]
        raise UserError(message, recipe.where(where), f"give the same settings again, {hint}")


def carried_over(folder: Path, plan: Mapping[str, Any]) -> dict[str, Any]:
    """`plan` of a command that trains nothing, with what the plan in `folder` says of the networks that are there."""
    if not (folder / PLAN).is_file() or not _is_trained(folder):
        return dict(plan)
    old = read_json(folder / PLAN)
    rest = {name: value for name, value in plan["settings"].items() if not name.startswith(_of_training())}
    trained = {name: value for name, value in old["settings"].items() if name.startswith(_of_training())}
    return {**plan, "networks": old["networks"], "settings": rest | trained}


def write_plan(folder: Path, plan: Mapping[str, Any]) -> None:
    """Write plan.json: from then on the folder is one of ours."""
    write_json_atomic(folder / PLAN, plan)


def _sums(files: Iterable[tuple[str, Path]]) -> dict[str, str]:
    return {str(path): sha256_of(path) for _, path in files}


def _of_student(recipe: Recipe) -> dict[str, Any]:
    """What the student's own recipe decides, whatever files it extends; {} where there is none."""
    values = {} if recipe.student is None else flat(recipe_values(recipe.student, everything=True))
    names = [name for name in values if name.startswith(_OF_STUDENT) and not name.startswith(_free())]
    return {f"{_STUDENT}.{name}": values[name] for name in names}


def has_learned(network: Path) -> bool:
    """Whether the run directory of a network holds anything of a training: a model or a checkpoint."""
    run = RunDirectory(network)
    return run.model.is_dir() or run.last_checkpoint() is not None


def _is_trained(folder: Path) -> bool:
    """Whether anything of a training is in `folder`. Networks may have been deleted, and what was made of them not."""
    networks = [path for path in (folder / NETWORKS).glob("[!.]*") if path.name != FEWER_WORDS]
    if any(has_learned(path) for path in networks):
        return True
    names = [path.name for kind in (EXPORTS, CANDIDATES) for path in (folder / kind).glob("[!.]*")]
    parts = [name.split("+") for name in names]
    training = {strategy.name for strategy in every_strategy() if strategy.trains}
    return any(base not in (ORIGINAL, FEWER_WORDS) or training & set(made) for base, *made in parts)


def _free() -> tuple[str, ...]:
    """Beginnings of settings that decide about no folder, or that names of folders tell."""
    return (*_FREE, *(f"compression.{name}" for strategy in every_strategy() for name in strategy.in_names))


def _of_training() -> tuple[str, ...]:
    """Beginnings of settings that decide about trained networks alone."""
    return (*_OF_TRAINING, *(f"compression.{name}" for strategy in every_strategy() for name in strategy.of_training))


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The names whose values are not the same, or are on one side only."""
    return [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]


def _as_read(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` as JSON gives them back: lists for tuples."""
    return json.loads(json.dumps(settings))
