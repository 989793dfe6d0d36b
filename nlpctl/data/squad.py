"""Reads SQuAD 1.1, SQuAD 2.0 and CMRC 2018: a nested JSON document, one row per question.

    {"data": [{"paragraphs": [{"context": ..., "qas": [{"id": ..., "question": ..., "answers": [...]}]}]}]}
    [{"context_text": ..., "qas": [{"query_id": ..., "query_text": ..., "answers": ["..."]}]}]    CMRC's first layout

A row has the keys of its entry in "qas" (id, question, answers, is_impossible) and the paragraph's context. Answers of
CMRC's first layout have no place: it is the first one in the context where they stand. The documents stand on one line,
so a row's place is its path: data[3].paragraphs[0].qas[2], or [3].qas[2].
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nlpctl.data.json_rows import json_errors_told, json_type, object_row, whole_document
from nlpctl.data.row import BadRow, Row
from nlpctl.errors import UserError
from nlpctl.names import listed

_CONTEXT = "context_text"
_FIRST_NAMES = {"query_id": "id", "query_text": "question"}


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
                row = object_row(source, row.line, _values(question, paragraph), required)
            yield row


def is_first_layout(document: Any) -> bool:
    """Whether a document is in CMRC's first layout."""
    return isinstance(document, list) and any(isinstance(each, dict) and _CONTEXT in each for each in document)


def _values(question: dict[str, Any], paragraph: dict[str, Any]) -> dict[str, Any]:
    """The columns of a question."""
    if _CONTEXT not in paragraph:
        return {**question, "context": paragraph["context"]}
    context, answers = paragraph[_CONTEXT], question.get("answers")
    values = {_FIRST_NAMES.get(name, name): value for name, value in question.items()}
    if isinstance(answers, list) and isinstance(context, str):
        values["answers"] = [
            {"text": each, "answer_start": context.find(each)} if isinstance(each, str) else each for each in answers
        ]
    return {**values, "context": context}


def _paragraphs(document: Any, source: str) -> Iterator[tuple[str, Any]]:
    """(path, paragraph). An article without paragraphs is yielded itself, and later reported as a bad row."""
    if is_first_layout(document):
        yield from ((f"[{i}]", paragraph) for i, paragraph in enumerate(document))
        return
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
    if "context" not in value and _CONTEXT not in value:
        wanted = "context and qas" if "qas" in value else "paragraphs"
        return f"not in the layout of SQuAD: {wanted} expected; the keys are {listed(value)}"
    if not isinstance(value.get("qas"), list):
        return "not in the layout of SQuAD: qas, the list of questions, is missing or no list"
    return None
