"""An input cut into parts that several processes read at the same time, and these into shards that they answer.

    cut_input      byte ranges that begin at lines, row groups of Parquet; nothing is read but a line at each cut
    count_lines    per range, so that each knows the number of its first line
    scan           per range: the rows, bad ones among them, and lines from which reading can begin again
    cut_shards     runs of rows, whose borders are those of the chunks in which one process would read them

The second and third step run wherever the range can be read, for many ranges at a time.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, BinaryIO

from nlpctl.config.input_formats import INPUT_FORMATS
from nlpctl.config.tasks import load
from nlpctl.data.passthrough_columns import KEEP_NONE, KeptRowReader, PassthroughColumns, keep_by_default
from nlpctl.data.predict_input import (
    InputFile,
    Part,
    PredictInput,
    ReadPosition,
    kept_columns,
    rows_at,
    wanted_columns,
)
from nlpctl.data.readers.lines import MAX_LINE
from nlpctl.data.readers.row import BadRow, Row, is_bad
from nlpctl.data.rows.examples import SHOWN, ExampleReader
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.errors import NlpctlError, UserError

RANGE_BYTES = 8 << 20  # read in some tenths of a second, and no more than a thousand ranges for 8 GB
MARK_EVERY = 1024  # rows
_PIECE = 1 << 16
_QUOTE = b'"'


@dataclass(frozen=True)
class Range:
    """A part of file number `file` that can be read without what is before it. `line`: the number of its first line, or
    row of Parquet; None: not known yet."""

    file: int
    begin: int = 0
    end: int | None = None
    line: int | None = 1

    @property
    def position(self) -> ReadPosition:
        assert self.line is not None, "with_lines has numbered it"
        return ReadPosition(self.begin, self.end, self.line, self.line)


@dataclass(frozen=True)
class Counted:
    """Line ends in a range, and whether a quotation mark is in it."""

    lines: int
    quoted: bool


@dataclass(frozen=True)
class Scanned:
    """What a range holds: `rows` rows, `bad` bad ones, the first of them, and what ended the reading.

    `marks`: pairs of a row, counted from 0 in the range, and the line at which it begins. `unkept`: why the first good
    row has not what its answer is to repeat; `good`: whether there is a good row.
    """

    rows: int
    bad: int
    first_bad: tuple[BadRow, ...]
    marks: tuple[tuple[int, int], ...]
    good: bool
    unkept: NlpctlError | None
    error: NlpctlError | None


@dataclass(frozen=True)
class Piece:
    """`rows` rows of file number `file`, from `position` on."""

    file: int
    position: ReadPosition
    rows: int


@dataclass(frozen=True)
class Shard:
    """Rows `first` to `first` + `rows` of the input, counted from 0."""

    number: int
    first: int
    rows: int
    pieces: tuple[Piece, ...] = field(repr=False)


def cut_input(source: PredictInput, size: int = RANGE_BYTES) -> list[Range]:
    """Ranges of about `size` bytes, in order. UserError if a file cannot be read."""
    return [each for number, file in enumerate(source.files) for each in _cut_file(file, number, size)]


def _cut_file(file: InputFile, number: int, size: int) -> Iterator[Range]:
    if not file.divisible:
        yield Range(number)
        return
    groups = INPUT_FORMATS[file.format].row_groups
    if groups is not None:
        yield from _row_groups(file, number, groups)
        return
    total, begin = file.size, 0
    line: int | None = 1
    with file.open() as stream:
        for wanted in range(size, total, size):
            if wanted > begin and (cut := _cut_after(stream, wanted, file.format)) is not None and cut < total:
                yield Range(number, begin, cut, line)
                begin, line = cut, None
    yield Range(number, begin, None, line)


def _row_groups(file: InputFile, number: int, row_groups: str) -> Iterator[Range]:
    with file.open() as stream:
        rows = load(row_groups)(stream, file.name)
    if not rows:
        yield Range(number)
    for place, line in enumerate([1, *accumulate(rows, initial=1)][1:-1]):
        yield Range(number, place, place + 1, line)


def _cut_after(stream: BinaryIO, wanted: int, kind: str) -> int | None:
    """The first place from `wanted` on at which a row begins, whatever is before it; None if there is none near."""
    stream.seek(wanted - 1)
    place, blank_line_needed, second = wanted - 1, INPUT_FORMATS[kind].sentences, False
    while place < wanted + MAX_LINE and (line := stream.readline(MAX_LINE)):
        place += len(line)
        # A sentence ends at a blank line; the first line here may be the end of one that is not.
        if line.endswith(b"\n") and (not blank_line_needed or (second and not line[:-1].rstrip(b"\r").strip(b" "))):
            return place
        second = True
    return None


def count_lines(file: InputFile, part: Range) -> Counted:
    """Reads the bytes of a range, and nothing of what they mean."""
    lines, quoted = 0, False
    with file.open() as stream:
        bytes_of = Part(stream, ReadPosition(part.begin, part.end))
        while piece := bytes_of.read1(_PIECE):
            lines += piece.count(b"\n")
            quoted = quoted or _QUOTE in piece
    return Counted(lines, quoted)


def countable(ranges: Sequence[Range]) -> list[Range]:
    """The ranges that `with_lines` needs counted: those before a range whose line is not known."""
    return [one for one, after in zip(ranges, ranges[1:], strict=False) if after.line is None]


def with_lines(source: PredictInput, ranges: Sequence[Range], counted: dict[Range, Counted]) -> list[Range]:
    """The ranges with the numbers of their first lines.

    In csv a line end may stand in a quoted cell. So from the first range with a quotation mark on, the rest of a file
    is one range.
    """
    result: list[Range] = []
    line, joined = 1, False
    for place, part in enumerate(ranges):
        if part.line is not None:
            line, joined = part.line, False
        if joined:
            result[-1] = dataclasses.replace(result[-1], end=part.end)
            continue
        result.append(dataclasses.replace(part, line=line))
        count = counted.get(ranges[place])
        if count is not None:
            line += count.lines
            joined = count.quoted and INPUT_FORMATS[source.files[part.file].format].in_quotes
    return result


def scan(source: PredictInput, part: Range, keep: PassthroughColumns | None) -> Scanned:
    """Read a range. It ends early at the tenth bad row where bad rows are errors."""
    file, rows, stops = source.files[part.file], source.task_rows, source.task_rows.data.on_bad_row == "error"
    count, bad, good = 0, 0, False
    first: list[BadRow] = []
    marks: list[tuple[int, Any]] = []
    unkept = error = None
    format = INPUT_FORMATS[file.format]
    marked = not format.whole and format.row_groups is None
    columns = wanted_columns(rows, file, keep_by_default(file.format) if keep is None else keep)
    try:
        reader = ExampleReader(rows, None)
        for count, row in enumerate(rows_at(file, rows, part.position, columns), 1):
            if not isinstance(row, BadRow):
                if not good and keep is not None:
                    unkept = _unkept(keep, row)
                good = True
                if marked and count > MARK_EVERY * (len(marks) + 1):
                    marks.append((count - 1, row.line))
            example = reader.read(row)
            if is_bad(example):
                bad += 1
                if len(first) < SHOWN:
                    first.append(example)
                if stops and bad == SHOWN:
                    break
    except NlpctlError as failure:
        error = failure
    return Scanned(count, bad, tuple(first), tuple(marks), good, unkept, error)


def _unkept(keep: PassthroughColumns, row: Row) -> UserError | None:
    try:
        keep.check(row.values, f"{row.source}:{row.line}")
    except UserError as error:
        return error
    return None


def cut_shards(ranges: Sequence[Range], scanned: Sequence[Scanned], rows: int) -> Iterator[Shard]:
    """Shards of `rows` rows, the last one of what is left."""
    ends = list(accumulate(each.rows for each in scanned))
    for number, first in enumerate(range(0, ends[-1], rows)):
        last = min(first + rows, ends[-1])
        pieces, place = [], first
        while place < last:
            which = bisect_right(ends, place)
            inside = place - (ends[which] - scanned[which].rows)
            taken = min(last, ends[which]) - place
            pieces.append(Piece(ranges[which].file, _from_row(ranges[which], scanned[which], inside), taken))
            place += taken
        yield Shard(number, first, last - first, tuple(pieces))


def _from_row(part: Range, scanned: Scanned, row: int) -> ReadPosition:
    """The place of a row of a range, reached from the nearest line that is known."""
    which = bisect_right(scanned.marks, row, key=lambda mark: mark[0]) - 1
    position = part.position
    begun, line = scanned.marks[which] if which >= 0 else (0, position.line)
    return dataclasses.replace(position, line=line, skip=row - begun)


@dataclass(frozen=True)
class ShardRows:
    """The rows of a shard, as PredictInput gives those of all of its input."""

    source: PredictInput
    shard: Shard

    @property
    def task_rows(self) -> TaskRows:
        return self.source.task_rows

    def rows(self) -> Iterator[object]:
        """Examples and bad rows."""
        return (example for example, _ in self.kept_rows(KEEP_NONE))

    def kept_rows(self, keep: PassthroughColumns | None, skip: int = 0) -> Iterator[tuple[object, dict[str, object]]]:
        """Examples and bad rows, each with what its answer repeats. UserError if the input has become shorter."""
        for piece in self.shard.pieces:
            file, count = self.source.files[piece.file], 0
            kept = kept_columns(file, keep)
            reader = KeptRowReader(self.source.task_rows, kept)
            columns = wanted_columns(self.source.task_rows, file, kept)
            for count, row in enumerate(rows_at(file, self.source.task_rows, piece.position, columns), 1):
                yield reader.read(row)
                if count == piece.rows:
                    break
            if count != piece.rows:
                message = "the file has changed while it was read"
                raise UserError(message, file.name, "start again, without @[resume=true]")
