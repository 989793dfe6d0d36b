"""The score of a candidate on labelled data, in the process that it runs in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from nlpctl.compression.plan.scores import OWN
from nlpctl.compression.user_functions import Rows, user_scores
from nlpctl.data.examples import ExampleReader
from nlpctl.data.open_split import open_split
from nlpctl.data.row import BadRow
from nlpctl.data.splits import groups_of, read_labelled_split
from nlpctl.data.task_rows import task_rows
from nlpctl.runners.timed_process import Subject
from nlpctl.tasks.calibrate import recalibrated
from nlpctl.tasks.intervals import full_report
from nlpctl.tasks.tallies import Tallies


@dataclass(frozen=True)
class SplitScore:
    """The task's report on a labelled split, with what compression.evaluate says of it under that name; what was
    decided of each row: equal where two would answer alike; and what each row adds to the scores. `calibration`: one
    of its own, where the probabilities of the candidate are further off than those of the network."""

    report: dict[str, Any]
    decisions: tuple[str, ...]
    tallies: Tallies | None
    calibration: dict[str, Any] | None = None


def split_score(subject: Subject, split: str) -> SplitScore:
    """The score on a labelled split of the recipe's data."""
    recipe, task = subject.recipe, subject.model.task
    examples, _, _ = read_labelled_split(task_rows(recipe.task, recipe.data), split, task.labels)
    predictions = subject.model.predictions(examples, recipe.training.per_device_eval_batch_size)
    decisions = tuple(_told(decision) for decision in task.decisions(examples, predictions))
    groups = groups_of(task_rows(recipe.task, recipe.data), split, task.labels, len(examples))
    fitted = recalibrated(task, examples, predictions, split) if split == "dev" else task
    report, tallies = full_report(fitted, examples, predictions, groups)
    if recipe.compression.evaluate is not None:
        report[OWN] = _own_scores(subject, split)
    own = None if fitted is task or fitted.calibration is None else fitted.calibration.to_json()
    return SplitScore(report, decisions, tallies, own)


def _own_scores(subject: Subject, split: str) -> dict[str, float]:
    """What the user's function makes of the good rows of the split and the answers to them."""
    recipe = subject.recipe
    readers, size = task_rows(recipe.task, recipe.data), recipe.training.per_device_eval_batch_size
    reader = ExampleReader(readers, subject.model.task.labels)
    good = [row for row in open_split(readers, split) if not isinstance(reader.read(row), BadRow)]

    from nlpctl.inference.pipeline import WINDOW, windows

    def predict(rows: Rows) -> list[dict[str, Any]]:
        examples = [readers.read(values, None) for values in rows]
        parts = subject.pipeline.stream(windows(examples, max(WINDOW, size)), size, subject.answered)
        return [answer for part in parts for answer in part]

    return user_scores(recipe, predict, [row.values for row in good])


def _told(decision: Any) -> str:
    """A decision as a text of some bytes: those of a long tagged text take many."""
    return hashlib.sha256(repr(decision).encode()).hexdigest()[:16]
