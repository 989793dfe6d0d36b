"""Tagged text: CoNLL files (a word and its tag per line), and tables whose cells are lists joined by \\002.

Both yield rows with two lists of equal length, words and tags. Memory is constant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from nlpctl.data.readers.lines import decode
from nlpctl.data.readers.request import ReadRequest
from nlpctl.data.readers.row import BadRow, Row, Sentence, missing_key
from nlpctl.data.readers.tables import table_rows, tsv_records
from nlpctl.errors import UserError

TOKENS, TAGS = "tokens", "tags"  # the keys of a row from a CoNLL file
JOINT = "\002"
DOCUMENT = "-DOCSTART-"
# Before a sentence, as in CoNLL-U (# sent_id = 3, # newdoc) and in MultiCoNER (# id 5f12); "#" alone may be a word.
_COMMENT = re.compile(r"# +((newdoc|newpar)( id = .*)?|\S+ =( .*)?|id \S+)(\t.*)?")


def conll_rows(lines: Iterable[tuple[int, bytes]], source: str, request: ReadRequest) -> Iterator[Row | BadRow]:
    """Yields one row per sentence. `ends_sentence` tells where it ends; a row's `line` is that of its first word.

    Columns are separated by tabs, or by spaces in a line without a tab. The first column is the word, the last one
    the tag. Lines of a single column are words without tags, for `predict` only. Comments before a sentence are left
    out. A sentence with a bad line is a BadRow at that line. UserError: the cells are joined by \\002 (format joined).
    """
    required = request.required
    sentence: list[tuple[int, list[str], str | None]] = []
    tagged = TAGS in required
    for number, raw in lines:
        text, reason = decode(raw)
        if JOINT in text:
            hint = "the cells of this file are joined by \\002: set data.format: joined"
            raise UserError("not a CoNLL line", where=f"{source}:{number}", hint=hint)
        if ends_sentence(text, tagged):
            yield from _sentence(sentence, source, required)
            sentence, tagged = [], TAGS in required
        elif sentence or not _COMMENT.fullmatch(text):
            # Not split(): a word may be U+3000, or hold a no-break space.
            cells = text.split("\t") if "\t" in text else [cell for cell in text.split(" ") if cell]
            # CoNLL-2003 marks documents by such lines; they belong to no sentence.
            if cells and cells[0] != DOCUMENT:
                sentence.append((number, cells, reason))
                tagged = tagged or len(cells) > 1
    yield from _sentence(sentence, source, required)


def ends_sentence(text: str, tagged: bool) -> bool:
    """Whether a line, with or without its carriage return, parts two sentences: it holds white space alone.

    Where words have no tags, a line of U+3000 is a word like any.
    """
    text = text.rstrip("\r")
    return not text.strip(" \t") or (tagged and text.isspace() and "\t" not in text)


def _sentence(
    lines: Sequence[tuple[int, list[str], str | None]], source: str, required: Sequence[str]
) -> Iterator[Row | BadRow]:
    if not lines:
        return
    # One tag anywhere makes the file a tagged one: a word without a tag is then a mistake, not input for predict.
    tagged = any(len(cells) > 1 for _, cells, _ in lines) or TAGS in required
    for number, cells, reason in lines:
        if reason is None and tagged and (len(cells) == 1 or not cells[-1].strip()):
            reason = f"no tag: the line holds {cells[0]!r} only"
        elif reason is None and not cells[0]:
            reason = "no word: the line begins with a tab"
        if reason is not None:
            yield BadRow(source, number, reason)
            return
    values = {TOKENS: [cells[0] for _, cells, _ in lines]}
    if tagged:
        values[TAGS] = [cells[-1].strip() for _, cells, _ in lines]
    reason = missing_key(values, required)
    first = lines[0][0]
    yield Sentence(source, first, values) if reason is None else BadRow(source, first, reason)


def joined_rows(lines: Iterable[tuple[int, bytes]], source: str, request: ReadRequest) -> Iterator[Row | BadRow]:
    """Tab-separated tables with column names as in tsv files. Each cell is a list whose items are joined by \\002."""
    for row in table_rows(tsv_records(lines), source, request.header, request.required):
        if isinstance(row, Row):
            yield row._replace(values={name: cell.split(JOINT) for name, cell in row.values.items()})
        else:
            yield row
