"""Corrected copies of data files: cells and lines are changed, everything else stays byte for byte.

Of a json document, which is one text, the form may change, but no other value does.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from nlpctl.data.conll import DOCUMENT, JOINT, TAGS, ends_sentence
from nlpctl.data.delimited import COMMA, QUOTED, QUOTED_TSV, separated
from nlpctl.data.json_rows import json_bytes
from nlpctl.data.readers import read_rows
from nlpctl.data.row import BadRow, Row
from nlpctl.errors import UserError
from nlpctl.files import sha256_of
from nlpctl.outputs import refuse_pipe

_AGAIN = "audit the data as they are now: train the folds again, then nlpctl data audit"


@dataclass(frozen=True)
class Edit:
    """A change of one row. `before` is what `column` holds now; with `word`, what its items from there on are.

    `after` None: the row is left out.
    """

    column: str
    before: Any
    after: Any
    word: int | None = None


def corrected(path: Path, sha256: str, kind: str, header: bool, edits: Mapping[int, Sequence[Edit]]) -> bytes:
    """The bytes of the file with some rows changed. `kind`: its format; `edits`: by the place of a row in the file.

    UserError: the file cannot be read, has another checksum than `sha256` (a row added above moves all others), or a
    row is not what its edit says.
    """
    refuse_pipe(path)
    rows = list(read_rows(path, kind, header, ()))
    if sha256_of(path) != sha256:
        raise UserError("the file changed since it was audited", str(path), f"restore it, or {_AGAIN}")
    for place, changes in edits.items():
        for edit in changes:
            _check(rows, place, edit, path)
    if kind == "json":
        return _document(path, edits)
    if kind not in _LINES:
        raise UserError(f"labels in {kind} files cannot be changed", str(path), "change them by hand")
    return _by_lines(path.read_bytes(), kind, header, rows, edits)


def _check(rows: Sequence[Row | BadRow], place: int, edit: Edit, path: Path) -> None:
    row = rows[place] if place < len(rows) else None
    if row is None or isinstance(row, BadRow) or _held(row.values.get(edit.column), edit) != edit.before:
        where = str(path) if row is None else f"{path}:{row.line}"
        hint = "leave \"given\" and \"edit\" of a finding as nlpctl data audit wrote them"
        raise UserError("this row is not what its finding says", where, hint)


def _held(value: Any, edit: Edit) -> Any:
    """What an edit is about: the value of its column, or some of its items."""
    if edit.word is None:
        return value
    return value[edit.word : edit.word + len(edit.before)] if isinstance(value, list) else None


def _changed(value: Any, edit: Edit) -> Any:
    if edit.word is None:
        # A browser writes 2.0 as 2, which would be another label.
        whole = isinstance(value, float) and isinstance(edit.after, int) and not isinstance(edit.after, bool)
        return float(edit.after) if whole else edit.after
    return [*value[: edit.word], *edit.after, *value[edit.word + len(edit.before) :]]


# -- formats -----------------------------------------------------------------------------------------------------


def _by_lines(
    content: bytes, kind: str, header: bool, rows: Sequence[Row | BadRow], edits: Mapping[int, Sequence[Edit]]
) -> bytes:
    lines = content.split(b"\n")
    write = _LINES[kind]
    if kind in QUOTED:
        _, separator = separated(enumerate(content.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1), header)
        write = partial(_quoted, "\t" if kind == QUOTED_TSV else separator)
    ends = dict(pairwise([*(row.line for row in rows), len(lines) + 1]))
    for place in sorted(edits, reverse=True):  # from the end, since a row may lose lines
        row, changes = rows[place], edits[place]
        start, end = row.line - 1, ends[row.line] - 1
        if any(edit.after is None for edit in changes):
            lines[start:end] = _without(lines[start:end], kind, row)
            continue
        for edit in changes:
            lines[start:end] = write(lines[start:end], row, edit)
            row = row._replace(values={**row.values, edit.column: _changed(row.values[edit.column], edit)})
    return b"\n".join(lines)


def _without(lines: list[bytes], kind: str, row: Row) -> list[bytes]:
    """The lines from a row to the next one, without the row; the end of the file stays."""
    taken = _places(lines, row)[-1] + 1 if kind == "conll" else _record_length(lines, kind)
    if kind == "conll" and len(lines) > taken + 1 and ends_sentence(lines[taken].decode(errors="replace"), tagged=True):
        taken += 1  # the blank line behind the sentence
    return lines[taken:]


def _record_length(lines: Sequence[bytes], kind: str) -> int:
    """The number of lines of a record; a quoted cell of csv may run over several."""
    if kind not in QUOTED:
        return 1
    quotes = 0
    for number, line in enumerate(lines, 1):
        quotes += line.count(b'"')
        if quotes % 2 == 0:
            return number
    return len(lines)


def _refuse_twice(cells: Sequence[Any], row: Row) -> None:
    """UserError if a name of the header stands for several cells: a row holds one of them, so places are not known."""
    if len(cells) != len(row.values):
        message = "two columns of the header have one name"
        raise UserError(message, f"{row.source}:{row.line}", f"rename one of them; then {_AGAIN}")


def _table(lines: list[bytes], row: Row, edit: Edit) -> list[bytes]:
    value = _changed(row.values[edit.column], edit)
    cells = lines[0].removesuffix(b"\r").split(b"\t")
    end = lines[0][len(lines[0].removesuffix(b"\r")) :]
    _refuse_twice(cells, row)
    cells[list(row.values).index(edit.column)] = (JOINT.join(value) if isinstance(value, list) else value).encode()
    return [b"\t".join(cells) + end, *lines[1:]]


def _quoted(separator: str, lines: list[bytes], row: Row, edit: Edit) -> list[bytes]:
    count = _record_length(lines, "csv")
    records = csv.reader((f"{line.decode('utf-8-sig')}\n" for line in lines[:count]), delimiter=separator)
    _refuse_twice(next(records), row)
    values = {**row.values, edit.column: _changed(row.values[edit.column], edit)}
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=separator, lineterminator="\r\n")
    writer.writerow(values.values())  # it quotes what is in the line's end only
    text = stream.getvalue().removesuffix("\r\n")
    text += "\r" if lines[count - 1].endswith(b"\r") else ""
    return [*text.encode().split(b"\n"), *lines[count:]]


def _json_line(lines: list[bytes], row: Row, edit: Edit) -> list[bytes]:
    values = {**row.values, edit.column: _changed(row.values[edit.column], edit)}
    end = b"\r" if lines[0].endswith(b"\r") else b""
    return [json_bytes(values) + end, *lines[1:]]


def _words(lines: list[bytes], row: Row, edit: Edit) -> list[bytes]:
    """The last cell of the line of each word."""
    changed, places = list(lines), _places(lines, row)
    for i, tag in enumerate(edit.after, edit.word or 0):
        old = row.values[edit.column][i].encode()
        head, _, tail = changed[places[i]].rpartition(old)
        changed[places[i]] = head + str(tag).encode() + tail
    return changed


def _places(lines: Sequence[bytes], row: Row) -> list[int]:
    """The place of the line of each word. A mark of documents inside of a sentence is no word."""
    marks = [DOCUMENT.encode()]
    words = [i for i, line in enumerate(lines) if line.replace(b"\t", b" ").strip(b"\r").split(b" ")[:1] != marks]
    return words[: len(row.values[TAGS])]


_LINES: Mapping[str, Callable[[list[bytes], Row, Edit], list[bytes]]] = {
    "tsv": _table,
    "joined": _table,
    "csv": partial(_quoted, COMMA),
    QUOTED_TSV: partial(_quoted, "\t"),
    "jsonl": _json_line,
    "conll": _words,
}
FORMATS = (*_LINES, "json")


def _document(path: Path, edits: Mapping[int, Sequence[Edit]]) -> bytes:
    document = json.loads(path.read_text(encoding="utf-8-sig"))
    rows = document if isinstance(document, list) else document["data"]
    for place, changes in edits.items():
        for edit in changes:
            if edit.after is not None:
                rows[place][edit.column] = _changed(rows[place][edit.column], edit)
    gone = {place for place, changes in edits.items() if any(edit.after is None for edit in changes)}
    rows[:] = [row for place, row in enumerate(rows) if place not in gone]
    return json_bytes(document, indent=2) + b"\n"
