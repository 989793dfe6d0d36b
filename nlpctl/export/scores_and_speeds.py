"""What "auto" chooses by: the scores of an export's lower precisions on dev, with their calibrations; and speeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.tasks import scores, task_info
from nlpctl.data.open_split import has_split
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.sample_rows import spread
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.training_data import read_labelled_split
from nlpctl.engines.choice import Choice, open_choice, runnable_here
from nlpctl.engines.speeds import reason_of, time_choices
from nlpctl.engines.trained import TrainedModel
from nlpctl.errors import Interrupted, UserError
from nlpctl.models.calibration import Calibration
from nlpctl.models.engine_speeds import EngineSpeeds
from nlpctl.models.export_folder import DevScores, ExportManifest
from nlpctl.runtime.process import ProcessSetup
from nlpctl.tasks.base import Task
from nlpctl.tasks.calibration import recalibrated
from nlpctl.tasks.confidence import ece

MOST_ROWS = 1000  # of dev
BATCH = 32


def dev_scores(
    folder: Path,
    manifest: ExportManifest,
    setup: ProcessSetup,
    task: Task,
    encoder: TextEncoder,
) -> tuple[DevScores | None, dict[str, Calibration]]:
    """The scores of every precision below fp32 that this machine runs, beside that of fp32; and by their names the
    calibrations of those that need one of their own.

    The score is the first of the task. A choice whose engine fails on these rows is left out, with a warning.
    None and nothing if there is no such precision, or no labelled dev data, as next to a copied model.
    """
    choices = runnable_here(manifest, setup)
    exact = next((choice for choice in choices if choice.precision == "fp32"), None)
    lower = [choice for choice in choices if choice.precision != "fp32"]
    if exact is None or not lower or not task.graph_scores or not has_split(task.data, "dev"):
        return None, {}
    try:
        examples, _, _ = read_labelled_split(task_rows(task.name, task.data), "dev", task.labels)
    except UserError as error:  # the files are gone, or of another task
        console.warn(f"dev cannot be read, so auto goes by how many answers are those of fp32: {error}")
        return None, {}
    rows = spread(examples, MOST_ROWS)
    metric = scores(task.name)[0]

    def score(choice: Choice) -> float:
        model = TrainedModel(task, encoder, open_choice(folder, manifest, choice, setup, BATCH))
        predictions = model.predictions(rows, BATCH)
        decisions = task.confidences(rows, predictions)
        if decisions is not None and len(decisions.right):
            errors[choice.name] = ece(decisions)
        own = recalibrated(task, rows, predictions, "dev", errors.get(exact.name)).calibration
        if choice is not exact and own is not None and own is not task.calibration:
            calibrations[choice.name] = own
        return float(task.report(rows, predictions)[metric])

    calibrations: dict[str, Calibration] = {}
    errors: dict[str, float] = {}  # of the probabilities
    on_dev: dict[str, float] = {}
    for choice in [exact, *lower]:
        try:
            on_dev[choice.name] = score(choice)
        except Interrupted:
            raise
        except Exception as error:  # engines raise what they like
            console.warn(f"{choice.name} has no score on dev: {reason_of(error)}")
    fp32 = on_dev.pop(exact.name, None)
    if fp32 is None or not on_dev:
        return None, calibrations
    falling = metric in task_info(task.name).falling  # less of it is better
    return DevScores(metric, len(rows), falling, fp32, on_dev), calibrations


# -- time the graphs of an export in every engine and precision of this machine, for "auto" --------


def time_graphs(
    folder: Path, manifest: ExportManifest, setup: ProcessSetup, batches: Mapping[int, Sequence[Any]], seconds: float
) -> EngineSpeeds | None:
    """Their speeds with `batches` by batch size, within `seconds`; None if there is no choice between engines.

    In this process, which has run all of them already: that they do not crash is known.
    """
    names = [choice.name for choice in runnable_here(manifest, setup)]
    if len(names) < 2 or manifest.chosen is not None:
        return None
    console.note(f"timing {len(names)} ways to run the export, for auto (@[timing=0] leaves it out)")
    speeds = time_choices(folder, manifest, names, setup, batches, seconds)
    _tell(speeds, tuple(batches))
    if speeds.busy:
        message = f"the engines were timed {speeds.busy}, so auto may take a slower one"
        console.warn(f"{message}; export again when the machine is idle (`nlpctl serve` times them anew by itself)")
    late = [name for name in names if name not in speeds.rows_per_second and name not in speeds.failed]
    if late:
        console.warn(f"{', '.join(late)} not timed: the time for timing was over ({seconds:g} s); see @[timing]")
    return speeds


def _tell(speeds: EngineSpeeds, sizes: Sequence[int]) -> None:
    """A note on the fastest at each batch size, and on what failed."""
    fastest: dict[str, list[str]] = defaultdict(list)
    for size in sizes:
        timed = {name: by_size[size] for name, by_size in speeds.rows_per_second.items() if size in by_size}
        if timed:
            name = max(timed, key=timed.__getitem__)
            fastest[name].append(f"{size} ({timed[name]:,.0f} rows/s)")
    for name, sizes_and_speeds in fastest.items():
        console.note(f"{name} is the fastest at batch size {', '.join(sizes_and_speeds)}")
    for name, reason in speeds.failed.items():
        console.warn(f"{name} was not timed: {reason}")
