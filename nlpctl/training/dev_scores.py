"""Scores of the dev data while training: the task's and the user's own, shared between the processes of a run.

On a CPU they are computed as the training computes, with training.bf16 in bfloat16 (training/fast_cpu.py); the final
scores in 32 bits by Paddle's own functions (training/final_scores.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import paddle
from paddlenlp.trainer.trainer_utils import EvalPrediction

from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import task_info
from nlpctl.config.user_code import import_code, kind_of_code, user_code_blamed
from nlpctl.data.batches.collate import Batch
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.engines.pipeline import FeatureIndex, Pipeline
from nlpctl.errors import UserError
from nlpctl.tasks.base import Task, as_tuple
from nlpctl.training.user_loss import Loss, criterion_labels, plain

METRICS, PREPARE = kind_of_code("training.compute_metrics"), kind_of_code("training.preprocess_logits_for_metrics")
PADDING = -100  # fills rows of different lengths, in outputs and labels, as in PaddleNLP's Trainer

# The outputs and labels of each feature.
Rows = dict[FeatureIndex, tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]]


class UserMetrics:
    """Scores of the user's own: compute_metrics of a recipe, called as PaddleNLP's Trainer calls it, with
    preprocess_logits_for_metrics if it names one."""

    def __init__(self, recipe: Recipe, task: Task):
        """UserError if a function cannot be imported or takes other arguments."""
        assert recipe.training.compute_metrics is not None
        self.recipe, self.task, self.name = recipe, task, recipe.training.compute_metrics
        self._compute = import_code(METRICS, self.name)
        prepare = recipe.training.preprocess_logits_for_metrics
        self._prepare = None if prepare is None else import_code(PREPARE, prepare)

    def rows(self, places: Sequence[FeatureIndex], batch: Batch, outputs: Sequence[np.ndarray]) -> Rows:
        """The rows of a labelled batch, without those of its outputs that compute_metrics is not to get."""
        masked = self.task.apply_mask(batch, None) if self.task.masks_inputs else batch
        labels = [np.asarray(masked[name]) for name in criterion_labels(self.task)]
        kept = list(outputs) if self._prepare is None else self._prepared(outputs, labels)
        return {
            place: (tuple(each[i] for each in kept), tuple(each[i] for each in labels))
            for i, place in enumerate(places)
        }

    def _prepared(self, outputs: Sequence[np.ndarray], labels: Sequence[np.ndarray]) -> list[np.ndarray]:
        assert self._prepare is not None
        name, count = self.recipe.training.preprocess_logits_for_metrics, len(outputs[0])
        with user_code_blamed(self.recipe), paddle.no_grad():
            prepared = self._prepare(plain(_tensors(outputs)), plain(_tensors(labels)))
        arrays = [np.asarray(each) for each in (prepared if isinstance(prepared, tuple | list) else (prepared,))]
        for array in arrays:
            if array.dtype == object or array.ndim == 0 or len(array) != count:
                message = f"{name} returned {_shape(array)} for a batch of {count} rows"
                raise UserError(message, PREPARE.key, "return a tensor, or a tuple of them, with an entry per row")
        return arrays

    def scores(self, rows: Rows) -> dict[str, float]:
        """What compute_metrics makes of all rows, in the order of the data. UserError: it fails, or returns no dict of
        numbers."""
        ordered = [rows[place] for place in sorted(rows)]
        sides = zip(*ordered, strict=True)  # outputs and labels
        outputs, labels = ([_stacked(column) for column in zip(*side, strict=True)] for side in sides)
        with user_code_blamed(self.recipe):
            result = self._compute(EvalPrediction(predictions=plain(outputs), label_ids=plain(labels)))
        if not isinstance(result, Mapping) or not all(_is_number(value) for value in result.values()):
            message = f"{self.name} returned {result!r}"[:200]
            raise UserError(message, METRICS.key, "return a dict of names and numbers, such as {'f1': 0.9}")
        scores = {str(name).removeprefix("eval_"): float(value) for name, value in result.items()}
        watched = (self.recipe.training.metric_for_best_model or "loss").removeprefix("eval_")
        if watched not in scores and watched not in (*task_info(self.task.name).metrics, "loss"):
            message = f"{self.name} returned {', '.join(scores) or 'nothing'}, but metric_for_best_model is {watched}"
            raise UserError(message, METRICS.key, f"return {watched} too, or watch another score")
        return scores


def _stacked(rows: Sequence[np.ndarray]) -> np.ndarray:
    """One array [rows, ...], filled up with PADDING where rows differ in length.

    Truth values and unsigned numbers, which cannot hold PADDING, then become int64.
    """
    sizes = {row.shape for row in rows}
    if len(sizes) == 1:
        return np.stack(rows)
    dtype = np.dtype(np.int64) if rows[0].dtype.kind in "bu" else rows[0].dtype
    array = np.full((len(rows), *np.max([*sizes], axis=0)), PADDING, dtype)
    for place, row in zip(array, rows, strict=True):
        place[tuple(slice(size) for size in row.shape)] = row
    return array


def _tensors(arrays: Sequence[np.ndarray]) -> list[paddle.Tensor]:
    return [paddle.to_tensor(array) for array in arrays]


def _shape(array: np.ndarray) -> str:
    return "no tensor" if array.dtype == object else f"shape {list(array.shape)}"


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, str)


class DevScores:
    """Predictions, mean loss and scores of one's own of a network during training.

    Training mode is restored afterwards.
    """

    def __init__(
        self,
        task: Task,
        network: paddle.nn.Layer,
        encoder: TextEncoder,
        loss: Loss,
        metrics: UserMetrics | None,
        alone: bool = False,
    ):
        """`loss`: as Task.loss. `alone`: in every process by itself, not shared between the processes."""
        self.task = task
        self.network = network
        self.loss = loss
        self.metrics = metrics
        self.alone = alone
        self.pipeline = Pipeline(task, encoder, task.collator(encoder, labelled=True), self._run)
        self._loss, self._rows = 0.0, 0

    def score(
        self, examples: Sequence[Any], batch_size: int, done: Callable[..., object] | None = None
    ) -> tuple[list[list[Any]], float, dict[str, float]]:
        """Predictions of every example, in order, the mean loss over the rows, and the scores of `metrics`.

        The same on every process. `done`: as of `Pipeline`, of the examples of this process.
        """
        was_training = self.network.training
        self.network.eval()
        rank, world = paddle.distributed.get_rank(), paddle.distributed.get_world_size()
        if self.alone:
            rank, world = 0, 1
        self._loss, self._rows = 0.0, 0
        seen: dict[Any, Any] = {}

        def watch(places: Sequence[FeatureIndex], batch: Batch, outputs: tuple[np.ndarray, ...]) -> None:
            if self.metrics is not None:
                seen.update(self.metrics.rows(places, batch, outputs))

        # Every world-th example: shares of equal size and mixed length, put back by the same stride below.
        mine = replace(self.pipeline, done=done).predictions(examples[rank::world], batch_size, watch)
        if was_training:
            self.network.train()
        shares: list[Any] = [(mine, self._loss, self._rows, seen)]
        if world > 1:
            shares = []
            paddle.distributed.all_gather_object(shares, (mine, self._loss, self._rows, seen))
        predictions: list[Any] = [None] * len(examples)
        for place, share in enumerate(shares):
            predictions[place::world] = share[0]
        loss, rows = (sum(share[i] for share in shares) for i in (1, 2))
        if self.metrics is None:
            return predictions, loss / rows, {}
        all_seen = {
            (owner * world + place, part): row
            for place, share in enumerate(shares)
            for (owner, part), row in share[3].items()
        }
        return predictions, loss / rows, self.metrics.scores(all_seen)

    def _run(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """The outputs of a labelled batch; also adds its loss to the sum."""
        outputs, loss = outputs_and_loss(self.task, self.network, batch, self.loss)
        rows = len(next(iter(batch.values())))
        self._loss += loss * rows
        self._rows += rows
        return tuple(output.numpy() for output in outputs)


@paddle.no_grad()
def outputs_and_loss(
    task: Task, network: paddle.nn.Layer, batch: Batch, loss: Loss
) -> tuple[tuple[paddle.Tensor, ...], float]:
    """The outputs and the loss of a labelled batch, masked as in evaluation if the task hides words."""
    masked = task.apply_mask(batch, None) if task.masks_inputs else batch
    tensors = {name: paddle.to_tensor(array) for name, array in masked.items()}
    labels = {name: tensors.pop(name) for name in task.label_names}
    outputs = as_tuple(network(**tensors))
    return outputs, float(loss(network, outputs, labels))
