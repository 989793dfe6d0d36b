"""What `nlpctl compress` refuses before anything is made, and where its results go."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.compression.plan.files import data_files, files_of_networks, student_model
from nlpctl.compression.plan.hooks import check_hooks
from nlpctl.compression.plan.plan_file import PLAN, check_plan
from nlpctl.compression.plan.steps import ALGORITHMS
from nlpctl.compression.plan.strategy import BF16, KEY, TRAINED, Chain
from nlpctl.config.checks import check
from nlpctl.config.model_section import ModelSection
from nlpctl.config.schema import Recipe
from nlpctl.data.sources import files_of, has_split, open_split
from nlpctl.data.task_rows import task_rows
from nlpctl.errors import UserError
from nlpctl.inference.support import is_installed, obstacle
from nlpctl.layout import COMPRESS, EXPORT, MODEL, RECIPE
from nlpctl.models.export_folder import read_manifest
from nlpctl.models.find import check_edits, check_export
from nlpctl.models.source import read_config, resolve_source
from nlpctl.runners.compress.scorer import check_scorable
from nlpctl.runners.compress.source import require_fp32, static_model
from nlpctl.runners.compress.workbench import ptq_settings
from nlpctl.runners.export import ELSEWHERE, is_free
from nlpctl.runtime.process import ProcessSetup

READ_BY = {  # settings, and the strategies that read them
    "width_mult_list": ("dynabert",),
    "algo_list": ("ptq",),
    "batch_size_list": ("ptq", "ort-static"),
    "batch_num_list": ("ptq", "ort-static"),
    "round_type": ("ptq",),
    "bias_correction": ("ptq",),
    "weight_quantize_type": ("ptq", "qat"),
    "activation_quantize_type": ("ptq", "qat"),
    "moving_rate": ("qat",),
    "use_pact": ("qat",),
    "criterion": ("dynabert", "qat", "distill"),
}
_DATA = "give them: --set data.train=FILE"
CHECKED = {
    "dynabert": "nlpctl.compression.networks.dynabert",
    "distill": "nlpctl.compression.networks.distill",
    "qat": "nlpctl.compression.networks.qat",
}


def refuse_early(recipe: Recipe, source: str, chains: Sequence[Chain]) -> None:
    """UserError for what can be told without Paddle, wherever the results go."""
    check_hooks(recipe)
    found = resolve_source(source)
    if static_model(recipe) is not None:
        _refuse_training(recipe, chains, "a static model")
    elif found.kind == "export":
        check_export(recipe, manifest := read_manifest(found.folder))
        require_fp32(manifest, found.folder)
        _refuse_training(recipe, chains, "an export")
    if not has_split(recipe.data, "dev"):
        check_scorable(recipe)  # tells so
    if any(chain.int8 == "ptq" for chain in chains):
        for algorithm in recipe.compression.algo_list or ALGORITHMS:
            ptq_settings(recipe, algorithm).check()
    if any(chain.int8 in ("ort-dynamic", "ort-static") for chain in chains):
        from nlpctl.graphs.onnx import require_paddle2onnx

        require_paddle2onnx()
        if not is_installed("onnxruntime"):
            raise UserError("ONNX Runtime is not installed", KEY, "pip install onnxruntime, or take ptq")


def refuse_missing(recipe: Recipe, source: str, chains: Sequence[Chain], training: bool) -> None:
    """UserError where a training cannot work, or a file is missing: on test, that would cost the table at the end.

    `training`: whether a network is still to be trained.
    """
    if training:
        # whatever the network was made of once, it is the source that is trained
        folder = resolve_source(source).folder
        model = recipe.model if folder is None else ModelSection(name_or_path=str(folder))
        problems = check(dataclasses.replace(recipe, model=model), "train")
        if problems:
            raise UserError(problems=problems)
        student = student_model(recipe).name_or_path if any(chain.network == "distill" for chain in chains) else None
        if student is not None:
            check_edits(resolve_source(student), recipe)
    words = recipe.compression.prune_embeddings
    if words and not has_split(recipe.data, "train"):
        raise UserError("words are left out that training rows do not hold, and there are none", "data.train", _DATA)
    reads_train = training or words or any(chain.int8 in ("ptq", "ort-static") for chain in chains)
    for split in ("train", "dev", "test") if reads_train else ("dev", "test"):
        if files_of(recipe.data, split):
            open_split(task_rows(recipe.task, recipe.data), split)


def warn_unread(recipe: Recipe, chains: Sequence[Chain]) -> None:
    """Tell which flags no strategy reads. A recipe's own settings may be there for other strategies."""
    parts = {part for chain in chains for part in chain.parts}
    for name, readers in READ_BY.items():
        origin = recipe.origins.get(f"compression.{name}")
        if origin is not None and origin.source.startswith("--") and not parts.intersection(readers):
            console.warn(f"{origin.source} changes nothing: it is for {' and '.join(readers)}")
    only_distill = "distill" in parts and not parts & {"dynabert", "qat"}
    if recipe.compression.criterion is not None and only_distill and not recipe.distillation.hard:
        console.warn("compression.criterion changes nothing: distill weighs it by distillation.hard, which is 0")


def _refuse_training(recipe: Recipe, chains: Sequence[Chain], what: str) -> None:
    """UserError where a strategy needs more than graphs."""
    hint = "give the run or the model folder that it was made from, or take ptq, ort-dynamic"
    training = [part for chain in chains for part in chain.parts if part in TRAINED]
    if training:
        raise UserError(f"{training[0]} trains a network, and {what} holds graphs only", KEY, hint)
    if recipe.compression.prune_embeddings:
        where = recipe.where("compression.prune_embeddings")
        raise UserError(f"words are left out of a network, and {what} holds graphs only", where, hint)


def check_strategies(recipe: Recipe, source: str, chains: Sequence[Chain]) -> None:
    """UserError where a strategy says that it cannot work with this network. Imports Paddle."""
    folder = resolve_source(source).folder
    config = {} if folder is None else read_config(folder)
    for part, module in CHECKED.items():
        if any(part in chain.parts for chain in chains):
            importlib.import_module(module).check(recipe, config)
    if Chain("distill", "qat") in [dataclasses.replace(chain, embeddings=False) for chain in chains]:
        importlib.import_module(CHECKED["qat"]).check(recipe, _student_config(recipe))
    if recipe.compression.prune_embeddings:
        from nlpctl.compression.networks import vocabulary

        vocabulary.check(recipe)


def check_engines(recipe: Recipe, setup: ProcessSetup, chains: Sequence[Chain]) -> None:
    """UserError where no engine of this machine computes what a strategy makes. Imports Paddle."""
    from nlpctl.inference.auto import this_machine

    named = [BF16] if BF16 in re.split(r"[+,\s]+", recipe.compression.strategy or "") else []
    parts = [chain.int8 for chain in chains if chain.int8 is not None]
    if setup.device != "cpu":
        parts = [part for part in parts if part != "qat"]  # a card trains it; its graph is made with --device cpu
    for part in (*named, *parts):
        engine = "onnxruntime" if part.startswith("ort-") else "paddle"
        problem = obstacle(engine, BF16 if part == BF16 else "int8", this_machine(setup))
        if problem is not None:
            cpu = "" if setup.device == "cpu" else ", or --device cpu: networks that a card trained are kept"
            raise UserError(problem.message, KEY, f"leave {part} out{cpu}")


def _student_config(recipe: Recipe) -> dict[str, Any]:
    """What config.json of a student says of its kind, where it is one of nlpctl's own networks."""
    from nlpctl.models.families import OWN  # imports Paddle

    model = student_model(recipe)
    own = model.from_scratch is not None and model.from_scratch.architecture in OWN
    return {"model_type": OWN[model.from_scratch.architecture]} if own else {}


def default_output(source: str) -> Path:
    """compress/ in the run that holds `source`. UserError for a model that is not of a run."""
    folder = resolve_source(source).folder
    if folder is not None:
        run = folder.resolve().parent
        if folder.name in (MODEL, EXPORT) and (run / RECIPE).is_file():
            return folder.parent / COMPRESS
    raise UserError("the model is not in a run: where shall the results go?", where="-o", hint="name it: -o FOLDER")


def refuse_output(
    folder: Path, source: str, plan: Mapping[str, Any], recipe: Recipe, *, overwrite: bool, training: bool
) -> None:
    """UserError where `folder` is something else, or holds what another plan made. `training`: see check_plan."""
    if is_free(folder, source):
        return
    if not (folder / PLAN).is_file():
        raise UserError("is no folder of compressed models, and is not touched", where=str(folder), hint=ELSEWHERE)
    if not overwrite:
        check_plan(folder, plan, recipe, training)
        return
    for where, path in _inputs(recipe):
        if folder.resolve() in path.resolve().parents:
            raise UserError("--overwrite would delete this, which is to be read", where, ELSEWHERE)


def _inputs(recipe: Recipe) -> list[tuple[str, Path]]:
    """What a compression reads beside its source, each with what names it: `file:line` or a key."""
    named = {  # these may be folders, or prefixes of files
        "compression.input_infer_model_path": static_model(recipe),
        "distillation.student": recipe.distillation.student,
    }
    found = [(recipe.where(key), Path(path)) for key, path in named.items() if path is not None]
    return [*found, *data_files(recipe), *files_of_networks(recipe)]
