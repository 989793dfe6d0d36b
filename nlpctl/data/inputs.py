"""The input of `predict`: files or standard input, as plain text (a sentence per line), Parquet, or a data.format."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nlpctl.config.input_formats import INPUT_FORMATS, PLAIN
from nlpctl.data.input_files import STDIN, InputFile, ReadPosition, expand_name, is_url, rows_at
from nlpctl.data.passthrough_columns import KEEP_NONE, PassthroughColumns, keep_by_default
from nlpctl.data.readers.annotation_rows import recognised_format
from nlpctl.data.readers.lines import refuse_other_encodings
from nlpctl.data.readers.packed import suffix_of
from nlpctl.data.readers.readers import after_header, no_rows
from nlpctl.data.readers.row import BadRow, is_bad
from nlpctl.data.readers.segmented import is_segmented
from nlpctl.data.rows.examples import BadRowLog, ExampleReader
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.errors import UserError
from nlpctl.outputs import note_inputs

_BEGINNING = 1 << 16  # bytes that are looked at
_ENDINGS = {  # and those of the task
    ending: each.name
    for each in INPUT_FORMATS.values()
    if each.name == PLAIN or each.for_predict_only
    for ending in each.endings
}
_TAGGED_WORD = re.compile(r"\S+[\t ](O|[BIESMLU]-\S+|\S+-[BIESMLU])")


@dataclass(frozen=True)
class PredictInput:
    """Rows to be answered: those of `files`, one after the other."""

    task_rows: TaskRows
    files: tuple[InputFile, ...]

    @property
    def name(self) -> str:
        """For messages."""
        return self.files[0].name if len(self.files) == 1 else f"{self.files[0].name} ... {self.files[-1].name}"

    @property
    def format(self) -> str:
        """That of the first file."""
        return self.files[0].format

    @property
    def paths(self) -> list[Path]:
        """The local files."""
        return [file.path for file in self.files if file.path is not None]

    @property
    def rereadable(self) -> bool:
        """Whether a second pass gives the same rows: regular files, not a pipe."""
        return all(file.rereadable for file in self.files)

    def identity(self) -> dict[str, Any]:
        """The identity of this input, which a resumed prediction must match. UserError for standard input."""
        identities = [file.identity() for file in self.files]
        return identities[0] if len(identities) == 1 else {"input": identities}

    def check(self, keep: PassthroughColumns = KEEP_NONE) -> int:
        """Read everything once, with what is to be kept, and count the rows, bad ones too.

        UserError if there is none, or lists the bad ones (data.on_bad_row: error).
        """
        log = BadRowLog(self.task_rows.data.on_bad_row)
        count = 0
        for count, (row, _) in enumerate(self.kept_rows(keep), 1):  # noqa: B007
            if is_bad(row):
                log.add(row)
        log.finish()
        if not count:
            raise self.no_rows()
        return count

    def refuse_other_encodings(self) -> None:
        """UserError if the first line of a file shows that it is no text in UTF-8, before gigabytes are read."""
        for file in self.files:
            if not INPUT_FORMATS[file.format].binary:
                with file.open() as stream:
                    refuse_other_encodings(stream.read(_BEGINNING).split(b"\n", 1)[0], file.name)

    def no_rows(self) -> UserError:
        """The error for an input without a single row."""
        return no_rows(self.name, after_header(self.format, self.task_rows.data.header))

    def rows(self, skip: int = 0) -> Iterator[Any]:
        """Examples and bad rows in file order, without the first `skip`; memory holds one row (json: all)."""
        for example, _ in self.kept_rows(KEEP_NONE, skip):
            yield example

    def kept_rows(self, keep: PassthroughColumns | None, skip: int = 0) -> Iterator[tuple[Any, dict[str, Any]]]:
        """`rows`, each with what its answer repeats. UserError if the first one has no such key.

        `keep` None: what the format of each file keeps by default.
        """
        checked, count = keep is None, 0
        for file in self.files:
            reader = KeptRowReader(self.task_rows, file, keep)
            for row in rows_at(file, self.task_rows, ReadPosition(), wanted_columns(self.task_rows, file, reader.keep)):
                count += 1
                if count <= skip:
                    continue
                if not (checked or isinstance(row, BadRow)):
                    reader.keep.check(row.values, f"{row.source}:{row.line}")
                    checked = True
                yield reader.read(row)
        if not count and self.format != PLAIN:
            raise self.no_rows()


def wanted_columns(rows: TaskRows, file: InputFile, keep: PassthroughColumns) -> tuple[str, ...] | None:
    """The columns that are read, where leaving out the others saves time; None: all."""
    if INPUT_FORMATS[file.format].columns != "schema" or keep.names != ():
        return None
    return "id", *(name for name in asdict(rows.data.columns).values() if name is not None)


class KeptRowReader:
    """Turns the rows of a file into examples, each with what its answer repeats."""

    def __init__(self, rows: TaskRows, file: InputFile, keep: PassthroughColumns | None):
        """UserError if lines of plain text are to keep something."""
        self.keep = keep_by_default(file.format) if keep is None else keep
        if self.keep.names and file.format == PLAIN:
            hint = "leave it out; a file with more columns is read with @[format=tsv], csv or jsonl"
            raise UserError("a line of plain text has nothing else to keep", "@[keep]", hint)
        self._rows, self._reader = rows, ExampleReader(rows, None)

    def read(self, row: Any) -> tuple[Any, dict[str, Any]]:
        """The example in `row`, or a BadRow; and what is kept of it."""
        example = self._reader.read(row)
        return example, {} if isinstance(row, BadRow) else self.keep.select(self._rows, row.values, example)


def open_input(rows: TaskRows, path: str, format: str) -> PredictInput:
    """`open_inputs` of one name."""
    return open_inputs(rows, [path], format)


def open_inputs(rows: TaskRows, names: Sequence[str], format: str) -> PredictInput:
    """The input that `names` stand for: files, folders, patterns, URLs, or "-" for standard input alone.

    `format` "auto" goes by the endings. Raises UserError if a file is missing or named twice, plain text cannot hold
    what the task needs, or "auto" would take tagged words for sentences.
    """
    if STDIN in names and len(names) > 1:
        raise UserError("standard input cannot be read beside files", "-", "leave out -, or the files")
    endings = {*_ENDINGS, *rows.endings} if format == "auto" else None
    places = [place for name in names for place in expand_name(name, endings)]
    twice = [place for place, times in Counter(places).items() if times > 1]
    if twice:
        raise UserError("this file is named twice", twice[0], "name it once")
    source = PredictInput(rows, tuple(_input_file(rows, place, format) for place in places))
    note_inputs(source.paths, "the input")
    return source


def _input_file(rows: TaskRows, where: str, format: str) -> InputFile:
    if format == "auto":
        suffix = "" if where == STDIN else suffix_of(where)
        format = _ENDINGS.get(suffix) or rows.endings.get(suffix) or _without_ending(where, suffix, rows)
        if rows.annotation is not None and (path := InputFile(where, format).path) is not None:
            format = recognised_format(path, "spans" if rows.annotation == "spans" else None) or format
        if suffix == ".txt" and format == PLAIN and not is_url(where):
            _refuse_objects(InputFile(where, format))
        # For training a .txt file of a tagger is CoNLL, for predict it is plain text: both readings are common.
        if suffix == ".txt" and rows.endings.get(suffix) == "conll":
            _refuse_conll(InputFile(where, format))
    if format == PLAIN and rows.plain_column is None:
        columns = " and ".join(repr(name) for name in rows.required(labelled=False))
        raise UserError(
            f"plain text has one text per line, but the model takes {columns}",
            where=InputFile(where, format).name,
            hint="use @[format=jsonl] with these keys, or tsv, csv",
        )
    return InputFile(where, format)


def _without_ending(where: str, suffix: str, rows: TaskRows) -> str:
    """Plain text where there is no ending, as on standard input. UserError for an ending that tells no format."""
    if suffix and not is_url(where):  # which may end in a query
        known = ", ".join(dict.fromkeys([*_ENDINGS, *rows.endings]))
        message = f"cannot tell the format by the ending {suffix!r}; known endings: {known}"
        raise UserError(message, where=where, hint="use @[format=text] if it has a text per line, or another @[format]")
    return PLAIN


def _refuse_objects(file: InputFile) -> None:
    """UserError if a file of plain text begins with a JSON object, as the .txt files of some tools do."""
    for line in _first_lines(file, 1, _BEGINNING):
        with contextlib.suppress(ValueError, RecursionError):
            line = line.removeprefix(codecs.BOM_UTF8)
            if line.startswith(b"{") and isinstance(json.loads(line), dict):
                raise UserError(
                    "this line is a JSON object, but a .txt file has a text per line",
                    where=f"{file.name}:1",
                    hint="use @[format=jsonl], or @[format=text] if these are the texts",
                )


def _first_lines(file: InputFile, count: int, longest: int) -> list[bytes]:
    """The first lines, cut at `longest` bytes; none of a file that cannot be read, or once only, as a pipe."""
    if not file.rereadable or (file.path is not None and not os.access(file.path, os.R_OK)):
        return []
    with file.open() as stream:
        return [stream.readline(longest) for _ in range(count)]


def _refuse_conll(file: InputFile) -> None:
    """UserError if a file of plain text begins as a CoNLL file does, with two lines of a word and its tag; or with
    words and parts of speech on a line."""
    lines = [line.decode("utf-8", "replace").rstrip("\r\n") for line in _first_lines(file, 2, 200)]
    if lines and all(map(_TAGGED_WORD.fullmatch, lines)):
        raise UserError(
            f"{lines[0]!r} looks like a word and its tag, but a .txt file has a sentence per line",
            where=f"{file.name}:1",
            hint="use @[format=conll], or @[format=text] if these are the sentences",
        )
    if is_segmented(line.decode("utf-8", "replace") for line in _first_lines(file, 2, _BEGINNING)):
        raise UserError(
            "this line looks like words and parts of speech, but a .txt file has a sentence per line",
            where=f"{file.name}:1",
            hint="use @[format=segmented], or @[format=text] if these are the sentences",
        )
