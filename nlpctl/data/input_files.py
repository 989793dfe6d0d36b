"""The files of an input: what their names stand for, how they are opened, and their rows from any place on.

A file may be packed (.gz, .zst), and may be named by a URL that fsspec knows (s3://bucket/texts.jsonl).
"""

from __future__ import annotations

import contextlib
import glob
import io
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from nlpctl.config.input_formats import INPUT_FORMATS, PLAIN
from nlpctl.data.readers.packed import packing, suffix_of, unpacked, unpacking_errors_as_user_errors
from nlpctl.data.readers.readers import file_lines, reader_rows
from nlpctl.data.readers.request import ReadRequest
from nlpctl.data.readers.tables import says_separator, table_records
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.errors import NlpctlError, UserError
from nlpctl.layout import MANIFEST, PARTS
from nlpctl.names import refuse_not_utf8

STDIN = "-"
CLUSTER = "pip install 'nlpctl[cluster]'"

# What the file systems of fsspec call the mark or the time of a version of a file.
_VERSIONS = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated")
_UNFINISHED = (".partial", ".partial.json")  # what an interrupted prediction has left in a folder of texts
_PIECE = 1 << 16
_BLOCK = 1 << 20


@dataclass(frozen=True)
class InputFile:
    """One file. `where`: a path, a URL, or - for standard input; `format`: a name in INPUT_FORMATS.

    `unpacked`: a copy of a packed file that is read in its place, and anywhere in it.
    """

    where: str
    format: str
    unpacked: str | None = None

    @property
    def name(self) -> str:
        """Its name in messages."""
        return "standard input" if self.where == STDIN else self.where

    @property
    def path(self) -> Path | None:
        """None for standard input and for a URL."""
        return None if self.where == STDIN or is_url(self.where) else Path(self.where)

    @property
    def rereadable(self) -> bool:
        """Whether a second pass gives the same rows: a regular file, not a pipe."""
        return is_url(self.where) or (self.path is not None and self.path.is_file())

    @property
    def divisible(self) -> bool:
        """Whether it can be read from the middle: a row group, or a line of what is not packed."""
        if packing(self.where) and self.unpacked is None:
            return False
        return self.rereadable and not INPUT_FORMATS[self.format].whole

    def identity(self) -> dict[str, Any]:
        """What a resumed prediction must find again. UserError if it cannot be read again."""
        if not self.rereadable:
            raise UserError("a pipe cannot be read again", where=self.name, hint="@[resume=true] needs an input file")
        if is_url(self.where):
            with _reading(self):
                info = _file_system(self.where)[0].info(_file_system(self.where)[1])
            changed = next((str(info[name]) for name in _VERSIONS if info.get(name) is not None), None)
            return {"input": self.where, "format": self.format, "size": info.get("size"), "mtime": changed}
        stat = os.stat(self.where)
        facts = {"size": stat.st_size, "mtime": stat.st_mtime}
        return {"input": str(Path(self.where).resolve()), "format": self.format, **facts}

    @property
    def size(self) -> int:
        """Bytes on disk; 0 if a server does not tell them."""
        if self.unpacked is not None:
            return os.stat(self.unpacked).st_size
        return int(self.identity()["size"] or 0)

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Its bytes, unpacked. UserError if it cannot be read, also for a failure in the body to read on."""
        with _reading(self), contextlib.ExitStack() as stack:
            stream = stack.enter_context(_open_raw(self.unpacked or self.where))
            kind = None if self.unpacked else packing(self.where)
            if kind is not None:
                stack.enter_context(unpacking_errors_as_user_errors(self.name))
                stream = stack.enter_context(unpacked(stream, kind))
            yield stream

    def unpack(self) -> Iterator[bytes]:
        """The bytes of the packed file itself. UserError as of `open`."""
        with replace(self, unpacked=None).open() as stream:
            while piece := stream.read(_BLOCK):
                yield piece


@dataclass(frozen=True)
class ReadPosition:
    """A part of a file, and where in it reading begins.

    The part begins at byte `begin`, the first of line `first_line`, and ends before byte `end` (None: the end of the
    file); reading begins at line `line`, and `skip` rows from there are passed over. In a file with row groups `begin`
    and `end` count these, and `first_line` is a row.
    """

    begin: int = 0
    end: int | None = None
    first_line: int = 1
    line: int = 1
    skip: int = 0


def rows_at(
    file: InputFile, rows: TaskRows, position: ReadPosition, columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """The rows, good and bad, of `file` from `position` on. `columns`: those that are wanted, where that saves time."""
    header = rows.data.header
    # Any task may be asked in lines of plain text; a line is then what `plain_column` says.
    plain = file.format == PLAIN and rows.plain_column is not None
    request = ReadRequest(
        file.format,
        header,
        (rows.plain_column,) if plain else rows.required(labelled=False),
        rows,
        columns,
        groups=(position.begin, position.end, position.first_line),
        blank_lines=True,
    )
    with file.open() as stream:
        if INPUT_FORMATS[file.format].binary:
            yield from islice(reader_rows(stream, file.name, request), position.skip, None)
            return
        head = _head(file, position, header, request.required)
        lines = file_lines(Part(stream, position), file.name, file.format, position.line)
        # Without a header line the first good row tells the number of columns; it is not a row of this part.
        extra = int(bool(head) and not header)
        yield from islice(reader_rows(chain(head, lines), file.name, request), extra + position.skip, None)


class Part:
    """A stream of the bytes from a ReadPosition on."""

    def __init__(self, stream: Any, position: ReadPosition):
        self._stream, self._kept = stream, b""
        self._left = None if position.end is None else position.end - position.begin
        if position.begin:
            stream.seek(position.begin)
        self._skip_lines(position.line - position.first_line)

    def read1(self, size: int) -> bytes:
        """Up to `size` bytes, b"" at the end."""
        if self._kept:
            piece, self._kept = self._kept[:size], self._kept[size:]
            return piece
        if self._left is not None:
            size = min(size, self._left)
        piece = self._stream.read1(size) if size else b""
        if self._left is not None:
            self._left -= len(piece)
        return piece

    def _skip_lines(self, count: int) -> None:
        while count and (piece := self.read1(_PIECE)):
            line_ends = piece.count(b"\n")
            if line_ends < count:
                count -= line_ends
                continue
            place = -1
            for _ in range(count):
                place = piece.index(b"\n", place + 1)
            self._kept, count = piece[place + 1 :] + self._kept, 0


def _head(file: InputFile, position: ReadPosition, header: bool, required: Sequence[str]) -> list[tuple[int, bytes]]:
    """The lines before `position` of the record that names the columns of a table, or counts them."""
    if INPUT_FORMATS[file.format].columns != "header" or position.line == 1:
        return []
    taken: list[tuple[int, bytes]] = []
    with file.open() as stream:
        lines = takewhile(lambda line: line[0] < position.line, file_lines(stream, file.name, file.format))

        def noted() -> Iterator[tuple[int, bytes]]:
            for line in lines:
                taken.append(line)
                yield line

        for record in table_records(noted(), file.format, header, required):
            if header or record.reason is None:
                return taken
            del taken[int(says_separator(taken[0][1])) :]
    return []


def expand_name(name: str, endings: Collection[str] | None) -> list[str]:
    """The paths or URLs that `name` stands for: itself, the files of a folder, or those that match a pattern.

    Sorted by name. Of a folder those with one of `endings` count (None: all), but hidden ones do not, nor those that
    begin with _, as of Spark, nor unfinished answers. UserError: there is none.
    """
    if name == STDIN:
        return [name]
    if is_url(name):
        return _expand_url(name, endings)
    files = _expand_path(name, endings)
    for file in files:
        refuse_not_utf8(file)
    return files


def _expand_path(name: str, endings: Collection[str] | None) -> list[str]:
    path = Path(name)
    if path.is_dir():
        names = (str(each) for each in path.iterdir() if each.is_file() and _counts(each.name, endings))
        files = sorted(each for each in names if not _is_list_of_parts(each))
        if not files:
            hint = "give a file, or say with @[format] what the files are"
            raise UserError("this folder holds no file of texts, by their endings", where=name, hint=hint)
        return files
    if not path.exists():
        matching = sorted(each for each in glob.glob(name, recursive=True) if os.path.isfile(each))
        if glob.has_magic(name) and matching:
            return matching
        raise UserError("no such input file", where=name, hint="check the path; `-` reads standard input")
    return [name]


def is_url(where: str) -> bool:
    return "://" in where


def _counts(name: str, endings: Collection[str] | None) -> bool:
    """Whether a file of a folder is read."""
    if name.startswith((".", "_")) or name.endswith(_UNFINISHED):
        return False
    return endings is None or suffix_of(name) in endings


def _is_list_of_parts(where: str) -> bool:
    """Whether this is no file of texts, but what `predict --parts` wrote beside its answers."""
    if PurePosixPath(where).name != MANIFEST:
        return False
    with InputFile(where, PLAIN).open() as stream:
        return PARTS.encode() in stream.read(_PIECE)


def _expand_url(url: str, endings: Collection[str] | None) -> list[str]:
    system, path = _file_system(url)
    with _reading(InputFile(url, PLAIN)):
        if glob.has_magic(path):
            paths = [each for each in system.glob(path) if system.isfile(each)]
        elif system.isdir(path):
            below = (each for each in system.ls(path, detail=False) if system.isfile(each))
            counting = (each for each in below if _counts(PurePosixPath(each).name, endings))
            paths = [each for each in counting if not _is_list_of_parts(system.unstrip_protocol(each))]
        else:
            paths = [path] if system.exists(path) else []
    if not paths:
        raise UserError("no such input file", where=url, hint="check the URL")
    return sorted(system.unstrip_protocol(each) for each in paths)


def _file_system(url: str) -> tuple[Any, str]:
    """The file system of `url`, and the path in it. UserError: no package knows it."""
    try:
        import fsspec

        return fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        hint = f"install what the message names; fsspec itself comes with {CLUSTER}"
        raise UserError(f"this URL cannot be read: {str(error).strip()}", where=url, hint=hint) from None


def _open_raw(where: str) -> Any:
    if where == STDIN:
        # A duplicate, so that closing the stream leaves sys.stdin usable for the caller.
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    if not is_url(where):
        return open(where, "rb")
    system, path = _file_system(where)
    stream = system.open(path, "rb")
    return stream if hasattr(stream, "read1") else io.BufferedReader(stream)


@contextlib.contextmanager
def _reading(file: InputFile) -> Iterator[None]:
    """UserError for what can go wrong with a file; the body does nothing but read it."""
    try:
        yield
    except NlpctlError:
        raise
    except OSError as error:
        message = f"cannot read the input: {error.strerror or error}"
        raise UserError(message, where=file.name, hint="check the path") from None
    except Exception as error:
        if not is_url(file.where):
            raise
        # The packages behind fsspec have errors of their own, as for credentials that are missing.
        message = f"this URL cannot be read: {error}"
        raise UserError(message, where=file.name, hint="check it, and your credentials") from None
