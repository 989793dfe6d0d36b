"""Protobuf messages of other programs, built from tables of their fields, without generated code and its version
limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

# descriptor.proto, FieldDescriptorProto.Type
_PLAIN = {"float": 2, "int64": 3, "int32": 5, "bool": 8, "string": 9, "bytes": 12}
_MESSAGE, _ENUM = 11, 14
_OPTIONAL, _REPEATED = 1, 3


class Field(NamedTuple):
    """A field as its .proto file declares it. `type`: a scalar type, or the name of a message or enum in the table."""

    name: str
    number: int
    type: str
    repeated: bool = False


def message_types(
    package: str, messages: Mapping[str, Sequence[Field]], enums: Mapping[str, Mapping[str, int]] | None = None
) -> dict[str, type[Any]]:
    """Classes of the messages. The table has only the fields that are read or written."""
    enums = enums or {}
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for name, values in enums.items():
        declared = file.enum_type.add(name=name)
        for value, number in values.items():
            declared.value.add(name=value, number=number)
    for name, fields in messages.items():
        declared = file.message_type.add(name=name)
        for field in fields:
            kind = _PLAIN.get(field.type) or (_ENUM if field.type in enums else _MESSAGE)
            added = declared.field.add(name=field.name, number=field.number, type=kind)
            added.label = _REPEATED if field.repeated else _OPTIONAL
            if kind in (_ENUM, _MESSAGE):
                added.type_name = f".{package}.{field.type}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def as_text(message: Any) -> str:
    """The message in protobuf's text format."""
    return text_format.MessageToString(message, as_utf8=True)
