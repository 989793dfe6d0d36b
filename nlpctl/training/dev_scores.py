"""Scores of the dev data while training, shared between the processes of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from nlpctl.data.collate import Batch
from nlpctl.data.text_encoder import TextEncoder
from nlpctl.inference.pipeline import Pipeline
from nlpctl.tasks.base import Task, as_tuple
from nlpctl.training.own_metrics import OwnMetrics
from nlpctl.training.user_loss import Loss


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
        metrics: OwnMetrics | None,
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

    def of_all(
        self, examples: Sequence[Any], batch_size: int
    ) -> tuple[list[list[Any]], float, dict[str, float]]:
        """Predictions of every example, in order, the mean loss over the rows, and the scores of `metrics`.

        The same on every process.
        """
        was_training = self.network.training
        self.network.eval()
        rank, world = paddle.distributed.get_rank(), paddle.distributed.get_world_size()
        if self.alone:
            rank, world = 0, 1
        self._loss, self._rows = 0.0, 0
        seen: dict[Any, Any] = {}
        watch = None if self.metrics is None else lambda *step: seen.update(self.metrics.rows(*step))
        # Every world-th example: shares of equal size and mixed length, put back by the same stride below.
        mine = self.pipeline.predictions(examples[rank::world], batch_size, watch)
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
    shown = task.hide(batch, None) if task.hides else batch
    tensors = {name: paddle.to_tensor(array) for name, array in shown.items()}
    labels = {name: tensors.pop(name) for name in task.label_names}
    outputs = as_tuple(network(**tensors))
    return outputs, float(loss(network, outputs, labels))
