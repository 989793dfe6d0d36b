"""A reader of tables (data.reader) with which rank 1 lacks memory in step 10, until batches have two rows at most."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator


def read(path: str) -> Iterator[dict[str, str]]:
    if os.environ.get("PADDLE_TRAINER_ID") == "1" and "train" in path:
        _limit()
    with open(path) as stream:
        yield from csv.DictReader(stream, delimiter="\t")


def _limit() -> None:
    from nlpctl.tasks.sequence_classification import SequenceClassification

    loss, calls = SequenceClassification.loss, []

    def limited(self, network, outputs, batch):
        calls.extend([1] * network.training)
        if len(calls) > 9 and batch["labels"].shape[0] > 2 and network.training:
            raise MemoryError("(ResourceExhausted) Out of memory error on GPU 1.")
        return loss(self, network, outputs, batch)

    SequenceClassification.loss = limited
