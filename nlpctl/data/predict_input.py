"""The input of `predict`: files, folders, patterns, URLs or standard input; their rows, from any place on.

A file is plain text (a sentence per line), Parquet, or in a data.format; it may be packed (.gz, .zst), and may be named
by a URL that fsspec knows (s3://bucket/texts.jsonl).
"""

from __future__ import annotations

import codecs
import contextlib
import glob
import io
import json
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice, takewhile
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal

from nlpctl import console
from nlpctl.config.input_formats import INPUT_FORMATS, PLAIN
from nlpctl.data.passthrough_columns import KEEP_NONE, KeptRowReader, PassthroughColumns, keep_by_default
from nlpctl.data.readers.annotation_rows import SPANS, recognised_format
from nlpctl.data.readers.lines import refuse_other_encodings
from nlpctl.data.readers.packed import packing, suffix_of, unpacked, unpacking_errors_as_user_errors
from nlpctl.data.readers.readers import after_header, file_lines, no_rows, reader_rows
from nlpctl.data.readers.request import ReadRequest
from nlpctl.data.readers.row import BadRow, is_bad
from nlpctl.data.readers.segmented import is_segmented
from nlpctl.data.readers.tables import says_separator, separated, table_records
from nlpctl.data.rows.examples import BadRowLog
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.errors import NlpctlError, UserError
from nlpctl.extras import install
from nlpctl.layout import MANIFEST, PARTS
from nlpctl.names import and_more, in_utf8, link_hint, refuse_not_utf8, subject
from nlpctl.outputs import note_inputs

STDIN = "-"

# What the file systems of fsspec call the mark or the time of a version of a file.
_VERSIONS = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated")
_UNFINISHED = (".partial", ".partial.json")  # what an interrupted prediction has left in a folder of texts
_PIECE = 1 << 16  # bytes
_BLOCK = 1 << 20
_BEGINNING = 1 << 16  # bytes that are looked at
_ENDINGS = {  # and those of the task
    ending: each.name
    for each in INPUT_FORMATS.values()
    if each.name == PLAIN or each.for_predict_only
    for ending in each.endings
}
_TAGGED_WORD = re.compile(r"\S+[\t ](O|[BIESMLU]-\S+|\S+-[BIESMLU])")


# -- all of the input ------------------------------------------------------------------------------


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
            kept = kept_columns(file, keep)
            reader = KeptRowReader(self.task_rows, kept)
            for row in rows_at(file, self.task_rows, ReadPosition(), wanted_columns(self.task_rows, file, kept)):
                count += 1
                if count <= skip:
                    continue
                if not (checked or isinstance(row, BadRow)):
                    kept.check(row.values, f"{row.source}:{row.line}")
                    checked = True
                yield reader.read(row)
        if not count and self.format != PLAIN:
            raise self.no_rows()


def wanted_columns(rows: TaskRows, file: InputFile, keep: PassthroughColumns) -> tuple[str, ...] | None:
    """The columns that are read, where leaving out the others saves time; None: all."""
    if INPUT_FORMATS[file.format].columns != "schema" or keep.names != ():
        return None
    return "id", *(name for name in asdict(rows.data.columns).values() if name is not None)


def kept_columns(file: InputFile, keep: PassthroughColumns | None) -> PassthroughColumns:
    """What answers to the rows of `file` repeat: `keep`, or what its format keeps by default.

    UserError if lines of plain text are to keep something.
    """
    if keep is None:
        return keep_by_default(file.format)
    if keep.names and file.format == PLAIN:
        hint = "leave it out; a file with more columns is read with @[format=tsv], csv or jsonl"
        raise UserError("a line of plain text has nothing else to keep", "@[keep]", hint)
    return keep


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
    by_default = format == "auto"
    if by_default:
        suffix = "" if where == STDIN else suffix_of(where)
        format = _ENDINGS.get(suffix) or rows.endings.get(suffix) or _without_ending(where, suffix, rows)
        if rows.annotation is not None and (path := InputFile(where, format).path) is not None:
            annotated = recognised_format(path, "spans" if rows.annotation == "spans" else None)
            # An answer repeats the spans of a row of objects, for comparison.
            format = format if annotated is None or annotated == SPANS else annotated
        if format == PLAIN and not is_url(where):
            for line in _first_lines(InputFile(where, format), 1, _BEGINNING):
                _refuse_object(InputFile(where, format), 1, line)
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
    return InputFile(where, format, guessed=by_default and format == PLAIN)


def _without_ending(where: str, suffix: str, rows: TaskRows) -> str:
    """Plain text where there is no ending, as on standard input. UserError for an ending that tells no format."""
    if suffix and not is_url(where):  # which may end in a query
        known = ", ".join(dict.fromkeys([*_ENDINGS, *rows.endings]))
        message = f"cannot tell the format by the ending {suffix!r}; known endings: {known}"
        raise UserError(message, where=where, hint="use @[format=text] if it has a text per line, or another @[format]")
    return PLAIN


def _refuse_object(file: InputFile, number: int, line: bytes) -> None:
    """UserError if line `number` of plain text is a JSON object, as in the .txt files of some tools, or in a pipe."""
    with contextlib.suppress(ValueError, RecursionError):
        line = line.removeprefix(codecs.BOM_UTF8).strip()
        if line.startswith(b"{") and isinstance(json.loads(line), dict):
            what = "a .txt file" if suffix_of(file.where) == ".txt" else "input without a known ending"
            raise UserError(
                f"this line is a JSON object, but {what} has a text per line",
                where=f"{file.name}:{number}",
                hint="use @[format=jsonl], or @[format=text] if these are the texts",
            )


def _without_objects(file: InputFile, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """`lines`, each as soon as it is there. UserError of `_refuse_object` for the first that is not blank."""
    lines = iter(lines)
    for number, line in lines:
        if line.strip():
            _refuse_object(file, number, line)
            yield number, line
            break
        yield number, line
    yield from lines


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


# -- one file --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InputFile:
    """One file. `where`: a path, a URL, or - for standard input; `format`: a name in INPUT_FORMATS.

    `unpacked`: a copy of a packed file that is read in its place, and anywhere in it. `guessed`: it is plain text
    because nobody said what it is.
    """

    where: str
    format: str
    unpacked: str | None = None
    guessed: bool = False

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
    plain = rows.plain_column if file.format == PLAIN else None
    request = ReadRequest(
        file.format,
        header,
        rows.required(labelled=False) if plain is None else (plain,),
        rows,
        columns,
        groups=(position.begin, position.end, position.first_line),
        blank_lines=True,
    )
    with file.open() as stream:
        if INPUT_FORMATS[file.format].binary:
            yield from islice(reader_rows(stream, file.name, request), position.skip, None)
            return
        # Without a header line the first good row tells the number of columns; it is not a row of this part.
        head, extra = _head(file, position, header, request.required)
        lines = file_lines(Part(stream, position), file.name, file.format, position.line)
        if file.guessed and position.line == 1:
            lines = _without_objects(file, lines)
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


def _head(
    file: InputFile, position: ReadPosition, header: bool, required: Sequence[str]
) -> tuple[list[tuple[int, bytes]], int]:
    """The lines before `position` of the record that names the columns of a table, or counts them; how many rows they
    are. Those of csv may tell no more than what separates its cells."""
    if INPUT_FORMATS[file.format].columns != "header" or position.line == 1:
        return [], 0
    taken: list[tuple[int, bytes]] = []
    with file.open() as stream:
        lines: Iterable[tuple[int, bytes]] = file_lines(stream, file.name, file.format)
        if file.format == "csv" and not header:  # all parts have the separator that the beginning of the file tells
            lines, separator = separated(lines, header, required)
            lines = chain([(0, f"sep={separator}".encode())], lines)
        before = takewhile(lambda line: line[0] < position.line, lines)

        def noted() -> Iterator[tuple[int, bytes]]:
            for line in before:
                taken.append(line)
                yield line

        for record in table_records(noted(), file.format, header, required):
            if header or record.reason is None:
                return taken, int(not header)
            del taken[int(says_separator(taken[0][1])) :]
    return taken, 0


def expand_name(name: str, endings: Collection[str] | None) -> list[str]:
    """The paths or URLs that `name` stands for: itself, the files of a folder, or those that match a pattern.

    Sorted by name. Of a folder those with one of `endings` count (None: all), but hidden ones do not, nor those that
    begin with _, as of Spark, nor unfinished answers; a note names what else is not read. UserError: there is none.
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
        files = _of_folder(name, _kinds(map(str, path.iterdir()), os.path.isfile, os.path.isdir), endings)
        if not files:
            hint = "give a file, or say with @[format] what the files are"
            raise UserError("this folder holds no file of texts, by their endings", where=name, hint=hint)
        return files
    if not path.exists():
        matching = sorted(each for each in glob.glob(name, recursive=True) if os.path.isfile(each))
        if glob.has_magic(name) and matching:
            return matching
        hint = link_hint(path) or "check the path; `-` reads standard input"
        raise UserError("no such input file", where=name, hint=hint)
    return [name]


def is_url(where: str) -> bool:
    return "://" in where


Kind = Literal["file", "folder", "other"]


def _kinds(entries: Iterable[str], is_file: Callable[[str], bool], is_folder: Callable[[str], bool]) -> dict[str, Kind]:
    """What the entries of a folder are, sorted by name, but for those that nobody means: hidden, or with _ in front."""
    seen = (each for each in sorted(entries) if not PurePosixPath(each).name.startswith((".", "_")))
    return {each: "file" if is_file(each) else "folder" if is_folder(each) else "other" for each in seen}


def _of_folder(folder: str, kinds: Mapping[str, Kind], endings: Collection[str] | None) -> list[str]:
    """The files of a folder that are read. A note names the other entries, so that none is missed in silence."""
    counting = {each for each, kind in kinds.items() if kind == "file" and _counts(each, endings)}
    files = [each for each in kinds if each in counting and not _is_list_of_parts(each)]
    if not files or len(counting) == len(kinds):
        return files
    below = shlex.quote(f"{glob.escape(folder.rstrip('/'))}/**/*{PurePosixPath(files[0]).suffix}")
    not_read = []
    for kind, one, many in (
        ("file", "by its ending", "by their endings"),
        ("folder", f"a folder: name {below}", f"folders: name {below}"),
        ("other", "no regular file", "no regular files"),
    ):
        names = [in_utf8(PurePosixPath(each).name) for each in kinds if kinds[each] == kind and each not in counting]
        if names:
            not_read.append(f"{and_more(names)} ({one if len(names) == 1 else many})")
    console.note(f"{folder}: {subject(len(files), 'files', 'is', 'are')} read; not read: {', '.join(not_read)}")
    return files


def _counts(where: str, endings: Collection[str] | None) -> bool:
    """Whether a file of a folder is read."""
    return not where.endswith(_UNFINISHED) and (endings is None or suffix_of(where) in endings)


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
            kinds = _kinds(system.ls(path, detail=False), system.isfile, system.isdir)
            paths = _of_folder(url, {system.unstrip_protocol(each): kind for each, kind in kinds.items()}, endings)
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
        hint = f"install what the message names; fsspec itself comes with {install('fsspec')}"
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
