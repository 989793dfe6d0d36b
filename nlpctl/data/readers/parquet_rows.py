"""Reads Parquet into rows. Row groups are read piece by piece, and can be read apart from each other.

Of equal values a file holds one, so that a few hundred bytes may stand for gigabytes: how many rows are read at once
depends on what the columns claim to be when unpacked, and a row is no longer than a line of text may be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nlpctl.data.readers.lines import MAX_LINE
from nlpctl.data.readers.request import ReadRequest
from nlpctl.data.readers.row import NAME_COLUMNS, BadRow, Row
from nlpctl.errors import UserError
from nlpctl.files import MOST_PACKED
from nlpctl.names import did_you_mean, listed

_AT_ONCE = 256  # rows; more are not read faster
_USUAL_GROWTH = 20  # of texts that are unpacked
_MOST_GROWTH = 200
_ELEMENT = 64  # bytes of an element of a list, as an object


def group_rows(stream: Any, source: str) -> list[int]:
    """The number of rows of each row group, from the end of the file alone."""
    metadata = _opened(stream, source).metadata
    return [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)]


def parquet_rows(stream: Any, source: str, request: ReadRequest) -> Iterator[Row | BadRow]:
    """The rows of the requested groups, with the wanted columns. A row's line is its number, from 1.

    UserError: a column is missing, or the file is damaged.
    """
    begin, end, number = request.groups
    file = _opened(stream, source)
    names = file.schema_arrow.names
    for name in request.required:
        if name not in names:
            message = f"no column {name!r}{did_you_mean(name, names)}; the columns are {listed(names)}"
            raise UserError(message, source, NAME_COLUMNS)
    wanted = [name for name in names if request.columns is None or name in request.columns]
    wanted = wanted or names  # all: a message lists them
    if twice := [name for name in wanted if wanted.count(name) > 1]:
        raise UserError(f"two columns are called {twice[0]!r}", source, "rename one of them")
    groups = list(range(begin, file.num_row_groups if end is None else end))
    at_once = _at_once(file, groups, wanted, source)
    batches = file.iter_batches(at_once, row_groups=groups, columns=wanted) if groups else iter(())
    while True:
        try:
            batch = next(batches, None)
        except (OSError, ValueError) as error:  # pyarrow's own errors are subclasses
            raise _damaged(source, error) from None
        if batch is None:
            return
        others = [field.name for field in batch.schema if not _is_plain(field.type)]
        # As Python's texts large values would be several times as large, so these go row by row.
        step = batch.num_rows if batch.nbytes <= MAX_LINE else 1
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
            if step == 1 and part.nbytes > MAX_LINE:
                message = f"the row is longer than {MAX_LINE / 2**20:g} MiB"
                raise UserError(message, f"{source}:{number}", "leave it out, or divide it into several rows")
            try:
                records = part.to_pylist()
            except (ValueError, OverflowError) as error:  # no UTF-8, a date that Python does not know
                message = f"a value in the rows {number:,} to {number + part.num_rows - 1:,} cannot be read ({error})"
                raise UserError(message, source, "write the file again without it") from None
            for values in records:
                for name in others:
                    values[name] = _plain(values[name])
                yield Row(source, number, values)
                number += 1


def _at_once(file: Any, groups: list[int], wanted: list[str], source: str) -> int:
    """How many rows to read at once, each of which may hold the longest value that a column can have.

    UserError: a column claims to be much more than a file of its size holds.
    """
    metadata = file.metadata
    columns = range(metadata.num_columns)
    size = sum(metadata.row_group(group).column(i).total_compressed_size for group in groups for i in columns)
    at_once = _AT_ONCE
    for i in columns:
        path = metadata.schema.column(i).path  # of a part of a column, if it has any; a name may have points, too
        if not any(path == name or path.startswith(f"{name}.") for name in wanted):
            continue
        in_lists = metadata.schema.column(i).max_repetition_level > 0
        for chunk in (metadata.row_group(group).column(i) for group in groups):
            unpacked = chunk.total_uncompressed_size
            claimed = unpacked + (_ELEMENT * chunk.num_values if in_lists else 0)
            if claimed > MOST_PACKED + _MOST_GROWTH * size:
                message = f"a column claims {claimed:,} bytes, and the columns have {size:,} in the file"
                raise UserError(message, f"{source}: {chunk.path_in_schema}", "write it again, or leave the column out")
            if unpacked > _USUAL_GROWTH * chunk.total_compressed_size:
                at_once = min(at_once, max(1, MAX_LINE // unpacked))
    return at_once


def _is_plain(kind: Any) -> bool:
    """Whether JSON holds values of this type as they are."""
    from pyarrow import types

    tests = (types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean)
    return any(test(kind) for test in tests)


def _plain(value: Any) -> Any:
    """`value` as JSON can hold it: dates and times as ISO 8601 writes them, other types as text."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _opened(stream: Any, source: str) -> Any:
    from pyarrow.parquet import ParquetFile  # late: half a second

    try:
        return ParquetFile(stream)
    except (OSError, ValueError) as error:
        raise _damaged(source, error) from None


def _damaged(source: str, error: Exception) -> UserError:
    reason = str(error).splitlines()[0]
    return UserError(f"this Parquet file cannot be read: {reason}", source, "write or copy it again")
