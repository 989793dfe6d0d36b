"""Fits the numbers of a calibration to labelled rows, such as dev: those with the least negative log-likelihood.

A weak prior keeps them near 1 and 0 where there are few rows: without it a split on which everything is right would ask
for a temperature of 0. Anything beyond one temperature, or one scale and shift, is taken where it pays: where it lowers
the loss of rows held out (cross-validation) by more than the standard error of this gain. The decisions of a row, such
as its labels, depend on each other: they are held out together and count as one for that error.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl import console
from nlpctl.models.calibration import LARGEST, LOGISTIC, TEMPERATURE, Calibration
from nlpctl.tasks.base import Task
from nlpctl.tasks.confidence import Confidences, ece, margins

LEAST = 50  # decisions to fit on
FOLDS = 5
FEW = 20  # mistakes
MOST = 50_000  # decisions that are looked at, drawn from more
MOST_LOGITS = 10_000_000  # of theirs: 80 MB per array, of which an evaluation of the loss makes a few
MOST_NAMES = 1000  # labels that may have a temperature each: 10,000 fits take minutes, on a row or two each
_SEED = 95
_LEAST_POWER = -0.9  # with less, a row that is further ahead would not be surer

Loss = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (log scale, or two numbers; rows) -> loss of each row
LossOfRows = Callable[[np.ndarray], np.ndarray]  # rows -> loss of each, by numbers that were fitted
Fit = Callable[[np.ndarray], tuple[np.ndarray, LossOfRows]]  # rows -> the numbers fitted to them, [groups, numbers]


def fit_temperature(logits: np.ndarray, gold: np.ndarray, names: Sequence[str]) -> Calibration | None:
    """A temperature for float [rows, labels], int [rows]. None for fewer than LEAST rows.

    Where it pays one per label, for the rows of which it is the highest (Frenkel and Goldberger, 2021), or one that
    depends on how far the highest label is ahead, as those of Balanya et al. (2022) depend on the entropy. Each row is
    scaled by one number, which leaves the order of its labels; vector scaling would not.
    """
    rows = _drawn(len(gold), logits.shape[1])
    logits, gold = logits[rows].astype(np.float64), gold[rows]
    below, ahead = logits - logits.max(-1, keepdims=True), margins(logits)

    def loss(theta: np.ndarray, rows: np.ndarray) -> np.ndarray:
        power = max(theta[1], _LEAST_POWER) if len(theta) > 1 else 0.0
        scaled = below[rows] * np.exp(theta[0] + power * ahead[rows, None])
        return np.log(np.exp(scaled).sum(-1)) - scaled[np.arange(len(rows)), gold[rows]]

    ways = {"": _one(loss, 1), "power": _one(loss, 2)}
    if len(names) <= MOST_NAMES:
        ways = {"": ways[""], "names": _each(loss, 1, logits.argmax(-1), len(names)), "power": ways["power"]}
    way, fitted = _best(ways, logits.argmax(-1) == gold, rows)
    if fitted is None:
        return None
    scales, power = np.exp(fitted[:, 0]).tolist(), max(float(fitted[0, 1]), _LEAST_POWER) if way == "power" else 0.0
    kept = tuple(names) if way == "names" else ()
    return Calibration(TEMPERATURE, tuple(scales), (0.0,) * len(scales), kept, power)


def fit_logistic(
    odds: np.ndarray, right: np.ndarray, groups: np.ndarray, names: Sequence[str], examples: np.ndarray
) -> Calibration | None:
    """Scale and shift of log odds, float [n], for decisions that are `right`, bool [n]; `groups`: the place in `names`
    of each, int [n]; `examples`: its example, int [n]. None for fewer than LEAST decisions."""
    rows = _drawn(len(right))
    odds, signs, groups = odds[rows].astype(np.float64), np.where(right[rows], -1.0, 1.0), groups[rows]

    def loss(theta: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.logaddexp(0.0, signs[rows] * (odds[rows] * np.exp(theta[0]) + theta[1]))

    ways = {"": _one(loss, 2), "names": _each(loss, 2, groups, len(names))}
    way, fitted = _best(ways, signs < 0, examples[rows])
    if fitted is None:
        return None
    scales, shifts = np.exp(fitted[:, 0]).tolist(), fitted[:, 1].tolist()
    return Calibration(LOGISTIC, tuple(scales), tuple(shifts), tuple(names) if way else ())


def fit_first(scores: Sequence[Sequence[float]], right: np.ndarray) -> Calibration | None:
    """A temperature for the scores of candidates, the first of which is the answer and `right`, bool [n], or not.

    The probabilities of N candidates sum to 1, and no temperature gives the first less than 1 / N. Where answers are
    right less often, or where it pays, its log odds also get a shift below 0. None for fewer than LEAST answers.
    """
    rows = _drawn(len(scores))
    # A single candidate has all the probability at any temperature.
    rows = np.array([row for row in rows.tolist() if len(scores[row]) > 1], int)
    if len(rows) < LEAST:
        return None
    padded = np.full((len(rows), max(len(scores[row]) for row in rows)), -np.inf)
    for place, row in enumerate(rows.tolist()):
        padded[place, : len(scores[row])] = scores[row]
    right = right[rows]
    signs = np.where(right, -1.0, 1.0)

    def loss(theta: np.ndarray, rows: np.ndarray) -> np.ndarray:
        others = (padded[rows, 1:] - padded[rows, :1]) * np.exp(theta[0])
        most = others.max(-1, keepdims=True)
        odds = -(most[:, 0] + np.log(np.exp(others - most).sum(-1)))
        # The second number lowers the odds: a fit begins at 0, and looks ahead for the slope.
        return np.logaddexp(0.0, signs[rows] * (odds - (max(theta[1], 0.0) if len(theta) > 1 else 0.0)))

    with_shift = {"shift": _one(loss, 2)}
    least = float((1 / np.isfinite(padded).sum(-1)).mean())
    _, fitted = _best(with_shift if right.mean() < least else {"": _one(loss, 1), **with_shift}, right, rows)
    assert fitted is not None  # of LEAST answers
    scale, lowered = (*fitted[0].tolist(), 0.0)[:2]
    return Calibration(TEMPERATURE, (math.exp(scale),), (0.0 - max(lowered, 0.0),))


def with_facts(calibration: Calibration, split: str, rows: int, before: Confidences, after: Confidences) -> Calibration:
    """`calibration` with what it was fitted on, and what it is good for there."""
    return replace(calibration, split=split, rows=rows, ece=(round(ece(before), 6), round(ece(after), 6)))


def _drawn(count: int, width: int = 1) -> np.ndarray:
    """Rows in random order: all, or as many as MOST and MOST_LOGITS allow with `width` logits each."""
    return np.random.default_rng(_SEED).permutation(count)[: min(MOST, max(LEAST, MOST_LOGITS // width))]


def _one(loss: Loss, size: int) -> Fit:
    """The same numbers for all rows."""

    def fit(rows: np.ndarray) -> tuple[np.ndarray, LossOfRows]:
        theta = _fitted(loss, rows, np.zeros(size))
        return theta[None], lambda held: loss(theta, held)

    return fit


def _each(loss: Loss, size: int, groups: np.ndarray, count: int) -> Fit:
    """Numbers for each group, kept near those of all where it has few rows; `groups`: int [n], below `count`."""

    def fit(rows: np.ndarray) -> tuple[np.ndarray, LossOfRows]:
        shared = _fitted(loss, rows, np.zeros(size))
        own = np.stack([_fitted(loss, rows[groups[rows] == group], shared) for group in range(count)])

        def held_losses(held: np.ndarray) -> np.ndarray:
            losses = np.zeros(len(held))
            for group in np.unique(groups[held]):
                losses[groups[held] == group] = loss(own[group], held[groups[held] == group])
            return losses

        return own, held_losses

    return fit


def _best(ways: Mapping[str, Fit], right: np.ndarray, examples: np.ndarray) -> tuple[str, np.ndarray | None]:
    """The first of `ways`, or what pays most in its place, and its numbers for decisions in random order.

    `right`: bool [n]; `examples`: the example of each, int [n]. Nothing for fewer than LEAST decisions; the first way
    where there are fewer than FEW of either kind, which tell nothing of its form.
    """
    count, wrong = len(right), int((~right).sum())
    if count < LEAST:
        return "", None
    every, plain = np.arange(count), next(iter(ways))
    if min(wrong, count - wrong) < FEW:
        return plain, ways[plain](every)[0]
    losses, numbers = {name: np.zeros(count) for name in ways}, _numbered(examples)
    for fold in range(FOLDS):
        held, rest = every[numbers % FOLDS == fold], every[numbers % FOLDS != fold]
        for name, fit in ways.items():
            losses[name][held] = fit(rest)[1](held)
    gains = {name: losses[plain] - losses[name] for name in ways}
    paying = [name for name, gain in gains.items() if gain.mean() > _error(gain, numbers)]
    best = max(paying, key=lambda name: gains[name].mean(), default=plain)
    return best, ways[best](every)[0]


def _numbered(examples: np.ndarray) -> np.ndarray:
    """Equal numbers as one, counted from 0 in the order in which they first occur; int [n]."""
    _, first, places = np.unique(examples, return_index=True, return_inverse=True)
    return first.argsort().argsort()[places]


def _error(gain: np.ndarray, examples: np.ndarray) -> float:
    """The standard error of the mean of `gain`, float [n], of which those of one example depend on each other."""
    return float(np.sqrt((np.bincount(examples, gain - gain.mean()) ** 2).sum()) / len(gain))


def _fitted(loss: Loss, rows: np.ndarray, around: np.ndarray) -> np.ndarray:
    """The numbers with the least loss of `rows`, and of the prior: normal, around `around`."""
    from scipy.optimize import minimize

    if not len(rows):
        return around
    bounds = [(-LARGEST, LARGEST), (-3 * LARGEST, 3 * LARGEST)][: len(around)]
    solution = minimize(
        lambda theta: float(loss(theta, rows).sum() + 0.5 * ((theta - around) ** 2).sum()),
        around, method="L-BFGS-B", bounds=bounds,
    )  # fmt: skip
    return np.asarray(solution.x)


# --------------------------------------------------------------------------------------------------
# Calibrates a task on labelled rows: what `nlpctl calibrate` and the end of a training do.

MOST_OFF = 0.01  # of the ECE of an engine from that of the network, before it gets a calibration of its own


def calibrated(task: Task, examples: Sequence[Any], predictions: Sequence[Sequence[Any]], split: str) -> Task:
    """The task with a calibration fitted to a split, by the predictions of a `measured` task.

    The task as it is, if it has no confidence or the split has too few decisions.
    """
    calibration = task.fit_calibration(examples, predictions)
    if calibration is None:
        return task

    before, after = (task.calibrated(each).confidences(examples, predictions) for each in (None, calibration))
    assert before is not None and after is not None, "a task with a calibration has confidences"
    if not len(before.right):  # such as of rows none of which is given a label
        return task
    return task.calibrated(with_facts(calibration, split, len(examples), before, after))


def tell_uncalibrated(task: Task, decisions: Confidences | None, why: str, model: Path | str) -> None:
    """Why the probabilities of a model are those of the network, and what to do, if it is not calibrated."""
    if decisions is not None and len(decisions.right) and task.calibration is None and task.recipe.training.calibrate:
        command = f"nlpctl calibrate {shlex.quote(console.display(model))} FILE"
        console.note(f"probabilities are not calibrated: {why}; with a file of more rows: `{command}`")


def recalibrated(
    task: Task,
    examples: Sequence[Any],
    predictions: Sequence[Sequence[Any]],
    split: str,
    of_network: float | None = None,
) -> Task:
    """The task for an engine whose outputs differ from those that its calibration was fitted to, such as int8.

    The task as it is, unless its ECE on these rows is off by more than MOST_OFF from that `of_network`, by default the
    one that its calibration had where it was fitted.
    """
    if task.calibration is None:
        return task
    decisions = task.confidences(examples, predictions)
    expected = task.calibration.ece[1] if of_network is None else of_network
    if decisions is None or not len(decisions.right) or abs(ece(decisions) - expected) <= MOST_OFF:
        return task
    return calibrated(task, examples, predictions, split)
