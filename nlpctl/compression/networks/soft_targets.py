"""How far a narrowed network's outputs are from its source's, in the terms of each task; scalars, means over the rows.

DynaBERT's; the losses of distill are in taught_task.py (answers) and layer_losses.py (layers).

Probabilities are compared by the cross entropy with the teacher's (Hinton et al., 2015), as DynaBERT compares its
logits (Hou et al., 2020, section 2.2). Positions that answer nothing, such as padding, do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import paddle
import paddle.nn.functional as F

from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import task_info
from nlpctl.config.tasks.info import load
from nlpctl.data.tagged_features import IGNORED
from nlpctl.errors import UserError
from nlpctl.models.crf import crf_loss

Outputs = tuple[paddle.Tensor, ...]
Labels = Mapping[str, paddle.Tensor]
SoftLoss = Callable[[Outputs, Outputs, Labels], paddle.Tensor]  # of the student, of the teacher, of the rows

_FAR = 1e4  # taken from the logits of places where no answer can be


def soft_loss(recipe: Recipe) -> SoftLoss:
    """The loss of the recipe's task between the outputs of a student and of a teacher. UserError: there is none."""
    named = task_info(recipe.task).soft_loss
    if named is None:
        raise UserError(
            f"a model of {recipe.task} has no answers that another one could learn from",
            where=recipe.where("task"),
            hint="compress what was made of it: a model that was fine-tuned for a task",
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
    difference = (student[0] - teacher[0]).astype("float32")
    return mean_over_words((difference**2).mean(-1), labels) + crf_loss(*student, labels["labels"]).mean()


def mean_over_words(losses: paddle.Tensor, labels: Labels) -> paddle.Tensor:
    """The mean over the rows of the mean over a row's words, of losses [rows, length]."""
    counted = (labels["labels"] != IGNORED).astype("float32")
    return ((losses * counted).sum(1) / counted.sum(1)).mean()


def span_loss(student: Outputs, teacher: Outputs, labels: Labels) -> paddle.Tensor:
    """The mean over start and end, over the places where an answer can be."""
    closed = (1 - labels["places"]).astype("float32") * _FAR
    pairs = zip(student, teacher, strict=True)
    losses = [cross_entropy(mine.astype("float32") - closed, theirs - closed).mean() for mine, theirs in pairs]
    return sum(losses) / len(losses)


def vector_loss(student: Outputs, teacher: Outputs, labels: Labels) -> paddle.Tensor:
    """Squared distances of unit vectors, 0 to 4: the mean over the texts."""
    pairs = zip(student, teacher, strict=True)
    distances = [((mine - theirs).astype("float32") ** 2).sum(-1).mean() for mine, theirs in pairs]
    return sum(distances) / len(distances)
