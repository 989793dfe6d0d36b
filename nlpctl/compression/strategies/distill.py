"""distill: a student that learns the trained network's answers to many texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nlpctl.compression.plan.files import student_model, usable_student
from nlpctl.compression.strategies.base import (
    SHARES,
    NetworkStrategy,
    Step,
    Strategy,
    length_of,
    part_of,
    rows_read,
)
from nlpctl.config.schema import Recipe

if TYPE_CHECKING:
    from nlpctl.runtime.process import ProcessSetup
    from nlpctl.runtime.run_directory import RunDirectory

STUDENT = "student"
EPOCHS = "distillation.num_train_epochs"
COPIES = "distillation.generate.copies"
LAYERS = "distillation.num_hidden_layers"


class Distill(NetworkStrategy):
    name = "distill"
    stem = STUDENT
    help = "a student of another architecture or with fewer layers, set in section distillation"
    trains = True
    reads = of_training = ("criterion",)

    def networks(self, section: Any, base: Step | None) -> Iterator[Step]:
        yield self.network(STUDENT, base)

    def check(self, recipe: Recipe, config: Mapping[str, Any]) -> None:
        from nlpctl.compression.networks.distill import check

        check(recipe, config)

    def starts_from(self, recipe: Recipe) -> str | None:
        return student_model(recipe).name_or_path

    def config(self, recipe: Recipe) -> Mapping[str, Any] | None:
        """config.json of a student that is one of nlpctl's own networks."""
        from nlpctl.models.families import OWN

        model = student_model(recipe)
        architecture = None if model.from_scratch is None else model.from_scratch.architecture
        return {"model_type": OWN[architecture]} if architecture is not None and architecture in OWN else None

    def unread(self, recipe: Recipe, beside: Sequence[Strategy]) -> str | None:
        if recipe.compression.criterion is None or recipe.distillation.hard:
            return None
        if any("criterion" in each.reads for each in beside):
            return None
        return f"compression.criterion has no effect: {self.name} weights it by distillation.hard, which is 0"

    def rows_trained(self, recipe: Recipe, count: Callable[[], int]) -> float:
        """Includes unlabelled and generated texts."""
        section, taught = recipe.distillation, _training(recipe)
        more = 1 + section.generate.copies
        return rows_read(taught, lambda: (count() + sum(map(_lines, section.unlabelled))) * more)

    def smaller(self, step: Step, recipe: Recipe, config: Mapping[str, Any]) -> Iterator[Step]:
        """First a shorter training, down to one epoch; then no generated texts; then a part of an epoch; then fewer
        layers of the teacher."""
        section = recipe.distillation
        key, whole = _length(recipe)
        copies, layers = section.generate.copies, _layers(recipe, config)
        planned = {key: whole, COPIES: copies, LAYERS: layers}

        def form(length: float, copies: int, fewer: int) -> Step:
            wanted = {key: length, COPIES: copies, LAYERS: fewer}
            changed = {name: value for name, value in wanted.items() if value != planned[name]}
            return step.in_form(changed, (1 + fewer) / (1 + layers))  # 1: the teacher, and what is not in layers

        length = whole
        while not isinstance(whole, int) and length > 1:
            length = float(math.ceil(length / 2))
            yield form(length, copies, layers)
        if copies:
            yield form(length, 0, layers)
        for share in SHARES:
            yield form(part_of(length, share), 0, layers)
        fewer = layers // 2
        while fewer:
            yield form(part_of(length, SHARES[-1]), 0, fewer)
            fewer //= 2

    def make_network(self, recipe: Recipe, source: str, step: Step, run: RunDirectory, setup: ProcessSetup) -> None:
        from nlpctl.compression.networks.distill import train_student

        train_student(recipe, source, run, setup)


def _training(recipe: Recipe) -> Any:
    """Section training of the student."""
    section, student = recipe.distillation, usable_student(recipe)
    taught = recipe.training if student is None else student.training
    return taught if section.num_train_epochs is None else replace(taught, num_train_epochs=section.num_train_epochs)


def _length(recipe: Recipe) -> tuple[str, float]:
    """The key that sets the length of the student's training, and its value."""
    key, length = length_of(_training(recipe), "training" if recipe.student is None else "student.training")
    own = recipe.distillation.num_train_epochs is not None and not isinstance(length, int)
    return (EPOCHS if own else key), length


def _layers(recipe: Recipe, config: Mapping[str, Any]) -> int:
    """The number of layers of a student whose layers are the teacher's and may be fewer, else 0."""
    section, teacher = recipe.distillation, config.get("num_hidden_layers")
    model = section.model
    if section.student or section.layers or model.from_scratch is not None or model.name_or_path is not None:
        return 0
    return section.num_hidden_layers or (teacher // 2 if isinstance(teacher, int) else 0)


def _lines(path: str) -> int:
    """The approximate number of rows in a file."""
    with open(path, "rb") as stream:
        return sum(1 for _ in stream)
