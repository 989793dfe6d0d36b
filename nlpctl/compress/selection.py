"""The choice of the best candidate: the fastest or smallest among those within the allowed loss, and of those that
speed and score do not tell apart the simplest."""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nlpctl.compress.plan import read_made
from nlpctl.compress.scores import CandidateScore, Metric
from nlpctl.compress.strategies import simplicity
from nlpctl.compress.timing import RelativeSpeeds
from nlpctl.engines.choice import ENGINE_FORMATS
from nlpctl.errors import UserError
from nlpctl.files import staged_dir
from nlpctl.layout import EXPORT_MANIFEST, REPORTS
from nlpctl.models.calibration import Calibration, read_calibration, write_calibration
from nlpctl.models.export_folder import (
    POINT,
    Check,
    Chosen,
    ExportManifest,
    Graph,
    read_checked_manifest,
    read_manifest,
    write_manifest,
)

Target = Literal["throughput", "latency", "size"]
ALIKE = 0.03  # relative difference below which two speeds count as equal, given other load on the machine
SAME_SIZE = 0.01  # relative difference up to which two graphs count as equally large: engines write them differently
_ROUNDING = 1e-6  # points


@dataclass(frozen=True)
class Objective:
    """What the best candidate is chosen by. `max_drop`: allowed loss in points against the reference; `target`: what to
    optimise; `sure`: the share of resampled dev splits in which the loss has to be within it, None: dev as it is.

    throughput: samples per second at the largest of `batch_sizes`; latency: the median time of a batch of the
    smallest; size: of the graph on disk.
    """

    max_drop: float = 0.5
    target: Target = "throughput"
    batch_sizes: tuple[int, ...] = (1, 32)
    sure: float | None = None

    @property
    def batch_size(self) -> int:
        """The batch size of the target."""
        return min(self.batch_sizes) if self.target == "latency" else max(self.batch_sizes)

    def gain(self, row: CandidateScore) -> float:
        """The improvement over the reference in terms of the target, as a factor; for size, the inverse of the MB.

        From the row's own rounds with the reference: enough to decide what to try next."""
        if self.target == "size":
            return 1 / row.size_mb
        speed = row.speed(self.batch_size)
        return speed.p50_times if self.target == "latency" else speed.times


def ordered(rows: Sequence[CandidateScore], objective: Objective, speeds: RelativeSpeeds) -> list[CandidateScore]:
    """The rows in the order of the table: best in terms of the target first."""
    return sorted(rows, key=lambda row: (-_gain(row, objective, speeds)[1], row.name))


def loss(row: CandidateScore, reference: CandidateScore, metric: Metric, objective: Objective) -> float:
    """The points that a row counts as losing; with `sure`, CandidateScore.drops must be known."""
    return metric.drop(row.score, reference.score) if objective.sure is None else row.likely_drop(objective.sure)


def within(row: CandidateScore, reference: CandidateScore, metric: Metric, objective: Objective) -> bool:
    """Whether a row is within the allowed loss."""
    return loss(row, reference, metric, objective) <= objective.max_drop + _ROUNDING


def select(
    rows: Sequence[CandidateScore],
    reference: CandidateScore,
    metric: Metric,
    objective: Objective,
    speeds: RelativeSpeeds,
) -> CandidateScore:
    """The best row: the simplest of `indistinct_from_best`; of equally simple ones the best score, then the smallest
    graph, then the fastest."""

    def key(row: CandidateScore) -> tuple:
        return simplicity(row.candidate), metric.drop(row.score, reference.score)

    alike = indistinct_from_best(rows, reference, metric, objective, speeds)
    first = min(alike, key=key)
    equal = [row for row in alike if row is first or key(row) == key(first)]
    return max(_smallest(equal), key=lambda row: _speed(row, objective, speeds))


def indistinct_from_best(
    rows: Sequence[CandidateScore],
    reference: CandidateScore,
    metric: Metric,
    objective: Objective,
    speeds: RelativeSpeeds,
) -> list[CandidateScore]:
    """The rows within the allowed loss that neither speed nor score tells from the best; the reference, which is one of
    `rows`, if no other qualifies.

    Speeds are alike if their spreads in the last round overlap, or if they differ by less than 3 %; sizes if they
    differ by at most 1 %, and then the fastest count. Of rows alike in speed, those stay whose score dev cannot tell
    from the best.
    """
    allowed = [row for row in rows if within(row, reference, metric, objective)] or [reference]
    gains = {row.name: _gain(row, objective, speeds) for row in allowed}
    low, most, _ = max(gains.values(), key=lambda gain: gain[1])
    if objective.target == "size":
        alike = _smallest(allowed)
        fastest = max(_speed(row, objective, speeds) for row in alike)
        return [row for row in alike if _speed(row, objective, speeds) >= fastest / (1 + ALIKE)]
    alike = [row for row in allowed if gains[row.name][2] >= low or gains[row.name][1] >= most / (1 + ALIKE)]
    first = min(alike, key=lambda row: metric.drop(row.score, reference.score))
    behind = {row.name: metric.drop(row.score, first.score) for row in alike}
    return [row for row in alike if behind[row.name] <= indistinct(row, first) + _ROUNDING]


def indistinct(one: CandidateScore, other: CandidateScore) -> float:
    """The points by which the scores of two rows may differ by chance: two standard errors.

    Only dev rows that are decided differently can be scored differently; these are at most the rows that one of both
    decides differently from the reference.
    """
    differing = min(1.0, 2.0 - one.agreement - other.agreement)
    return 2 * math.sqrt(differing / one.dev_rows) / POINT


def _gain(row: CandidateScore, objective: Objective, speeds: RelativeSpeeds) -> tuple[float, float, float]:
    """The figure that the target is about, larger is better, with its lower and upper end in the last round."""
    if objective.target == "size":
        return (1 / row.size_mb,) * 3
    speed = speeds.speed(row, objective.batch_size)
    gain = speed.p50_times if objective.target == "latency" else speed.times
    if speed.low is None or speed.high is None:
        return gain, gain, gain
    return gain * speed.low / speed.times, gain, gain * speed.high / speed.times


def _smallest(rows: Sequence[CandidateScore]) -> list[CandidateScore]:
    """Those of which no other is smaller by more than 1 %."""
    least = min(row.size_mb for row in rows)
    return [row for row in rows if row.size_mb <= least * (1 + SAME_SIZE)]


def _speed(row: CandidateScore, objective: Objective, speeds: RelativeSpeeds) -> float:
    return speeds.speed(row, max(objective.batch_sizes)).times


# -- best/: the chosen candidate as a separate export that records its engine and precision --------


def write_best(row: CandidateScore, best: Path) -> None:
    """Write or replace the export `best` atomically: the graph of the row's candidate and the files it needs.

    Its export.json names the chosen engine and precision, and the results of the graph on dev. UserError if the
    candidate's folder is damaged.
    """
    folder = Path(row.folder)
    manifest = read_made(folder)
    graph = next(each for each in manifest.graphs if _runs(each, row))
    check = Check(row.engine, row.precision, row.difference, row.agreement)
    checked = dataclasses.replace(graph, checks=(check,))
    left_out = {EXPORT_MANIFEST, *REPORTS, *_files_of_others(manifest, graph)}
    with staged_dir(best) as staged:
        for path in folder.iterdir():
            if path.is_file() and path.name not in left_out:
                shutil.copyfile(path, staged / path.name)
        if row.calibration is not None:
            write_calibration(staged, Calibration.from_json(row.calibration))
        chosen = Chosen(row.engine, row.precision)
        write_manifest(staged, dataclasses.replace(manifest, graphs=(checked,), rows=row.dev_rows, chosen=chosen))


def holds(best: Path, row: CandidateScore) -> bool:
    """Whether the export `best` has the graph of the row, chosen to be run as the row was. A damaged one has none."""
    try:
        held = read_manifest(best)
    except UserError:
        return False
    return _is_of(held, row)


def is_given_by(best: Path, rows: Iterable[CandidateScore]) -> bool:
    """Whether `write_best` would write the export `best` again from one of the rows: with its calibration, too."""
    try:
        held, calibration = read_manifest(best), read_calibration(best)
        return any(_is_of(held, row) and calibration == _calibration_of(row) for row in rows)
    except UserError:  # damaged, or calibrated by a newer nlpctl
        return False


def _is_of(held: ExportManifest, row: CandidateScore) -> bool:
    manifest = read_checked_manifest(Path(row.folder))
    graph = next(each for each in manifest.graphs if _runs(each, row))
    files = [name for each in held.graphs for name in each.files]
    same = [held.sha256[name] for name in files] == [manifest.sha256[name] for name in graph.files]
    return same and held.chosen == Chosen(row.engine, row.precision)


def _calibration_of(row: CandidateScore) -> Calibration | None:
    return read_calibration(Path(row.folder)) if row.calibration is None else Calibration.from_json(row.calibration)


def _runs(graph: Graph, row: CandidateScore) -> bool:
    """Whether the row was measured on `graph`."""
    kept = row.precision if row.precision == "int8" else "fp32"
    return (graph.format, graph.precision, graph.method) == (ENGINE_FORMATS[row.engine], kept, row.method)


def _files_of_others(manifest: ExportManifest, graph: Graph) -> set[str]:
    """The files of the other graphs, including the lists of variable names that Paddle writes."""
    files = {name for each in manifest.graphs if each.files != graph.files for name in each.files}
    return files | {f"{name}.info" for name in files}
