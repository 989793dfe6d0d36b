"""plan.json: what a folder of compressed models was made of, and with which settings.

A later command goes on there where these are the same. What names of folders say (widths, algorithms, rows), and what
only chooses among candidates, may differ: the folder then gets more candidates. Imports no Paddle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nlpctl.compression.files import files_of_networks
from nlpctl.compression.steps import NETWORKS
from nlpctl.config.dump import flat, recipe_values
from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.models.source import read_json
from nlpctl.runtime.files import write_json_atomic
from nlpctl.runtime.run_directory import sha256_of

PLAN = "plan.json"
FORMAT = 1
_FREE = (
    "runtime",
    "inference",
    "guards",
    "model",  # of the source, which says itself what it is
    "training.output_dir",
    "training.logging_",
    "training.run_name",
    "training.skip_",
    "training.disable_tqdm",
    "training.dataloader_num_workers",
    "training.save_total_limit",
    "training.report_to",
    "training.per_device_eval_batch_size",
    "compression.strategy",
    "compression.width_mult_list",
    "compression.algo_list",
    "compression.batch_size_list",
    "compression.batch_num_list",
    "compression.prune_embeddings",
    "compression.evaluate",
    "compression.max_drop",
    "compression.target",
    "compression.budget",
    "compression.batch_sizes",
)
_OF_TRAINING = (
    "training",
    "optimizer",
    "early_stopping",
    "loss",
    "distillation",
    "data.balance",
    "data.length_grouped",
    "compression.criterion",
)


def make_plan(recipe: Recipe, source: Path | str, static_model: Path | None = None) -> dict[str, Any]:
    """What decides about the folders that are made: the files of the source, of the data and of students, the settings.

    `static_model`: the prefix of the graph that is taken in place of the source's own.
    """
    folder = Path(source)
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    files += [] if static_model is None else sorted(static_model.parent.glob(f"{static_model.name}.pd*"))
    data = [Path(name) for name in (*recipe.data.train, *recipe.data.dev, *recipe.data.test)]
    data += files_of_networks(recipe)
    values = flat(recipe_values(recipe, everything=True))
    return {
        "format": FORMAT,
        "source": str(source),
        "sha256": {path.name: sha256_of(path) for path in files},
        "data": {str(path): sha256_of(path) for path in data if path.is_file()},
        "settings": {name: value for name, value in values.items() if not name.startswith(_FREE)},
    }


def check_plan(folder: Path, plan: Mapping[str, Any], recipe: Recipe) -> None:
    """UserError where `folder` holds compressed models of another source, or made with other settings."""
    file = folder / PLAN
    old = read_json(file)
    hint = "use --overwrite to begin again, or name another folder: -o FOLDER"
    if old.get("format") != FORMAT or not isinstance(old.get("settings"), dict):
        raise UserError("is not a plan of this nlpctl", str(file), hint)
    if old["sha256"] != plan["sha256"]:
        raise UserError(f"holds compressed models of another model ({old['source']})", str(folder), hint)
    changed = sorted(name for name in old["data"].keys() | plan["data"].keys()
                     if old["data"].get(name) != plan["data"].get(name))  # fmt: skip
    if changed:
        raise UserError(f"the data changed since these models were made: {changed[0]}", str(folder), hint)
    before, now = old["settings"], _as_read(plan["settings"])
    trained = (folder / NETWORKS).is_dir()
    names = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    changed = [name for name in names if trained or not name.startswith(_OF_TRAINING)]
    if changed:
        made = ", ".join(f"{name}: {'the default' if before.get(name) is None else before[name]}" for name in changed)
        message = f"these models were made with {made}"
        raise UserError(message, recipe.where(changed[0]), hint)


def write_plan(folder: Path, plan: Mapping[str, Any]) -> None:
    """Write plan.json: from then on the folder is one of ours."""
    write_json_atomic(folder / PLAN, plan)


def _as_read(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` as JSON gives them back: lists for tuples."""
    return json.loads(json.dumps(settings))
