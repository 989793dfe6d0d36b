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


class DevScores:
    """Predictions and mean loss of a network during training; training mode is restored afterwards."""

    def __init__(self, task: Task, network: paddle.nn.Layer, encoder: TextEncoder):
        self.task = task
        self.network = network
        self.pipeline = Pipeline(task, encoder, task.collator(encoder, labelled=True), self._run)
        self._loss, self._rows = 0.0, 0

    def of_all(self, examples: Sequence[Any], batch_size: int) -> tuple[list[list[Any]], float]:
        """Predictions of every example, in order, and the mean loss over the rows, the same on every process."""
        was_training = self.network.training
        self.network.eval()
        rank, world = paddle.distributed.get_rank(), paddle.distributed.get_world_size()
        self._loss, self._rows = 0.0, 0
        # Every world-th example: shares of equal size and mixed length, put back by the same stride below.
        mine = self.pipeline.predictions(examples[rank::world], batch_size)
        if was_training:
            self.network.train()
        shares: list[Any] = [(mine, self._loss, self._rows)]
        if world > 1:
            shares = []
            paddle.distributed.all_gather_object(shares, (mine, self._loss, self._rows))
        predictions: list[Any] = [None] * len(examples)
        for place, (share, _, _) in enumerate(shares):
            predictions[place::world] = share
        loss, rows = (sum(share[i] for share in shares) for i in (1, 2))
        return predictions, loss / rows

    def _run(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """The outputs of a labelled batch; also adds its loss to the sum."""
        outputs, loss = outputs_and_loss(self.task, self.network, batch)
        rows = len(next(iter(batch.values())))
        self._loss += loss * rows
        self._rows += rows
        return tuple(output.numpy() for output in outputs)


@paddle.no_grad()
def outputs_and_loss(task: Task, network: paddle.nn.Layer, batch: Batch) -> tuple[tuple[paddle.Tensor, ...], float]:
    """The outputs and the loss of a labelled batch, masked as in evaluation if the task hides words."""
    shown = task.hide(batch, None) if task.hides else batch
    tensors = {name: paddle.to_tensor(array) for name, array in shown.items()}
    labels = {name: tensors.pop(name) for name in task.label_names}
    outputs = as_tuple(network(**tensors))
    return outputs, float(task.loss(network, outputs, labels))
