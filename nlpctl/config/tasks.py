"""What a recipe may ask for: the task names, and the scores each one gives. The code is in nlpctl/tasks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TaskInfo:
    """One task: its name in recipes, its meaning, and the scores that can select the best model.

    `labelled`: it has a label set. `pairs`: it needs data.columns.text_pair.
    """

    name: str
    help: str
    metrics: tuple[str, ...]
    labelled: bool = True
    pairs: bool = False


KNOWN_TASKS = (
    TaskInfo(
        "sequence_classification",
        "One label per text, or per pair of texts.",
        ("accuracy", "macro_f1", "micro_f1", "weighted_f1", "loss"),
    ),
    TaskInfo(
        "multi_label_classification",
        "Any number of labels per text, flat or hierarchical (food##fruit).",
        ("micro_f1", "macro_f1", "weighted_f1", "exact_match", "loss"),
    ),
    TaskInfo(
        "text_matching",
        "Whether two texts match, and how likely it is.",
        ("accuracy", "f1", "auc", "macro_f1", "loss"),
        pairs=True,
    ),
    TaskInfo(
        "semantic_indexing",
        "Vectors by which texts that belong together find each other.",
        ("recall@1", "recall@5", "recall@10", "recall@50", "mrr", "loss"),
        labelled=False,
        pairs=True,
    ),
)


def task_info(name: str) -> TaskInfo | None:
    """The task called `name`, None if there is none."""
    return next((task for task in KNOWN_TASKS if task.name == name), None)
