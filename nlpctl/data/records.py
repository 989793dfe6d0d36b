"""Copies rows of a file into a new one, byte for byte."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.input_formats import INPUT_FORMATS, InputFormat
from nlpctl.data.open_split import FileRows
from nlpctl.data.readers.annotation_rows import annotated_content, table_format
from nlpctl.data.readers.conll import ends_sentence
from nlpctl.data.readers.json_rows import json_bytes, plain
from nlpctl.data.readers.packed import open_unpacked, suffix_of
from nlpctl.data.readers.row import Row, RowSource, place
from nlpctl.data.readers.tables import COMMA, separated
from nlpctl.errors import UserError
from nlpctl.files import parse_json
from nlpctl.names import counted

_ARTICLE = re.compile(r"(?:data)?\[(\d+)\](?=\.)")  # of the place of a question
_QUESTION = re.compile(rf"{_ARTICLE.pattern}(?:\.paragraphs\[(\d+)\])?\.qas\[(\d+)\]")


def article_of(row: Row) -> str | None:
    """The article that a question of a SQuAD file belongs to, which stays in one part; None for any other row."""
    match = _ARTICLE.match(row.line) if isinstance(row.line, str) else None
    return None if match is None else f"{row.source}:{match[0]}"


class Records:
    """The rows of a source, in order, as pieces of files. `suffix`: the ending that a file of them needs.

    Lines are copied as they are, with the header of their file. The rows of an Excel file, of a named data set or of a
    reader become lines of jsonl.
    """

    def __init__(self, source: RowSource, rows: Sequence[Row], starts: Mapping[str, Sequence[int]]):
        """`starts`: file to the lines on which its rows begin, those of bad rows too.

        UserError if the files are of several formats, or have different headers.
        """
        self._rows = rows
        self._copied, self.suffix, self._header = "jsonl", ".jsonl", b""
        self._lines: list[bytes] = []
        if isinstance(source, FileRows):
            format, suffix = _one_format(source)
            if format.annotator is not None:  # some are tables, whose rows are copied as they are
                format = INPUT_FORMATS[table_format(source.files[0]) or format.name]
            self._copied = format.copied
            if format.copied != "jsonl":
                self.suffix = suffix
            if format.copied == "lines":
                self._header, self._lines = self._read_lines(format, source, starts)

    def content(self, chosen: Iterable[int]) -> bytes:
        """A file with the rows at the indexes `chosen`, in that order."""
        if self._copied == "articles":
            return json_bytes(_articles([self._rows[i] for i in chosen])) + b"\n"
        if self._copied == "array":
            return b"[\n" + b",\n".join(json_bytes(self._rows[i].values) for i in chosen) + b"\n]\n"
        if self._copied == "records":
            return annotated_content([self._rows[i] for i in chosen], self.suffix)
        if self._copied == "jsonl":
            return b"".join(_json_line(self._rows[i]) for i in chosen)
        return self._header + b"".join(self._lines[i] for i in chosen)

    def _read_lines(
        self, format: InputFormat, source: FileRows, starts: Mapping[str, Sequence[int]]
    ) -> tuple[bytes, list[bytes]]:
        """The header of the files, and the lines of each row."""
        headers: dict[bytes, Path] = {}
        lines: list[bytes] = []
        for path in source.files:
            # Bytes, not text: decoding and encoding again could change line ends or bad rows' bytes.
            raw = _content(path).removeprefix(codecs.BOM_UTF8).split(b"\n")
            begins = starts[str(path)]
            # A row ends where the next one begins, bad rows included: those lines must not be copied along.
            ends = dict(pairwise([*begins, len(raw) + 1]))
            if format.columns == "header":
                head = _without_blank_end(raw[: begins[0] - 1])
                headers.setdefault(head or _separator_line(format, raw, source.own_required), path)
            own = (int(row.line) for row in self._rows if row.source == str(path))
            lines += [_piece(format, raw[_first(format, raw, start) - 1 : ends[start] - 1]) for start in own]
        if len(headers) > 1:
            where = ", ".join(str(path) for path in headers.values())
            message = "the files have different headers, or other signs between their cells"
            raise UserError(message, where=where, hint="split them one by one")
        return next(iter(headers), b""), lines


def _separator_line(format: InputFormat, lines: Sequence[bytes], required: Sequence[str]) -> bytes:
    """What the parts of csv without a header begin with: their first lines might tell another separator."""
    separator = separated(enumerate(lines, 1), False, required)[1] if format.name == "csv" else COMMA
    return b"" if separator == COMMA else f"sep={separator}\n".encode()


def _first(format: InputFormat, lines: Sequence[bytes], start: int) -> int:
    """The line on which the row that begins at `start` begins with the comments right above it."""
    while format.sentences and start > 1 and not ends_sentence(lines[start - 2].decode(errors="replace"), tagged=True):
        start -= 1
    return start


def _piece(format: InputFormat, lines: list[bytes]) -> bytes:
    """The bytes of the row that begins with the first of `lines`, which end before the next row."""
    if format.sentences:
        # Comments or document marks may follow the blank line; they belong to the next sentence.
        texts = [line.decode(errors="replace") for line in lines]
        end = next((i for i, text in enumerate(texts) if ends_sentence(text, tagged=True)), len(texts))
        return b"\n".join(lines[:end]) + b"\n\n"
    return _without_blank_end(lines)  # a quoted cell of csv may run over several lines


def _without_blank_end(lines: list[bytes]) -> bytes:
    """The lines as text that ends with the last one that is not blank; b"" where there is none."""
    count = len(lines)
    while count and not lines[count - 1].strip():
        count -= 1
    return b"".join(line + b"\n" for line in lines[:count])


def _one_format(source: FileRows) -> tuple[InputFormat, str]:
    """The format and the ending of all files. UserError: they differ."""
    if len(set(source.formats)) > 1 or len({suffix_of(path) for path in source.files}) > 1:
        hint = "split them one by one: nlpctl data split RECIPE FILE -o FOLDER"
        raise UserError("the files are of several formats", where=source.description, hint=hint)
    return INPUT_FORMATS[source.formats[0]], suffix_of(source.files[0])  # what is packed is written unpacked


def _content(path: Path) -> bytes:
    with open_unpacked(path) as stream:
        return stream.read()


def _articles(rows: Sequence[Row]) -> Any:
    """A document with the articles that `rows` are from, as their files have them but for other questions."""
    documents: dict[str, Any] = {}
    chosen: dict[tuple[str, int], dict[int, list[int]]] = {}  # article -> paragraph -> questions
    for row in rows:
        if row.source not in documents:
            documents[row.source] = parse_json(_content(Path(row.source)).decode("utf-8-sig"))
        match = _QUESTION.fullmatch(str(row.line))
        assert match is not None, "the line of a question is its place in the document"
        article, paragraph, question = (int(number or 0) for number in match.groups())
        chosen.setdefault((row.source, article), {}).setdefault(paragraph, []).append(question)
    lists = [isinstance(document, list) for document in documents.values()]  # in CMRC's first layout
    if any(lists) and not all(lists):
        raise UserError("the files are of several layouts", ", ".join(documents), "split them one by one")
    if any(lists):
        return [_with_questions(documents[source][index], own[0]) for (source, index), own in chosen.items()]
    others = {key: value for document in documents.values() for key, value in document.items() if key != "data"}
    articles = []
    for (source, index), own in chosen.items():
        article = documents[source]["data"][index]
        paragraphs = [_with_questions(article["paragraphs"][i], questions) for i, questions in own.items()]
        articles.append({**article, "paragraphs": paragraphs})
    return {**others, "data": articles}


def _with_questions(paragraph: Mapping[str, Any], questions: Sequence[int]) -> dict[str, Any]:
    return {**paragraph, "qas": [paragraph["qas"][i] for i in questions]}


def _json_line(row: Row) -> bytes:
    try:
        return json_bytes(dict(row.values), default=plain) + b"\n"
    except (TypeError, ValueError) as error:
        hint = "rows are written as jsonl: give texts, numbers, lists and dicts"
        raise UserError(f"a value cannot be written as JSON: {error}", f"{row.source}:{row.line}", hint) from None


def with_json_values(row: Row, not_finite: list[str]) -> Row:
    """`row` with its values as JSON holds them, for a file of rows: without NumPy's numbers, dates or sets.

    Numbers that are not finite are None; the place of the row is added to `not_finite` for each.
    """
    where = place(row.source, row.line)
    return row._replace(values=json.loads(_json_line(row), parse_constant=lambda _: not_finite.append(where)))


def warn_of_nulls(not_finite: Sequence[str], output: Path) -> None:
    """Warn of what `with_json_values` found."""
    if not_finite:
        lost = f"{counted(len(not_finite), 'numbers')} that JSON does not know (NaN, infinity), first {not_finite[0]}"
        console.warn(f"{output} has null in place of {lost}")
