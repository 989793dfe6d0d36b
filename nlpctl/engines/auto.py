"""Open an export with the engine and precision of a recipe, or, for "auto", the fastest on this machine."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nlpctl import console
from nlpctl.config.schema import InferenceSection, Recipe
from nlpctl.data.batches.collate import Batch
from nlpctl.engines.choice import AllowedChoices, Choice, allowed_choices, doubt, is_chosen, open_choice, this_machine
from nlpctl.engines.engine import Predictor
from nlpctl.engines.samples import sample_batches
from nlpctl.engines.speeds import LIMIT, KnownSpeeds, known_speeds, measured_speeds, usual_speeds
from nlpctl.models.engine_speeds import EngineSpeeds
from nlpctl.models.export_folder import ExportManifest
from nlpctl.runtime.process import ProcessSetup

WORTH_TIMING = 5  # the engines are timed before work that takes this many times as long

# How many rows are to be answered: a number; a function `count(most)` that counts them up to `most`; None: not known.
RowCount = int | Callable[[int], int] | None


@dataclass(frozen=True)
class OpenedEngine:
    """An opened engine, and the name of its choice: "onnxruntime int8 (dynamic)".

    `find_faster`: given if "auto" had to guess, or the machine was busy when the engines were timed. Whoever has time
    calls it, such as a service beside its answers: it times the engines, keeps the figures, and returns a faster
    engine, warmed up, or None if this one is the fastest.
    """

    predictor: Predictor
    choice_name: str
    find_faster: Callable[[], OpenedEngine | None] | None = None


@dataclass(frozen=True)
class _Export:
    """An export, and what it is opened for; see `open_predictor`."""

    folder: Path
    manifest: ExportManifest
    inference: InferenceSection
    setup: ProcessSetup
    batch_size: int
    own: Recipe

    def open(self, chosen: Choice) -> Predictor:
        """The chosen engine, with a warning if it was requested by name and is doubted."""
        reason = None if is_chosen(chosen, self.manifest) else doubt(chosen, self.manifest, self.inference)
        if reason is not None:
            console.warn(f"{chosen.name} {reason}")
        tensorrt = self.own if self.inference.tensorrt else None
        return open_choice(self.folder, self.manifest, chosen, self.setup, self.batch_size, tensorrt=tensorrt)

    @functools.cached_property
    def synthetic_batch(self) -> Batch:
        """One batch of synthetic rows."""
        return sample_batches(self.folder, self.own, self.batch_size, self.batch_size)[0]


def open_predictor(
    folder: Path,
    manifest: ExportManifest,
    inference: InferenceSection,
    setup: ProcessSetup,
    batch_size: int,
    own: Recipe,
    rows: RowCount = None,
) -> OpenedEngine:
    """Load the export in `folder` by section `inference`, for batches of `batch_size` rows.

    If several engines and precisions remain, the one is taken that was the fastest when it was timed. Where nothing was
    timed under these conditions, or on a busy machine, the most plausible one is: nothing is timed before the first
    answer, unless so many `rows` are to be answered that it pays (a number, or a function that counts them up to a
    number; None: not known).
    Fewer rows than a batch holds are what the fastest is chosen for. A note on stderr gives the reason. `own`: the
    export's own recipe. UserError if this machine or the export does not support the request.
    """
    export = _Export(folder, manifest, inference, setup, batch_size, own)
    possible = allowed_choices(manifest, inference, this_machine(setup))
    if len(possible.choices) == 1:
        return OpenedEngine(export.open(possible.choices[0]), possible.choices[0].name)
    size = batch_size if rows is None else max(1, _count_up_to(rows, batch_size))
    known = known_speeds(folder, manifest, possible.choices, setup)
    expected = usual_speeds(manifest, possible.choices, setup) if known is None else known
    chosen = fastest(possible.choices, expected.speeds, size)
    predictor = export.open(chosen)
    if known is not None and not known.speeds.busy:
        console.note(_explain_choice(chosen, possible, known, size))
        return OpenedEngine(predictor, chosen.name)

    def find_faster(*, gently: bool = True) -> OpenedEngine | None:
        measured = measured_speeds(folder, possible.choices, setup, gently=gently)
        if known is not None and known.speeds.others < measured.speeds.others:
            measured = known  # still busy, and more so
        best = fastest(possible.choices, measured.speeds, size) if measured.speeds.rows_per_second else chosen
        console.note(_explain_choice(best, possible, measured, size))
        if best == chosen:
            return None
        faster = export.open(best)
        _seconds_per_row(faster, export)  # warms it up
        return OpenedEngine(faster, best.name)

    if rows is not None and _worth_timing(rows, predictor, export):
        console.note(f"auto: timing {len(possible.choices)} ways to run this export, once on this machine")
        return find_faster(gently=False) or OpenedEngine(predictor, chosen.name)
    console.note(_explain_choice(chosen, possible, expected, size))
    return OpenedEngine(predictor, chosen.name, find_faster)


def _count_up_to(rows: int | Callable[[int], int], most: int) -> int:
    """The number of rows, or `most` if there are more."""
    return min(rows, most) if isinstance(rows, int) else rows(most)


def _worth_timing(rows: int | Callable[[int], int], predictor: Predictor, export: _Export) -> bool:
    """Whether answering `rows` takes so long that timing the engines first is worth it; a single batch never does."""
    if _count_up_to(rows, export.batch_size + 1) <= export.batch_size:
        return False
    enough = math.ceil(WORTH_TIMING * LIMIT / max(_seconds_per_row(predictor, export), 1e-9))
    return _count_up_to(rows, enough) >= enough


def _seconds_per_row(predictor: Predictor, export: _Export) -> float:
    """Seconds per row of one synthetic batch, the second time that it is computed."""
    batch = export.synthetic_batch
    predictor.outputs(batch)  # engines prepare their kernels with it
    started = time.perf_counter()
    predictor.outputs(batch)
    return (time.perf_counter() - started) / len(next(iter(batch.values())))


def fastest(choices: tuple[Choice, ...], speeds: EngineSpeeds, batch_size: int) -> Choice:
    """The fastest timed choice; the first, which is the simplest, if none was timed."""
    return max(choices, key=lambda choice: speeds.speed(choice.name, batch_size) or 0.0)


def _explain_choice(chosen: Choice, possible: AllowedChoices, known: KnownSpeeds, batch_size: int) -> str:
    """The note on the chosen engine, the other speeds, and the choices that were excluded."""
    speeds = known.speeds
    speeds_by_name = [(each.name, speed) for each in possible.choices if (speed := speeds.speed(each.name, batch_size))]
    ranked = ", ".join(f"{name} {speed:,.0f}" for name, speed in sorted(speeds_by_name, key=lambda each: -each[1]))
    lines = [f"auto takes {chosen.name}; rows per second, batch size {batch_size}, {known.origin_and_load}: "]
    lines[0] += ranked or "none was timed"
    lines += [f"  not {choice.name}: it {reason}" for choice, reason in possible.left_out]
    failed = [(each.name, speeds.failed[each.name]) for each in possible.choices if each.name in speeds.failed]
    lines += [f"  not {name}: it failed ({reason})" for name, reason in failed]
    return "\n".join(lines)
