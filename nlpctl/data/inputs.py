"""What `predict` reads: a file or standard input, as plain text (one sentence per line), tsv, csv, jsonl or json."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from nlpctl.config.schema import DataSection
from nlpctl.data.examples import BadRowLog, ExampleReader, TextExample
from nlpctl.data.lines import decode, numbered_lines
from nlpctl.data.row import BadRow, Row
from nlpctl.data.rows import FORMATS, no_rows, parse_rows, wanted_columns
from nlpctl.errors import UserError

PLAIN = "text"
STDIN = "-"


@dataclass(frozen=True)
class PredictInput:
    """Rows to be labelled. `format` is text, tsv, csv, jsonl or json; `path` None reads standard input."""

    data: DataSection
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
        """What tells this input from another one, for a resumed prediction. UserError for standard input."""
        if not self.rereadable:
            raise UserError("a pipe cannot be read again", where=self.name, hint="--resume needs an input file")
        stat = os.stat(self.path)
        return {"input": str(self.path.resolve()), "format": self.format, "size": stat.st_size, "mtime": stat.st_mtime}

    def check(self) -> None:
        """Read everything once; UserError where there is no row, or lists the bad ones (data.on_bad_row: error)."""
        log = BadRowLog(self.data.on_bad_row)
        empty = True
        for row in self.rows():
            empty = False
            if isinstance(row, BadRow):
                log.add(row)
        log.finish()
        if empty:
            raise no_rows(self.name)

    def rows(self, skip: int = 0) -> Iterator[TextExample | BadRow]:
        """Examples and bad rows in file order, without the first `skip`; memory holds one row (json: all)."""
        reader = ExampleReader(self.data, None, want_labels=False)
        with self._open() as stream:
            for row in islice(self._parsed(stream), skip, None):
                yield reader.read(row)

    def _open(self) -> BinaryIO:
        if self.path is None:
            return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
        try:
            return self.path.open("rb")
        except OSError as error:
            message = f"cannot read the input: {error.strerror}"
            raise UserError(message, where=self.name, hint="check the path") from None

    def _parsed(self, stream: BinaryIO) -> Iterator[Row | BadRow]:
        if self.format != PLAIN:
            return parse_rows(stream, self.name, self.format, self.data.header, wanted_columns(self.data, False))
        return _plain_rows(stream, self.name, self.data.columns.text)


def open_input(data: DataSection, path: str, format: str) -> PredictInput:
    """The input that `path` ("-" is standard input) and `format` ("auto" goes by the ending) name.

    Raises UserError where the file is missing, or plain text is to be read for sentence pairs.
    """
    file = None if path == STDIN else Path(path)
    if file is not None and not file.exists():
        raise UserError("no such input file", where=path, hint="check the path; `-` reads standard input")
    if file is not None and file.is_dir():
        raise UserError("this is a folder, not an input file", where=path, hint="give a file in it")
    if format == "auto":
        format = PLAIN if file is None else FORMATS.get(file.suffix.lower(), PLAIN)
    if format == PLAIN and data.columns.text_pair is not None:
        raise UserError(
            "plain text has no second sentence, but the model takes pairs",
            where="standard input" if file is None else path,
            hint=f"use --format jsonl with the keys {data.columns.text!r} and {data.columns.text_pair!r}, or tsv, csv",
        )
    return PredictInput(data, file, format)


def _plain_rows(stream: BinaryIO, source: str, column: str) -> Iterator[Row | BadRow]:
    for number, raw in numbered_lines(stream, source):
        text, reason = decode(raw)
        yield Row(source, number, {column: text}) if reason is None else BadRow(source, number, reason)
