"""Distillation: a smaller network learns the answers of a trained one (Hinton et al., 2015).

    source, training rows --generated and unlabelled texts, answered by the teacher--> lessons --> a student

The student consists of layers of its teacher, or is a different network. A BiLSTM or TextCNN with its own vocabulary
learns from the logits (Tang et al., 2019). A transformer with the teacher's tokens also learns from its layers
(TinyBERT, MiniLM; layer_losses.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.compression.networks.layer_losses import PROJECTION, LayerLosses
from nlpctl.compression.networks.more_texts import key_of, texts_of, unlabelled_examples, varied_examples, without_label
from nlpctl.compression.networks.student import (
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
from nlpctl.compression.networks.taught_task import taught
from nlpctl.compression.networks.teacher import Answers, Teacher, open_teacher
from nlpctl.compression.networks.training import read_data, train_network
from nlpctl.compression.plan.files import extra_files, usable_student
from nlpctl.compression.user_functions import label_loss
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import known_tasks, task_info
from nlpctl.data.examples import ExampleList
from nlpctl.data.splits import TrainingData
from nlpctl.errors import UserError
from nlpctl.models.families import OWN
from nlpctl.models.load import LoadedModel
from nlpctl.models.pruned import encoder_layers
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.base import Task, make_task

ANSWERS = ".answers"  # suffix of the folder next to the student's run that caches the teacher's answers


def check(recipe: Recipe, config: Mapping[str, Any]) -> None:
    """UserError if a model with this config.json cannot have the recipe's student. Called before any work."""
    section = recipe.distillation
    if not task_info(recipe.task).distillable:
        known = ", ".join(task.name for task in known_tasks() if task.distillable)
        hint = f"it supports {known}; dynabert and the int8 strategies support more tasks"
        raise UserError(f"distill does not support {recipe.task}", recipe.where("task"), hint)
    if recipe.data.streaming:
        message = "distill holds the texts in memory, with the teacher's answers to them"
        raise UserError(message, recipe.where("data.streaming"), "set it to false")
    usable_student(recipe)
    check_layer_losses(recipe, config.get("num_hidden_layers"))
    if not is_made_of_layers(section):
        return
    if config.get("model_type") in OWN.values():
        message = f"{config['model_type']} has no layers that a student could take"
        raise UserError(message, "distillation.model", "describe one: distillation.model.from_scratch, or .student")
    if isinstance(config.get("num_hidden_layers"), int):
        student_layers(section, config["num_hidden_layers"])


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
    return train_network(own, run, setup, lessons, task, start, drop=PROJECTION)


def _task(recipe: Recipe, teacher: Teacher, data: TrainingData, answers: Answers) -> Task:
    task = make_task(recipe, data.labels)

    def prepare(student: LoadedModel) -> LayerLosses | None:
        if reads_units(student) and recipe.distillation.embeddings and recipe.model.embeddings is None:
            start_embedding(teacher, student)
        return layer_losses(recipe, teacher, student)

    criterion = None if recipe.compression.criterion is None else label_loss(recipe, task)
    return taught(task, recipe, answers, criterion, prepare)


def _lessons(recipe: Recipe, teacher: Teacher, data: TrainingData, folder: Path) -> tuple[TrainingData, Answers]:
    """The rows and all further texts, labelled by the teacher, with its answers, which are cached in `folder`."""
    section = recipe.distillation
    rows = list(data.train)
    more = unlabelled_examples(recipe, data.rows)
    if section.generate.copies:
        words = dict.fromkeys(word for row in rows for text in texts_of(row) for word in text)
        similar = teacher.similar_words(list(words))
        more += varied_examples(recipe, [*rows, *more], similar, mask_for(teacher, recipe))
    asked = {key_of(example): without_label(example) for example in [*rows, *more]}
    known = {key_of(row) for row in rows}
    console.note(f"the student learns from {len(rows):,} rows and {len(asked) - len(known):,} more texts")
    examples = list(asked.values())
    given = teacher.kept_answers(folder, examples, recipe.training.per_device_eval_batch_size)
    answers = dict(zip(asked, given, strict=True))
    new = [key for key in asked if key not in known]
    labelled = teacher.labelled([asked[key] for key in new], [answers[key] for key in new])
    train = ExampleList([*rows, *labelled])
    return replace(data, train=train, files=(*data.files, *extra_files(recipe))), answers
