"""mistakes.json: the rows that a trained model is most wrong about, by file and line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nlpctl.data.examples import ExampleList, ExampleReader
from nlpctl.data.labels import LabelSet
from nlpctl.data.places import places
from nlpctl.data.sources import open_split
from nlpctl.data.task_rows import TaskRows
from nlpctl.tasks.mistakes import worst

if TYPE_CHECKING:
    from nlpctl.tasks.base import Task

MOST = 50  # rows that are kept
LONGEST = 1000  # characters of a text


def describe_mistakes(
    task: Task, rows: TaskRows, labels: LabelSet, split: str, examples: ExampleList, predictions: Sequence[Any]
) -> dict[str, Any]:
    """What stands in mistakes.json: how many rows of `split` are answered wrongly, and the worst of them."""
    found = task.mistakes(examples, predictions)
    chosen = worst(found, MOST)
    wrong = [examples[mistake.row] for mistake in chosen]
    where = places(open_split(rows, split), ExampleReader(rows, labels), wrong) if wrong else []
    return {
        "split": split,
        "rows": len(examples),
        "wrong": len(found),
        "worst": [
            {
                "where": place,
                "texts": {column: _cut(text) for column, text in rows.passages(example).items()},
                "expected": _cut(mistake.expected),
                "given": _cut(mistake.given),
                "size": mistake.size,
            }
            for mistake, example, place in zip(chosen, wrong, where, strict=True)
        ],
    }


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
