"""Distillation: a smaller network learns the answers of a trained one (Hinton et al., 2015).

    source, training rows --generated and unlabelled texts, answered by the teacher--> lessons --> a student

The student consists of layers of its teacher, or is a different network. A BiLSTM or TextCNN with its own vocabulary
learns from the logits (Tang et al., 2019). A transformer with the teacher's tokens also learns from its layers
(TinyBERT, MiniLM; layer_losses.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from nlpctl import console
from nlpctl.compress.networks.layer_losses import PROJECTION, LayerLosses
from nlpctl.compress.networks.soft_targets import Outputs, at_places, mean_over_words
from nlpctl.compress.networks.student import (
    check_layer_losses,
    check_tokens,
    is_made_of_layers,
    layer_losses,
    mask_for,
    reads_units,
    start_embedding,
    start_of_layers,
    student_layers,
    student_recipe,
)
from nlpctl.compress.networks.teacher import (
    Answers,
    Teacher,
    open_teacher,
    part_of,
    unlabelled_examples,
    varied_examples,
)
from nlpctl.compress.networks.training import read_data, train_network
from nlpctl.compress.user_code import label_loss
from nlpctl.config.recipe_of import usable_student
from nlpctl.config.schema import DistillationSection, Recipe
from nlpctl.config.tasks import known_tasks, task_info
from nlpctl.data.batches.collate import Batch, Collator
from nlpctl.data.batches.question_features import Window
from nlpctl.data.batches.tagged_features import TaggedWindow
from nlpctl.data.predict_input import open_input
from nlpctl.data.rows.examples import ExampleList
from nlpctl.data.rows.task_rows import TaskRows, task_rows
from nlpctl.data.text.encoder import Encoding, TextEncoder
from nlpctl.data.training_data import TrainingData
from nlpctl.errors import UserError
from nlpctl.models.families import OWN, SHARED_LAYERS
from nlpctl.models.load import LoadedModel
from nlpctl.models.pruned import encoder_layers
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.base import Task, Texts, as_tuple, make_task
from nlpctl.training.user_loss import Loss

# --------------------------------------------------------------------------------------------------
# A task whose loss includes the teacher's answers; the batches carry them next to the labels.

# A key in a batch: [batch, labels]; of a tagger [batch, length, tags]; of a reader [batch, length, 2], start and end.
TEACHER_ANSWERS = "teacher_logits"

Prepare = Callable[[LoadedModel], LayerLosses | None]


class TaughtCollator(Collator):
    """The batches of a task with the teacher's logits; zeros for a text without the teacher's answer (dev rows)."""

    def __init__(self, inner: Collator, rows: TaskRows, answers: Answers, width: int):
        """`inner`: the task's own; `answers`: the teacher's, by the key of `rows`; `width`: of the student's logits."""
        super().__init__(inner.encoder, inner.max_length, inner.with_labels)
        self.inner, self.rows, self.answers, self.width = inner, rows, answers, width

    def encodings(self, examples: Sequence[Any], tell_cut: bool = True) -> list[Encoding]:
        return self.inner.encodings(examples, tell_cut)

    def arrays(self, examples: Sequence[Any], encodings: Sequence[Encoding]) -> Batch:
        batch = self.inner.arrays(examples, encodings)
        rows, length = batch["input_ids"].shape
        windows = isinstance(examples[0], TaggedWindow | Window)
        logits = np.zeros((rows, length, self.width) if windows else (rows, self.width), np.float32)
        for row, feature in zip(logits, examples, strict=True):
            answer = self.answers.get(self.rows.key(feature.example if windows else feature))
            if answer is None:
                continue
            if windows:
                part = answer[part_of(feature)]
                if len(part) != (wanted := len(feature.places)):  # one row would be spread over all places
                    raise ValueError(f"the teacher reads {len(part)} places where the student reads {wanted}")
                row[feature.places] = part
            else:
                row[:] = answer[0]
        return {**batch, TEACHER_ANSWERS: logits}


class Taught(Task):
    """Mixed into the class of a task, whose methods `super()` reaches; see `taught`."""

    teacher_answers: Answers
    section: DistillationSection
    of_labels: Loss
    prepare: Prepare
    layer_losses: LayerLosses | None

    def build_model(self, texts: Texts | None) -> LoadedModel:
        model = super().build_model(texts)
        self.layer_losses = self.prepare(model)
        return model

    def collator(self, encoder: TextEncoder, *, labelled: bool) -> Collator:
        # super() is the class of the task, made known in `taught`, and not Task itself, where this is abstract.
        collate = super().collator(encoder, labelled=labelled)  # type: ignore[safe-super]
        width = len(self.output_names) if task_info(self.name).of_tokens else len(self.labels)
        rows = task_rows(self.name, self.data)
        return TaughtCollator(collate, rows, self.teacher_answers, width) if labelled else collate

    def training_loss(
        self,
        network: paddle.nn.Layer,
        run: Callable[..., Any],
        inputs: Mapping[str, paddle.Tensor],
        labels: Mapping[str, paddle.Tensor],
    ) -> paddle.Tensor:
        outputs = as_tuple(run(**inputs))
        section = self.section
        loss = (1 - section.hard) * self._answer_loss(outputs, labels)
        if section.hard:
            loss = loss + section.hard * self.of_labels(network, outputs, labels)
        return loss if self.layer_losses is None else loss + self.layer_losses.loss(inputs)

    def _answer_loss(self, outputs: Outputs, labels: Mapping[str, paddle.Tensor]) -> paddle.Tensor:
        """The mean over the rows of the distance to the teacher's logits; for a tagger, first the mean over the words,
        for a reader that over start and end."""
        teacher = labels[TEACHER_ANSWERS]
        if "places" in labels:
            ends = zip(outputs, paddle.unstack(teacher, -1), strict=True)
            return sum(place_losses(*pair, labels["places"], self.section).mean() for pair in ends) / len(outputs)
        losses = answer_losses(outputs[0], teacher, self.section, independent=self.independent)
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


def place_losses(
    student: paddle.Tensor, teacher: paddle.Tensor, places: paddle.Tensor, section: DistillationSection
) -> paddle.Tensor:
    """`answer_losses` [batch] of a reader's logits [batch, length] for starts or ends; `places`: 1 where an answer may
    begin or end, else 0."""
    if section.loss == "mse":
        return (((student.astype("float32") - teacher) ** 2) * places).sum(-1) / places.sum(-1)
    return answer_losses(at_places(student, places), at_places(teacher, places), section, independent=False)


def taught(task: Task, recipe: Recipe, answers: Answers, of_labels: Loss, prepare: Prepare) -> Task:
    """`task` with the losses of recipe.distillation; everything else, including scores, is unchanged.

    `of_labels`: the loss that distillation.hard weights. `prepare` gets the student after it is built
    and before it is trained, and returns the layer losses, or None.
    """
    taught_task = type(type(task).__name__, (Taught, type(task)), {})(task.recipe, task.labels, task.thresholds)
    taught_task.label_names = (*task.label_names, TEACHER_ANSWERS)
    taught_task.teacher_answers = answers
    taught_task.section = recipe.distillation
    taught_task.of_labels = of_labels
    taught_task.prepare = prepare
    taught_task.layer_losses = None
    return taught_task


ANSWERS = ".answers"  # suffix of the folder next to the student's run that caches the teacher's answers


def check(recipe: Recipe, config: Mapping[str, Any]) -> None:
    """UserError if a model with this config.json cannot have the recipe's student. Called before any work."""
    section = recipe.distillation
    info = task_info(recipe.task)
    if not info.distillable:
        known = ", ".join(task.name for task in known_tasks() if task.distillable)
        hint = f"it supports {known}; dynabert and the int8 strategies support more tasks"
        raise UserError(f"distill does not support {recipe.task}", recipe.where("task"), hint)
    if recipe.data.streaming:
        message = "distill holds the texts in memory, with the teacher's answers to them"
        raise UserError(message, recipe.where("data.streaming"), "set it to false")
    if info.of_tokens:
        _check_same_tokens(recipe)
    for path in section.unlabelled:
        try:
            open_input(task_rows(recipe.task, recipe.data), path, "auto")
        except UserError as error:
            message, hint = f"{path}: {error.problems[0].message}", "write them as .jsonl, with the columns as keys"
            raise UserError(message, "distillation.unlabelled", hint) from None
    usable_student(recipe)
    check_layer_losses(recipe, config.get("num_hidden_layers"))
    if not is_made_of_layers(section):
        return
    if config.get("model_type") in (*OWN.values(), *SHARED_LAYERS):
        message = f"{config['model_type']} has no layers that a student could take"
        raise UserError(message, "distillation.model", "describe one: distillation.model.from_scratch, or .student")
    if isinstance(config.get("num_hidden_layers"), int):
        student_layers(section, config["num_hidden_layers"])


def _check_same_tokens(recipe: Recipe) -> None:
    """UserError: the student might read other tokens than its teacher, or the recipe asks for generated questions."""
    section = recipe.distillation
    if not is_made_of_layers(section):
        key = "distillation.student" if section.student is not None else "distillation.model"
        message = f"a student of {recipe.task} consists of layers of its teacher: it learns the logits of each token"
        raise UserError(message, key, "leave it out; distillation.num_hidden_layers says how many")
    if section.model.add_tokens is not None:
        message = f"a student of {recipe.task} reads the tokens of its teacher, whose logits it learns"
        raise UserError(message, "distillation.model.add_tokens", "leave it out")
    if section.generate.copies:
        message = f"no texts are generated for {recipe.task}"
        raise UserError(message, "distillation.generate.copies", "leave it out; distillation.unlabelled adds questions")


def train_student(recipe: Recipe, source: str, run: RunDirectory, setup: ProcessSetup) -> Path:
    """Train a student of the model in `source` in `run` by recipe.distillation; returns the folder of the best model.

    An interrupted training is resumed; a finished one is kept. The source is only read. UserError: student, teacher and
    data do not fit together. RunFailed: the training itself failed.
    Interrupted: Ctrl-C or SIGTERM; the next call resumes it.
    """
    if run.is_finished:
        return run.model
    teacher = open_teacher(recipe, source, setup)
    data = read_data(recipe, teacher.model)
    own = student_recipe(recipe, run, teacher.model.labels)
    start = None
    if is_made_of_layers(recipe.distillation):
        chosen = student_layers(recipe.distillation, len(encoder_layers(teacher.network, source)))
        task = make_task(own, data.labels)
        start = start_of_layers(recipe, source, teacher, data, task, chosen)
    else:
        check_tokens(own, teacher)
    lessons, answers = _lessons(own, teacher, data, run.path.with_name(run.path.name + ANSWERS))
    task = _task(own, teacher, lessons, answers)
    # The source's own loss, of labels, would replace that of the answers; `task` weights it by distillation.hard.
    own = replace(own, training=replace(own.training, criterion=None))
    return train_network(own, run, setup, lessons, task, start, drop=PROJECTION)


def _task(recipe: Recipe, teacher: Teacher, data: TrainingData, answers: Answers) -> Task:
    task = make_task(recipe, data.labels)

    def prepare(student: LoadedModel) -> LayerLosses | None:
        if reads_units(student) and recipe.distillation.embeddings and recipe.model.embeddings is None:
            start_embedding(teacher, student)
        return layer_losses(recipe, teacher, student)

    return taught(task, recipe, answers, label_loss(recipe, task), prepare)


def _lessons(recipe: Recipe, teacher: Teacher, data: TrainingData, folder: Path) -> tuple[TrainingData, Answers]:
    """The rows and all further texts, labelled by the teacher, with its answers, which are cached in `folder`."""
    section = recipe.distillation
    assert data.train is not None, "check refuses a stream"
    rows = list(data.train)
    more = unlabelled_examples(recipe, data.rows)
    if more and task_info(recipe.task).of_tokens:
        teacher.task.check_data("train", more, teacher.encoder)  # as training does, but before the teacher answers
    if section.generate.copies:
        words = dict.fromkeys(word for row in rows for text in data.rows.words(row) for word in text)
        similar = teacher.similar_words(list(words))
        more += varied_examples(recipe, data.rows, [*rows, *more], similar, mask_for(teacher, recipe))
    asked = {data.rows.key(example): data.rows.unlabelled(example) for example in [*rows, *more]}
    known = {data.rows.key(row) for row in rows}
    console.note(f"the student learns from {len(rows):,} rows and {len(asked) - len(known):,} more texts")
    examples = list(asked.values())
    given = teacher.kept_answers(folder, examples, recipe.training.per_device_eval_batch_size)
    answers = dict(zip(asked, given, strict=True))
    new = [key for key in asked if key not in known]
    labelled = teacher.labelled([asked[key] for key in new], [answers[key] for key in new])
    train = ExampleList([*rows, *labelled])
    more_files = [*section.unlabelled, *([section.student] if section.student else [])]
    return replace(data, train=train, files=(*data.files, *map(Path, more_files))), answers
