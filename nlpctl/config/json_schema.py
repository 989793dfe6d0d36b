"""The recipe's schema as JSON Schema, for editors: completion, help and checks while typing."""

from __future__ import annotations

from typing import Any

from nlpctl.config.interpolate import escape
from nlpctl.config.keys import SECTIONS, Key, keys_of
from nlpctl.config.refused_keys import MANAGED, UNSUPPORTED
from nlpctl.config.tasks import known_tasks
from nlpctl.spelling import spelled

_JSON_TYPES: dict[type | None, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}

# `${env:NAME}` may stand for any value, and numbers may be written as a text such as 5e-5 or 3/4.
_REFERENCE = {"type": "string", "pattern": r"\$\{[^{}]+\}"}
_NUMBER_TEXT = {"type": "string", "pattern": r"^\s*[+-]?[0-9.]+([eE][+-]?[0-9]+)?(\s*/\s*[0-9.]+)?\s*$"}
_SCALARS = ["string", "number", "boolean", "null"]


def recipe_json_schema() -> dict[str, Any]:
    """A JSON Schema (draft 2020-12) that accepts recipes and fragments; unknown keys are errors."""
    text = {"type": "string"}
    properties: dict[str, Any] = {
        "extends": {
            "description": "File(s) this one builds on: relative to this file, or nlpctl:configs/NAME.yaml.",
            "anyOf": [text, {"type": "array", "items": text}],
        },
        "task": {
            "description": "; ".join(f"{task.name}: {task.help}" for task in known_tasks()),
            "enum": [task.name for task in known_tasks()],
        },
    }
    for name, section in SECTIONS.items():
        properties[name] = _section(section, name, nullable=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nlpctl recipe",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def _section(section: type, prefix: str, *, nullable: bool) -> dict[str, Any]:
    keys = [key for key in keys_of(section, prefix).values() if key.dotted not in MANAGED]
    return {
        "type": ["object", "null"] if nullable else "object",
        "description": (section.__doc__ or "").strip(),
        "additionalProperties": False,
        "properties": {key.name: _property(key) for key in keys},
    }


def _property(key: Key) -> dict[str, Any]:
    if key.section:
        return _section(key.section, key.dotted, nullable=True) | {"description": key.help}
    help = f"Refused: {spelled(UNSUPPORTED[key.dotted])}." if key.dotted in UNSUPPORTED else key.help
    described = {"description": help, "default": _json_default(key.default)}
    if key.axes:
        return described | {"type": ["object", "null"], "additionalProperties": {"type": ["object", "array"]}}
    if key.free:
        return described | {"type": ["object", "null"], "additionalProperties": {"type": _SCALARS}}
    if key.entry:
        entry = _section(key.entry, key.dotted, nullable=False)
        return described | {"anyOf": [{"type": "array", "items": entry}, entry, {"type": "null"}]}
    if key.lists:
        texts = {"type": "array", "items": _scalar(str, ())}
        return described | {"anyOf": [{"type": "array", "items": texts}, {"type": "null"}]}
    if key.item:
        item = _scalar(key.item, key.choices)
        if key.all_item:
            item = {"anyOf": [*item["anyOf"], {"enum": ["all", "None", None]}]}
        return described | {"anyOf": [{"type": "array", "items": item}, item, {"type": "null"}]}
    alternatives = [_scalar(key.scalar, key.choices)]
    if key.optional:
        alternatives.append({"type": "null"})
    return described | {"anyOf": alternatives}


def _scalar(kind: type | None, choices: tuple[str, ...]) -> dict[str, Any]:
    if choices:
        # Editors read YAML 1.1 too: an unquoted `no` reaches them as false.
        return {"anyOf": [{"enum": [*choices, False] if "no" in choices else list(choices)}, _REFERENCE]}
    if kind is str:
        return {"type": ["string", "number", "boolean"]}  # 007 and `no` are texts where text is wanted
    alternatives = [{"type": _JSON_TYPES[kind]}, _REFERENCE]
    return {"anyOf": [*alternatives, _NUMBER_TEXT] if kind in (int, float) else alternatives}


def _json_default(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return escape(value) if isinstance(value, str) else value
