"""Where the rows of a batch stand, found by reading the source again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.schema import DataSection
from nlpctl.data.batches.batching import LengthGroupedBatchSampler
from nlpctl.data.batches.streaming import StreamingExamples
from nlpctl.data.open_split import open_files
from nlpctl.data.rows.examples import BadRowLog, ExampleReader, FeatureList, load_examples, places
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.text_rows import TextExample, TextRows

# Line 4 has no label of the set; lines 3 and 6 are the same row.
FIRST = "text\tlabel\na b\tpos\nsame\tneg\nc\tother\nd e f\tpos\nsame\tneg\n"
SECOND = "text\tlabel\ng\tpos\nhh\tneg\nsame\tpos\n"


@pytest.fixture
def source(tmp_path: Path):
    (tmp_path / "one.tsv").write_text(FIRST)
    (tmp_path / "two.tsv").write_text(SECOND)
    rows = TextRows(DataSection())
    return open_files(rows, [tmp_path / "one.tsv", tmp_path / "two.tsv"], ("text", "label"), "data.train")


@pytest.fixture
def reader() -> ExampleReader:
    return ExampleReader(TextRows(DataSection()), LabelSet(("neg", "pos")))


def short(where: str | None) -> str | None:
    return where and where.rpartition("/")[2]


def test_every_row_where_it_stands(source, reader):
    examples = load_examples(source, reader, BadRowLog("skip"))
    assert [short(each) for each in places(source, reader, examples)] == [
        "one.tsv:2", "one.tsv:3", "one.tsv:5", "one.tsv:6", "two.tsv:2", "two.tsv:3", "two.tsv:4"
    ]  # fmt: skip
    chosen = [examples[4], examples[2]]
    assert [short(each) for each in places(source, reader, chosen)] == ["two.tsv:2", "one.tsv:5"]


def test_rows_drawn_more_often_than_they_stand_there(source, reader):
    same, other = TextExample("same", None, 0), TextExample("hh", None, 0)
    found = [short(each) for each in places(source, reader, [other, same, same, same, other])]
    assert found == ["two.tsv:3", "one.tsv:3", "one.tsv:6", "one.tsv:3", "two.tsv:3"]


def test_a_row_that_is_gone(source, reader):
    assert places(source, reader, [TextExample("gone", None, 0)]) == [None]


def test_features_know_their_examples():
    examples = ["abc", "", "de"]
    features = FeatureList(examples, tuple)
    assert list(features) == ["a", "b", "c", "d", "e"]
    assert [features.owner(i) for i in range(5)] == ["abc", "abc", "abc", "de", "de"]


@pytest.mark.parametrize(("accumulation", "rank"), [(1, 0), (2, 0), (2, 1)])
def test_the_parts_of_an_update_are_those_that_were_trained(accumulation, rank):
    lengths = np.random.default_rng(3).integers(1, 99, 61)
    ranks = rank + 1
    sampler = LengthGroupedBatchSampler(
        lengths, 4, accumulation_steps=accumulation, num_replicas=ranks, rank=rank, seed=5
    )
    seen = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        seen += list(sampler)
    assert sampler.updates * 3 * accumulation == len(seen)
    found = [part for update in range(sampler.updates * 3) for part in sampler.parts_of(update)]
    assert found == seen and sampler.epoch == 2


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stream_read_again(source, reader, rank):
    """Two features per row, so that a batch begins within one; 6 good rows are read for the second time in batch 3."""
    stream = StreamingExamples(
        source,
        reader,
        features=lambda example: (f"{example.text}/1", f"{example.text}/2"),
        batch_size=2,
        shuffle_buffer=3,
        seed=1,
        on_bad_row="skip",
        world_size=2,
        rank=rank,
    )
    features = iter(stream)
    seen = [[next(features), next(features)] for _ in range(8)]
    found = stream.placed(3, 4)
    assert [[placed.item for placed in batch] for batch in found] == seen[3:7]
    text = {"one.tsv": FIRST.splitlines(), "two.tsv": SECOND.splitlines()}
    for placed in (placed for batch in found for placed in batch):
        name, line = short(placed.where).split(":")
        assert text[name][int(line) - 1].partition("\t")[0] == placed.item.partition("/")[0]
    assert next(features) is not None  # the stream itself goes on
