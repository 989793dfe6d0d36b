"""`nlpctl eval`: the scores of a trained model on labelled data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.recipe_of import with_reading
from nlpctl.config.schema import SPLITS, Recipe
from nlpctl.config.tasks import task_info
from nlpctl.data.open_split import has_split, open_split
from nlpctl.data.rows.examples import ExampleList, ExampleReader, places
from nlpctl.data.rows.task_rows import TaskRows, task_rows
from nlpctl.data.text.truncated import warn_of_truncated
from nlpctl.data.training_data import column_values, groups_of, read_labelled_split
from nlpctl.data.validate import refuse_columns
from nlpctl.errors import UserError
from nlpctl.inference.divided_scores import DividedModel, divided_model
from nlpctl.inference.open_model import find_model, open_trained_model, set_up_to_answer
from nlpctl.inference.seen_rows import members_of, warn_of_seen_rows
from nlpctl.layout import LABELS, TRUNCATED
from nlpctl.models.folder import read_labels
from nlpctl.models.source import resolve_source
from nlpctl.names import and_more
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.worker_pool import WorkerStats
from nlpctl.runtime.worker_slots import ParallelConfig
from nlpctl.tasks.calibration import tell_uncalibrated
from nlpctl.tasks.confidence import Confidences
from nlpctl.tasks.coverage import Target, coverage_at, least_confidence
from nlpctl.tasks.degenerate import warn_of_degenerate, warn_of_missing_labels
from nlpctl.tasks.intervals import Paired, comparable, compare, full_report
from nlpctl.tasks.slices import LABEL, LENGTH, Slice, by_label, by_length, left_out, main_score, sliced
from nlpctl.tasks.tallies import Tallies

if TYPE_CHECKING:
    from nlpctl.engines.trained import TrainedModel
    from nlpctl.tasks.base import Mistake, Task


MAX_LISTED_LABELS = 10  # labels that a message lists
MOST_CHANGED = 20  # rows of a split that are shown
_LONGEST = 200  # characters of their texts


@dataclass(frozen=True)
class EvalResult:
    """The model that was scored, and its report per split as in metrics.json; per split also what was asked for."""

    model: str
    metrics: dict[str, Any]
    against: Against | None = None
    slices: dict[str, list[Slice]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)  # slices that are not listed
    target: Target | None = None
    workers: tuple[WorkerStats, ...] = ()  # what each did for this model


@dataclass(frozen=True)
class Against:
    """Another model on the same rows: its scores, and by split the comparison with it and some of the rows changed."""

    model: str
    metrics: dict[str, Any]
    paired: dict[str, Paired]
    changed: dict[str, list[Changed]]


@dataclass(frozen=True)
class Changed:
    """A row that one of two models answers right: file:line, the beginning of its text, and what they answer."""

    where: str | None
    text: str
    expected: str
    other: str  # what the other model answers
    given: str


@dataclass(frozen=True)
class _Scored:
    """A split scored by a model."""

    report: dict[str, Any]
    tallies: Tallies | None
    task: Task
    rows: TaskRows
    examples: ExampleList
    mistakes: Mapping[int, Mistake]
    decisions: Confidences | None


def evaluate(
    recipe: Recipe,
    splits: Sequence[str] = (),
    against: Recipe | None = None,
    by: str | None = None,
    target_precision: float | None = None,
    parallel: ParallelConfig | None = None,
) -> EvalResult:
    """Score the recipe's trained model on `splits`; by default on dev and test, if they exist.

    `against`: the recipe of another model, which is scored on the same data and compared row by row. `by`: "label",
    "length" or a column of the data, by which the rows are sliced. `target_precision`: look on dev for the least
    confidence that gives it. `parallel`: several workers compute the predictions, which are the same.
    Raises UserError for an unknown split, a missing model or data, a bad row (by data.on_bad_row), models that cannot
    be compared, and an unknown column.
    """
    more = () if target_precision is None else _splits_for_target(recipe, target_precision)
    if against is None:
        source, scored, workers = _scored(recipe, splits, parallel, compared=False, more=more)
        other = None
    else:
        if recipe.task != against.task:
            message = f"the models do different things: {recipe.task} and {against.task}"
            raise UserError(message, "@[against]", "name a model of the same task")
        try:
            other_recipe = replace(against, data=with_reading(recipe.data, against.data))
            first = _scored(other_recipe, splits, parallel, compared=True)
        except UserError:
            _refuse_other_labels(recipe, against)  # in place of a line per row whose label is not known
            raise
        # One model in memory at a time.
        source, scored, workers = _scored(recipe, splits, parallel, compared=True, more=more)
        other = _compared(*first[:2], {split: scored[split] for split in first[1]})
    target = None if target_precision is None else _target(target_precision, scored)
    for split in more:
        if splits and split not in splits:
            scored.pop(split)  # only the threshold comes from it
    reports = {split: each.report for split, each in scored.items()}
    parts = {} if by is None else {split: _slices(split, each, by) for split, each in scored.items()}
    slices = {split: listed for split, (listed, _) in parts.items()}
    left = {split: count for split, (_, count) in parts.items()}
    return EvalResult(source, reports, other, slices, left, target, workers)


def _splits_for_target(recipe: Recipe, precision: float) -> tuple[str, ...]:
    """The split on which the threshold is found. UserError: there is none, or the task has no confidence."""
    where = "@[target-precision]"
    if not 0 < precision <= 1:
        raise UserError(f"{precision} is no share of right answers", where, "give one above 0, at most 1, such as 0.95")
    info = task_info(recipe.task)
    if not info.reads("inference.min_confidence"):
        raise UserError(f"answers of {recipe.task} have no confidence", where, "leave it out")
    if not has_split(recipe.data, "dev"):
        hint = "give it: @[data.dev=FILE]"
        raise UserError("the threshold is found on dev, and there is no dev data", where, hint)
    return ("dev",)


def _target(precision: float, scored: Mapping[str, _Scored]) -> Target:
    dev = scored["dev"].decisions
    least = None if dev is None else least_confidence(dev, precision)
    if least is None:
        return Target(precision, None, {})
    kept = {
        split: coverage_at(each.decisions, least, None if each.tallies is None else each.tallies.groups)
        for split, each in scored.items()
        if each.decisions is not None and len(each.decisions.right)
    }
    return Target(precision, least, kept)


def _refuse_other_labels(recipe: Recipe, against: Recipe) -> None:
    """UserError if the models have different labels, as far as their folders tell."""
    ours, theirs = (_labels(each) for each in (recipe, against))
    if ours is None or theirs is None or ours == theirs:
        return
    label_sets = [
        f"only {whose} has {and_more(sorted(names), MAX_LISTED_LABELS)}"
        for whose, names in (("MODEL", ours - theirs), ("@[against]", theirs - ours))
        if names
    ]
    message = f"the models have different labels: {'; '.join(label_sets)}"
    raise UserError(message, "@[against]", "compare models that were trained on the same labels")


def _labels(recipe: Recipe) -> set[str] | None:
    """The labels of a recipe's model; None if it has no labels.json."""
    folder = resolve_source(find_model(recipe)).folder
    if folder is None or not (folder / LABELS).is_file():
        return None
    return set(read_labels(folder)[0])


def _scored(
    recipe: Recipe, splits: Sequence[str], parallel: ParallelConfig | None, *, compared: bool, more: Sequence[str] = ()
) -> tuple[str, dict[str, _Scored], tuple[WorkerStats, ...]]:
    """The recipe's model, its splits with `more` of them, and what the workers did; if `compared` also its mistakes."""
    source, rows, wanted = _checked(recipe, splits)
    wanted = tuple(dict.fromkeys((*wanted, *more)))
    scored = {}
    with _opened(recipe, source, rows, wanted, parallel) as model, sigterm_interrupts():
        rows.encoder = model.encoder
        read = {split: read_labelled_split(rows, split, model.task.labels)[0] for split in wanted}
        with console.progress(sum(len(examples) for examples in read.values()), "score") as bar:
            size = recipe.training.per_device_eval_batch_size
            predicted = {split: model.predictions(examples, size, done=bar.advance) for split, examples in read.items()}
        for split, examples in read.items():
            predictions = predicted.pop(split)
            groups = groups_of(rows, split, model.task.labels, len(examples))
            report, tallies = full_report(model.task, examples, predictions, groups)
            warn_of_truncated(recipe, report.get(TRUNCATED, 0), len(examples), split=split)
            warn_of_degenerate(recipe.task, {split: report})
            warn_of_missing_labels(recipe.task, split, report)
            wrong = model.task.mistakes(examples, predictions) if compared else []
            mistakes = {mistake.row: mistake for mistake in wrong}
            decisions = model.task.confidences(examples, predictions)
            scored[split] = _Scored(report, tallies, model.task, rows, examples, mistakes, decisions)
        if resolve_source(source).kind in ("nlpctl", "export"):  # others keep none
            why = "the model has no calibration (docs/decisions.md)"
            tell_uncalibrated(model.task, next(iter(scored.values())).decisions, why, source)
        workers = model.shares if isinstance(model, DividedModel) else ()
    members = members_of(Path(source))
    if members:
        warn_of_seen_rows(members, rows, {split: each.examples for split, each in scored.items()})
    return source, scored, workers


def _compared(name: str, theirs: dict[str, _Scored], second: dict[str, _Scored]) -> Against:
    pairs, changed = {}, {}
    for split, mine in second.items():
        first, other = theirs[split].tallies, mine.tallies
        if first is None or other is None or not comparable(first, other):
            message = f"the models do not answer the same rows of {split} with the same labels"
            hint = "compare models that read the same columns; of masked words, with one vocabulary, masking and length"
            raise UserError(message, "@[against]", hint)
        pairs[split] = compare(first, other)
        changed[split] = _changed(split, theirs[split], mine)
    return Against(name, {split: each.report for split, each in theirs.items()}, pairs, changed)


def _changed(split: str, theirs: _Scored, mine: _Scored) -> list[Changed]:
    """The first rows that one model answers right and the other wrong."""
    rows = sorted(theirs.mistakes.keys() ^ mine.mistakes.keys())[:MOST_CHANGED]
    if not rows:
        return []
    examples = [mine.examples[row] for row in rows]
    where = places(open_split(mine.rows, split), ExampleReader(mine.rows, mine.task.labels), examples)
    changed = []
    for row, example, place in zip(rows, examples, where, strict=True):
        expected = (theirs.mistakes.get(row) or mine.mistakes[row]).expected
        text = " | ".join(mine.rows.passages(example).values())
        both = [each.mistakes[row].given if row in each.mistakes else "right" for each in (theirs, mine)]
        changed.append(Changed(place, text[:_LONGEST], expected, *both))
    return changed


def _slices(split: str, scored: _Scored, by: str) -> tuple[list[Slice], int]:
    """The slices of a split, the worst first, by the task's main score, and how many are left out."""
    rows, task, examples = scored.rows, scored.task, scored.examples
    if scored.tallies is None:
        raise UserError(f"scores of {task.name} cannot be sliced", "@[by]", "leave @[by] out")
    if by == LABEL:
        named = by_label(task, rows, examples)
    elif by == LENGTH:
        named = by_length(rows, examples)
    else:
        values = column_values(rows, split, task.labels, by, len(examples), "@[by]")
        named = [(str(value),) for value in values]
    listed = sliced(main_score(task, scored.report), scored.tallies, named)
    return listed, left_out(scored.tallies, named, listed)


def _checked(recipe: Recipe, splits: Sequence[str]) -> tuple[str, TaskRows, tuple[str, ...]]:
    """The recipe's model, its rows, and the splits to score, all checked."""
    for name in splits:
        if name not in SPLITS:
            raise UserError(f"there is no split {name!r}", where="@[split]", hint=f"one of {', '.join(SPLITS)}")
    source = find_model(recipe)
    wanted = tuple(splits) or tuple(split for split in ("dev", "test") if has_split(recipe.data, split))
    missing = [split for split in wanted if not has_split(recipe.data, split)]
    if missing or not wanted:
        name = missing[0] if missing else "test"
        hint = f"give it: nlpctl eval MODEL FILE, or @[data.{name}=FILE]"
        raise UserError(f"there is no {name} data", where=f"data.{name}", hint=hint)
    rows = task_rows(recipe.task, recipe.data)
    if recipe.data.dataset is None:  # a named data set may import Paddle
        for split in wanted:
            open_split(rows, split)  # reports a missing file before Paddle is imported
    refuse_columns(recipe, wanted)
    return source, rows, wanted


@contextlib.contextmanager
def _opened(
    recipe: Recipe, source: str, rows: TaskRows, splits: Sequence[str], parallel: ParallelConfig | None
) -> Iterator[TrainedModel | DividedModel]:
    """The model, in this process or in several workers. UserError if its outputs do not suffice for scores."""
    batch_size, count = recipe.training.per_device_eval_batch_size, partial(_count, rows, splits)
    if parallel is None:
        model = open_trained_model(recipe, set_up_to_answer(recipe, source), source, batch_size, count)
        require_scorable(model.task, model.predictor.engine)
        yield model
        return
    with divided_model(recipe, source, batch_size, parallel, count) as divided:
        require_scorable(divided.task, divided.engine)
        yield divided


def _count(rows: TaskRows, splits: Sequence[str], most: int | None = None) -> int:
    """How many rows the splits have, or `most` if there are more."""
    return sum(1 for _ in islice((row for split in splits for row in open_split(rows, split)), most))


def require_scorable(task: Task, engine: str) -> None:
    """UserError for an engine whose outputs do not suffice for the task's scores."""
    if engine != "dygraph" and not task.graph_scores:
        hint = "score the model folder with @[engine=dygraph]"
        raise UserError(f"a graph of {task.name} gives predictions that cannot be scored", "@[engine]", hint)


def score(
    model: TrainedModel, examples: Sequence[Any], batch_size: int, groups: Sequence[Any] | None = None
) -> dict[str, Any]:
    """The task's report on labelled examples, as metrics.json has it for a split; `groups`: data.columns.group."""
    report, _ = full_report(model.task, examples, model.predictions(examples, batch_size), groups)
    return report
