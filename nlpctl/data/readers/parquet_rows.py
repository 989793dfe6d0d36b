"""Reads Parquet into rows. Row groups are read piece by piece, and can be read apart from each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nlpctl.data.readers.request import ReadRequest
from nlpctl.data.readers.row import NAME_COLUMNS, BadRow, Row
from nlpctl.errors import UserError
from nlpctl.names import did_you_mean, listed

_AT_ONCE = 2048  # rows


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
    batches = file.iter_batches(_AT_ONCE, row_groups=groups, columns=wanted) if groups else iter(())
    while True:
        try:
            batch = next(batches, None)
        except (OSError, ValueError) as error:  # pyarrow's own errors are subclasses
            raise _damaged(source, error) from None
        if batch is None:
            return
        others = [field.name for field in batch.schema if not _is_plain(field.type)]
        try:
            records = batch.to_pylist()
        except (ValueError, OverflowError) as error:  # no UTF-8, a date that Python does not know
            message = f"a value in the rows {number:,} to {number + batch.num_rows - 1:,} cannot be read ({error})"
            raise UserError(message, source, "write the file again without it") from None
        for values in records:
            yield Row(source, number, values | {name: _plain(values[name]) for name in others})
            number += 1


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
