"""`nlpctl data curve`: trains on growing shares of the rows, and says what more rows would bring.

    read the rows -> draw shares of them -> train each run -> fit a power law -> one page

The error of a model falls with its training rows n as limit + factor * n^-exponent. Power laws describe learning curves
over wide ranges (Hestness et al.: Deep learning scaling is predictable, empirically, 2017). Intervals are those of a
parametric bootstrap: scores are drawn around the fitted curve with the spread that runs of one size have, and the curve
is fitted anew. The spread is itself uncertain (chi-squared), so few runs give wide ones.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import greater_is_better, scores, task_info
from nlpctl.config.user_code import require_named
from nlpctl.data.open_split import has_split
from nlpctl.data.partition import cut
from nlpctl.errors import UserError
from nlpctl.experiments.repeats import train_one_by_one
from nlpctl.experiments.series import SeriesRun, TrainingRows, open_series, read_rows, refuse_early, resolve_values
from nlpctl.files import write_json_atomic, write_text_atomic
from nlpctl.layout import REPORT
from nlpctl.names import listed
from nlpctl.report.html import element
from nlpctl.report.language import Later, later, say, say_each
from nlpctl.report.model import Figure, KeyFigures, Report, Section, Table, percent
from nlpctl.report.page import html_page
from nlpctl.report.plots import lines
from nlpctl.report.score_tables import single_scores
from nlpctl.spelling import option

KIND = "curve"
RESULT = "curve.json"
SHARES = (0.0625, 0.125, 0.25, 0.5, 1.0)
REPEATS = 2
LEAST_ROWS = 16


def learning_curve(
    recipe: Recipe,
    output: Path | None = None,
    *,
    shares: Sequence[float] = SHARES,
    repeats: int = REPEATS,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
) -> LearningCurveResult:
    """Train `repeats` runs on each of `shares` of the training rows, by default below the recipe's folder + "-curve".

    UserError as of `train`; also: too few rows or shares, or no score to draw. Interrupted: Ctrl-C.
    """
    folder = os.path.abspath(f"{recipe.run_dir}-{KIND}" if output is None else output)
    require_named(recipe)
    recipe = resolve_values(replace(recipe, training=replace(recipe.training, output_dir=folder)), resume)
    split = next((name for name in ("dev", "test") if has_split(recipe.data, name)), None)
    if split is None:
        raise UserError("there is no dev or test data to score on", recipe.where("data.dev"), "set data.dev: FILE")
    scratch = recipe.model.from_scratch
    if task_info(recipe.task).token_scores and scratch is not None and scratch.vocabulary is None:
        message = f"each share would have a vocabulary of its own rows, and no score of {recipe.task} compares these"
        hint = "give all runs one: @[model.from_scratch.vocabulary=FILE], such as model/vocab.txt of a run on all rows"
        raise UserError(message, recipe.where("model.from_scratch"), hint)
    refuse_early(recipe, KIND, resume=resume, overwrite=overwrite)
    rows = read_rows(recipe)
    sizes = _sizes(shares, len(rows))
    seeds = [recipe.training.seed + i for i in range(repeats)]
    members = [_member(recipe, rows, size, seed) for size in sizes for seed in seeds]
    by_size = [slice(i, i + repeats) for i in range(0, len(members), repeats)]
    sizes = [_drawn(members[runs], len(rows)) for runs in by_size]
    if len(set(sizes)) < LEAST_SIZES:
        message = f"the draws are of {len(set(sizes))} different sizes only, since rows have to stay together"
        raise UserError(message, "@[shares]", "name more shares, or such as lie further apart")
    plan = {"shares": list(shares), "repeats": repeats, "group": recipe.data.columns.group}
    own = (RESULT, REPORT)
    with open_series(
        recipe, rows, KIND, members, plan, resume=resume, overwrite=overwrite, own=own
    ) as series:
        train_one_by_one(series, lambda member: None, command)
        metrics = [series.run(member).read_metrics()[split] for member in members]
        metric = _metric(recipe, metrics)
        values = [float(single_scores(report)[metric]) for report in metrics]
        curve = fit(sizes, [values[runs] for runs in by_size])
        names = [member.name for member in members]
        scored = [(size, names[runs], values[runs]) for size, runs in zip(sizes, by_size, strict=True)]
        found = learning_curve_result(series.folder, split, metric, len(rows), scored, curve)
        write_json_atomic(series.folder / RESULT, console.json_ready(found.to_json()))
        write_text_atomic(series.folder / REPORT, curve_page(found, curve))
        series.finish()
    return found


def _sizes(shares: Sequence[float], total: int) -> list[int]:
    """The rows of each share, in order. UserError: too few of them, or too few rows."""
    wrong = [share for share in shares if not 0 < share <= 1]
    if wrong:
        hint = "above 0, up to 1, such as 0.1,0.25,0.5,1"
        raise UserError(f"{wrong[0]:g} is no share of the rows", "@[shares]", hint)
    sizes = sorted({round(share * total) for share in shares})
    if len(sizes) < LEAST_SIZES:
        message = f"{len(sizes)} different numbers of rows do not make a curve"
        raise UserError(message, "@[shares]", f"name {LEAST_SIZES} shares or more, such as 0.1,0.25,0.5,1")
    if sizes[0] < LEAST_ROWS:
        message = f"the smallest share of {total:,} rows has {sizes[0]}"
        raise UserError(message, "@[shares]", f"begin with {LEAST_ROWS} rows or more: {LEAST_ROWS / total:.2g}")
    return sizes


def _member(recipe: Recipe, rows: TrainingRows, size: int, seed: int) -> SeriesRun:
    """A run on a draw of its own, stratified by label."""
    name = f"rows-{size}-seed-{seed}"
    if size == len(rows):
        return SeriesRun(name, seed)
    group, together = recipe.data.columns.group, rows.rows.split_together
    drawn = cut(rows.read, {"shares": size}, seed, together=together, group_by=group)
    return SeriesRun(name, seed, tuple(drawn["shares"]))


def _drawn(members: Sequence[SeriesRun], total: int) -> int:
    """The rows of one share's runs, their mean: where rows stay together, a draw has more or fewer than asked for."""
    return round(fmean(total if member.rows is None else len(member.rows) for member in members))


def _metric(recipe: Recipe, metrics: Sequence[Any]) -> str:
    """The score that is drawn: the one that chooses the model, or the task's first, of which more is better."""
    chosen = (recipe.training.metric_for_best_model or "").removeprefix("eval_")
    for name in (chosen, *scores(recipe.task)):
        shares = all(0 <= single_scores(each).get(name, -1) <= 1 for each in metrics)
        if name and greater_is_better(recipe, name) and shares:
            return name
    hint = f"the scores are {listed(single_scores(metrics[0]))}"
    raise UserError(f"{recipe.task} has no score between 0 and 1 to draw", recipe.where("task"), hint)


# -- the curve ------------------------------------------------------------------------------------------------------

LEVEL = 0.95
DRAWS = 2000
LEAST_SIZES = 4  # the curve has three parameters
EXPONENTS = np.geomspace(0.02, 2.0, 80)
NEVER = 1000  # times the rows there are: a curve that needs more says that no number is enough
_SEED = 17

Interval = tuple[float, float]


@dataclass(frozen=True)
class FittedCurve:
    """`limit`, `factor`, `exponent`: float [1 + DRAWS], of the fit and then of the draws. `deviation`: the standard
    deviation of the score of one run, of each draw."""

    limit: np.ndarray
    factor: np.ndarray
    exponent: np.ndarray
    deviation: np.ndarray

    def errors(self, rows: float) -> np.ndarray:
        """The error at so many rows, by the fit and by each draw."""
        return self.limit + self.factor * rows**-self.exponent

    def score(self, rows: float) -> tuple[float, Interval]:
        """The expected score, 1 minus the error, and its interval."""
        scores = 1 - self.errors(rows)
        return float(scores[0]), _interval(scores[1:])

    def foretold(self, rows: float) -> Interval:
        """The interval of the score of one run, which may be lucky or not."""
        noise = np.random.default_rng(_SEED + 1).normal(size=DRAWS) * self.deviation[1:]
        return _interval(1 - self.errors(rows)[1:] + noise)

    def rows_for(self, gain: float, rows: float) -> tuple[float, Interval]:
        """How many rows give a score that is higher by `gain` than that of `rows`, and the interval.

        inf: no number does, or more than NEVER times `rows`, of which a nearly flat curve says nothing.
        """
        wanted = self.errors(rows) - gain - self.limit
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            needed = np.where(wanted > 0, (self.factor / np.maximum(wanted, 1e-300)) ** (1 / self.exponent), np.inf)
        needed = np.where(needed > NEVER * rows, np.inf, needed)
        low, high = np.quantile(needed[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="nearest")
        return float(needed[0]), (float(low), float(high))

    @property
    def rises(self) -> float:
        """The share of draws in which the score rises with the rows."""
        return float((self.factor[1:] > 0).mean())


def fit(sizes: Sequence[int], scores: Sequence[Sequence[float]]) -> FittedCurve:
    """The curve of `scores`, those of the runs of each size. At least LEAST_SIZES sizes."""
    rows = np.asarray(sizes, np.float64)
    counts = np.array([len(each) for each in scores])
    errors = 1 - np.array([np.mean(each) for each in scores])
    first = _fitted(rows, errors[None], counts)
    fitted = first[0][0] + first[1][0] * rows ** -first[2][0]
    spread, freedom = _spread(scores, errors - fitted)
    random = np.random.default_rng(_SEED)
    deviation = spread * np.sqrt(freedom / random.chisquare(freedom, DRAWS))
    drawn = fitted + random.normal(size=(DRAWS, len(rows))) * deviation[:, None] / np.sqrt(counts)
    draws = _fitted(rows, drawn, counts)
    limit, factor, exponent = (np.concatenate([one, many]) for one, many in zip(first, draws, strict=True))
    return FittedCurve(limit, factor, exponent, np.concatenate([[spread], deviation]))


def _spread(scores: Sequence[Sequence[float]], residuals: np.ndarray) -> tuple[float, int]:
    """The standard deviation of a run's score, and its degrees of freedom: by runs of one size, else by the fit."""
    freedom = sum(len(each) - 1 for each in scores)
    if freedom:
        squares = sum(float(((np.asarray(each) - np.mean(each)) ** 2).sum()) for each in scores)
    else:
        freedom, squares = max(len(residuals) - 3, 1), float((residuals**2).sum())
    return max(np.sqrt(squares / freedom), 1e-6), freedom


def _fitted(rows: np.ndarray, errors: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Limit, factor and exponent of the least squares, each float [curves], none negative. `errors`: [curves, sizes].

    For a given exponent the others are linear; the exponent is looked for on a grid, so there is no local minimum.
    """
    shares = weights / weights.sum()
    best = np.full(len(errors), np.inf)
    found = [np.zeros(len(errors)) for _ in range(3)]
    for exponent in EXPONENTS:
        falling = (rows / rows[0]) ** -exponent
        middle, means = float(shares @ falling), errors @ shares
        slope = ((errors - means[:, None]) * (falling - middle)) @ shares / float(shares @ (falling - middle) ** 2)
        slope = np.maximum(slope, 0)
        limit = means - slope * middle
        below = limit < 0
        through_zero = (errors * falling) @ shares / float(shares @ falling**2)
        slope, limit = np.where(below, np.maximum(through_zero, 0), slope), np.where(below, 0, limit)
        loss = (errors - limit[:, None] - slope[:, None] * falling) ** 2 @ shares
        better = loss < best
        best = np.where(better, loss, best)
        values = (limit, slope * rows[0] ** exponent, np.full(len(errors), exponent))
        found = [np.where(better, new, old) for new, old in zip(values, found, strict=True)]
    return found[0], found[1], found[2]


def _interval(values: np.ndarray) -> Interval:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)



POINT = 0.01
FAR = 10  # times the rows there are: beyond, a curve is a guess


@dataclass(frozen=True)
class Point:
    """The runs on `rows` rows: their names and scores, and what the curve says."""

    rows: int
    runs: tuple[str, ...]
    scores: tuple[float, ...]
    fitted: float

    @property
    def mean(self) -> float:
        return fmean(self.scores)


@dataclass(frozen=True)
class LearningCurveResult:
    """What the curve says. `whole`: the expected score of all rows; `foretold`: the interval of one run's; `double`: of
    twice as many rows.

    `more`: further rows for one more point, None: no number of rows; `more_interval`: None at the end: it may be none.
    `told`: the answer in words.
    """

    folder: Path
    split: str
    metric: str
    rows: int
    points: tuple[Point, ...]
    whole: float
    foretold: Interval
    double: float
    double_interval: Interval
    more: int | None
    more_interval: tuple[int, int | None] | None
    told: Later

    def to_json(self) -> dict[str, Any]:
        points = [{**asdict(point), "mean": point.mean} for point in self.points]
        return {**asdict(self), "points": points, "report": self.folder / REPORT}


def learning_curve_result(
    folder: Path, split: str, metric: str, rows: int, scored: Sequence[tuple[int, Sequence[str], Sequence[float]]],
    curve: FittedCurve,
) -> LearningCurveResult:
    """`scored`: the rows of each size, the names of its runs, and their scores; `rows`: how many there are in all."""
    points = tuple(Point(size, tuple(names), tuple(values), curve.score(size)[0]) for size, names, values in scored)
    needed, (low, high) = curve.rows_for(POINT, rows)
    more = None if np.isinf(needed) else max(1, round(needed - rows))
    ends = None if np.isinf(low) else (max(1, round(low - rows)), None if np.isinf(high) else round(high - rows))
    double, double_interval = curve.score(2 * rows)
    whole = curve.score(rows)[0]
    told = _told(curve, rows, more, ends, (double - whole, tuple(end - whole for end in double_interval)))
    if len(scores := {value for _, _, values in scored for value in values}) == 1:
        told = later(
            "All runs score {:.4f}, however few rows they had: more will not raise it, or the models learn nothing; "
            "look at what one of them answers.",
            *scores,
        )
    return LearningCurveResult(
        folder, split, metric, rows, points, whole, curve.foretold(rows), double, double_interval, more, ends, told
    )


def _told(
    curve: FittedCurve, rows: int, more: int | None, ends: tuple[int, int | None] | None, double: tuple[float, Any]
) -> Later:
    """How many more rows there must be for one more point; or that the runs cannot tell."""
    unsure = later("more runs ({}) or larger shares would narrow it", option("repeats"))
    if curve.rises < 0.95:
        return later("It cannot be told whether more rows raise the score: the runs differ too much; {}.", unsure)
    if ends is None:
        return later("One more point is out of reach: by the curve, not even {:,} times as many rows bring it.", NEVER)
    if more is None or ends[1] is None:
        return later(
            "It cannot be told how many rows bring one more point: at least {:,} more rows are needed, and perhaps "
            "none do; {}.",
            ends[0],
            unsure,
        )
    guess = later(" That is more than {} times the rows there are: a guess.", FAR) if more + rows > FAR * rows else ""
    return later(
        "One more point takes about {:,} more rows ({:,} to {:,} with 95 %; there are {:,}).{} Twice as many rows "
        "bring {:+.1f} points.",
        more,
        *ends,
        rows,
        guess,
        double[0] * 100,
    )


_DRAWN = 80  # points of a line
_BEYOND = 2  # times the rows there are


def curve_page(result: LearningCurveResult, curve: FittedCurve) -> str:
    """The text of the page."""
    first = result.points[0].rows
    places = np.geomspace(first, _BEYOND * result.rows, _DRAWN).tolist()
    fitted = [(rows, *curve.score(rows)) for rows in places]
    drawn = {
        say("mean of the runs"): [(point.rows, point.mean) for point in result.points],
        say("curve"): [(rows, score) for rows, score, _ in fitted],
        say("95 % interval, lower end"): [(rows, ends[0]) for rows, _, ends in fitted],
        say("upper end"): [(rows, ends[1]) for rows, _, ends in fitted],
    }
    tiles = {
        say("training rows"): result.rows,
        say("{} of all rows", result.metric): result.whole,
        say("{} of twice as many", result.metric): result.double,
    }
    rows = []
    for point in result.points:
        links = [
            element("span", element("a", f"{score:.4f}", href=f"{name}/{REPORT}"), " ")
            for name, score in zip(point.runs, point.scores, strict=True)
        ]
        share = percent(point.rows / result.rows)
        rows.append([point.rows, share, element("span", *links), point.mean, point.fitted])
    score = say("{} on {}", result.metric, result.split)
    sections = [
        Section(say("Answer"), [KeyFigures(tiles), say(result.told)]),
        Section(say("Curve"), [Figure(lines(drawn, say("training rows"), score, marks={say("now"): result.rows}))]),
        Section(say("Runs"), [Table(say_each("rows", "share", "runs", "mean", "curve"), rows)]),
    ]
    lead = say("{}: {}", score, result.folder)
    return html_page(Report(say("Learning curve {}", result.folder.name), lead, sections))
