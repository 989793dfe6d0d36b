"""What an answer repeats of its row besides the columns of the task: an id, a date, a label given by a person."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nlpctl.config.input_formats import INPUT_FORMATS
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.data.rows.examples import ExampleReader
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.errors import UserError
from nlpctl.names import did_you_mean, full_width_signs, listed
from nlpctl.spelling import option

BAD_ROW = "error"  # the key of a bad row's answer; no good answer has it
ALL, NONE = "all", "none"  # in place of keys
GIVEN = "given_"  # before a kept key that the answer uses itself

_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


@dataclass(frozen=True)
class PassthroughColumns:
    """`names`: the keys of a row that its answer repeats; None is all of them."""

    names: tuple[str, ...] | None

    def select(self, rows: TaskRows, values: Mapping[str, Any], example: Any) -> dict[str, Any]:
        """The kept part of a row, without what `rows` repeats by itself. A named key that the row lacks is None.

        `example`: what was read from `values`, or a BadRow.
        """
        if self.names == ():
            return {}
        own = rows.required(labelled=False) if isinstance(example, BadRow) else rows.input_columns(example)
        return {name: values.get(name) for name in (values if self.names is None else self.names) if name not in own}

    def check(self, values: Mapping[str, Any], where: str) -> None:
        """UserError if the first row, `values`, lacks a named key."""
        for name in self.names or ():
            if name in (ALL, NONE) and name not in values:
                message = f"{name} stands alone, and no key is called so; the keys are {listed(values)}"
                raise UserError(message, where, f"give {option('keep', name)}, or @[keep] with names from this list")
            if name not in values:
                message = f"there is no {name!r} to keep{did_you_mean(name, values)}; the keys are {listed(values)}"
                hint = f"give @[keep] names from this list, all, or none{full_width_signs(name)}"
                raise UserError(message, where, hint)


KEEP_ALL, KEEP_NONE = PassthroughColumns(None), PassthroughColumns(())


def keep_by_default(format: str) -> PassthroughColumns:
    """Everything of rows that are objects, and nothing of tables, whose columns may be many and long."""
    rows = INPUT_FORMATS[format]
    return KEEP_ALL if rows.columns == "keys" or rows.annotator is not None else KEEP_NONE


def parse_keep(names: str | Iterable[str]) -> PassthroughColumns:
    """all, none, or keys: a list, or a text with commas between. UserError if there is no key in it."""
    if names in (ALL, NONE):
        return KEEP_ALL if names == ALL else KEEP_NONE
    parts = names.split(",") if isinstance(names, str) else list(names)
    keys = tuple(dict.fromkeys(part.strip() for part in parts if isinstance(part, str) and part.strip()))
    if not keys or len(parts) != len([part for part in parts if isinstance(part, str) and part.strip()]):
        raise UserError(f"{names!r} names no keys", "@[keep]", "give keys such as id,date; or all, or none")
    return PassthroughColumns(keys)


class KeptRowReader:
    """Turns rows into examples, each with what its answer repeats."""

    def __init__(self, rows: TaskRows, keep: PassthroughColumns):
        self._rows, self._keep, self._reader = rows, keep, ExampleReader(rows, None)

    def read(self, row: Row | BadRow) -> tuple[Any, dict[str, Any]]:
        """The example in `row`, or a BadRow; and what is kept of it."""
        example = self._reader.read(row)
        return example, {} if isinstance(row, BadRow) else self._keep.select(self._rows, row.values, example)


class KeptRows(list[Any]):
    """Examples and bad rows. `kept[i]` is what the answer to row i repeats."""

    def __init__(self, pairs: Sequence[tuple[Any, dict[str, Any]]]):
        super().__init__(example for example, _ in pairs)
        self.kept = [kept for _, kept in pairs]


def with_kept(answer: dict[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    """`answer` and after it the kept part of its row. A name that the answer uses itself becomes given_NAME."""
    if not kept:
        return answer
    answer = dict(answer)
    for name, value in kept.items():
        while name in answer or name == BAD_ROW:
            name = GIVEN + name
        answer[name] = value
    return answer


def without_bad_row(columns: dict[str, Any]) -> dict[str, Any]:
    """`columns`, of which one called like the key of a bad row becomes given_NAME, as `with_kept` has it."""
    if BAD_ROW not in columns:
        return columns
    return {GIVEN + name if name == BAD_ROW else name: value for name, value in columns.items()}


def json_line(answer: Any) -> str:
    """`answer` as JSON. Half a surrogate pair, which UTF-8 cannot hold and a kept value may, stays an escape; a number
    that is not finite, which JSON does not know, is null."""
    try:
        text = _to_json(answer)
    except ValueError:
        answer = json.loads(json.dumps(answer), parse_constant=lambda name: None)
        text = _to_json(answer)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return json.dumps(answer)
    return text
