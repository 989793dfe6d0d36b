"""Parts of answers as Parquet: one schema for all, found part by part, and each part rewritten with it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow
from pyarrow import parquet

_JSON = {"nlpctl": "JSON"}  # metadata of a column that Arrow has no type for: its values are JSON texts
_WIDE = {"nlpctl": "wide"}  # metadata of a part's column with integers that no float64 holds
_ERRORS = (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError, OverflowError,
           UnicodeEncodeError)  # fmt: skip


def schema_of(answers: Sequence[dict[str, Any]]) -> str:
    """The types of the values in some answers, as text."""
    names = dict.fromkeys(name for answer in answers for name in answer)
    fields = [_field(name, [answer.get(name) for answer in answers]) for name in names]
    return base64.b64encode(pyarrow.schema(fields).serialize().to_pybytes()).decode()


def common_schema(schemas: Iterable[str]) -> str:
    """The schema that holds what every one of `schemas`, from `schema_of`, describes."""
    by_name: dict[str, list[pyarrow.Field]] = {}
    for text in schemas:
        for field in _schema(text):
            by_name.setdefault(field.name, []).append(field)
    fields = [_unified(name, fields) for name, fields in by_name.items()]
    return base64.b64encode(pyarrow.schema(fields).serialize().to_pybytes()).decode()


def write_part(path: Any, answers: Sequence[dict[str, Any]], schema: str) -> None:
    """Write answers to the file or stream `path`, with a schema from `common_schema`."""
    wanted = _schema(schema)
    columns = [pyarrow.array(_values(field, answers), field.type) for field in wanted]
    parquet.write_table(pyarrow.Table.from_arrays(columns, schema=wanted), path)


def _field(name: str, values: list[Any]) -> pyarrow.Field:
    try:
        # Not infer_type: of 1 and "a" it says int64, which only the conversion refuses.
        type = pyarrow.array(values).type
    except _ERRORS:
        return _json_field(name)
    if not _can_be_written(type):
        return _json_field(name)
    try:
        pyarrow.array(values, _in_floats(type))
    except _ERRORS:
        return pyarrow.field(name, type, metadata=_WIDE)
    return pyarrow.field(name, type)


def _unified(name: str, fields: Sequence[pyarrow.Field]) -> pyarrow.Field:
    if any(map(_is_json, fields)):
        return _json_field(name)
    kinds = {field.type for field in fields if field.type != pyarrow.null()} or {pyarrow.string()}
    try:
        schemas = [pyarrow.schema([pyarrow.field(name, kind)]) for kind in kinds]
        unified = pyarrow.unify_schemas(schemas, promote_options="permissive").field(0)
    except _ERRORS:
        return _json_field(name)
    # Another part has floats, and with them integers would be floats too.
    changed = any(field.metadata and field.type != unified.type for field in fields)
    return _json_field(name) if changed else unified


def _in_floats(kind: pyarrow.DataType) -> pyarrow.DataType:
    """A type with floats in place of its integers."""
    if pyarrow.types.is_struct(kind):
        return pyarrow.struct([(kind.field(i).name, _in_floats(kind.field(i).type)) for i in range(kind.num_fields)])
    if pyarrow.types.is_list(kind):
        return pyarrow.list_(_in_floats(kind.value_type))
    return pyarrow.float64() if pyarrow.types.is_integer(kind) else kind


def _can_be_written(kind: pyarrow.DataType) -> bool:
    """Whether Parquet has the type: not a struct of nothing, anywhere in it."""
    if pyarrow.types.is_struct(kind):
        return kind.num_fields > 0 and all(_can_be_written(kind.field(i).type) for i in range(kind.num_fields))
    return not pyarrow.types.is_list(kind) or _can_be_written(kind.value_type)


def _values(field: pyarrow.Field, answers: Sequence[dict[str, Any]]) -> list[Any]:
    values = [answer.get(field.name) for answer in answers]
    return [None if each is None else json.dumps(each) for each in values] if _is_json(field) else values


def _json_field(name: str) -> pyarrow.Field:
    return pyarrow.field(name, pyarrow.string(), metadata=_JSON)


def _is_json(field: pyarrow.Field) -> bool:
    return bool(field.metadata) and field.metadata.get(b"nlpctl") == b"JSON"


def _schema(text: str) -> pyarrow.Schema:
    return pyarrow.ipc.read_schema(pyarrow.py_buffer(base64.b64decode(text)))
