"""Find and open the trained model of a command, in the requested engine.

`open_trained_model` decides what answers: the network itself (engines/trained.py, `open_network`), or graphs, those of
an export or of a temporary one (`open_export` there). Among graphs engines/auto.py picks engine and precision, and
`open_choice` of engines/choice.py loads that one.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import TYPE_CHECKING

from nlpctl import console
from nlpctl.config.checks import keys_of_other_tasks
from nlpctl.config.keys import all_keys, is_of_training
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.schema import Recipe, RuntimeSection, value_of
from nlpctl.config.tasks import task_info
from nlpctl.errors import UserError
from nlpctl.export.export import temporary_export
from nlpctl.extras import require
from nlpctl.models.export_folder import read_checked_manifest
from nlpctl.models.find import check_export, check_flags_for_export, find_trained_model
from nlpctl.models.source import resolve_source
from nlpctl.models.tokenizer import needs_paddlenlp
from nlpctl.runtime.device import REPLACE_ORT, gpu_for_exports, onnx_runtime_gpu, paddle_has_card, warn_once
from nlpctl.runtime.process import ProcessSetup, one_process, prepare_process, seed_python, set_up_process

if TYPE_CHECKING:
    from nlpctl.engines.auto import RowCount
    from nlpctl.engines.trained import TrainedModel


def find_model(recipe: Recipe) -> str:
    """`find_trained_model` with all checks that need no Paddle, for a command that will open the model.

    UserError: there is no trained model, or it does not support what `recipe` asks for. Of flags that nobody reads a
    warning tells, once.
    """
    source = find_trained_model(recipe)
    refuse_model(recipe, source)
    warn_of_unused_flags(recipe)
    return source


def warn_of_unused_flags(recipe: Recipe, sections: tuple[str, ...] = ()) -> None:
    """Tell, once, of flags that no trained model of the task reads, or that are in one of `sections`, which the command
    does not read."""
    if flags := [dotted for dotted in sorted(recipe.origins) if recipe.set_by_flag(dotted)]:
        others = {finding.keys[0] for finding in keys_of_other_tasks(recipe)}
        for dotted in flags:
            if dotted in others or is_of_training(dotted):
                warn_once(f"{recipe.origins[dotted]} has no effect: a trained model of {recipe.task} does not read it")
            elif dotted.partition(".")[0] in sections:
                warn_once(f"{recipe.origins[dotted]} has no effect: this command does not read it")


def find_network(recipe: Recipe) -> str:
    """`find_model` for a command that asks the network itself, in fp32, of what answers do not tell.

    UserError as there, and if a flag says how answers are to be computed.
    """
    source = find_model(recipe)
    for dotted in recipe.origins:
        if dotted.startswith("inference.") and recipe.set_by_flag(dotted):
            if value_of(recipe, dotted) not in (all_keys()[dotted].default, "dygraph", "fp32"):
                message = "this asks the network itself, which dygraph computes in fp32"
                raise UserError(message, recipe.where(dotted), "leave it out")
    return source


def refuse_model(recipe: Recipe, source: str) -> None:
    """UserError if its files show that the model `source` does not support what `recipe` asks for.

    `source` is from `find_trained_model`, which compares the files of an export with their checksums, or has been
    checked otherwise.
    """
    key = "inference.min_confidence"
    if recipe.inference.min_confidence is not None and not task_info(recipe.task).reads(key):
        raise UserError(f"answers of {recipe.task} have no confidence", recipe.where(key), "leave it out")
    export = resolve_source(source).export
    if export is not None:
        check_export(recipe, read_checked_manifest(export))
        check_flags_for_export(recipe)
    elif recipe.inference.tensorrt and recipe.inference.engine in ("auto", "dygraph"):
        hint = "export the model first (nlpctl export), or use @[engine=paddle]"
        raise UserError("TensorRT takes graphs, not networks", recipe.where("inference.tensorrt"), hint)


def answers_without_paddle(recipe: Recipe, source: str) -> bool:
    """Whether `source` is an export whose texts are read without PaddleNLP, so that ONNX Runtime alone may answer."""
    export = resolve_source(source).export
    in_template = task_info(recipe.task).reads("prompt") and recipe.few_shot.method != "contrastive"  # by PaddleNLP
    return export is not None and not in_template and not needs_paddlenlp(export)


def runtime_to_answer(recipe: Recipe, source: str) -> RuntimeSection:
    """The runtime section for answering `source` here, in which "auto" is the CPU if no engine that can use a card
    computes there what the recipe allows of an export."""
    runtime, export = recipe.runtime, resolve_source(source).export
    if runtime.device != "auto" or runtime.devices or export is None:
        return runtime
    from nlpctl.engines.choice import could_use_card

    could_use = functools.partial(could_use_card, read_checked_manifest(export), recipe.inference)
    if could_use(["paddle"]) and paddle_has_card():
        return runtime
    report, lacking = onnx_runtime_gpu(), ""
    if report.usable and could_use(["onnxruntime"]):
        from nlpctl.engines.onnx_runtime import missing_cuda

        if not missing_cuda():
            return runtime
        lacking, remedy = f"ONNX Runtime lacks {', '.join(missing_cuda())}", REPLACE_ORT
    elif could_use(["paddle", "onnxruntime"]) and (report := gpu_for_exports()).names and not report.usable:
        lacking, remedy = report.reason, report.remedy
    if lacking:
        warn_once(f"the CPU is used, since {lacking}\n  -> {remedy}")
    return dataclasses.replace(runtime, device="cpu")


def set_up_to_answer(recipe: Recipe, source: str) -> ProcessSetup:
    """`set_up_process`, but without importing Paddle for an export whose texts are read without PaddleNLP, on a CPU or
    a card that Paddle cannot use.

    Where its engine is Paddle Inference, opening it imports Paddle.
    """
    if resolve_source(source).export is None:
        require("paddle", otherwise="give an export of the model, which ONNX Runtime answers")
    _refuse_several(recipe)
    runtime = one_process(runtime_to_answer(recipe, source))
    without_paddle = "paddle" not in sys.modules and answers_without_paddle(recipe, source)
    if not without_paddle or (runtime.device != "cpu" and paddle_has_card()):
        return set_up_process(dataclasses.replace(recipe, runtime=runtime))
    setup = prepare_process(runtime, recipe.training.seed, needs_paddle=False)
    seed_python(recipe.training.seed)
    return setup


def _refuse_several(recipe: Recipe) -> None:
    """UserError if a flag asks for several processes: those of a training, which one that answers does not start."""
    runtime = recipe.runtime
    for key, count in (("runtime.nproc", runtime.nproc), ("runtime.devices", len(runtime.devices))):
        if count > 1 and recipe.set_by_flag(key):
            hint = "leave it out" if key == "runtime.nproc" else "name one"
            hint += f"; predict, eval and serve divide the rows among processes: add @[workers={count}]"
            raise UserError("one process answers", recipe.where(key), hint)


def open_trained_model(
    recipe: Recipe, setup: ProcessSetup, source: str, batch_size: int = 64, rows: RowCount = None
) -> TrainedModel:
    """Load the model that `find_model` found, with the engine and device that the recipe asks for.

    `batch_size`: rows per batch, since the fastest engine depends on it. `rows`: how many are to be answered, or a
    function that counts them, if that is known: where nothing was timed on this machine, many rows pay for doing it.
    A warning if answers are to be withheld by probabilities that were never calibrated. Raises UserError when its task
    head was never trained, data.max_seq_length exceeds its limit, or this machine cannot run the engine or
    precision.
    """
    model = _opened(recipe, setup, source, batch_size, rows)
    if recipe.inference.min_confidence is not None and model.task.calibration is None:
        console.warn("the probabilities of this model were never compared with data: fit them with nlpctl calibrate")
    return model


def _opened(recipe: Recipe, setup: ProcessSetup, source: str, batch_size: int, rows: RowCount) -> TrainedModel:
    from nlpctl.engines.choice import check_engine, this_machine
    from nlpctl.engines.trained import open_export, open_network, refuse_precision

    refuse_model(recipe, source)
    export = resolve_source(source).export
    if export is not None:
        return open_export(recipe, setup, export, recipe_of(export), batch_size, rows)
    if recipe.inference.engine in ("auto", "dygraph"):
        refuse_precision(recipe, setup)
        return open_network(recipe, setup, source)
    check_engine(recipe.inference, this_machine(setup))  # fails before the work of an export
    with temporary_export(recipe, setup, source) as folder:
        model = open_export(recipe, setup, folder, recipe_of(folder), batch_size, rows)
        return dataclasses.replace(model, find_faster=None)  # the folder will be gone
