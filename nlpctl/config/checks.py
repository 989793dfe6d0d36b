"""Checks before heavy imports: conflicting keys, and numbers out of range.

Each check is one small function that yields findings. A finding names the keys it is about, so that the
message can say where each was set, and so that it is dropped when one of them is wrong already.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from nlpctl.config.compression_checks import COMPRESSION_CHECKS
from nlpctl.config.data_checks import DATA_CHECKS
from nlpctl.config.distillation_checks import DISTILLATION_CHECKS, DISTILLATION_FILES
from nlpctl.config.finding import Check, Finding, value_of
from nlpctl.config.library_environment import checked_environment
from nlpctl.config.managed import UNSUPPORTED, turned_on
from nlpctl.config.network_checks import NETWORK_CHECKS
from nlpctl.config.own_parts import PART_CHECKS
from nlpctl.config.paddle_flags import flag_environment
from nlpctl.config.parameter_checks import PARAMETER_CHECKS
from nlpctl.config.paths import INPUT_PATHS, TEXT_PATHS
from nlpctl.config.positions import display
from nlpctl.config.purpose import Purpose
from nlpctl.config.ranges import RANGES
from nlpctl.config.schema import Recipe
from nlpctl.config.search_checks import SEARCH_CHECKS
from nlpctl.config.task_checks import TASK_CHECKS
from nlpctl.config.tasks import task_info
from nlpctl.config.training_checks import TRAINING_CHECKS
from nlpctl.errors import Problem, UserError
from nlpctl.outputs import READ_AGAIN, is_pipe


def check(recipe: Recipe, purpose: Purpose, broken: Collection[str] = ()) -> list[Problem]:
    """All problems of `recipe`, except those about keys in `broken`."""
    always = (*CHECKS, *NETWORK_CHECKS, *COMPRESSION_CHECKS, *DISTILLATION_CHECKS, *SEARCH_CHECKS)
    to_train = (*PROCESS_CHECKS, *PART_CHECKS, *TASK_CHECKS, *TRAINING_CHECKS, *DATA_CHECKS, *PARAMETER_CHECKS)
    checks = (*always, *to_train, *DISTILLATION_FILES) if purpose == "train" else always
    findings = [finding for each in checks for finding in each(recipe)]
    return [_problem(recipe, finding) for finding in findings if not _touches(finding.keys, broken)]


def refuse_half_precision_on_cpu(recipe: Recipe, computes_bf16: bool) -> None:
    """Raise UserError if the recipe wants a precision that this CPU does not train in; `computes_bf16`: it does so.

    For runners, once `auto` has turned out to be the CPU.
    """
    _refuse(recipe, _half_precision(recipe, computes_bf16))


def refuse_wrong_sharding(recipe: Recipe, several_nodes: bool = False) -> None:
    """Raise UserError if the optimizer cannot be spread over all processes. For runners, which know of other nodes."""
    _refuse(recipe, _sharding_processes(recipe, several_nodes))


def _refuse(recipe: Recipe, findings: Iterable[Finding]) -> None:
    problems = [_problem(recipe, finding) for finding in findings]
    if problems:
        raise UserError(problems=problems)


def _problem(recipe: Recipe, finding: Finding) -> Problem:
    origins = {key: recipe.origins[key] for key in finding.keys if key in recipe.origins}
    set_by = {key: str(origin) for key, origin in origins.items() if origin.source != "default"}
    where = next(iter(set_by.values()), display(recipe.path) if recipe.path else finding.keys[0])
    more = ""
    if len(finding.keys) > 1:
        more = " [" + ", ".join(f"{key}: {set_by.get(key, 'not set')}" for key in finding.keys) + "]"
    return Problem(finding.message + more, where=where, hint=finding.hint)


def _touches(keys: tuple[str, ...], broken: Collection[str]) -> bool:
    """Whether one of `keys`, or a section around it or a key inside it, is in `broken`."""
    return any(key == bad or key.startswith(f"{bad}.") or bad.startswith(f"{key}.") for key in keys for bad in broken)


def _ranges(recipe: Recipe) -> Iterator[Finding]:
    for dotted, allowed in RANGES.items():
        value = value_of(recipe, dotted)
        values = value if isinstance(value, tuple) else (value,)
        for each in values:
            if each is not None and each not in allowed:
                yield Finding((dotted,), f"{dotted} is {each}", f"it {allowed}")


def _no_pipes(recipe: Recipe) -> Iterator[Finding]:
    """A pipe without a writer waits for ever, and every input is read more than once."""
    for dotted in (*INPUT_PATHS, *TEXT_PATHS):
        value = value_of(recipe, dotted)
        for path in value if isinstance(value, tuple) else (value,):
            own_reader = dotted.startswith("data.") and recipe.data.reader is not None
            if isinstance(path, str) and not own_reader and is_pipe(path):
                message = f"{dotted}: {display(path)} is a pipe or a device, and inputs are read more than once"
                yield Finding((dotted,), message, READ_AGAIN)


def _model_is_one_thing(recipe: Recipe) -> Iterator[Finding]:
    if recipe.model.name_or_path is not None and recipe.model.from_scratch is not None:
        keys = ("model.name_or_path", "model.from_scratch")
        yield Finding(keys, "both model.name_or_path and model.from_scratch are set", "set one of them to null")


def _best_model(recipe: Recipe) -> Iterator[Finding]:
    training = recipe.training
    if not training.load_best_model_at_end:
        return
    keys = ("training.load_best_model_at_end", "training.evaluation_strategy", "training.save_strategy")
    if training.evaluation_strategy != training.save_strategy:
        message = (
            "load_best_model_at_end needs evaluation_strategy and save_strategy to be the same, "
            f"found {training.evaluation_strategy} and {training.save_strategy}"
        )
        yield Finding(keys, message, "set both to epoch, or both to steps")
    elif training.evaluation_strategy == "no":
        yield Finding(keys, "load_best_model_at_end needs evaluations to compare", "set both strategies to epoch")


def _best_model_steps(recipe: Recipe) -> Iterator[Finding]:
    training = recipe.training
    if not (training.load_best_model_at_end and training.evaluation_strategy == training.save_strategy == "steps"):
        return
    eval_steps = training.logging_steps if training.eval_steps is None else training.eval_steps
    if eval_steps > 0 and training.save_steps % eval_steps:
        source = "logging_steps" if training.eval_steps is None else "eval_steps"
        keys = ("training.save_steps", f"training.{source}", "training.load_best_model_at_end")
        message = f"save_steps ({training.save_steps}) is not a multiple of {source} ({eval_steps})"
        yield Finding(keys, message, "load_best_model_at_end compares saved checkpoints: evaluate at each save")


def _early_stopping(recipe: Recipe) -> Iterator[Finding]:
    if recipe.early_stopping.patience is not None and not recipe.training.load_best_model_at_end:
        keys = ("early_stopping.patience", "training.load_best_model_at_end")
        hint = "set training.load_best_model_at_end: true"
        yield Finding(keys, "early_stopping.patience needs load_best_model_at_end", hint)


def _lonely_do_eval(recipe: Recipe) -> Iterator[Finding]:
    if recipe.training.do_eval and recipe.training.evaluation_strategy == "no":
        keys = ("training.do_eval", "training.evaluation_strategy")
        message = "do_eval alone would evaluate every logging_steps, whatever evaluation_strategy says"
        yield Finding(keys, message, "delete do_eval and set training.evaluation_strategy: epoch or steps")


def _best_metric(recipe: Recipe) -> Iterator[Finding]:
    task, metric = task_info(recipe.task), recipe.training.metric_for_best_model
    if task is None or metric is None:
        return
    name = metric.removeprefix("eval_")
    if name not in task.metrics and recipe.training.compute_metrics is not None:
        return  # one of the user's own, which the first call tells
    if name not in task.metrics:
        keys = ("training.metric_for_best_model", "task")
        hint = f"set training.metric_for_best_model to one of: {', '.join(task.metrics)}"
        yield Finding(keys, f"metric_for_best_model: {task.name} has no score named {metric}", hint)
        return
    greater = recipe.training.greater_is_better
    if greater is not None and greater is not task.greater_is_better(name):
        keys = ("training.greater_is_better", "training.metric_for_best_model")
        message = (
            f"greater_is_better is {str(greater).lower()}, but a better {name} is {'lower' if greater else 'higher'}"
        )
        yield Finding(keys, message, "delete greater_is_better: it follows from the metric")


def _one_precision(recipe: Recipe) -> Iterator[Finding]:
    training = recipe.training
    if training.fp16 and training.bf16:
        yield Finding(("training.fp16", "training.bf16"), "fp16 and bf16 are both true", "choose one")
    if training.fp16_full_eval and training.bf16_full_eval:
        keys = ("training.fp16_full_eval", "training.bf16_full_eval")
        yield Finding(keys, "fp16_full_eval and bf16_full_eval are both true", "choose one")


def _no_half_precision_on_cpu(recipe: Recipe) -> Iterator[Finding]:
    if recipe.runtime.device == "cpu":
        yield from _half_precision(recipe, computes_bf16=True)  # the recipe may be for another machine


def _half_precision(recipe: Recipe, computes_bf16: bool) -> Iterator[Finding]:
    training = recipe.training
    needs = {
        "fp16": "fp16 needs a GPU: Paddle crashes with fp16 on a CPU",
        "fp16_full_eval": "fp16_full_eval needs a GPU: Paddle crashes with fp16 on a CPU",
        "bf16_full_eval": "bf16_full_eval needs a GPU: Paddle silently computes in float32 on a CPU",
    }
    if not computes_bf16:
        needs["bf16"] = "bf16 needs a GPU, or a processor with AVX512-BF16 or AMX, and this one has neither"
    for name, message in needs.items():
        if operator.attrgetter(name)(training):
            keys = (f"training.{name}", "runtime.device")
            yield Finding(keys, message, f"set training.{name}: false, or use a GPU")
    if not training.bf16 or not computes_bf16:
        return
    if not training.fast_cpu:
        message = "on a CPU, bf16 is computed by the faster functions, which are off"
        hint = "set training.fast_cpu: true, or training.bf16: false"
        yield Finding(("training.bf16", "training.fast_cpu"), message, hint)
    if training.fp16_opt_level == "O2":
        message = "on a CPU, bf16 keeps weights in 32 bits"
        yield Finding(("training.fp16_opt_level", "training.bf16"), message, "set training.fp16_opt_level: O1")


def _processes(recipe: Recipe) -> Iterator[Finding]:
    runtime = recipe.runtime
    if runtime.devices and runtime.nproc > 1:
        keys = ("runtime.devices", "runtime.nproc")
        yield Finding(keys, "runtime.devices and runtime.nproc are both set", "devices is for GPUs, nproc for the CPU")
    elif runtime.devices and runtime.device == "cpu":
        yield Finding(("runtime.devices", "runtime.device"), "runtime.devices names GPU cards", "use runtime.nproc")
    elif runtime.nproc > 1 and runtime.device == "gpu":
        keys = ("runtime.nproc", "runtime.device")
        yield Finding(keys, "runtime.nproc starts processes on the CPU", "name the cards: runtime.devices: [0, 1]")
    if len(set(runtime.devices)) < len(runtime.devices):
        yield Finding(("runtime.devices",), "runtime.devices names a card twice", "one process per card: name it once")


def _sharding_processes(recipe: Recipe, several_nodes: bool) -> Iterator[Finding]:
    """Sharding spreads the optimizer over all processes of a training, of which there must be several."""
    training, processes = recipe.training, max(len(recipe.runtime.devices), recipe.runtime.nproc)
    if training.sharding and processes == 1 and not several_nodes:
        keys: tuple[str, ...] = ("training.sharding", "runtime.devices", "runtime.nproc")
        hint = "set runtime.devices: [0, 1] (--devices 0,1) or runtime.nproc: 2 (--nproc 2), train on several nodes "
        hint += "(--nnodes 2), or leave it out"
        yield Finding(keys, "training.sharding needs several processes to spread the optimizer over", hint)
    degree = training.sharding_parallel_degree
    if degree > 1 and (several_nodes or not (training.sharding and degree == processes)):
        keys = ("training.sharding_parallel_degree", "training.sharding", "runtime.devices", "runtime.nproc")
        message = f"training.sharding_parallel_degree is {degree}: nlpctl spreads over all processes or not at all"
        yield Finding(keys, message, "leave it out; training.sharding: stage1 uses all processes")


def _unsupported(recipe: Recipe) -> Iterator[Finding]:
    for dotted, reason in UNSUPPORTED.items():
        if turned_on(value_of(recipe, dotted)):
            yield Finding((dotted,), f"{dotted} is not supported: {reason}", "leave it out")


def _sharding_stage(recipe: Recipe) -> Iterator[Finding]:
    sharding = recipe.training.sharding
    if sharding not in ("", "stage1"):
        message = f"training.sharding: {sharding!r} is not supported"
        hint = "set it to stage1: Paddle runs stage2, stage3 and offload on GPUs alone, where nlpctl was not tested"
        yield Finding(("training.sharding",), message, hint)


def _flags(recipe: Recipe) -> Iterator[Finding]:
    yield from _problems_of(flag_environment, recipe.runtime.flags)


def _environment(recipe: Recipe) -> Iterator[Finding]:
    yield from _problems_of(checked_environment, recipe.runtime.env)


def _problems_of(check: Callable[[Any], Any], value: Any) -> Iterator[Finding]:
    try:
        check(value)
    except UserError as error:
        for problem in error.problems:
            yield Finding((problem.where,), problem.message, problem.hint)


def _ascii_cache(recipe: Recipe) -> Iterator[Finding]:
    cache = recipe.runtime.cache_dir
    if cache is not None and not cache.isascii():
        message = f"runtime.cache_dir {cache} is not plain ASCII: Paddle cannot open files there"
        yield Finding(("runtime.cache_dir",), message, "choose a folder whose whole path is ASCII")


CHECKS: tuple[Check, ...] = (
    _ranges,
    _no_pipes,
    _model_is_one_thing,
    _best_model,
    _best_model_steps,
    _early_stopping,
    _lonely_do_eval,
    _best_metric,
    _one_precision,
    _no_half_precision_on_cpu,
    _unsupported,
    _sharding_stage,
    _flags,
    _environment,
    _ascii_cache,
)

# Commands that use a model need not be distributed like its training.
PROCESS_CHECKS: tuple[Check, ...] = (_processes,)
