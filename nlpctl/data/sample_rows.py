"""The rows for comparing an export with its network: real ones if available, else random words of the vocabulary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl.data.open_split import has_split, open_files, open_split
from nlpctl.data.readers.row import BadRow, Row, RowSource
from nlpctl.data.rows.examples import ExampleReader
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.data.text.own_tokenizer import OwnTokenizer
from nlpctl.errors import UserError
from nlpctl.outputs import refuse_pipe
from nlpctl.report.language import later

AHEAD, MOST_AHEAD = 50, 20_000  # times the wanted rows, and rows, that are read for them: files may be sorted by label
MADE_UP = 512  # texts drawn from the vocabulary where all rows are asked for and there are none
_SEED = 2017
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class ComparedRows:
    """Examples without labels. `origin`: where they are from, for people; `real`: not drawn from the vocabulary."""

    examples: tuple[Any, ...]
    origin: str
    real: bool


def rows_to_compare(rows: TaskRows, file: Path | None, tokenizer: Any, count: int, *, masked: bool) -> ComparedRows:
    """Up to `count` rows of `file`, else of the first of dev, test and train that can be read, else made up.

    `masked`: one word of each text is replaced by the mask. `file` has passed `require_rows`.
    """
    mask = tokenizer.mask_token if masked else None
    return (
        _of_file(rows, file, mask, count)
        or _of_splits(rows, ("dev", "test", "train"), mask, count)
        or _of_vocabulary(rows, tokenizer, mask, count)
    )


def require_rows(rows: TaskRows, file: Path) -> None:
    """UserError if `file` is missing or has no good row. Needs no tokenizer."""
    refuse_pipe(file)
    source = open_files(rows, [file], rows.required(labelled=False), where="@[data]")
    if next(_examples(rows, source, None), None) is None:
        hint = "give a file of rows that `nlpctl predict` would answer"
        raise UserError("no row is usable", where=str(file), hint=hint)


def rows_for_int8(
    rows: TaskRows, file: Path | None, tokenizer: Any, count: int | None, *, masked: bool
) -> ComparedRows:
    """Rows for finding out how large activations get: those of train, else of `file`, else of dev, else made up.
    `count` None: all of them."""
    mask = tokenizer.mask_token if masked else None
    return (
        _of_splits(rows, ("train",), mask, count)
        or _of_file(rows, file, mask, count)
        or _of_splits(rows, ("dev",), mask, count)
        or _of_vocabulary(rows, tokenizer, mask, count)
    )


def _of_file(rows: TaskRows, file: Path | None, mask: str | None, count: int | None) -> ComparedRows | None:
    if file is None:
        return None
    source = open_files(rows, [file], rows.required(labelled=False), where="@[data]")
    return ComparedRows(_spread_over(_examples(rows, source, mask), count), str(file), real=True)


def _of_splits(rows: TaskRows, splits: tuple[str, ...], mask: str | None, count: int | None) -> ComparedRows | None:
    for split in splits:
        examples = _rows_of_split(rows, split, mask, count)
        if examples:
            return ComparedRows(examples, split, real=True)
    return None


def _of_vocabulary(rows: TaskRows, tokenizer: Any, mask: str | None, count: int | None) -> ComparedRows:
    made = tuple(_made_up(rows, tokenizer, MADE_UP if count is None else count, mask))
    if not made:
        raise UserError("there are no rows to compare on", where="@[data]", hint="give a file of rows: @[data=FILE]")
    return ComparedRows(made, later("words drawn from the vocabulary"), real=False)


def _rows_of_split(rows: TaskRows, split: str, mask: str | None, count: int | None) -> tuple[Any, ...]:
    """Rows of a split; none where its files are gone, as next to a copied model."""
    if not has_split(rows.data, split):
        return ()
    try:
        source = open_split(rows, split, labelled=False)
        return _spread_over(_examples(rows, source, mask), count)
    except UserError:
        return ()


def spread(rows: Sequence[Any], count: int) -> list[Any]:
    """At most `count` of `rows`, evenly spread over all of them."""
    count = min(len(rows), count)
    return [rows[i * len(rows) // count] for i in range(count)]


def _spread_over(examples: Iterator[Any], count: int | None) -> tuple[Any, ...]:
    """`count` of the examples, spread over AHEAD times as many at the beginning; None: all."""
    if count is None:
        return tuple(examples)
    read: list[Any] = []
    try:
        for example in islice(examples, max(count, min(AHEAD * count, MOST_AHEAD))):
            read.append(example)
    except UserError:  # of a row further on than is needed
        if len(read) < count:
            raise
    return tuple(spread(read, count))


def _examples(rows: TaskRows, source: RowSource, mask: str | None) -> Iterator[Any]:
    """The good rows."""
    reader = ExampleReader(rows, None)
    for row in source:
        if isinstance(row, Row) and mask is not None:
            row = Row(row.source, row.line, _masked(row.values, mask))
        example = reader.read(row)
        if not isinstance(example, BadRow):
            yield example


def _masked(values: Mapping[str, Any], mask: str) -> dict[str, Any]:
    return {name: _with_mask(text, mask) if isinstance(text, str) else text for name, text in values.items()}


def _with_mask(text: str, mask: str) -> str:
    """The word in the middle of the text replaced by the mask."""
    words = list(_WORD.finditer(text))
    if not words:
        return f"{text} {mask}"
    word = words[len(words) // 2]
    return f"{text[: word.start()]} {mask} {text[word.end() :]}"


def _made_up(rows: TaskRows, tokenizer: Any, count: int, mask: str | None) -> Iterator[Any]:
    """Texts of random words of the vocabulary, from one token to half the window."""
    from nlpctl.data.text.units import special_ids  # tokenizers import Paddle

    special = special_ids(tokenizer)
    words = [id for id in range(len(tokenizer)) if id not in special]
    # A fixed seed: two exports of one model are compared on the same texts.
    chance = np.random.default_rng(_SEED)
    columns = rows.text_columns()
    longest = max(1, rows.data.max_seq_length // (2 * len(columns)))
    for _ in range(count):
        values = {}
        for column in columns:
            # Lengths are drawn too: padding and masks are compared only in batches of unequal rows.
            ids = chance.choice(words, size=chance.integers(1, longest + 1)).tolist()
            if isinstance(tokenizer, OwnTokenizer):
                text = tokenizer.text_of(ids)
            else:
                text = " ".join(token.removeprefix("##") for token in tokenizer.convert_ids_to_tokens(ids))
            values[column] = text if mask is None else _with_mask(text, mask)
        try:
            yield rows.read(values, None)
        except ValueError:  # a text that is blank, or nothing but signs without a word
            continue
