"""Scores of the dev data while training, shared between the processes of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from nlpctl.data.tokenizers import TextEncoder
from nlpctl.inference.predictor import Pipeline
from nlpctl.tasks.base import Batch, Task, as_tuple


class DevScores:
    """Predictions and mean loss of a network that is being trained; it stays in training afterwards."""

    def __init__(self, task: Task, network: paddle.nn.Layer, encoder: TextEncoder):
        self.task = task
        self.network = network
        self.pipeline = Pipeline(task, encoder, task.collator(encoder, labelled=True), self._run)
        self._loss, self._rows = 0.0, 0

    def of_all(self, examples: Sequence[Any], batch_size: int) -> tuple[list[list[Any]], float]:
        """Predictions of every example, in order, and the mean loss over the rows, on every process alike."""
        was_training = self.network.training
        self.network.eval()
        rank, world = paddle.distributed.get_rank(), paddle.distributed.get_world_size()
        self._loss, self._rows = 0.0, 0
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

    @paddle.no_grad()
    def _run(self, batch: Batch) -> tuple[np.ndarray, ...]:
        """The outputs of a labelled batch; its loss is added up on the way."""
        shown = self.task.hide(batch, None) if self.task.hides else batch
        tensors = {name: paddle.to_tensor(array) for name, array in shown.items()}
        labels = {name: tensors.pop(name) for name in self.task.label_names}
        rows = len(next(iter(tensors.values())))
        outputs = as_tuple(self.network(**tensors))
        self._loss += float(self.task.loss(self.network, outputs, labels)) * rows
        self._rows += rows
        return tuple(output.numpy() for output in outputs)
