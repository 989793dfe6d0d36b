"""DynaBERT's distance between the outputs of a narrowed network and its source, per task; scalars, means over the rows.

The losses of distill are in distill.py (answers) and layer_losses.py (layers).

Probabilities are compared by the cross entropy with the teacher's (Hinton et al., 2015), as DynaBERT compares its
logits (Hou et al., 2020, section 2.2). Positions without an answer, such as padding, do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import paddle
import paddle.nn.functional as F

from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import load, task_info
from nlpctl.data.batches.tagged_features import IGNORED
from nlpctl.errors import UserError
from nlpctl.models.crf import crf_loss

Outputs = tuple[paddle.Tensor, ...]
Labels = Mapping[str, paddle.Tensor]
SoftLoss = Callable[[Outputs, Outputs, Labels], paddle.Tensor]  # of student, teacher, batch

_FAR = 1e4  # subtracted from the logits of positions where no answer can be


def soft_loss(recipe: Recipe) -> SoftLoss:
    """The distillation loss of the recipe's task. UserError: the task has none."""
    named = task_info(recipe.task).soft_loss
    if named is None:
        raise UserError(
            f"a model of {recipe.task} has no answers that a student could learn from",
            where=recipe.where("task"),
            hint="compress a model that was fine-tuned from it for a task",
        )
    if recipe.model.head == "crf":
        return _chains
    return load(named)


def cross_entropy(student: paddle.Tensor, teacher: paddle.Tensor) -> paddle.Tensor:
    """Cross entropy in nats between the softmax of logits [..., n] over the last axis: [...]."""
    return -(F.softmax(teacher.astype("float32"), -1) * F.log_softmax(student.astype("float32"), -1)).sum(-1)


def label_loss(student: Outputs, teacher: Outputs, labels: Labels) -> paddle.Tensor:
    """One decision per row."""
    return cross_entropy(student[0], teacher[0]).mean()


def many_label_loss(student: Outputs, teacher: Outputs, labels: Labels) -> paddle.Tensor:
    """One decision per label: the mean of the binary cross entropies."""
    wanted = F.sigmoid(teacher[0].astype("float32"))
    return F.binary_cross_entropy_with_logits(student[0].astype("float32"), wanted)


def tag_loss(student: Outputs, teacher: Outputs, labels: Labels) -> paddle.Tensor:
    """One decision per word."""
    return mean_over_words(cross_entropy(student[0], teacher[0]), labels)


def _chains(student: Outputs, teacher: Outputs, labels: Labels) -> paddle.Tensor:
    """Squared differences of the emissions, and the CRF's own loss, from which the transitions learn."""
    emissions, transitions = student
    difference = (emissions - teacher[0]).astype("float32")
    own = crf_loss(emissions, transitions, labels["labels"])
    return mean_over_words((difference**2).mean(-1), labels) + own.mean()


def mean_over_words(losses: paddle.Tensor, labels: Labels) -> paddle.Tensor:
    """The mean over the rows of the mean over a row's words, for losses [rows, length]."""
    counted = (labels["labels"] != IGNORED).astype("float32")
    return ((losses * counted).sum(1) / counted.sum(1)).mean()


def span_loss(student: Outputs, teacher: Outputs, labels: Labels) -> paddle.Tensor:
    """The mean over start and end, over the positions where an answer can be."""
    pairs = zip(student, teacher, strict=True)
    losses = [cross_entropy(*(at_places(each, labels["places"]) for each in pair)).mean() for pair in pairs]
    return sum(losses) / len(losses)


def at_places(logits: paddle.Tensor, places: paddle.Tensor) -> paddle.Tensor:
    """A reader's logits [rows, length], far below all others where `places` is 0: no answer can be there."""
    return logits.astype("float32") - (1 - places).astype("float32") * _FAR


def vector_loss(student: Outputs, teacher: Outputs, labels: Labels) -> paddle.Tensor:
    """The mean over the texts of the squared distance of the vectors, 0 to 4 where they have unit length."""
    pairs = zip(student, teacher, strict=True)
    distances = [((mine - theirs).astype("float32") ** 2).sum(-1).mean() for mine, theirs in pairs]
    return sum(distances) / len(distances)
