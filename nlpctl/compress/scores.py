"""What is measured of a candidate (score, speed, size and memory in one engine and precision), and the files of it.

scorer.py measures it. Imports neither Paddle nor NumPy.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import greater_is_better, scores
from nlpctl.documents import Document, Moment, left_out
from nlpctl.models.export_folder import points_lost, way_name

USER_SCORE = "compression.evaluate"  # key of the user's own scores in a report


@dataclass(frozen=True)
class Metric:
    """The metric that candidates are compared by; `own`: the first score of the user's function `name`.

    report.json and the keys of stored scores have these names, as well as those of Timing.
    """

    name: str
    greater_is_better: bool = True
    own: bool = False

    def value(self, report: Mapping[str, Any]) -> float:
        """The value of the metric in a report on dev or test."""
        return float(next(iter(report[USER_SCORE].values())) if self.own else report[self.name])

    def drop(self, score: float, reference: float) -> float:
        """By how many points `score` is worse than `reference`; negative if it is better."""
        return points_lost(score, reference, falling=not self.greater_is_better)


@dataclass(frozen=True)
class Speed:
    """One batch size: samples per second, the median latency of a batch, and both as a multiple of the reference.

    The reference is the uncompressed network in fp32, timed in alternating rounds with this one: `times` 2 is twice the
    throughput, `p50_times` 2 is half the latency. The fastest round of each batch counts, so that other load on the
    machine matters little.
    """

    batch_size: int
    samples_per_second: float
    p50_ms: float
    times: float
    p50_times: float


@dataclass(frozen=True)
class Timed:
    """When and where something was timed, and the load of the machine before; report.json has these names."""

    date: Moment
    load: float
    machine: str

    @classmethod
    def now(cls) -> Timed:
        date = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return cls(date, round(os.getloadavg()[0], 2), platform.node())


@dataclass(frozen=True)
class CandidateScore:
    """A row of the table: what was measured of a candidate (a folder) in one engine and precision.

    `report`: the task's, on dev. `difference`: the largest absolute difference of any output from the reference; None
    if the two encode text differently. `agreement`: share of dev rows with the same decision as the reference.
    `size_mb`: graph files; `peak_mb`: of the process, with Paddle where its engine needs it; MB of 1024 x 1024 bytes.
    `seconds`: time of scoring. `drops`: quantiles, evenly spaced from 0 to 1, of the drop in points on resampled dev
    rows; None where the score cannot be resampled. `calibration`: what best/ gets in place of that of the network
    (models/calibration.py). `embedding_mb`: what of `size_mb` are large embedding tables (graphs/embedding_size.py).
    Of the last two None: it was scored by an earlier version.
    """

    candidate: str
    folder: str
    engine: str
    precision: str
    method: str | None
    score: float
    report: Mapping[str, Any]
    difference: float | None
    agreement: float
    size_mb: float
    peak_mb: float
    load_seconds: float
    speeds: tuple[Speed, ...]
    seconds: float
    drops: tuple[float, ...] | None = None
    calibration: Mapping[str, Any] | None = None
    embedding_mb: float | None = None
    timed: Timed | None = left_out()

    def likely_drop(self, share: float) -> float:
        """The drop in points that is not exceeded in this `share` of resampled dev splits. `drops` must be known."""
        assert self.drops is not None
        return self.drops[round(share * (len(self.drops) - 1))]

    @property
    def choice_name(self) -> str:
        """The engine as engines/choice.py names it: "onnxruntime int8 (dynamic)"."""
        return way_name(self.engine, self.precision, self.method)

    @property
    def name(self) -> str:
        return f"{self.candidate}, {self.choice_name}"

    @property
    def dev_rows(self) -> int:
        """The number of scored dev rows."""
        return int(self.report["rows"])

    def speed(self, batch_size: int) -> Speed:
        """The speed at one of the timed batch sizes."""
        return next(speed for speed in self.speeds if speed.batch_size == batch_size)


@dataclass(frozen=True)
class Failure:
    """A candidate that could not be made, or its engine and precision that failed (`choice_name`; "": it was not
    made)."""

    candidate: str
    choice_name: str
    reason: str

    @property
    def name(self) -> str:
        return f"{self.candidate}, {self.choice_name}" if self.choice_name else self.candidate


@dataclass(frozen=True)
class Scored:
    """The results of one folder."""

    rows: tuple[CandidateScore, ...]
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class TestScore:
    """The reference and the chosen candidate on test: the metric of each, and the share of equal decisions."""

    __test__ = False  # tells pytest that this is not a test class

    rows: int
    reference: float
    chosen: float
    agreement: float


@dataclass(frozen=True)
class Stored(Document):
    """A file of scores/: what `nlpctl compress` has measured, so that the same command need not measure it again.
    `key`: of what was measured, and how (compress/scorer.py)."""

    FORMAT: ClassVar[int | None] = 2

    key: str


@dataclass(frozen=True)
class StoredRow(Stored):
    """A candidate in one engine and precision."""

    found: CandidateScore


@dataclass(frozen=True)
class StoredTestScore(Stored):
    """The chosen candidate on test."""

    found: TestScore


def metric_of(recipe: Recipe) -> Metric:
    """The score of compression.evaluate, else training.metric_for_best_model if a report has it, else the task's main
    score."""
    if recipe.compression.evaluate is not None:
        return Metric(recipe.compression.evaluate.rpartition(":")[2], own=True)
    wanted = (recipe.training.metric_for_best_model or "").removeprefix("eval_")
    known = scores(recipe.task)
    name = wanted if wanted in known else known[0]
    return Metric(name, greater_is_better(recipe, name))


def score_file(folder: Path, candidate: str, choice_name: str, split: str = "dev") -> Path:
    """The file of a candidate's score: scores/width-0.75+ptq.paddle-int8-ptq.json."""
    name = choice_name.replace(" (", "-").replace(")", "").replace(" ", "-")
    return folder / f"{candidate}.{name}{'' if split == 'dev' else f'.{split}'}.json"


S = TypeVar("S", bound=Stored)


def stored_under(key: str, kind: type[S], file: Path) -> S | None:
    """What `file` holds; None if there is none, it is damaged, or was measured otherwise."""
    stored = kind.load_if_valid(file)
    return stored if stored is not None and stored.key == key else None


def agreement(one: Sequence[str], other: Sequence[str]) -> float:
    """Share of the decisions that are equal."""
    return sum(a == b for a, b in zip(one, other, strict=True)) / max(1, len(one))
