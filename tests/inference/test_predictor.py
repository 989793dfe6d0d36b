"""Rows are answered in their own order, whatever order they are computed in."""

from __future__ import annotations

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.data.collate import LoaderFailure, failure_batch
from nlpctl.data.examples import TextExample
from nlpctl.errors import UserError
from nlpctl.inference.predictor import DygraphPredictor, logits_in_order, windows


class Lengths:
    """Answers each row with its length, and notes the batches."""

    engine = "lengths"

    def __init__(self):
        self.batches = []

    def logits(self, batch):
        assert set(batch) == {"lengths"}, "labels are not the network's business"
        self.batches.append(batch["lengths"].tolist())
        return np.stack([batch["lengths"], -batch["lengths"]], axis=1).astype("float32")


def collate(examples):
    lengths = np.array([len(example.text) for example in examples])
    return {"lengths": lengths, "labels": np.zeros(len(examples), "int64")}


def examples(lengths: list[int]) -> list[TextExample]:
    return [TextExample("x" * length, None, None) for length in lengths]


def test_logits_come_in_the_order_of_the_rows():
    lengths = np.random.default_rng(0).integers(1, 50, 23).tolist()
    predictor = Lengths()
    logits = logits_in_order(predictor, collate, examples(lengths), 4)
    assert logits.tolist() == [[length, -length] for length in lengths]
    assert sum(predictor.batches, []) == sorted(lengths)  # batches hold rows of similar length
    assert [len(batch) for batch in predictor.batches] == [4, 4, 4, 4, 4, 3]


def test_windows_of_a_stream():
    taken = []
    stream = (taken.append(i) or i for i in range(7))
    cut = windows(stream, 3)
    assert next(cut) == [0, 1, 2] and taken == [0, 1, 2]  # no further than needed
    assert list(cut) == [[3, 4, 5], [6]]
    assert list(windows([], 3)) == []


def test_a_failure_while_collating_is_raised():
    broken = failure_batch(LoaderFailure.of(UserError("a broken row")))
    with pytest.raises(UserError, match="a broken row"):
        logits_in_order(Lengths(), lambda _: broken, examples([1, 2]), 2)


def test_the_network_is_put_into_evaluation_without_gradients():
    import paddle

    class Network(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.linear, self.dropout = paddle.nn.Linear(3, 2), paddle.nn.Dropout(0.5)

        def forward(self, features):
            return self.dropout(self.linear(features))

    network = Network()
    predictor = DygraphPredictor(network)
    batch = {"features": np.ones((4, 3), "float32")}
    first, second = predictor.logits(batch), predictor.logits(batch)
    assert isinstance(first, np.ndarray) and first.shape == (4, 2) and (first == second).all()
    assert (first == first[0]).all() and not network.training  # dropout is off
