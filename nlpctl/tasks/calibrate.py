"""Calibrates a task on labelled rows: what `nlpctl calibrate` and the end of a training do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nlpctl.tasks.base import Task
from nlpctl.tasks.confidence import ece

MOST_OFF = 0.01  # of the ECE of an engine from that of the network, before it gets a calibration of its own


def calibrated(task: Task, examples: Sequence[Any], predictions: Sequence[Sequence[Any]], split: str) -> Task:
    """The task with a calibration fitted to a split, by the predictions of a `measured` task.

    The task as it is, if it has no confidence or the split has too few decisions.
    """
    found = task.fit_calibration(examples, predictions)
    if found is None:
        return task
    from nlpctl.tasks.fit_confidence import with_facts

    before, after = (task.calibrated(each).judged(examples, predictions) for each in (None, found))
    if not len(before.right):  # such as of rows none of which is given a label
        return task
    return task.calibrated(with_facts(found, split, len(examples), before, after))


def recalibrated(
    task: Task,
    examples: Sequence[Any],
    predictions: Sequence[Sequence[Any]],
    split: str,
    of_network: float | None = None,
) -> Task:
    """The task for an engine whose outputs differ from those that its calibration was fitted to, such as int8.

    The task as it is, unless its ECE on these rows is off by more than MOST_OFF from that `of_network`, by default the
    one that its calibration had where it was fitted.
    """
    if task.calibration is None:
        return task
    judged = task.judged(examples, predictions)
    expected = task.calibration.ece[1] if of_network is None else of_network
    if judged is None or not len(judged.right) or abs(ece(judged) - expected) <= MOST_OFF:
        return task
    return calibrated(task, examples, predictions, split)
