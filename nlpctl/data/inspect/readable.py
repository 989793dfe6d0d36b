"""Reads the rows of a split for inspection: texts, labels, length and place. Bad rows are counted, not fatal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from nlpctl.data.changed_rows import unchanged
from nlpctl.data.delimited import stands_in_quotes
from nlpctl.data.examples import ExampleReader
from nlpctl.data.inspect.lengths import TokenCounter, row_tokens
from nlpctl.data.labels import LabelSet
from nlpctl.data.open_split import FileRows
from nlpctl.data.row import BadRow, Row, RowSource
from nlpctl.data.task_rows import TaskRows

BETWEEN = " ∥ "  # between the texts of a row, where they are shown


@dataclass(frozen=True, slots=True)
class Seen:
    """A usable row.

    `passages`: its texts; `labels`: for statistics; `truth`: its target; `doubts`: probable mistakes that the
    task found; `tokens`: its length, special tokens included.
    """

    split: str
    source: str
    line: int | str
    passages: tuple[str, ...]
    labels: tuple[str, ...]
    truth: Hashable
    doubts: tuple[str, ...]
    tokens: int

    @property
    def where(self) -> str:
        return f"{self.source}:{self.line}"

    @property
    def text(self) -> str:
        """All texts of the row, for people."""
        return BETWEEN.join(self.passages)


@dataclass
class SplitRows:
    """The good rows of a split, how many were bad for which reason, and the first of each."""

    split: str
    source: RowSource
    good: list[Seen] = field(default_factory=list)
    bad: Counter[str] = field(default_factory=Counter)
    first_bad: dict[str, list[BadRow]] = field(default_factory=dict)


def read_split(
    source: RowSource,
    split: str,
    rows: TaskRows,
    labels: LabelSet,
    counter: TokenCounter,
    *,
    most: int | None,
    shown: int,
) -> SplitRows:
    """The first `most` rows of a split (None: all of them), with `shown` bad ones of each kind."""
    reader, found = ExampleReader(rows, labels), SplitRows(split, source)
    columns, given = rows.required(labelled=True), unchanged(source)
    tables: set[str] = set()  # where a quotation mark is one of the text
    if isinstance(given, FileRows):
        tables = {str(path) for path, kind in zip(given.files, given.formats, strict=True) if kind == "tsv"}
    for row in islice(source, most):
        example = reader.read(row)
        if isinstance(example, BadRow):
            found.bad[example.kind] += 1
            first = found.first_bad.setdefault(example.kind, [])
            if len(first) < shown:
                first.append(example)
            continue
        found.good.append(
            Seen(
                split,
                row.source,
                row.line,
                tuple(rows.passages(example).values()),
                rows.counted(example, labels),
                rows.truth(example),
                (*rows.doubts(example, labels), *(_in_quotes(row, columns) if row.source in tables else ())),
                row_tokens(list(rows.texts(example)), counter, rows.together),
            )
        )
    return found


def _in_quotes(row: Row, columns: Sequence[str]) -> Iterator[str]:
    """A doubt about a row of tsv with a cell that begins and ends with a quotation mark."""
    cell = next((name for name in columns if stands_in_quotes(row.values.get(name))), None)
    if cell is not None:
        yield f"in quotation marks: {cell!r}, as part of the text; if not so, data.format: quoted_tsv"
