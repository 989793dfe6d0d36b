"""The endless stream: order, resume, ranks, workers, memory."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.schema import DataSection
from nlpctl.data.batches.batching import CheckedDataLoader
from nlpctl.data.batches.collate import Collator, LoaderFailure
from nlpctl.data.batches.streaming import StreamingExamples
from nlpctl.data.open_split import open_split
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.data.rows.examples import ExampleReader
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.text_rows import TextExample, TextRows
from nlpctl.data.text.encoder import Encoding
from nlpctl.errors import RunFailed

ROWS = 103


def one_feature(example):
    return (example,)


class Numbers:
    """Rows "0" to "102"; a bad row where `bad` says so."""

    description = "numbers"

    def __init__(self, bad: tuple[int, ...] = (), count: int = ROWS) -> None:
        self.bad = bad
        self.count = count

    def __iter__(self):
        for i in range(self.count):
            yield BadRow("numbers", i, "blank text") if i in self.bad else Row("n", i, {"text": str(i), "label": i % 2})


def stream(source=None, **options) -> StreamingExamples:
    defaults = {"batch_size": 4, "shuffle_buffer": 10, "seed": 3, "on_bad_row": "error", "fix": "do something"}
    options = {**defaults, **options}
    reader = ExampleReader(TextRows(DataSection()), LabelSet(("0", "1")))
    return StreamingExamples(source or Numbers(), reader, one_feature, **options)


def take(examples, count: int) -> list[int]:
    return [int(example.text) for example in itertools.islice(iter(examples), count)]


def test_epochs_follow_each_other_and_hold_every_row_once():
    order = take(stream(), 3 * ROWS)
    epochs = [order[i : i + ROWS] for i in range(0, len(order), ROWS)]
    assert all(sorted(epoch) == list(range(ROWS)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert take(stream(), 3 * ROWS) == order
    assert take(stream(seed=4), 3 * ROWS) != order


def test_shuffle_buffer():
    assert take(stream(shuffle_buffer=0), ROWS) == list(range(ROWS))
    assert take(stream(shuffle_buffer=1), ROWS) == list(range(ROWS))
    small = take(stream(shuffle_buffer=10), ROWS)
    assert small != list(range(ROWS)) and all(value < place + 10 for place, value in enumerate(small))
    large = take(stream(shuffle_buffer=1000), ROWS)
    assert sorted(large) == list(range(ROWS)) and sum(abs(v - p) for p, v in enumerate(large)) > ROWS * ROWS / 6


def test_examples_are_whole():
    example = next(iter(stream(shuffle_buffer=0)))
    assert example == TextExample("0", None, 0)


@pytest.mark.parametrize("start", [1, 20, 26, 100])
def test_resume_continues_where_it_stopped(start):
    everything = take(stream(), 600)
    resumed = stream()
    resumed.start_at(start)
    assert take(resumed, 600 - 4 * start) == everything[4 * start :]


def test_ranks_share_the_global_batches():
    whole = take(stream(batch_size=12), 600)
    parts = [take(stream(batch_size=4, world_size=3, rank=rank), 200) for rank in range(3)]
    for batch in range(50):
        shares = [part[4 * batch : 4 * batch + 4] for part in parts]
        assert sum(shares, []) == whole[12 * batch : 12 * batch + 12]


class Encoder:
    pad_id = 0
    pad_token_type_id = 0
    uses_token_types = False

    def encode(self, texts, pairs, max_length, tell_cut=True):
        return [Encoding([int(text)], []) for text in texts]


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("rank", [0, 1])
def test_worker_processes_keep_the_order(rank, start):
    """Nothing twice, nothing left out, batches in the same order as without workers."""
    orders = []
    for workers in (0, 2, 3):
        examples = stream(world_size=2, rank=rank)
        examples.start_at(start)
        loader = CheckedDataLoader(
            examples, batch_size=4, collate_fn=Collator(Encoder(), 8, with_labels=True), num_workers=workers
        )
        orders.append([batch["input_ids"].flatten().tolist() for batch in itertools.islice(loader, 40)])
    assert orders[0] == orders[1] == orders[2]
    alone = stream(batch_size=8)
    alone.start_at(start)
    numbers = take(alone, 320)
    assert orders[0] == [numbers[i + 4 * rank : i + 4 * rank + 4] for i in range(0, 320, 8)]


def test_bad_rows_skipped():
    order = take(stream(Numbers(bad=(0, 50)), on_bad_row="skip"), 2 * (ROWS - 2))
    assert sorted(order) == sorted(2 * [i for i in range(ROWS) if i not in (0, 50)])


def test_bad_row_under_error_ends_the_stream():
    *good, one, two, three, failure = stream(Numbers(bad=(50,)), shuffle_buffer=0)
    assert [example.text for example in good] == [str(i) for i in range(50)]
    assert isinstance(failure, LoaderFailure) and one == two == three == failure, "it must fill a batch of 4"
    with pytest.raises(RunFailed, match="numbers:50: blank text\n  -> do something"):
        raise failure.error()


def test_source_without_good_rows_does_not_spin():
    (failure, *_) = stream(Numbers(count=0))
    assert "no row is usable" in str(failure.error())
    (failure, *_) = stream(Numbers(bad=tuple(range(ROWS))), on_bad_row="skip")
    assert "no row is usable" in str(failure.error())


def test_file_that_vanishes(tmp_path: Path):
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\n1\t1\n2\t0\n")
    data = DataSection(train=(str(path),))
    source = open_split(TextRows(data), "train")
    assert sorted(take(stream(source), 2)) == [1, 2]
    path.unlink()
    (failure, *_) = stream(source)
    assert not failure.user and "cannot read the file" in str(failure.error())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [4, 1000])
def test_a_failure_gets_through_the_loader(workers, batch_size):
    """It drops a last batch that is not full, and the failure must not be in one."""
    examples = stream(Numbers(bad=(50,)), batch_size=batch_size)
    collator = Collator(Encoder(), 8, with_labels=True)
    loader = CheckedDataLoader(
        examples, batch_size=batch_size, collate_fn=collator, num_workers=workers, drop_last=True
    )
    with pytest.raises(RunFailed, match="numbers:50: blank text"):
        for _ in loader:
            pass


@pytest.mark.parametrize("count", [ROWS - 1, ROWS + 1])
def test_another_number_of_rows(count):
    """Bad rows count: one that became bad is left out, under "skip"."""
    assert len(take(stream(Numbers(bad=(5,)), rows=ROWS, on_bad_row="skip"), 500)) == 500
    *_, failure = stream(Numbers(count=count), rows=ROWS)
    assert f"numbers: {count} rows, but 103 when the run began" in str(failure.error())
