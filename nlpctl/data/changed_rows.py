"""Rows that pass through functions of the user's own: data.map and data.filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.schema import DataSection
from nlpctl.config.user_code import describe_error, import_code, kind_of_code
from nlpctl.data.readers.row import BadRow, Row, RowSource, missing_key
from nlpctl.errors import UserError

MAP, FILTER = kind_of_code("data.map"), kind_of_code("data.filter")
_TRUTHS = ("bool", "bool_")  # Python's and NumPy's


def warn_of_map(data: DataSection, output: Path) -> None:
    """Warn that the rows in `output` have been through data.map, where there is one."""
    if data.map:
        console.warn(
            f"{output} has rows as data.map made them; a recipe that reads it must not name data.map, which would do "
            "so again"
        )


def warn_of_labels(data: DataSection, output: Path) -> None:
    """Warn that `output` has the labels of a model that learned them of data.map, where there is one, at other rows."""
    if data.map:
        console.warn(
            f"{output} has the texts as they are before data.map, but labels as it makes them: read it with a data.map "
            "that leaves labels as they are"
        )


@dataclass(frozen=True)
class ChangedRows:
    """The rows of `source`, each passed through the functions of data.map, those left out for which one of data.filter
    is false.

    A row keeps its place in its file. A row at which a function fails is a bad row. `required`: what a row must hold
    afterwards. The functions are called anew in every pass and must give the same each time.
    """

    source: RowSource
    maps: tuple[str, ...]
    filters: tuple[str, ...]
    required: tuple[str, ...]

    @property
    def description(self) -> str:
        return self.source.description

    @property
    def files(self) -> tuple[Path, ...]:
        return self.source.files

    @property
    def label_names(self) -> tuple[str, ...] | None:
        return self.source.label_names

    def __iter__(self) -> Iterator[Row | BadRow]:
        return (changed for _, changed in self.rows_before_and_after() if changed is not None)

    def rows_before_and_after(self) -> Iterator[tuple[Row | BadRow, Row | BadRow | None]]:
        """As the function `rows_before_and_after`."""
        maps = [(name, import_code(MAP, name)) for name in self.maps]
        filters = [(name, import_code(FILTER, name)) for name in self.filters]
        read = kept = 0
        for row in self.source:
            read += 1
            changed = row if isinstance(row, BadRow) else self._changed(row, maps, filters)
            kept += changed is not None
            yield row, changed
        if read and not kept:
            hint = f"see what {', '.join(self.filters)} is given: nlpctl data show RECIPE --set data.filter=null"
            raise UserError(f"all {read:,} rows of {self.description} are left out", where=FILTER.key, hint=hint)

    def _changed(self, row: Row, maps: Sequence[_Named], filters: Sequence[_Named]) -> Row | BadRow | None:
        """The row as the functions make it; None if it is left out."""
        values: Any = row.values
        called = MAP
        try:
            for name, function in maps:
                values = function(_own_copy(values))
                if not isinstance(values, Mapping):
                    raise _wrong(name, MAP.key, values, row, "return the row as a dict")
            reason = missing_key(values, self.required)
            if reason is not None:
                return BadRow(row.source, row.line, reason)
            called = FILTER
            for name, function in filters:
                kept = function(_own_copy(values))
                if type(kept).__name__ not in _TRUTHS:
                    raise _wrong(name, FILTER.key, kept, row, "return True to keep the row, False to leave it out")
                if not kept:
                    return None
        except UserError:
            raise
        except Exception as error:
            return BadRow(row.source, row.line, f"{called.key} failed: {name}: {describe_error(error, __file__)}")
        # Without data.map the row itself, which knows the lines of its words; after a map it may have others.
        return Row(row.source, row.line, values) if maps else row


def _own_copy(values: Mapping[str, Any]) -> dict[str, Any]:
    """A row that a function may change, lists in it too: the row as it was before is still needed."""
    return {name: deepcopy(value) if isinstance(value, list | dict) else value for name, value in values.items()}


_Named = tuple[str, Callable[[dict[str, Any]], Any]]


def rows_before_and_after(source: RowSource) -> Iterator[tuple[Row | BadRow, Row | BadRow | None]]:
    """Each row of `source` before data.map and after it; None after it: data.filter leaves the row out."""
    return source.rows_before_and_after() if isinstance(source, ChangedRows) else ((row, row) for row in source)


def unmapped_source(source: RowSource) -> RowSource:
    """Where the rows of `source` come from before data.map and data.filter."""
    return source.source if isinstance(source, ChangedRows) else source


def _wrong(name: str, key: str, given: Any, row: Row, hint: str) -> UserError:
    message = f"{name} returned {type(given).__name__} at {BadRow(row.source, row.line, '').where}"
    return UserError(message, where=key, hint=hint)
