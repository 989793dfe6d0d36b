"""Rows to examples: the columns picked, the values checked, labels turned into ids; bad rows logged."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from nlpctl.config.schema import DataSection
from nlpctl.data.labels import LabelSet, label_name
from nlpctl.data.lines import NOT_UTF8
from nlpctl.data.row import BadRow, Row
from nlpctl.data.rows import wanted_columns
from nlpctl.data.sources import RowSource
from nlpctl.errors import Problem, UserError

SHOWN = 10  # bad rows that are listed


@dataclass(frozen=True, slots=True)
class TextExample:
    """A sentence or a pair of sentences; `label` is the id, None where labels are not wanted."""

    text: str
    text_pair: str | None
    label: int | None

    @property
    def byte_length(self) -> int:
        """Proportional to tokens, without tokenising: UTF-8 bytes of both texts.

        A Chinese character is 3 bytes and one token, an English word some 4 to 6 bytes and one token or a
        little more, so text of both kinds sorts fairly together.
        """
        return len(self.text.encode()) + (len(self.text_pair.encode()) if self.text_pair is not None else 0)


class ExampleReader:
    """Turns rows into examples by the recipe's column mapping."""

    def __init__(self, data: DataSection, labels: LabelSet | None, want_labels: bool) -> None:
        if want_labels and labels is None:
            raise ValueError("labels are wanted but no label set is given")
        self.columns = data.columns
        self.labels = labels
        self.want_labels = want_labels
        self.required = wanted_columns(data, want_labels)

    def read(self, row: Row | BadRow) -> TextExample | BadRow:
        """The example in `row`, or why there is none."""
        if isinstance(row, BadRow):
            return row
        try:
            text = _checked_text(row.values[self.columns.text], "text")
            pair = None
            if self.columns.text_pair is not None:
                pair = _checked_text(row.values[self.columns.text_pair], "second text")
            label = self._label_id(row.values[self.columns.label]) if self.want_labels else None
        except ValueError as error:
            return BadRow(row.source, row.line, str(error))
        return TextExample(text, pair, label)

    def _label_id(self, value: Any) -> int:
        name = label_name(value)
        if name in self.labels:
            return self.labels.id(name)
        guess = self.labels.nearest(name)
        known = f"did you mean {guess!r}?" if guess else f"known are {', '.join(self.labels.names[:SHOWN])}"
        raise ValueError(f"unknown label: {name!r}; {known}")


def _checked_text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} is not a string: got {type(value).__name__}")
    if not value or value.isspace():
        raise ValueError(f"blank {what}")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            # JSON can spell half of a surrogate pair; no tokenizer takes it.
            reason = f"half a surrogate pair, U+{ord(value[error.start]):04X}, at character {error.start + 1}"
            raise ValueError(f"{what} is not Unicode: {reason}") from None
    return value


class BadRowLog:
    """Counts bad rows and keeps the first ten. Under "error" the tenth, or the end of reading, stops the command."""

    def __init__(self, policy: Literal["error", "skip"]) -> None:
        self.policy = policy
        self.first: list[BadRow] = []
        self.kinds: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self.kinds.total()

    def add(self, row: BadRow) -> None:
        """Count `row`. UserError at the tenth where the policy is "error"."""
        self.kinds[row.kind] += 1
        if len(self.first) < SHOWN:
            self.first.append(row)
        if self.policy == "error" and self.total == SHOWN:
            self._stop(f"{SHOWN} bad rows or more; reading stopped at the tenth")

    def finish(self) -> None:
        """Call when reading has ended. UserError where there were bad rows and the policy is "error"."""
        if self.policy == "error" and self.total:
            self._stop("1 bad row in all" if self.total == 1 else f"{self.total} bad rows in all")

    def summary(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "policy": self.policy,
            "total": self.total,
            "kinds": dict(self.kinds.most_common()),
            "first": [f"{row.where}: {row.reason}" for row in self.first],
        }

    def _stop(self, total: str) -> None:
        hint = "mend them, or go on without them: data.on_bad_row: skip"
        if all(kind.startswith("missing key") for kind in self.kinds):
            hint = "name the keys that hold text, text_pair and label under data.columns, or go on without these rows: "
            hint += "data.on_bad_row: skip"
        elif NOT_UTF8 in self.kinds:
            hint += ". A file in GBK is converted by: iconv -f GB18030 -t UTF-8 FILE"
        problems = [Problem(row.reason, row.where) for row in self.first]
        raise UserError(problems=[*problems, Problem(total, hint=hint)])


class ExampleList:
    """A whole split in memory, column by column: a million rows cost their text and some 60 bytes each.

    `labels` holds ids, and is empty where labels were not wanted; `pairs` is None for single sentences.
    """

    def __init__(self, with_pairs: bool) -> None:
        self.texts: list[str] = []
        self.pairs: list[str] | None = [] if with_pairs else None
        self.labels = array("i")

    def append(self, example: TextExample) -> None:
        self.texts.append(example.text)
        if self.pairs is not None:
            self.pairs.append(example.text_pair)
        if example.label is not None:
            self.labels.append(example.label)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> TextExample:
        pair = self.pairs[index] if self.pairs is not None else None
        return TextExample(self.texts[index], pair, self.labels[index] if self.labels else None)

    def __iter__(self) -> Iterator[TextExample]:
        return (self[i] for i in range(len(self)))

    def lengths(self) -> np.ndarray:
        """[rows] int64, the byte_length of each example."""
        return np.fromiter((example.byte_length for example in self), np.int64, len(self))


def iter_examples(source: Iterable[Row | BadRow], reader: ExampleReader, log: BadRowLog) -> Iterator[TextExample]:
    """Good examples of one pass over `source`; bad rows go to `log`, which may raise, also at the end."""
    for row in source:
        example = reader.read(row)
        if isinstance(example, BadRow):
            log.add(example)
        else:
            yield example
    log.finish()


def load_examples(source: RowSource, reader: ExampleReader, log: BadRowLog) -> ExampleList:
    """All good examples of `source` in memory. UserError: bad rows (by `log`'s policy), or none that is good."""
    examples = ExampleList(with_pairs=reader.columns.text_pair is not None)
    for example in iter_examples(source, reader, log):
        examples.append(example)
    if not examples:
        raise _no_good_row(source, log)
    return examples


def scan_examples(source: RowSource, reader: ExampleReader, log: BadRowLog) -> int:
    """One pass in constant memory, before a streaming run: the number of good examples. Errors as `load_examples`."""
    count = sum(1 for _ in iter_examples(source, reader, log))
    if not count:
        raise _no_good_row(source, log)
    return count


def require_two_labels(examples: ExampleList, labels: LabelSet, where: str) -> None:
    """UserError where all training examples have one label: nothing can be learned from them."""
    if examples.labels.count(examples.labels[0]) == len(examples.labels):
        name = labels.name(examples.labels[0])
        hint = "check data.columns.label and the training file"
        raise UserError(f"all {len(examples)} training rows have the label {name!r}", where=where, hint=hint)


def require_full_batch(rows: int, global_batch_size: int) -> None:
    """UserError where dropping the last, smaller batch would leave none."""
    if rows < global_batch_size:
        raise UserError(
            f"{rows} training rows do not fill one batch of {global_batch_size}",
            where="training.dataloader_drop_last",
            hint="set it to false, or take a smaller training.per_device_train_batch_size",
        )


def _no_good_row(source: RowSource, log: BadRowLog) -> UserError:
    reasons = ", ".join(f"{kind} ({count})" for kind, count in log.kinds.most_common(3))
    hint = "mend the rows; data.on_bad_row: error lists the first ten"
    return UserError(f"no row is usable; {log.total} bad rows: {reasons}", where=source.description, hint=hint)
