"""Predictions come back in the order of the examples, however they were batched."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from queue import Queue
from types import SimpleNamespace

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.data.readers.row import BadRow
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.data.text.encoder import Encoding
from nlpctl.engines import pipeline as pipelines
from nlpctl.engines.engine import DygraphPredictor, Streams
from nlpctl.engines.pipeline import PREFETCH_BATCHES, chunks, evaluation_pipeline, prediction_pipeline
from nlpctl.engines.trained import TrainedModel
from nlpctl.errors import RunFailed, UserError
from nlpctl.inference.divided_scores import DividedModel
from nlpctl.runtime.worker_pool import WorkerStats
from nlpctl.tasks.base import Task


class Lettered:
    """A collator of words: a token per letter, and the batch says how many each has."""

    def __init__(self, labels):
        self.labels = labels

    def encodings(self, words):
        return [Encoding([0] * len(word), [], truncated=len(word) > 6) for word in words]

    def arrays(self, words, encodings):
        assert [len(word) for word in words] == [len(encoding.input_ids) for encoding in encodings]
        return {"lengths": np.array([len(word) for word in words])} | self.labels


class Words:
    """A task whose examples are sentences, whose features are words, and whose network measures them."""

    label_names = ("labels",)
    masks_inputs = False

    def measured(self):
        return self

    def features(self, example, encoder):
        return example.split()

    def collator(self, encoder, *, labelled):
        return Lettered({"labels": 1} if labelled else {})

    def scored_outputs(self, run, batch):
        return Task.scored_outputs(self, run, batch)

    def predictions(self, outputs, parts):
        (lengths,) = outputs
        return [(part, int(length)) for part, length in zip(parts, lengths, strict=True)]


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


@pytest.fixture(params=[(0, 1), (0, 3), (pipelines.INLINE_MAX_ROWS, 1)], ids=["threads", "streams", "one thread"])
def either(request, monkeypatch):
    """The same for large batches, which are handed between threads, also several at a time, and for small ones."""
    alone, streams = request.param
    monkeypatch.setattr(pipelines, "INLINE_MAX_ROWS", alone)
    monkeypatch.setattr(pipelines, "BATCHES_BEFORE_STREAMS", 2)
    monkeypatch.setattr(Lengths, "streams", Streams(streams, nullcontext()), raising=False)


@pytest.mark.parametrize("pipeline", [prediction_pipeline, evaluation_pipeline])
def test_predictions_come_in_the_order_of_the_examples(pipeline):
    predictor = Lengths()
    found = pipeline(Words(), None, predictor).predictions(SENTENCES, 3)
    assert found == [[(word, len(word)) for word in sentence.split()] for sentence in SENTENCES]
    lengths = sorted(len(word) for sentence in SENTENCES for word in sentence.split())
    assert sum(reversed(predictor.batches), []) == lengths  # batches hold parts of similar length, the longest first
    assert [len(batch) for batch in predictor.batches] == [2, 3, 3]


def test_what_the_task_hides_is_hidden_before_scoring():
    class Hiding(Words):
        masks_inputs = True

        def apply_mask(self, batch, generator):
            assert generator is None and "labels" in batch  # an evaluation: the masks depend on the row alone
            return batch | {"lengths": batch["lengths"] * 0}

    found = evaluation_pipeline(Hiding(), None, Lengths()).predictions(["a bb"], 2)
    assert found == [[("a", 0), ("bb", 0)]]


def test_chunks_of_a_stream():
    taken = []
    stream = (taken.append(i) or i for i in range(7))
    cut = chunks(stream, 3)
    assert next(cut) == [0, 1, 2] and taken == [0, 1, 2]  # no further than needed
    assert list(cut) == [[3, 4, 5], [6]]
    assert list(chunks([], 3)) == []


def test_chunks_of_long_texts_end_sooner(monkeypatch):
    monkeypatch.setattr(pipelines, "LONGEST_CHUNK", 10)
    rows = [TextExample(text, None, None) for text in ("a" * 11, "b" * 4, "c" * 5, "d", "e", "f", "g")]
    cut = [[row.text[0] for row in chunk] for chunk in pipelines.chunks_to_answer(rows, 3)]
    assert cut == [["a"], ["b", "c"], ["d", "e", "f"], ["g"]]  # the multiples of 3 are ends
    pairs = [(row, {}) for row in rows[:2]]
    assert list(pipelines.chunks_to_answer(pairs, 3)) == [pairs[:1], pairs[1:]]
    assert list(pipelines.chunks_to_answer([], 3)) == []


@pytest.mark.parametrize("method", ["encodings", "arrays"])
@pytest.mark.parametrize(
    ("error", "told"), [(UserError("a broken row"), UserError), (ValueError("a broken row"), RunFailed)]
)
def test_a_failure_while_a_batch_is_made_is_told(method, error, told, monkeypatch):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(Lettered, method, fail)
    pipeline = prediction_pipeline(Words(), None, Lengths())
    with pytest.raises(told, match="a broken row"):
        pipeline.predictions(SENTENCES, 2)
    with pytest.raises(told, match="a broken row"):
        list(pipeline.stream(chunks(SENTENCES, 3), 2, joined))


def joined(rows, predictions):
    """The rows of a chunk with the predictions of the good ones."""
    found = iter(predictions)
    return [(row, None if isinstance(row, BadRow) else next(found)) for row in rows]


def test_a_stream_answers_as_predictions_do_and_leaves_bad_rows_out(either):
    rows = [f"{'a' * (i % 7 + 1)} {'b' * (i % 3)} c" for i in range(50)]
    rows[3] = rows[17] = BadRow("file", 3, "blank text")
    rows[20:30] = [BadRow("file", 20, "blank text")] * 10  # a whole chunk of them
    streaming, alone = Lengths(), Lengths()
    found = list(prediction_pipeline(Words(), None, streaming).stream(chunks(rows, 10), 4, joined))
    pipeline = prediction_pipeline(Words(), None, alone)
    assert found == [joined(chunk, pipeline.predictions(chunk, 4)) for chunk in chunks(rows, 10)]
    assert [row for chunk in found for row, _ in chunk] == rows
    in_order = list if Lengths.streams.count == 1 else sorted  # threads note their batches when they come to it
    assert in_order(streaming.batches) == in_order(alone.batches)


class Crew:
    """Workers in this process that score `Words`: what `DividedModel` needs of a crew."""

    def __init__(self, size):
        self.stats = [WorkerStats(number) for number in range(size)]
        self.engines = [Lengths() for _ in range(size)]

    def results(self, jobs):
        for number, (job, *arguments, _) in enumerate(jobs):
            worker = number % len(self.stats)
            model = TrainedModel(Words(), None, self.engines[worker])
            desk = SimpleNamespace(_opened=lambda *_, model=model: model, _order=SimpleNamespace(batch_size=4))
            yield number, job(desk, *arguments, ("test", "fp32")), worker


@pytest.mark.parametrize("workers", [1, 3, 40])
@pytest.mark.parametrize("chunk", [16, 1000])
def test_divided_batches_are_those_of_one_process(either, workers, chunk, monkeypatch):
    """No worker gets, and none tokenises, more than it computes; before that, one of them has measured each row."""
    monkeypatch.setattr(pipelines, "CHUNK", chunk)
    encodings, seen = Lettered.encodings, []
    monkeypatch.setattr(Lettered, "encodings", lambda self, words: seen.extend(words) or encodings(self, words))
    rows = [f"{'a' * (i % 7 + 1)} {'b' * (i % 3)} c" for i in range(50)]
    whole, crew = Lengths(), Crew(workers)
    expected = TrainedModel(Words(), None, whole).predictions(rows, 4)
    once = sorted(seen)
    seen.clear()
    divided = DividedModel(Words(), None, "test", "fp32", crew).predictions(rows, 4)
    assert divided == expected
    assert divided.truncated == expected.truncated == {i for i in range(50) if i % 7 == 6}
    assert sorted(seen) == sorted(once * (1 if (workers, chunk) == (1, 16) else 2))
    batches = [batch for engine in crew.engines for batch in engine.batches]
    assert sorted(map(str, batches)) == sorted(map(str, whole.batches))
    assert sum(share.rows for share in crew.stats) == 50


def test_reading_goes_on_while_the_engine_works_but_not_for_ever(monkeypatch):
    monkeypatch.setattr(pipelines, "INLINE_MAX_ROWS", 0)
    read, allowed = [], []

    def rows():
        for i in range(100_000):
            read.append(i)
            yield "a bb"

    class Waiting(Lengths):
        """An engine whose first batch ends when the reader has stopped."""

        def outputs(self, batch):
            while not allowed and (len(read) < 20 or len(read) > seen[-1]):
                seen.append(len(read))
                time.sleep(0.05)
            allowed.append(len(read))
            return super().outputs(batch)

    seen = [0]
    parts = prediction_pipeline(Words(), None, Waiting()).stream(chunks(rows(), 2), 4, joined)
    next(parts)
    assert 20 <= allowed[0] <= 2 * (PREFETCH_BATCHES + 3)
    parts.close()
    time.sleep(0.05)
    last = len(read)
    time.sleep(0.1)
    assert last == len(read) < 1000  # closing stops the reader


def test_small_batches_stay_in_one_thread():
    threads = set()

    class Noting(Words):
        def features(self, example, encoder):
            threads.add(threading.current_thread())
            return super().features(example, encoder)

        def predictions(self, outputs, parts):
            threads.add(threading.current_thread())
            return super().predictions(outputs, parts)

    for size in (1, pipelines.INLINE_MAX_ROWS):
        assert (
            len(list(prediction_pipeline(Noting(), None, Lengths()).stream(chunks(SENTENCES, 2), size, joined))) == 3
        )
    assert threads == {threading.current_thread()}
    list(
        prediction_pipeline(Noting(), None, Lengths()).stream(
            chunks(SENTENCES, 2), pipelines.INLINE_MAX_ROWS + 1, joined
        )
    )
    assert len(threads) == 3


def test_streams_compute_side_by_side_while_they_are_open(monkeypatch):
    """After the first chunk, each batch waits until another one is computed, too."""
    meeting, opened, early = threading.Barrier(2, timeout=60), [], []
    prepared = threading.Event()

    @contextmanager
    def noted():
        opened.append(True)
        yield
        opened.append(False)

    class Meeting(Lengths):
        streams = Streams(2, noted())

        def outputs(self, batch):
            if not opened:
                prepared.wait(60)  # else a batch that waits for another one might be waited for alone
                early.append(threading.current_thread())
            else:
                assert opened == [True]
                meeting.wait()
            return super().outputs(batch)

    rows = [f"{'a' * (i % 5 + 1)} b" for i in range(60)]

    def read():
        yield from rows
        prepared.set()  # the batches of these rows are in the queue

    monkeypatch.setattr(pipelines, "BATCHES_BEFORE_STREAMS", 4)  # the batches of the first chunk
    found = list(prediction_pipeline(Words(), None, Meeting()).stream(chunks(read(), 20), 10, joined))
    assert opened == [True, False] and early == [threading.current_thread()] * 4
    assert [row for part in found for row, _ in part] == rows
    assert all(found == [(word, len(word)) for word in row.split()] for part in found for row, found in part)


@pytest.mark.parametrize("place", ["read", "engine", "read back", "finish"])
def test_what_fails_is_raised_in_its_place(place, either):
    """The chunks before it come first; those after it never."""
    bad = "w35-of-many-letters"

    def rows():
        for i in range(60):
            if place == "read" and i == 35:
                raise UserError("broken")
            yield bad if i == 35 else f"w{i}"

    class Breaking(Lengths):
        def outputs(self, batch):
            if place == "engine" and batch["lengths"].max() > 3:
                raise UserError("broken")
            return super().outputs(batch)

    class Reading(Words):
        def predictions(self, outputs, parts):
            if place == "read back" and bad in parts:
                raise UserError("broken")
            return super().predictions(outputs, parts)

    def finish(chunk, predictions):
        if place == "finish" and bad in chunk:
            raise UserError("broken")
        return joined(chunk, predictions)

    found = []
    with pytest.raises(UserError, match="broken"):
        for part in prediction_pipeline(Reading(), None, Breaking()).stream(chunks(rows(), 10), 5, finish):
            found += part
    assert [row for row, _ in found] == [f"w{i}" for i in range(30)]


def test_what_is_answered_is_not_held_back_while_the_input_pauses(either):
    waiting = Queue()

    def rows():
        while (row := waiting.get()) is not None:
            yield row

    waiting.put("a")
    waiting.put("bb")
    parts = prediction_pipeline(Words(), None, Lengths()).stream(chunks(rows(), 1), 1, joined)
    assert next(parts) == [("a", [("a", 1)])]
    assert next(parts) == [("bb", [("bb", 2)])]
    waiting.put(None)
    assert list(parts) == []


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


@pytest.mark.parametrize("outputs", [[np.array([[1.0, np.nan]])], [np.array([1]), np.array([-np.inf, np.inf])]])
def test_a_network_without_numbers_has_no_answers(outputs):
    with pytest.raises(RunFailed, match="the network answers NaN or infinity: numbers are too large"):
        pipelines.refuse_overflow(outputs)


def test_what_cannot_be_and_large_numbers_are_no_overflow():
    pipelines.refuse_overflow([np.array([1.0, -np.inf]), np.full(9, 3e38, np.float32), np.array(["text"])])


@pytest.mark.parametrize("size", [2, pipelines.INLINE_MAX_ROWS + 1])
def test_batches_are_worth_their_tokens_with_padding(size):
    """Two batches or more of a feature each: 12 or 120 letters, padded to the longest of their batch."""
    examples = ["a" * 120, *("b" * 12 for _ in range(3 * size - 1))]
    heard: list[tuple[int, float]] = []
    pipeline = prediction_pipeline(Words(), None, Lengths())
    pipeline = replace(pipeline, done=lambda rows, worth: heard.append((rows, worth)))
    list(pipeline.stream([examples], size, lambda _, predictions: predictions))
    assert heard == [(size, pytest.approx(size * 3 * share)) for share in (10 / 12, 1 / 12, 1 / 12)]
    pipeline.predictions(examples, size)
    assert heard[3:] == heard[:3]
    assert pipelines.tokens_of_batches([2, 3, 7, 1, 0], 2) == [6, 14, 1]

