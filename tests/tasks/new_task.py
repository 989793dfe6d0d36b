"""A task in one module: labels that are grades, so that a wrong one is the worse the further off it is.

NLPCTL_TASKS=new_task:GRADING makes it known. What imports Paddle is inside a function: a description is read before.
"""

from __future__ import annotations

import dataclasses
import functools

from nlpctl.config.tasks import SEQUENCE_CLASSIFICATION
from nlpctl.data.rows.text_rows import TextExample, TextRows

GRADING = dataclasses.replace(
    SEQUENCE_CLASSIFICATION,
    name="grading",
    help="A grade per text, such as stars.",
    metrics=("distance", "accuracy", "loss"),
    falling=("distance", "loss"),
    task="new_task:grading",
    rows="new_task:GradedRows",
    mistakes="have another grade",
    network_class=None,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Graded(TextExample):
    """A text with a grade, and who gave it."""

    guest: str | None


class GradedRows(TextRows):
    """Rows of a text and its grade, and of who gave it."""

    def read(self, values, labels):
        return Graded(**dataclasses.asdict(super().read(values, labels)), guest=values.get("guest"))


@functools.cache
def grading() -> type:
    """The class of the task."""
    import numpy as np
    import paddle.nn.functional as F

    from nlpctl.tasks.sequence_classification import SequenceClassification

    class Grading(SequenceClassification):
        """Grades are the places of the labels in their order: cross entropy, and how far off the mean grade is."""

        def loss(self, network, outputs, batch):
            grades = F.softmax(outputs[0]) @ np.arange(len(self.labels), dtype="float32")
            far = (grades - batch["labels"].astype("float32")).abs().mean()
            return super().loss(network, outputs, batch) + far

        def report(self, examples, predictions):
            off = [abs(int(logits.argmax()) - row.label) for row, (logits,) in zip(examples, predictions, strict=True)]
            return {**super().report(examples, predictions), "distance": float(np.mean(off))}

        def answers(self, examples, predictions):
            found = super().answers(examples, predictions)
            return [{"grade": self.labels.names.index(answer["label"]), **answer} for answer in found]

    return Grading
