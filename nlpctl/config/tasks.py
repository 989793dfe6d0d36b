"""What a recipe may ask for: the task names, and the scores each one gives. The code is in nlpctl/tasks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TaskInfo:
    """One task: its name in recipes, its meaning, and the scores that can select the best model.

    `labelled`: it has a label set. `pairs`: it needs data.columns.text_pair. `falling`: the scores of which
    less is better.
    """

    name: str
    help: str
    metrics: tuple[str, ...]
    labelled: bool = True
    pairs: bool = False
    falling: tuple[str, ...] = ("loss",)

    def greater_is_better(self, metric: str) -> bool:
        """Whether more of `metric` is better; it may be written with "eval_" before it."""
        return metric.removeprefix("eval_") not in self.falling


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
    TaskInfo(
        "question_answering",
        "Where in a text the answer to a question stands, or that it has none.",
        ("em", "f1", "loss"),
        labelled=False,
    ),
    TaskInfo(
        "token_classification",
        "Entities in a text: a tag for every word (BIO, BIOES, BMES).",
        ("f1", "precision", "recall", "macro_f1", "weighted_f1", "accuracy", "loss"),
    ),
    TaskInfo(
        "lexical_analysis",
        "A text cut into words with their part of speech or type of entity, by tagging characters.",
        ("f1", "precision", "recall", "macro_f1", "weighted_f1", "accuracy", "loss"),
    ),
    TaskInfo(
        "masked_language_model",
        "Goes on with the pre-training of an encoder: words of plain text are hidden and predicted.",
        ("perplexity", "masked_accuracy", "loss"),
        labelled=False,
        falling=("perplexity", "loss"),
    ),
    TaskInfo(
        "few_shot_classification",
        "One label per text from a handful of examples: a language model fills the gap of a template.",
        ("accuracy", "macro_f1", "micro_f1", "weighted_f1", "loss"),
    ),
)


def task_info(name: str) -> TaskInfo | None:
    """The task called `name`, None if there is none."""
    return next((task for task in KNOWN_TASKS if task.name == name), None)


def scores(name: str) -> tuple[str, ...]:
    """The scores of the task called `name`, the most telling first; "loss" is not among them."""
    info = task_info(name)
    return () if info is None else tuple(metric for metric in info.metrics if metric != "loss")
