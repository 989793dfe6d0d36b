"""How /openapi.json describes POST /predict."""

from __future__ import annotations

from typing import Any

from nlpctl.serving.body import JSON_TYPE

_REFUSALS = {
    "400": "The body is no JSON",
    "408": "The body did not arrive in time",
    "413": "Too many rows or bytes",
    "415": "Not application/json in UTF-8",
    "422": "A row cannot be used",
    "500": "The service failed",
    "503": "The queue is full; try again after Retry-After seconds",
}
_ERROR = {
    "type": "object",
    "properties": {
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("message", "where", "hint")},
                "required": ["message"],
            },
        }
    },
    "required": ["errors"],
}


def predict_schema(keys: tuple[str, ...], max_rows: int) -> dict[str, Any]:
    """The body and the answers of POST /predict. `keys`: those that a row must have; it may have others."""
    row = {"type": "object", "required": list(keys), "properties": {key: {} for key in keys}}
    rows = {"type": "array", "items": row, "minItems": 1, "maxItems": max_rows}
    answer = {"type": "object", "description": "What `nlpctl predict` writes for the row"}
    answers = {"oneOf": [answer, {"type": "array", "items": answer}]}
    responses = {"200": _content("The answers, in the form and order of the rows", answers)}
    responses |= {status: _content(told, _ERROR) for status, told in _REFUSALS.items()}
    body = {"required": True, "content": {JSON_TYPE: {"schema": {"oneOf": [row, rows]}}}}
    return {"requestBody": body, "responses": responses}


def _content(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {JSON_TYPE: {"schema": schema}}}
