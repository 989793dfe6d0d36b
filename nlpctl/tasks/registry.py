"""The tasks by name, as a recipe writes them in `task:`. config/tasks.py lists the same names with their help."""

from __future__ import annotations

from nlpctl.config.schema import DataSection
from nlpctl.data.labels import LabelSet
from nlpctl.tasks.base import Task
from nlpctl.tasks.sequence_classification import SequenceClassification

TASKS = {SequenceClassification.name: SequenceClassification}


def make_task(name: str, data: DataSection, labels: LabelSet) -> Task:
    """The task called `name`; the recipe's checks have made sure that it exists."""
    return TASKS[name](data, labels)
