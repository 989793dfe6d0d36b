"""The data of a training run: label set, training, dev and test examples, checked before Paddle is imported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.config.schema import DataSection
from nlpctl.data.examples import (
    BadRowLog,
    ExampleList,
    ExampleReader,
    iter_examples,
    load_examples,
    require_two_labels,
    scan_examples,
)
from nlpctl.data.labels import LabelSet, resolve_labels
from nlpctl.data.sources import RowSource, has_split, open_split
from nlpctl.errors import UserError


@dataclass(frozen=True)
class TrainingData:
    """Everything a run reads. `train` is None when streaming: then `source` and `reader` give the rows anew."""

    labels: LabelSet
    source: RowSource
    reader: ExampleReader
    train: ExampleList | None
    dev: ExampleList | None
    test: ExampleList | None
    files: tuple[Path, ...]
    skipped: dict[str, Any]  # bad rows per split, for the manifest

    def texts(self) -> Iterator[str]:
        """All training text, for building a vocabulary."""
        examples = self.train if self.train is not None else iter_examples(self.source, self.reader, BadRowLog("skip"))
        for example in examples:
            yield example.text
            if example.text_pair is not None:
                yield example.text_pair


def read_training_data(data: DataSection) -> TrainingData:
    """Read and check all splits. UserError: bad rows (by data.on_bad_row), unknown labels, missing files."""
    source = open_split(data, "train")
    labels = _labels(data, source)
    reader = ExampleReader(data, labels, want_labels=True)
    log = BadRowLog(data.on_bad_row)
    if data.streaming:
        train = None
        scan_examples(source, reader, log)
    else:
        train = load_examples(source, reader, log)
        require_two_labels(train, labels, source.description)
    files, skipped, others = [*source.files], {"train": log.summary()}, {}
    if isinstance(data.labels, str):
        files.append(Path(data.labels))
    for split in ("dev", "test"):
        others[split] = None
        if has_split(data, split):
            examples, split_files, summary = read_labelled_split(data, split, labels)
            others[split], skipped[split] = examples, summary
            files += split_files
    return TrainingData(labels, source, reader, train, others["dev"], others["test"], tuple(files), skipped)


def _labels(data: DataSection, source: RowSource) -> LabelSet:
    try:
        return resolve_labels(data, source)
    except UserError:
        # Bad rows explain why labels are missing, a wrong encoding for one: tell of them first.
        scan_examples(source, ExampleReader(data, None, want_labels=False), BadRowLog(data.on_bad_row))
        raise


def read_labelled_split(
    data: DataSection, split: str, labels: LabelSet
) -> tuple[ExampleList, tuple[Path, ...], dict[str, Any]]:
    """One labelled split in memory: its examples, the files it came from, and the summary of its bad rows."""
    source = open_split(data, split)
    log = BadRowLog(data.on_bad_row)
    examples = load_examples(source, ExampleReader(data, labels, want_labels=True), log)
    return examples, source.files, log.summary()
