"""The cause of a bad step: the operator and layer with the first non-finite result, and the rows of the step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import paddle
from paddlenlp.trainer import Trainer

from nlpctl.data.batches.collate import raise_failure
from nlpctl.data.rows.examples import Placed
from nlpctl.errors import NlpctlError, Problem, RunFailed
from nlpctl.models.hooks import hooked
from nlpctl.names import counted
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training.batches import step_seed
from nlpctl.training.dev_scores import outputs_and_loss
from nlpctl.training.guards import BadStep, StepPart
from nlpctl.upstream.finite_check import finite_check, non_finite

if TYPE_CHECKING:
    from nlpctl.training.trainer import RecipeTrainer

MOST_ROWS = 10  # that are listed
EVENT = "bad_step"


def diagnosed(bad: BadStep, trainer: RecipeTrainer) -> RunFailed:
    """The RunFailed for `bad`, which is also logged in events.jsonl."""
    try:
        parts = trainer.batches.placed(bad.step - 1, trainer.args.gradient_accumulation_steps, trainer.data)
        verdict, rows = _rows(bad, trainer, parts)
    except NlpctlError as error:  # the rows are read again, and the file may have changed
        problem = error.problems[0]
        verdict, rows = f"the rows of the step cannot be listed: {problem.where}: {problem.message}", []
    origin = [] if bad.usual is not None else _origin(bad, trainer)
    trainer.events.append(
        EVENT, bad.step, figure=bad.figure, value=f"{bad.value:.6g}", origin=origin, rows=[where for where, _ in rows]
    )
    listed = [Problem(effect, where) for where, effect in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        listed.append(Problem(f"and {counted(len(rows) - MOST_ROWS, 'more rows')}, listed in events.jsonl"))
    head = Problem(_what(bad), hint=_remedy(bad, trainer))
    return RunFailed(problems=[head, *map(Problem, (*origin, verdict)), *listed])


def _what(bad: BadStep) -> str:
    if bad.usual is None:
        return f"the {bad.figure} is {bad.value} in step {bad.step}; the weights were not changed by it"
    times = bad.value / bad.usual
    return (
        f"the {bad.figure} exploded in step {bad.step}: {bad.value:.4g}, {times:,.0f} times the usual {bad.usual:.4g}; "
        "the weights were not changed by it"
    )


def _remedy(bad: BadStep, trainer: RecipeTrainer) -> str:
    remedy = "inspect these rows; lower training.learning_rate or training.max_grad_norm, or lengthen the warm-up"
    if bad.usual is None:
        return f"{remedy}; then train again with @[overwrite=true]"
    factor = "guards.loss_factor" if bad.figure == "loss" else "guards.gradient_factor"
    command = RunDirectory(trainer.recipe.run_dir).to_go_on(f"--set {factor}=null")
    return f"{remedy}; or ignore the check: {command}"


# -- rows ------------------------------------------------------------------------------------


def _rows(bad: BadStep, trainer: RecipeTrainer, parts: Sequence[Sequence[Placed]]) -> tuple[str, list[tuple[str, str]]]:
    """The role of the rows in the failure, and the rows to inspect: file:line and the effect of each."""
    suspects = [
        placed
        for part, features in zip(bad.parts, parts, strict=True)
        if bad.figure != "loss" or bad.usual is not None or part.loss is None or not math.isfinite(float(part.loss))
        for placed in features
    ]
    losses = _own_losses(trainer, [placed.item for placed in suspects])
    alone = [
        (placed.where, f"the loss of this row alone is {loss:.4g}")
        for placed, loss in zip(suspects, losses, strict=True)
    ]
    if bad.usual is not None:
        order = sorted(range(len(alone)), key=lambda i: -losses[i] if math.isfinite(losses[i]) else -math.inf)
        return "the rows of the step, those with the largest loss first:", _distinct([alone[i] for i in order])
    guilty = [each for each, loss in zip(alone, losses, strict=True) if not math.isfinite(loss)]
    if 0 < len(guilty) < len(alone):
        return "these rows of the step give that value on their own:", _distinct(guilty)
    them = "every row of the step gives that value on its own, so no single row is the cause:"
    return them if guilty else "no row of the step gives that value on its own; its rows:", _distinct(alone)


def _distinct(rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each row once, even if it was cut into several windows; the first window counts."""
    return list(dict(reversed(rows)).items())[::-1]


def _own_losses(trainer: RecipeTrainer, features: Sequence[Any]) -> list[float]:
    """The loss of each feature alone, without dropout."""
    network, losses = trainer.loaded.network, []
    network.eval()
    for feature in features:
        batch = trainer.data_collator([feature])
        raise_failure(batch)
        losses.append(outputs_and_loss(trainer.task, network, batch, trainer.label_loss)[1])
    network.train()
    return losses


# -- operator --------------------------------------------------------------------------------


def _origin(bad: BadStep, trainer: RecipeTrainer) -> list[str]:
    """The first non-finite result when the step is repeated under Paddle's FLAGS_check_nan_inf."""
    parameters = list(trainer.loaded.network.named_parameters())
    weights = [name for name, parameter in parameters if not _is_finite(parameter)]
    gradients = [name for name, each in parameters if each.grad is not None and not _is_finite(each.grad)]
    lines = [f"the weights are not finite before the step: {_names(weights)}"] if weights else []
    lines += [f"gradients that are not finite: {_names(gradients)}"] if gradients else []
    return [_first_operator(trainer, bad.parts), *lines]


def _first_operator(trainer: RecipeTrainer, parts: Sequence[StepPart]) -> str:
    args, network = trainer.args, trainer.loaded.network
    trainer.optimizer.clear_grad()
    trainer.guard.begin_step()
    paddle.seed(step_seed(args.seed, trainer.state.global_step, args.dataset_rank))
    with _layers(network) as inside, finite_check():
        try:
            for part in parts:
                trainer.guard.begin_part(part.inputs)
                # PaddleNLP's method, not RecipeTrainer's, which would count the repetition as a part of the step.
                Trainer.training_step(trainer, network, part.inputs)
                inside.clear()
        except RuntimeError as error:
            result = non_finite(error)
            if result is None:
                raise
            place = f"in {inside[-1]}" if inside else "in the backward pass, or in the loss"
            counts = f"{result.nans:,} nan and {result.infinities:,} inf"
            return f"FLAGS_check_nan_inf: the first such result is from operator {result.operator}, {place} ({counts})"
    finite = "FLAGS_check_nan_inf: in a repetition, every operator gives finite results"
    return f"{finite} here; see logs/ for the results of the other processes" if args.world_size > 1 else finite


@contextmanager
def _layers(network: paddle.nn.Layer) -> Iterator[list[str]]:
    """Yields a list that holds the names of the layers being computed, the innermost last."""
    inside: list[str] = []
    hooks = []
    for name, layer in network.named_sublayers():
        hooks.append(layer.register_forward_pre_hook(lambda *_, name=name: inside.append(name)))
        hooks.append(layer.register_forward_post_hook(lambda *_: inside.pop() and None))
    with hooked(hooks):
        yield inside


def _is_finite(tensor: paddle.Tensor) -> bool:
    return bool(paddle.isfinite(tensor.astype("float32")).all())


def _names(names: Sequence[str]) -> str:
    return f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
