"""The input of `predict`: a file or standard input, as plain text (a sentence per line) or in a data.format."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from nlpctl.data.examples import BadRowLog, ExampleReader
from nlpctl.data.kept import KEEP_NONE, Keep
from nlpctl.data.lines import numbered_lines
from nlpctl.data.readers import no_rows, parse_rows, plain_rows
from nlpctl.data.row import BadRow, BlankLine, Row
from nlpctl.data.task_rows import TaskRows
from nlpctl.errors import UserError

PLAIN = "text"
STDIN = "-"

_TAGGED_WORD = re.compile(r"\S+[\t ](O|[BIESM]-\S+|\S+-[BIESM])")


@dataclass(frozen=True)
class PredictInput:
    """Rows to be answered. `format` is text or a format of data.format; `path` None reads standard input."""

    task_rows: TaskRows
    path: Path | None
    format: str

    @property
    def name(self) -> str:
        return "standard input" if self.path is None else str(self.path)

    @property
    def rereadable(self) -> bool:
        """Whether a second pass gives the same rows: a regular file, not a pipe."""
        return self.path is not None and self.path.is_file()

    def identity(self) -> dict[str, Any]:
        """The identity of this input, which a resumed prediction must match. UserError for standard input."""
        if not self.rereadable:
            raise UserError("a pipe cannot be read again", where=self.name, hint="--resume needs an input file")
        stat = os.stat(self.path)
        return {"input": str(self.path.resolve()), "format": self.format, "size": stat.st_size, "mtime": stat.st_mtime}

    def check(self, *, blank_lines: bool = False) -> int:
        """Read everything once and count the rows, bad ones too.

        UserError if there is none, or lists the bad ones (data.on_bad_row: error). `blank_lines`: blank lines of plain
        text are not bad.
        """
        log = BadRowLog(self.task_rows.data.on_bad_row)
        count = 0
        for count, row in enumerate(self.rows(), 1):  # noqa: B007
            if isinstance(row, BadRow) and not (blank_lines and isinstance(row, BlankLine)):
                log.add(row)
        log.finish()
        if not count:
            raise no_rows(self.name)
        return count

    def rows(self, skip: int = 0) -> Iterator[Any]:
        """Examples and bad rows in file order, without the first `skip`; memory holds one row (json: all)."""
        for example, _ in self.kept_rows(KEEP_NONE, skip):
            yield example

    def kept_rows(self, keep: Keep, skip: int = 0) -> Iterator[tuple[Any, dict[str, Any]]]:
        """`rows`, each with what its answer repeats. UserError if the first one has no such key."""
        if keep.names and self.format == PLAIN:
            hint = "leave it out; a file with more columns is read with --format tsv, csv or jsonl"
            raise UserError("a line of plain text has nothing else to keep", "--keep", hint)
        reader, checked = ExampleReader(self.task_rows, None), False
        with self._open() as stream:
            for row in islice(self._parsed(stream), skip, None):
                example = reader.read(row)
                if isinstance(row, BadRow):
                    yield example, {}
                    continue
                if not checked:
                    keep.check(row.values, f"{row.source}:{row.line}")
                    checked = True
                yield example, keep.of(self.task_rows, row.values, example)

    def _open(self) -> BinaryIO:
        if self.path is None:
            # A duplicate, so that closing the stream leaves sys.stdin usable for the caller.
            return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
        try:
            return self.path.open("rb")
        except OSError as error:
            message = f"cannot read the input: {error.strerror}"
            raise UserError(message, where=self.name, hint="check the path") from None

    def _parsed(self, stream: BinaryIO) -> Iterator[Row | BadRow]:
        rows = self.task_rows
        if self.format != PLAIN:
            return parse_rows(stream, self.name, self.format, rows.data.header, rows.required(labelled=False))
        return plain_rows(numbered_lines(stream, self.name), self.name, rows.plain_column)


def open_input(rows: TaskRows, path: str, format: str) -> PredictInput:
    """The input that `path` ("-" is standard input) and `format` ("auto" goes by the ending) name.

    Raises UserError if the file is missing, plain text cannot hold what the task needs, or "auto" would take tagged
    words for sentences.
    """
    file = None if path == STDIN else Path(path)
    if file is not None and not file.exists():
        raise UserError("no such input file", where=path, hint="check the path; `-` reads standard input")
    if file is not None and file.is_dir():
        raise UserError("this is a folder, not an input file", where=path, hint="give a file in it")
    if format == "auto":
        suffix = "" if file is None else file.suffix.lower()
        format = PLAIN if suffix == ".txt" else rows.endings.get(suffix, PLAIN)
        # For training a .txt file of a tagger is CoNLL, for predict it is plain text: both readings are common.
        if suffix == ".txt" and rows.endings.get(suffix) == "conll":
            _refuse_conll(file)
    if format == PLAIN and rows.plain_column is None:
        columns = " and ".join(repr(name) for name in rows.required(labelled=False))
        raise UserError(
            f"plain text has one text per line, but the model takes {columns}",
            where="standard input" if file is None else path,
            hint="use --format jsonl with these keys, or tsv, csv",
        )
    return PredictInput(rows, file, format)


def _refuse_conll(path: Path) -> None:
    """UserError if a file of plain text begins as a CoNLL file does: with two lines of a word and its tag."""
    if not path.is_file() or not os.access(path, os.R_OK):
        return  # a pipe can be read once only
    with path.open("rb") as stream:
        lines = [stream.readline(200).decode("utf-8", "replace").rstrip("\r\n") for _ in range(2)]
    if all(map(_TAGGED_WORD.fullmatch, lines)):
        raise UserError(
            f"{lines[0]!r} looks like a word and its tag, but a .txt file has a sentence per line",
            where=f"{path}:1",
            hint="use --format conll, or --format text if these are the sentences",
        )
