"""The data of a training run: label set, training, dev and test examples, checked before Paddle is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nlpctl.data.changed_rows import rows_before_and_after
from nlpctl.data.near_duplicates import row_key
from nlpctl.data.open_split import has_split, open_split
from nlpctl.data.readers.row import BadRow, Row, RowSource, missing_key, place
from nlpctl.data.rows.examples import (
    BadRowLog,
    ExampleList,
    ExampleReader,
    good_rows,
    iter_examples,
    load_examples,
    scan_examples,
)
from nlpctl.data.rows.labels import LabelSet, given_labels
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.errors import UserError
from nlpctl.names import listed


@dataclass(frozen=True)
class TrainingData:
    """The data of a training run. `train` is None when streaming; `source` and `reader` then yield the rows again.
    It is None, too, where a model is trained already.

    `streamed`: the number of rows of `source` when streaming, bad rows included.
    """

    labels: LabelSet
    rows: TaskRows
    source: RowSource
    reader: ExampleReader
    train: ExampleList | None
    dev: ExampleList | None
    test: ExampleList | None
    files: tuple[Path, ...]
    skipped: dict[str, Any]  # bad rows per split, for the manifest
    streamed: int | None = None
    groups: Mapping[str, list[Any]] = field(default_factory=dict)  # data.columns.group, for dev and test

    def texts(self) -> Iterator[str]:
        """All training text, for building a vocabulary."""
        for example in self.training_examples():
            yield from self.rows.texts(example)

    def training_examples(self) -> Iterator[Any]:
        """All training examples, read anew when streaming."""
        yield from iter_examples(self.source, self.reader, BadRowLog("skip")) if self.train is None else self.train


def read_training_data(rows: TaskRows, trained: LabelSet | None = None) -> TrainingData:
    """Read and check all splits. UserError: bad rows (by data.on_bad_row), unknown labels, missing files.

    `trained`: the labels of a model that is trained already, which is to be scored: its training rows, which may have
    changed since, are not read.
    """
    data = rows.data
    source = open_split(rows, "train")
    labels = resolve_labels(rows, source) if trained is None else trained
    reader = ExampleReader(rows, labels)
    log = BadRowLog(data.on_bad_row)
    train, streamed = None, None
    # Streaming reads the file once more during training; here it is only checked and counted.
    if trained is None and data.streaming:
        streamed = scan_examples(source, reader, log) + log.total
    elif trained is None:
        train = load_examples(source, reader, log)
        rows.check_training(train, labels, source.description)
    files, skipped = [*source.files], {"train": log.summary()}
    others: dict[str, ExampleList | None] = {}
    # A label file is an input like the data: the manifest records its checksum.
    files += [Path(labels) for labels in (data.labels, data.numbered_labels) if isinstance(labels, str)]
    groups: dict[str, list[Any]] = {}
    for split in ("dev", "test"):
        others[split] = None
        if has_split(data, split):
            examples, split_files, summary = read_labelled_split(rows, split, labels)
            others[split], skipped[split] = examples, summary
            files += split_files
            values = groups_of(rows, split, labels, len(examples))
            if values is not None:
                groups[split] = values
    dev, test = others["dev"], others["test"]
    return TrainingData(labels, rows, source, reader, train, dev, test, tuple(files), skipped, streamed, groups)


def resolve_labels(rows: TaskRows, source: RowSource) -> LabelSet:
    """data.labels, else the data set's own, else collected from `source`; empty for a task without labels."""
    if not rows.labelled:
        return LabelSet(())
    labels = given_labels(rows.data)
    if labels is None and source.label_names is not None:
        labels = LabelSet.from_list(source.label_names, where=source.description)
    if labels is None:
        try:
            labels = rows.collect_labels(source)
        except UserError:
            # Bad rows explain why labels are missing, a wrong encoding for one: tell of them first.
            scan_examples(source, ExampleReader(rows, None), BadRowLog(rows.data.on_bad_row))
            raise
    return rows.prepare_labels(labels)


def read_labelled_split(
    rows: TaskRows, split: str, labels: LabelSet
) -> tuple[ExampleList, tuple[Path, ...], dict[str, Any]]:
    """One labelled split in memory: its examples, the files it came from, and the summary of its bad rows."""
    source = open_split(rows, split)
    log = BadRowLog(rows.data.on_bad_row)
    examples = load_examples(source, ExampleReader(rows, labels), log)
    return examples, source.files, log.summary()


def column_values(rows: TaskRows, split: str, labels: LabelSet, column: str, count: int, key: str) -> list[Any]:
    """Another column of the rows that `read_labelled_split` gave `count` examples of, read once more.

    UserError at `key`, which names the column: a row has no such column, or the files have changed since.
    """
    values = values_of(open_split(rows, split), ExampleReader(rows, labels), column, key)
    if len(values) != count:
        raise UserError(f"the {split} data changed while it was scored", key, "run the command again")
    return values


def values_of(source: RowSource, reader: ExampleReader, column: str, key: str) -> list[Any]:
    """The values of `column` in the good rows of `source`. UserError at `key`: one has no such column."""
    values = []
    for row, _ in good_rows(source, reader, BadRowLog("skip")):
        if column not in row.values:
            hint = f"this row has {listed(row.values)}"
            raise UserError(f"{place(row.source, row.line)} has no column {column!r}", key, hint)
        values.append(row.values[column])
    return values


def groups_of(rows: TaskRows, split: str, labels: LabelSet, count: int) -> list[Any] | None:
    """The column data.columns.group of a split's `count` examples; None if the recipe names none."""
    column = rows.data.columns.group
    return None if column is None else column_values(rows, split, labels, column, count, "data.columns.group")


def labelled_texts(rows: TaskRows, split: str) -> Iterator[Any]:
    """The examples of a split, without their labels. Rows that are bad, or whose column for the label is empty, have
    none.

    A row that data.map changes has two: unlabelled texts do not pass through it. UserError if the split cannot be read.
    """
    reader, source = ExampleReader(rows, None), open_split(rows, split)
    for given, row in rows_before_and_after(source):
        if row is None:
            continue
        example = reader.read(row)
        if isinstance(example, BadRow) or isinstance(row, BadRow):
            continue
        to_fill = [name for name, value in rows.columns_to_fill(example).items() if value is None]
        if any(row.values.get(name, True) in (None, "") for name in to_fill):
            continue
        yield example
        needed = rows.required(labelled=False)
        if isinstance(given, Row) and given is not row and missing_key(given.values, needed) is None:
            example = reader.read(given)
            if not isinstance(example, BadRow):
                yield example


def text_key(rows: TaskRows, example: Any) -> bytes:
    """Equal for examples with the same texts, whose label is the same."""
    return row_key(list(rows.passages(example).values()), ordered=not rows.symmetric)
