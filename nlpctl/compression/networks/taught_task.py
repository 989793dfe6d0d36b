"""A task whose loss includes the teacher's answers; the batches carry them next to the labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from nlpctl.compression.networks.layer_losses import LayerLosses
from nlpctl.compression.networks.more_texts import key_of
from nlpctl.compression.networks.soft_targets import mean_over_words
from nlpctl.compression.networks.teacher import Answers
from nlpctl.config.distillation_section import DistillationSection
from nlpctl.config.schema import Recipe
from nlpctl.data.collate import Batch
from nlpctl.data.tagged_features import TaggedWindow
from nlpctl.data.text_encoder import TextEncoder
from nlpctl.models.load import LoadedModel
from nlpctl.tasks.base import Task, Texts, as_tuple
from nlpctl.training.user_loss import Loss

ANSWERS = "teacher_logits"  # key in a batch: [batch, labels]; for a tagger [batch, length, tags]

Prepare = Callable[[LoadedModel], LayerLosses | None]


class TaughtCollator:
    """The batches of a task with the teacher's logits; zeros for a text without the teacher's answer (dev rows)."""

    def __init__(self, collate: Callable[[Sequence[Any]], Batch], answers: Answers, labels: int):
        self.collate = collate
        self.answers = answers
        self.labels = labels

    def __call__(self, features: Sequence[Any]) -> Batch:
        return self._with_answers(features, self.collate(features))

    def encodings(self, features: Sequence[Any], tell_cut: bool = True) -> Any:
        return self.collate.encodings(features, tell_cut)

    def arrays(self, features: Sequence[Any], encodings: Any) -> Batch:
        return self._with_answers(features, self.collate.arrays(features, encodings))

    def _with_answers(self, features: Sequence[Any], batch: Batch) -> Batch:
        if "input_ids" not in batch:  # the batch carries an exception
            return batch
        rows, length = batch["input_ids"].shape
        windows = isinstance(features[0], TaggedWindow)
        logits = np.zeros((rows, length, self.labels) if windows else (rows, self.labels), np.float32)
        for row, feature in zip(logits, features, strict=True):
            answer = self.answers.get(key_of(feature.example if windows else feature))
            if answer is None:
                continue
            if windows:
                row[feature.places] = answer[feature.first : feature.first + len(feature.places)]
            else:
                row[:] = answer[0]
        return {**batch, ANSWERS: logits}


class Taught:
    """Mixed into the class of a task; see `taught`."""

    teacher_answers: Answers
    section: DistillationSection
    criterion: Loss | None
    prepare: Prepare
    layer_losses: LayerLosses | None

    def build_model(self, texts: Texts | None) -> LoadedModel:
        model = super().build_model(texts)
        self.layer_losses = self.prepare(model)
        return model

    def collator(self, encoder: TextEncoder, *, labelled: bool) -> Callable[[Sequence[Any]], Batch]:
        collate = super().collator(encoder, labelled=labelled)
        return TaughtCollator(collate, self.teacher_answers, len(self.labels)) if labelled else collate

    def training_loss(
        self,
        network: paddle.nn.Layer,
        run: Callable[..., Any],
        inputs: Mapping[str, paddle.Tensor],
        labels: Mapping[str, paddle.Tensor],
    ) -> paddle.Tensor:
        outputs = as_tuple(run(**inputs))
        section = self.section
        loss = (1 - section.hard) * self._answer_loss(outputs[0], labels)
        if section.hard:
            loss = loss + section.hard * (self.criterion or self.loss)(network, outputs, labels)
        return loss if self.layer_losses is None else loss + self.layer_losses.loss(inputs)

    def _answer_loss(self, logits: paddle.Tensor, labels: Mapping[str, paddle.Tensor]) -> paddle.Tensor:
        """The mean over the rows of the distance to the teacher's logits; for a tagger, first the mean over the
        words."""
        losses = answer_losses(logits, labels[ANSWERS], self.section, independent=self.independent)
        return losses.mean() if losses.ndim == 1 else mean_over_words(losses, labels)


def answer_losses(
    student: paddle.Tensor, teacher: paddle.Tensor, section: DistillationSection, *, independent: bool
) -> paddle.Tensor:
    """Losses [...] of logits [..., labels] against a teacher's.

    mse: the mean over the labels of the squared differences (Tang et al., 2019, equation 3). kl: T^2 KL(p || q) of the
    softmax of logits / T (Hinton et al., 2015, section 2); for `independent` labels the mean over labels of the KL
    divergence of each yes/no decision.
    """
    student = student.astype("float32")
    if section.loss == "mse":
        return ((student - teacher) ** 2).mean(-1)
    temperature = section.temperature  # kl
    student, teacher = student / temperature, teacher / temperature
    if independent:
        student, teacher = (paddle.stack([each, paddle.zeros_like(each)], -1) for each in (student, teacher))
    wanted = F.softmax(teacher, axis=-1)
    divergence = (wanted * (F.log_softmax(teacher, axis=-1) - F.log_softmax(student, axis=-1))).sum(-1)
    return temperature**2 * (divergence.mean(-1) if independent else divergence)


def taught(task: Task, recipe: Recipe, answers: Answers, criterion: Loss | None, prepare: Prepare) -> Task:
    """`task` with the losses of recipe.distillation; everything else, including scores, is unchanged.

    `criterion`: replaces the task's loss, weighted by distillation.hard. `prepare` gets the student after it is built
    and before it is trained, and returns the layer losses, or None.
    """
    found = type(type(task).__name__, (Taught, type(task)), {})(task.recipe, task.labels, task.thresholds)
    found.label_names = (*task.label_names, ANSWERS)
    found.teacher_answers = answers
    found.section = recipe.distillation
    found.criterion = criterion
    found.prepare = prepare
    found.layer_losses = None
    return found
