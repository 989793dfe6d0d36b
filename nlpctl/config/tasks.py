"""What a recipe may ask for: the task names, and the scores each one gives. The code is in nlpctl/tasks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TaskInfo:
    """One task: its name in recipes, its meaning, and the scores that can select the best model."""

    name: str
    help: str
    metrics: tuple[str, ...]


KNOWN_TASKS = (
    TaskInfo(
        "sequence_classification",
        "One label per text, or per pair of texts.",
        ("accuracy", "macro_f1", "micro_f1", "weighted_f1", "loss"),
    ),
)


def task_info(name: str) -> TaskInfo | None:
    """The task called `name`, None if there is none."""
    return next((task for task in KNOWN_TASKS if task.name == name), None)
