"""How sure a score is: 95 % intervals by resampling rows, and paired comparisons of two models on the same rows.

The interval is that of the percentile bootstrap (Efron, 1979): a split of as many rows is drawn from the rows, with
replacement, RESAMPLES times, and the interval holds the middle 95 % of the scores. Rows of one group (such as the
questions about one article) are drawn together. It covers the choice of the rows, not that of the training seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpctl.data.readers.row import group_name
from nlpctl.layout import INTERVALS, TRUNCATED
from nlpctl.tasks.base import Predictions
from nlpctl.tasks.confidence import confidence_report
from nlpctl.tasks.tallies import Tallies

if TYPE_CHECKING:
    from nlpctl.tasks.base import Task

LEVEL = 0.95
RESAMPLES = 2000
MOST_UNITS = 10_000  # drawn one by one; more rows are first joined to as many random blocks of equal size
_SEED = 95
_IN_MEMORY = 4_000_000  # numbers of an array
# Scores of which no row has more of one than of the next.
_RISING = (("em", "f1"), ("recall@1", "recall@5", "recall@10", "recall@50"), ("recall@1", "mrr"))

Interval = tuple[float, float]


def intervals(tallies: Tallies) -> dict[str, Interval]:
    """The interval of each score, the lower end first; none where all rows are of one group."""
    if tallies.groups is not None and len(np.unique(tallies.groups)) == 1:
        return {}
    found = {name: middle(drawn, tallies.support(name)) for name, drawn in drawn_scores([tallies])[0].items()}
    # The exact limit of a score that is 0 or 1 in all draws reaches further than draws do: so then do its neighbours.
    for names in _RISING if tallies.kind == "means" else ():
        known = [name for name in names if name in found]
        for less, more in pairwise(known):
            found[more] = (found[more][0], max(found[less][1], found[more][1]))
        for less, more in reversed([*pairwise(known)]):
            found[less] = (min(found[less][0], found[more][0]), found[less][1])
    return found


def full_report(
    task: Task, examples: Sequence[Any], predictions: Sequence[Sequence[Any]], groups: Sequence[Any] | None = None
) -> tuple[dict[str, Any], Tallies | None]:
    """The task's report of a split with the interval of each score and what is known of its confidence, and the tallies
    that the intervals come from.

    `groups`: examples with equal values (data.columns.group) depend on each other; None: as the task says.
    """
    report, tallies = task.report(examples, predictions), task.tallies(examples, predictions)
    if isinstance(predictions, Predictions) and predictions.truncated:
        report = {"rows": report["rows"], TRUNCATED: len(predictions.truncated), **report}
    report.update(confidence_of(task, examples, predictions))
    if tallies is not None:
        if groups is not None:
            numbers: dict[str | int, int] = {}
            names = (row if (name := group_name(value)) is None else name for row, value in enumerate(groups))
            group_of = np.array([numbers.setdefault(name, len(numbers)) for name in names])  # of each example
            tallies = replace(tallies, groups=group_of if tallies.examples is None else group_of[tallies.examples])
        bounds = intervals(tallies)
        if bounds:
            report[INTERVALS] = {name: list(ends) for name, ends in bounds.items()}
    return report, tallies


def confidence_of(task: Task, examples: Sequence[Any], predictions: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """What the report of a split says of confidence, by the predictions of a `measured` task: before its calibration,
    and after."""
    before = None if task.calibration is None else task.calibrated(None).confidences(examples, predictions)
    return confidence_report(task.confidences(examples, predictions), before)


@dataclass(frozen=True)
class Comparison:
    """One score of two models on the same rows: B minus A."""

    first: float
    second: float
    difference: float
    interval: Interval  # of the difference
    p: float  # the least level at which the interval would hold 0, of both sides


@dataclass(frozen=True)
class Paired:
    """Two models on the same rows: their scores, and the rows that one answers right and the other wrong."""

    scores: dict[str, Comparison]
    rows: int
    gained: int  # wrong in the first, right in the second
    lost: int  # right in the first, wrong in the second
    mcnemar: float | None  # p of McNemar's exact test: gained and lost would be equally likely; None for grouped rows


def comparable(first: Tallies, second: Tallies) -> bool:
    """Whether both are of the same rows in the same order, of which the same is right, and have a score in common."""
    return first.kind == second.kind and np.array_equal(first.keys, second.keys)


def compare(first: Tallies, second: Tallies) -> Paired:
    """The second model against the first; both must be `comparable`."""
    from scipy.stats import binomtest

    groups = first.groups if first.groups is not None else second.groups
    drawn = drawn_scores([replace(each, groups=groups) for each in (first, second)])
    whole = [each.scores(np.ones(each.rows)) for each in (first, second)]
    scores = {}
    for name in whole[0]:
        if name in whole[1]:
            a, b = float(whole[0][name]), float(whole[1][name])
            differences = drawn[1][name] - drawn[0][name]
            scores[name] = Comparison(a, b, b - a, middle(differences), _p(differences))
    gained = int((second.right & ~first.right).sum())
    lost = int((first.right & ~second.right).sum())
    mcnemar = None
    if groups is None:  # the test takes rows as independent
        mcnemar = float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    return Paired(scores, first.rows, gained, lost, mcnemar)


def difference_quantiles(first: Tallies, second: Tallies, score: str, shares: Sequence[float]) -> np.ndarray | None:
    """Quantiles of one score's difference, second minus first, on resampled rows: float64 [shares].

    None if the models are not `comparable`, or have no such score.
    """
    if not comparable(first, second):
        return None
    drawn = drawn_scores([first, second])
    if any(score not in each for each in drawn):
        return None
    return np.quantile(drawn[1][score] - drawn[0][score], shares)


def drawn_scores(models: list[Tallies]) -> list[dict[str, np.ndarray]]:
    """The scores of each model on the same RESAMPLES splits: float64 [RESAMPLES] by name."""
    generator = np.random.default_rng(_SEED)
    units, count = _units(models[0], generator)
    joined = [each.merged(units, count) for each in models]
    at_once = max(1, _IN_MEMORY // max(count, *(each.counts.shape[1] for each in joined)))
    parts = []
    for start in range(0, RESAMPLES, at_once):
        times = _times(generator, count, min(at_once, RESAMPLES - start))
        parts.append([each.scores(times) for each in joined])
    return [
        {name: np.concatenate([part[model][name] for part in parts]) for name in parts[0][model]}
        for model in range(len(models))
    ]


def _units(tallies: Tallies, generator: np.random.Generator) -> tuple[np.ndarray, int]:
    """What is drawn as one: the unit of each row, int [rows], and how many there are."""
    rows = np.arange(tallies.rows)
    units = rows if tallies.groups is None else np.unique(tallies.groups, return_inverse=True)[1]
    count = int(units.max()) + 1
    if count <= MOST_UNITS:
        return units, count
    return (generator.permutation(count) % MOST_UNITS)[units], MOST_UNITS


def _times(generator: np.random.Generator, count: int, splits: int) -> np.ndarray:
    """How often each unit is drawn: float64 [splits, count]."""
    drawn = generator.integers(0, count, (splits, count)) + count * np.arange(splits)[:, None]
    return np.bincount(drawn.ravel(), minlength=splits * count).reshape(splits, count).astype(np.float64)


def middle(drawn: np.ndarray, units: int | None = None) -> Interval:
    """The middle 95 % of the draws.

    `units`: the number of rows or groups that the score is of. A score that is 0 or 1 in all of them gets the exact
    binomial limit (Clopper and Pearson, 1934) in place of an interval without width: no draw can show a mistake that
    no row has.
    """
    low, high = (float(end) for end in np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    if units and low == high in (0.0, 1.0):
        limit = ((1 - LEVEL) / 2) ** (1 / units)
        return (0.0, 1 - limit) if low == 0 else (limit, 1.0)
    return low, high


def _p(differences: np.ndarray) -> float:
    """Twice the smaller tail beyond 0, at most 1; 1 where the models never differ."""
    below, above = float((differences <= 0).mean()), float((differences >= 0).mean())
    # One more draw on either side, so that p is never 0, which no finite number of draws can show.
    return min(1.0, 2 * (min(below, above) * len(differences) + 1) / (len(differences) + 1))
