"""Predictions of the rows that a run was not trained on.

FOLDER/held/NAME/predictions.jsonl    a line per row that run NAME did not see, with its place
                 probabilities.npz    those of its labels, where the task has labels
                 scores.json          the scores of these rows
FOLDER/predictions.jsonl, probabilities.npz    one prediction for every training row
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpctl.config.schema import Recipe
from nlpctl.data.passthrough_columns import json_line
from nlpctl.data.readers.lines import numbered_lines
from nlpctl.data.readers.row import place
from nlpctl.errors import UserError
from nlpctl.experiments.series import Series, SeriesRun, TrainingRows
from nlpctl.files import (
    parse_json,
    regular,
    remove_leftovers_of,
    staged_dir,
    staged_file,
    write_json_atomic,
    write_npz,
    writing,
)
from nlpctl.formats.array_files import read_npz
from nlpctl.models.folder import read_labels
from nlpctl.runtime.run_directory import RunDirectory

if TYPE_CHECKING:
    from nlpctl.tasks.base import Task

HELD, PREDICTIONS, PROBABILITIES, SCORES = "held", "predictions.jsonl", "probabilities.npz", "scores.json"
_ROUNDING = 1e-4  # of means in float32
ROOM = "free disk space, then call the same command with @[resume=true]"


@dataclass(frozen=True)
class HeldOutProbabilities:
    """Probabilities of labels: those of the units of row i are values[ends[i - 1]:ends[i]], float32 [units, labels]."""

    values: np.ndarray
    ends: np.ndarray

    @classmethod
    def from_rows(cls, rows: Sequence[np.ndarray]) -> HeldOutProbabilities:
        """`rows`: float [units, labels] each."""
        ends = np.cumsum([len(each) for each in rows])
        return cls(np.concatenate(rows).astype(np.float32), ends)

    def rows(self) -> list[np.ndarray]:
        """float32 [units, labels] of each row."""
        return np.split(self.values, self.ends[:-1])


def write_probabilities(file: Path, probabilities: HeldOutProbabilities, labels: Sequence[str]) -> None:
    with staged_file(file) as stream:
        arrays = {"values": probabilities.values, "ends": probabilities.ends, "labels": json.dumps(list(labels))}
        write_npz(stream, arrays, compressed=True)


def read_probabilities(file: Path) -> tuple[HeldOutProbabilities, tuple[str, ...]]:
    """What `write_probabilities` wrote, and the labels. UserError: the file is missing or damaged."""
    try:
        arrays = read_npz(file)
        values, ends, labels = arrays["values"], arrays["ends"], tuple(parse_json(str(arrays["labels"])))
        if values.ndim != 2 or values.shape[1] != len(labels) or ends.ndim != 1 or ends[-1] != len(values):
            raise ValueError("its parts do not fit together")
        if ends.dtype.kind != "i" or (np.diff(ends, prepend=0) < 0).any():
            raise ValueError("its rows do not follow each other")
        # NaN is in no range.
        if values.dtype.kind != "f" or not ((values >= -_ROUNDING) & (values <= 1 + _ROUNDING)).all():
            raise ValueError("it holds numbers that are no probabilities")
        return HeldOutProbabilities(values, ends), labels
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        hint = "train the folds again with @[overwrite=true]"
        raise UserError(f"the probabilities cannot be read ({error})", str(file), hint) from None


def is_predicted(series: Series, member: SeriesRun) -> bool:
    """Whether the rows held out of a run are predicted."""
    return (series.folder / HELD / member.name / SCORES).is_file()


def predict_held_out(recipe: Recipe, rows: TrainingRows, chosen: Sequence[int], fold: int) -> None:
    """Predict the rows at the indexes `chosen` by the model of the finished run of `recipe`, and score them."""
    from nlpctl.engines.pipeline import evaluation_pipeline
    from nlpctl.engines.trained import load_network
    from nlpctl.runtime.process import set_up_process

    run = RunDirectory(recipe.run_dir)
    set_up_process(recipe)
    model = load_network(recipe, str(run.model))
    # As probabilities.npz has them: each run has another calibration, and none of them is that of a mean.
    task, examples = model.task.calibrated(None), rows.examples(chosen)
    features = [task.features(example, model.encoder) for example in examples]
    probabilities: list[list[Any]] = [[None] * len(parts) for parts in features]  # of each feature of each example

    def watch(places: Sequence[tuple[int, int]], batch: Any, outputs: tuple[np.ndarray, ...]) -> None:
        of_batch = task.probabilities(outputs, [features[i][part] for i, part in places])
        if of_batch is None:  # the task gives no labels
            return
        for (i, part), own in zip(places, of_batch, strict=True):
            probabilities[i][part] = own

    pipeline = evaluation_pipeline(task, model.encoder, model.predictor)
    predictions = pipeline.predictions(examples, recipe.training.per_device_eval_batch_size, watch)
    folder = run.path.parent / HELD / run.path.name
    remove_leftovers_of(folder)  # of a command that was killed
    with writing(folder, ROOM), staged_dir(folder) as staged:
        lines = _lines(rows, chosen, task.labelled_answers(examples, predictions), [fold] * len(chosen))
        _write_lines(staged / PREDICTIONS, lines)
        if probabilities[0][0] is not None:
            whole = HeldOutProbabilities.from_rows([np.concatenate(parts) for parts in probabilities])
            write_probabilities(staged / PROBABILITIES, whole, task.labels.names)
        write_json_atomic(staged / SCORES, task.report(examples, predictions))


def fold_name(seed: int, fold: int, seeds: Sequence[int]) -> str:
    """The name of a run, such as fold-1; `fold` counts from 0."""
    return f"fold-{fold + 1}" if len(seeds) == 1 else f"seed-{seed}-fold-{fold + 1}"


def gather(series: Series, folds: Sequence[Sequence[int]], seeds: Sequence[int]) -> Path:
    """Write one prediction for every row; with several seeds that of their mean probabilities and
    thresholds. Returns the file.
    """
    file = series.folder / PREDICTIONS
    count = len(series.rows)
    held = [[series.folder / HELD / fold_name(seed, fold, seeds) for fold in range(len(folds))] for seed in seeds]
    lines: list[Any] = [None] * count
    for folder, chosen in zip(held[0], folds, strict=True):
        for row, line in zip(chosen, read_lines(folder / PREDICTIONS), strict=True):
            lines[row] = line
    if (held[0][0] / PROBABILITIES).is_file():
        labels: tuple[str, ...] = ()
        means: list[Any] = [0.0] * count
        for folders in held:
            for folder, chosen in zip(folders, folds, strict=True):
                probabilities, labels = read_probabilities(folder / PROBABILITIES)
                for row, own in zip(chosen, probabilities.rows(), strict=True):
                    means[row] = means[row] + own / len(seeds)
        with writing(file, ROOM):
            write_probabilities(series.folder / PROBABILITIES, HeldOutProbabilities.from_rows(means), labels)
        if len(seeds) > 1:
            for fold, chosen in enumerate(folds):
                names = [fold_name(seed, fold, seeds) for seed in seeds]
                decided = _decided(series, names, chosen, [means[row] for row in chosen], fold + 1)
                for row, line in zip(chosen, decided, strict=True):
                    lines[row] = line
    with writing(file, ROOM):
        _write_lines(file, lines)
    return file


def _decided(
    series: Series, names: Sequence[str], chosen: Sequence[int], means: Sequence[np.ndarray], fold: int
) -> Iterator[dict[str, Any]]:
    """Lines of the rows `chosen` with the answers that their mean probabilities give.

    `names`: the runs that did not see these rows. Each has tuned thresholds of its own; their means decide.
    """
    from nlpctl.tasks.base import make_task

    tuned = [read_labels(RunDirectory(series.folder / name).model)[1] for name in names]
    thresholds_of_runs = [each for each in tuned if each is not None]
    thresholds = tuple(np.mean(thresholds_of_runs, 0).tolist()) if thresholds_of_runs else None
    task: Task = make_task(series.recipe, series.rows.labels, thresholds)
    answers = task.labelled_answers(series.rows.examples(chosen), [[task.prediction_from(mean)] for mean in means])
    yield from _lines(series.rows, chosen, answers, [fold] * len(chosen))


def _lines(
    rows: TrainingRows, chosen: Iterable[int], answers: Sequence[Mapping[str, Any]], folds: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """A line per row: its place, fold and texts, its label as the file has it under "given", and the answer."""
    for i, answer, fold in zip(chosen, answers, folds, strict=True):
        row = rows.read.rows[i]
        given = {"given": row.values[rows.rows.label_column]} if len(rows.labels) else {}
        yield {"where": place(row.source, row.line), "fold": fold, **given, "texts": rows.read.passages[i], **answer}


def _write_lines(file: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    with staged_file(file) as stream:
        for line in lines:
            stream.write(f"{json_line(line)}\n".encode())


def read_lines(file: Path) -> list[dict[str, Any]]:
    """UserError: the file is missing or damaged."""
    hint = "train the folds again with @[overwrite=true]"
    try:
        with regular(file).open("rb") as stream:
            return [parse_json(line) for _, line in numbered_lines(stream, str(file), hint=hint)]
    except (OSError, ValueError) as error:
        raise UserError(f"the predictions cannot be read ({error})", str(file), hint) from None
