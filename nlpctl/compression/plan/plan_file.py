"""plan.json: the source and the settings of a folder of compressed models.

A later command continues there if these are the same. Settings that are part of folder names (widths, algorithms,
rows) or that only affect the choice may differ: the folder then gets more candidates. Imports no Paddle.
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
from nlpctl.config.paths import dataset_files
from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.files import read_json, sha256_of, sums, write_json_atomic
from nlpctl.models.sums import is_part, parts_of
from nlpctl.names import differing
from nlpctl.runtime.run_directory import RunDirectory

PLAN = "plan.json"
FORMAT = 2
SHOWN = 3  # most settings listed in a message
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
    "compression.sure",
    "compression.target",
    "compression.budget",
    "compression.batch_sizes",
)
_OF_SOURCE = "model"  # the source defines itself
_STATIC = "compression.input_infer_model_path"
_STUDENT = "distillation.student"
_OF_STUDENT = ("model", "training", "optimizer", "early_stopping", "data.max_seq_length")  # keys that affect a student
_OF_TRAINING = (
    "training",
    "optimizer",
    "early_stopping",
    "loss",
    "distillation",
    "data.balance",
    "data.length_grouped",
    "data.batch_tokens",
)


def make_plan(recipe: Recipe, source: Path | str, static_model: Path | None = None) -> dict[str, Any]:
    """The plan of a command: checksums of source, data and student files, and the settings that determine folders.

    `static_model`: the prefix of the graph that replaces the source's own.
    """
    folder = Path(source)
    files = parts_of(folder) if folder.is_dir() else []
    files += [] if static_model is None else sorted(static_model.parent.glob(f"{static_model.name}.pd*"))
    values = flat(recipe_values(recipe, everything=True))
    return {
        "format": FORMAT,
        "source": str(source),
        "sha256": {path.name: sha256_of(path) for path in files},
        "data": _sums(data_files(recipe)),
        "dataset": sums(dataset_files(recipe)),
        "networks": _sums(files_of_networks(recipe)),
        "settings": {name: value for name, value in values.items() if not name.startswith((*_free(), _OF_SOURCE))}
        | _of_student(recipe),
    }


def check_plan(folder: Path, plan: Mapping[str, Any], recipe: Recipe, training: bool) -> None:
    """UserError if `folder` holds compressed models of another source or with other settings.

    `training`: whether this command trains; otherwise existing networks are used, whatever their settings.
    """
    file = folder / PLAN
    old = read_json(file)
    hint = "use --overwrite to discard existing results, or name another folder: -o FOLDER"
    if old.get("format") != FORMAT or not isinstance(old.get("settings"), dict):
        raise UserError("is not a plan of this version of nlpctl", str(file), hint)
    before, now = old["settings"], _as_read(plan["settings"])
    if {name: value for name, value in old["sha256"].items() if is_part(name)} != plan["sha256"]:
        what = f"another model ({old['source']})"
        if before.get(_STATIC) != now.get(_STATIC):
            what = f"another graph ({_STATIC}: {before.get(_STATIC)})"
        elif old["source"] == plan["source"]:
            what = "an earlier version of this model: its files have changed since"
        raise UserError(f"holds compressed models of {what}", str(folder), hint)
    trained = training and _is_trained(folder)
    files = dict.fromkeys(("data", "dataset"), "the data")
    files |= {"networks": "the files that networks depend on"} if trained else {}
    for kind, message in files.items():
        # Older plans have no "dataset", and list cards.
        was = {name: value for name, value in old.get(kind, plan[kind]).items() if is_part(Path(name).name)}
        changed = differing(was, plan[kind])
        if changed:
            raise UserError(f"{message} changed since these models were made: {changed[0]}", str(folder), hint)
    changed = [name for name in differing(before, now) if trained or not name.startswith(_of_training())]
    if changed:
        made = [f"{name}: {'the default' if before.get(name) is None else before[name]}" for name in changed[:SHOWN]]
        more = f", and {len(changed) - SHOWN} more settings differ" if len(changed) > SHOWN else ""
        message = f"these models were made with {', '.join(made)}{more}"
        where = _STUDENT if changed[0].startswith(f"{_STUDENT}.") else changed[0]
        raise UserError(message, recipe.where(where), f"use the same settings again, {hint}")


def carried_over(folder: Path, plan: Mapping[str, Any]) -> dict[str, Any]:
    """`plan` of a command without training, completed with the entries on existing networks from the plan in
    `folder`."""
    if not (folder / PLAN).is_file() or not _is_trained(folder):
        return dict(plan)
    old = read_json(folder / PLAN)
    rest = {name: value for name, value in plan["settings"].items() if not name.startswith(_of_training())}
    trained = {name: value for name, value in old["settings"].items() if name.startswith(_of_training())}
    return {**plan, "networks": old["networks"], "settings": rest | trained}


def write_plan(folder: Path, plan: Mapping[str, Any]) -> None:
    """Write plan.json, which marks the folder as one of nlpctl's."""
    write_json_atomic(folder / PLAN, plan)


def _sums(files: Iterable[tuple[str, Path]]) -> dict[str, str]:
    return sums(path for _, path in files)


def _of_student(recipe: Recipe) -> dict[str, Any]:
    """The settings of the student's own recipe after extension; {} if there is none."""
    values = {} if recipe.student is None else flat(recipe_values(recipe.student, everything=True))
    names = [name for name in values if name.startswith(_OF_STUDENT) and not name.startswith(_free())]
    return {f"{_STUDENT}.{name}": values[name] for name in names}


def has_learned(network: Path) -> bool:
    """Whether the run directory of a network holds a model or a checkpoint."""
    run = RunDirectory(network)
    return run.model.is_dir() or run.last_checkpoint() is not None


def _is_trained(folder: Path) -> bool:
    """Whether `folder` holds results of a training. Networks may be deleted while their exports still exist."""
    networks = [path for path in (folder / NETWORKS).glob("[!.]*") if path.name != FEWER_WORDS]
    if any(has_learned(path) for path in networks):
        return True
    names = [path.name for kind in (EXPORTS, CANDIDATES) for path in (folder / kind).glob("[!.]*")]
    parts = [name.split("+") for name in names]
    training = {strategy.name for strategy in every_strategy() if strategy.trains}
    return any(base not in (ORIGINAL, FEWER_WORDS) or training & set(made) for base, *made in parts)


def _free() -> tuple[str, ...]:
    """Prefixes of settings that determine no folder, or that are part of folder names."""
    return (*_FREE, *(f"compression.{name}" for strategy in every_strategy() for name in strategy.in_names))


def _of_training() -> tuple[str, ...]:
    """Prefixes of settings that affect trained networks only."""
    return (*_OF_TRAINING, *(f"compression.{name}" for strategy in every_strategy() for name in strategy.of_training))


def _as_read(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` after a JSON round trip: lists instead of tuples."""
    return json.loads(json.dumps(settings))
