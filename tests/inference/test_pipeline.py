"""Predictions come back in the order of the examples, however they were batched."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.data.collate import LoaderFailure, failure_batch
from nlpctl.errors import UserError
from nlpctl.inference.engine import DygraphPredictor
from nlpctl.inference.pipeline import answering, scoring, windows
from nlpctl.tasks.base import Task


class Part(str):
    @property
    def byte_length(self):
        return len(self)


class Words:
    """A task whose examples are sentences, whose features are words, and whose network measures them."""

    label_names = ("labels",)
    hides = False

    def features(self, example, encoder):
        return [Part(word) for word in example.split()]

    def collator(self, encoder, *, labelled):
        labels = {"labels": 1} if labelled else {}
        return lambda parts: {"lengths": np.array([len(part) for part in parts])} | labels

    def scored_outputs(self, run, batch):
        return Task.scored_outputs(self, run, batch)

    def predictions(self, outputs, parts):
        (lengths,) = outputs
        return [(str(part), int(length)) for part, length in zip(parts, lengths, strict=True)]


class Lengths:
    """A predictor that returns what it is given, and keeps the batches it saw."""

    engine = "test"
    precision = "fp32"

    def __init__(self):
        self.batches: list[list[int]] = []

    def outputs(self, batch):
        assert list(batch) == ["lengths"]  # labels are not for the network
        self.batches.append(batch["lengths"].tolist())
        return (batch["lengths"],)


SENTENCES = ["a bbbb", "ccc", "", "dd eeeee f", "ggg hhhhhhh"]


@pytest.mark.parametrize("pipeline", [answering, scoring])
def test_predictions_come_in_the_order_of_the_examples(pipeline):
    predictor = Lengths()
    found = pipeline(Words(), None, predictor).predictions(SENTENCES, 3)
    assert found == [[(word, len(word)) for word in sentence.split()] for sentence in SENTENCES]
    lengths = sorted(len(word) for sentence in SENTENCES for word in sentence.split())
    assert sum(predictor.batches, []) == lengths  # batches hold parts of similar length
    assert [len(batch) for batch in predictor.batches] == [3, 3, 2]


def test_what_the_task_hides_is_hidden_before_scoring():
    class Hiding(Words):
        hides = True

        def hide(self, batch, generator):
            assert generator is None and "labels" in batch  # an evaluation: the masks depend on the row alone
            return batch | {"lengths": batch["lengths"] * 0}

    found = scoring(Hiding(), None, Lengths()).predictions(["a bb"], 2)
    assert found == [[("a", 0), ("bb", 0)]]


def test_windows_of_a_stream():
    taken = []
    stream = (taken.append(i) or i for i in range(7))
    cut = windows(stream, 3)
    assert next(cut) == [0, 1, 2] and taken == [0, 1, 2]  # no further than needed
    assert list(cut) == [[3, 4, 5], [6]]
    assert list(windows([], 3)) == []


def test_a_failure_while_collating_is_raised():
    broken = failure_batch(LoaderFailure.of(UserError("a broken row")))
    pipeline = dataclasses.replace(answering(Words(), None, Lengths()), collate=lambda _: broken)
    with pytest.raises(UserError, match="a broken row"):
        pipeline.predictions(SENTENCES, 2)


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
    (first,), (second,) = predictor.outputs(batch), predictor.outputs(batch)
    assert isinstance(first, np.ndarray) and first.shape == (4, 2) and (first == second).all()
    assert (first == first[0]).all() and not network.training  # dropout is off
