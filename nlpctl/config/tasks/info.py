"""The description of a task for the rest of nlpctl: light enough for `nlpctl --help`."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from nlpctl.config.finding import Check

TAGGED = ("conll", "joined", "segmented", "cluener")  # values of data.format: words and tags, or entities
ANNOTATED = ("label_studio", "doccano")  # values of data.format: labels, or spans, that people gave elsewhere


@dataclass(frozen=True)
class Start:
    """A value that a new recipe begins with: the dotted key, the value, and the reason, as a comment."""

    key: str
    value: Any
    why: str = ""


@dataclass(frozen=True)
class TaskInfo:
    """One task: its name and meaning in recipes, where its code is, and what the commands may do with it.

    `task`, `rows`, `settle` and `soft_loss` are written package.module:NAME and imported by `load` when they are
    needed. For the first two, NAME is a class, or a function without arguments that gives it, so that one module can
    hold a description and its code.
    """

    name: str
    help: str
    metrics: tuple[str, ...]  # scores that can select the best model, the most telling first
    task: str  # its subclass of nlpctl.tasks.base.Task
    rows: str  # its subclass of nlpctl.data.rows.task_rows.TaskRows
    pipeline: str | None = None  # what the Hugging Face hub calls such a task (pipeline_tag), for model cards

    # -- what it reads of a recipe --
    keys: tuple[str, ...] = ()  # those of TASK_KEYS (config/checks.py) that it reads, or whole sections
    formats: tuple[str, ...] = ()  # values of data.format that not every task can read
    checks: tuple[Check, ...] = ()  # of its own, made before training
    labelled: bool = True  # it has a label set: data.labels, or collected from the training rows
    pairs: bool = False  # it needs data.columns.text_pair
    tags: bool = False  # it labels words, not texts
    settle: str | None = None  # a function (recipe) -> recipe: decides, without Paddle, what the model's files decide
    window_frame: int | None = None  # least tokens next to the text where windows must overlap; None: nothing to check

    # -- what its scores and mistakes mean --
    falling: tuple[str, ...] = ("loss",)  # the scores of which less is better
    mistakes: str = "are answered wrongly"  # what the rows of mistakes.json do

    # -- what can be done with it --
    by_row: bool = True  # a row is answered by itself and has its own truth, so that rows can be held out
    explainable: bool = False  # its network gives a label to a text as a whole, and `log_odds` of it
    augmentable: bool = False  # a changed text keeps its labels
    vectors: bool = False  # its predictions are vectors of texts
    pool: str | None = None  # what an ensemble averages (models/networks/ensemble.py): probabilities, odds or scores
    distillable: bool = False  # strategy distill can train a student on its logits
    soft_loss: str | None = None  # compares the outputs of two networks: dynabert; see networks/soft_targets.py
    network_class: str | None = None  # the task of PaddleNLP's XForCLASS where nothing else names one
    problem_type: str | None = None  # of config.json, where several tasks have the same class

    # -- what a new recipe of it begins with --
    starts: tuple[Start, ...] = ()
    from_scratch: tuple[Start, ...] = ()  # where no pretrained encoder is at hand

    def greater_is_better(self, metric: str) -> bool:
        """Whether more of `metric` is better; it may be written with "eval_" before it.

        Of a score that is not the task's (training.compute_metrics), as in PaddleNLP: unless its name ends in "loss".
        """
        name = metric.removeprefix("eval_")
        return name not in self.falling and not name.endswith("loss")

    def reads(self, dotted: str) -> bool:
        """Whether it reads a key that not every task reads."""
        return any(dotted == key or dotted.startswith(f"{key}.") for key in self.keys)


def load(path: str) -> Any:
    """What package.module:NAME stands for."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def load_class(path: str) -> type:
    """The class that package.module:NAME is, or that the function of this name gives."""
    found = load(path)
    return found if isinstance(found, type) else found()
