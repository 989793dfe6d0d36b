"""Reads SQuAD 1.1, SQuAD 2.0 and CMRC 2018 (in SQuAD's layout): a nested JSON document, one row per question.

A row has the keys of its entry in "qas" (id, question, answers, is_impossible) and the paragraph's context.
The documents stand on one line, so a row's place is its path: data[3].paragraphs[0].qas[2].
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nlpctl.data.json_rows import json_errors_told, json_type, object_row, whole_document
from nlpctl.data.row import BadRow, Row
from nlpctl.errors import UserError
from nlpctl.names import listed


def squad_rows(lines: Iterable[tuple[int, bytes]], source: str, required: Sequence[str]) -> Iterator[Row | BadRow]:
    """One row per question in file order; the document is held whole.

    An article or a paragraph that is not built as it should be is one bad row. UserError if the file is not JSON, or
    not of this layout at all.
    """
    text = whole_document(lines, source)
    if not text.strip():
        return
    with json_errors_told(source):
        document = json.loads(text)
    for place, paragraph in _paragraphs(document, source):
        reason = _paragraph_reason(paragraph)
        if reason is not None:
            yield BadRow(source, place, reason)
            continue
        for i, question in enumerate(paragraph["qas"]):
            row = object_row(source, f"{place}.qas[{i}]", question, ())
            if isinstance(row, Row):
                row = object_row(source, row.line, {**question, "context": paragraph["context"]}, required)
            yield row


def _paragraphs(document: Any, source: str) -> Iterator[tuple[str, Any]]:
    """(path, paragraph). An article without paragraphs is yielded itself, and later reported as a bad row."""
    if not isinstance(document, dict) or not isinstance(document.get("data"), list):
        got = f"an object with the keys {listed(document)}" if isinstance(document, dict) else json_type(document)
        hint = "a flat array of objects with question, context and answers is data.format: json; one per line is jsonl"
        raise UserError(f'not in the layout of SQuAD, {{"data": [...]}}: got {got}', where=source, hint=hint)
    for i, article in enumerate(document["data"]):
        if isinstance(article, dict) and isinstance(article.get("paragraphs"), list):
            for j, paragraph in enumerate(article["paragraphs"]):
                yield f"data[{i}].paragraphs[{j}]", paragraph
        else:
            yield f"data[{i}]", article


def _paragraph_reason(value: Any) -> str | None:
    """Why `value` is no paragraph, None when it is one."""
    if not isinstance(value, dict):
        return f"not a JSON object: got {json_type(value)}"
    if "context" not in value:
        wanted = "context and qas" if "qas" in value else "paragraphs"
        return f"not in the layout of SQuAD: {wanted} expected; the keys are {listed(value)}"
    if not isinstance(value.get("qas"), list):
        return "not in the layout of SQuAD: qas, the list of questions, is missing or no list"
    return None
