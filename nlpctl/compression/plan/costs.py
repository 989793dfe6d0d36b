"""What the steps of a compression take: time that is left, and what a step is expected to need. Imports no Paddle."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nlpctl.compression.plan.files import read_student
from nlpctl.compression.plan.steps import CANDIDATES, EXPORTS, Step
from nlpctl.config.schema import Recipe
from nlpctl.data.kinds import task_rows
from nlpctl.data.sources import open_split
from nlpctl.files import write_json_atomic

TIMES = "times.json"
START = 10.0  # seconds: a process, Paddle, opening graphs
TRAINING = 8.0  # a training step beside inference in fp32: forward, backward, the teacher, evaluations
CALIBRATING = 4.0  # rows that are run to calibrate, in the same measure
SEARCHING = {"hist": 2.0, "KL": 2.5, "mse": 5.0, "emd": 7.0}  # they try many bounds; a multiple of avg, as measured
WAYS = {EXPORTS: 3, CANDIDATES: 1}  # engines and precisions that a folder is scored in


class Clock:
    """Seconds that are left of a budget; None where there is none."""

    def __init__(self, seconds: float | None, now: Callable[[], float] = time.monotonic):
        self._now = now
        self._end = None if seconds is None else now() + seconds

    def left(self) -> float | None:
        return None if self._end is None else self._end - self._now()


@dataclass
class Costs:
    """What steps take, in seconds: measured where one like it was made, else reckoned from the speed of the network.

    `speed`: samples per second of the uncompressed network in fp32, at the largest batch size. `rows`: how many a
    training reads, those of all its epochs, by method. `scoring`: what a way to run a folder takes to be scored.
    `measured`: of Step.work.
    """

    speed: float
    rows: Mapping[str, float]
    scoring: float
    measured: dict[str, float] = field(default_factory=dict)

    def of(self, step: Step) -> float:
        """Seconds to make the folder of a step, and to score it."""
        made = self.measured[step.work] if step.work in self.measured else self._reckoned(step)
        return made + (WAYS[step.kind] * self.scoring if step.scored else 0.0)

    def _reckoned(self, step: Step) -> float:
        if step.trains:
            return START + TRAINING * self.rows[step.method] / self.speed
        if step.calibration is None:
            return START
        slow = SEARCHING.get(step.calibration.algorithm or "", 1.0)
        rows = step.calibration.batch_size * step.calibration.batches
        return START + slow * CALIBRATING * rows / self.speed


def trained_rows(recipe: Recipe) -> dict[str, float]:
    """How many rows each training strategy reads, every epoch counted."""
    section, student = recipe.distillation, read_student(recipe)
    taught = recipe.training if student is None else student.training
    if section.num_train_epochs is not None:
        taught = replace(taught, num_train_epochs=section.num_train_epochs)
    if recipe.training.max_steps > 0 and taught.max_steps > 0:
        count = texts = 0  # which nobody has to know
    else:
        count = sum(1 for _ in open_split(task_rows(recipe.task, recipe.data), "train"))
        texts = (count + sum(map(_lines, section.unlabelled))) * (1 + section.generate.copies)
    rows = _read(recipe.training, count)
    return {"dynabert": rows, "qat": rows, "distill": _read(taught, texts)}


def _read(training: Any, rows: int) -> float:
    """How many rows a training on so many reads."""
    if training.max_steps > 0:
        return float(training.max_steps * training.per_device_train_batch_size * training.gradient_accumulation_steps)
    return float(rows * training.num_train_epochs)


def _lines(path: str) -> int:
    """About as many as there are rows in a file."""
    with open(path, "rb") as stream:
        return sum(1 for _ in stream)


def read_times(folder: Path) -> dict[str, float]:
    """What steps took earlier; {} where nothing is known."""
    try:
        content = json.loads((folder / TIMES).read_text(encoding="utf-8"))
        return {str(name): float(seconds) for name, seconds in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_times(folder: Path, times: Mapping[str, float]) -> None:
    """Keep what steps took, for a later call."""
    write_json_atomic(folder / TIMES, dict(times))


def told(seconds: float) -> str:
    """A time as people say it: 40 s, 12 min."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
