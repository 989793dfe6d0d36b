"""distill: a student that learns the trained network's answers to many texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nlpctl.compression.plan.files import student_model, usable_student
from nlpctl.compression.strategies.base import NetworkStrategy, Step, Strategy, rows_read
from nlpctl.config.schema import Recipe

if TYPE_CHECKING:
    from nlpctl.runtime.process import ProcessSetup
    from nlpctl.runtime.run_directory import RunDirectory

STUDENT = "student"


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
        section, student = recipe.distillation, usable_student(recipe)
        taught = recipe.training if student is None else student.training
        if section.num_train_epochs is not None:
            taught = replace(taught, num_train_epochs=section.num_train_epochs)
        more = 1 + section.generate.copies
        return rows_read(taught, lambda: (count() + sum(map(_lines, section.unlabelled))) * more)

    def make_network(self, recipe: Recipe, source: str, step: Step, run: RunDirectory, setup: ProcessSetup) -> None:
        from nlpctl.compression.networks.distill import train_student

        train_student(recipe, source, run, setup)


def _lines(path: str) -> int:
    """The approximate number of rows in a file."""
    with open(path, "rb") as stream:
        return sum(1 for _ in stream)
