"""Reads the rows of a split for inspection: texts, labels, length and place. Bad rows are counted, not fatal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from nlpctl.data.changed_rows import unmapped_source
from nlpctl.data.inspection.lengths import TokenCounter, row_tokens
from nlpctl.data.open_split import FileRows
from nlpctl.data.readers.row import BadRow, Row, RowSource
from nlpctl.data.readers.tables import stands_in_quotes
from nlpctl.data.rows.examples import ExampleReader, good_rows
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.task_rows import Doubt, TaskRows
from nlpctl.report.language import later

ATTRIBUTED = 20_000  # texts of a split in which unknown words are looked for
BETWEEN = " ∥ "  # between the texts of a row, where they are shown


@dataclass(frozen=True, slots=True)
class InspectedRow:
    """A usable row.

    `passages`: its texts; `labels`: for statistics; `target`: its target; `doubts`: probable mistakes that the
    task found; `tokens`: its length, special tokens included.
    """

    split: str
    source: str
    line: int | str
    passages: tuple[str, ...]
    labels: tuple[str, ...]
    target: Hashable
    doubts: tuple[Doubt, ...]
    tokens: int

    @property
    def where(self) -> str:
        return f"{self.source}:{self.line}"

    @property
    def text(self) -> str:
        """All texts of the row, for people."""
        return BETWEEN.join(self.passages)


@dataclass
class UnknownTokens:
    """Tokens of the texts of a split, without special ones; how many are unknown ([UNK]), and what stands behind them.

    `words`: of the first ATTRIBUTED texts that have such tokens.
    """

    tokens: int = 0
    unknown: int = 0
    texts: int = 0
    words: Counter[str] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        return self.unknown / self.tokens if self.tokens else 0.0

    def add(self, text: str, counter: TokenCounter) -> None:
        self.tokens += counter.count(text)
        unknown = counter.unknown(text)
        if unknown:
            self.unknown += unknown
            self.texts += 1
            if self.texts <= ATTRIBUTED:
                self.words.update(counter.unknown_words(text))


@dataclass
class InspectedSplit:
    """The good rows of a split, how many were bad for which reason, and the first `shown` of each reason."""

    split: str
    source: RowSource
    shown: int
    good: list[InspectedRow] = field(default_factory=list)
    bad: Counter[str] = field(default_factory=Counter)
    first_bad: dict[str, list[BadRow]] = field(default_factory=dict)
    unknown: UnknownTokens = field(default_factory=UnknownTokens)  # empty where tokens are estimated

    def add(self, row: BadRow) -> None:
        """Count a bad row, for `good_rows`."""
        self.bad[row.kind] += 1
        first = self.first_bad.setdefault(row.kind, [])
        if len(first) < self.shown:
            first.append(row)


def inspect_split(
    source: RowSource,
    split: str,
    rows: TaskRows,
    labels: LabelSet,
    counter: TokenCounter,
    *,
    most: int | None,
    shown: int,
) -> InspectedSplit:
    """The first `most` rows of a split (None: all of them), with `shown` bad ones of each kind."""
    result = InspectedSplit(split, source, shown)
    columns, given = rows.required(labelled=True), unmapped_source(source)
    tables: set[str] = set()  # where a quotation mark is one of the text
    if isinstance(given, FileRows):
        tables = {str(path) for path, kind in zip(given.files, given.formats, strict=True) if kind == "tsv"}
    for row, example in good_rows(islice(source, most), ExampleReader(rows, labels), result):
        texts = list(rows.texts(example))
        if counter.exact:
            for text in texts:
                result.unknown.add(text, counter)
        doubts = [*rows.doubts(example, labels), *(_in_quotes(row, columns) if row.source in tables else ())]
        result.good.append(
            InspectedRow(
                split,
                row.source,
                row.line,
                tuple(rows.passages(example).values()),
                rows.label_names(example, labels),
                rows.target(example),
                tuple(doubts),
                row_tokens(texts, counter, rows.one_sequence),
            )
        )
    return result


def _in_quotes(row: Row, columns: Sequence[str]) -> Iterator[Doubt]:
    """A doubt about a row of tsv with a cell that begins and ends with a quotation mark."""
    cell = next((name for name in columns if stands_in_quotes(row.values.get(name))), None)
    if cell is not None:
        details = later("{!r}, as part of the text; if not so, data.format: quoted_tsv", cell)
        yield later("in quotation marks"), details
