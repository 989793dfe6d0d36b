"""The scores of several runs of one recipe: mean and spread, as tables and as a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from nlpctl.config.tasks import scores
from nlpctl.experiments.series import Series
from nlpctl.files import regular
from nlpctl.layout import RECIPE, REPORT
from nlpctl.report.html import element
from nlpctl.report.language import say, say_each
from nlpctl.report.model import Code, Figure, KeyFigures, Part, Report, Section, Table
from nlpctl.report.page import html_page
from nlpctl.report.plots import Dot, scatter
from nlpctl.report.score_tables import single_scores, without_counts


@dataclass(frozen=True)
class Spread:
    """One score of several runs. `deviation`: the standard deviation between runs (n - 1); None of a single run."""

    mean: float
    deviation: float | None
    least: float
    most: float
    runs: int


def spread(values: Sequence[float]) -> Spread:
    """`values`: the score of each run, at least one."""
    deviation = stdev(values) if len(values) > 1 else None
    return Spread(fmean(values), deviation, min(values), max(values), len(values))


def spreads(metrics: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Spread]]:
    """Per split the spread of each score over the runs that have it. `metrics`: run -> split -> report."""
    values: dict[str, dict[str, list[float]]] = {}
    for reports in metrics.values():
        for split, report in reports.items():
            for score, value in without_counts(report).items():
                if math.isfinite(value):
                    values.setdefault(split, {}).setdefault(score, []).append(float(value))
    return {split: {score: spread(each) for score, each in by_score.items()} for split, by_score in values.items()}


def as_json(spreads: Mapping[str, Mapping[str, Spread]]) -> dict[str, dict[str, dict[str, Any]]]:
    return {split: {score: asdict(each) for score, each in by_score.items()} for split, by_score in spreads.items()}


def spread_tables(spreads: Mapping[str, Mapping[str, Spread]]) -> Iterator[Table]:
    """A table per split; with the number of runs behind each score where some runs lack one, which may be NaN."""
    for split, by_score in spreads.items():
        counts = [each.runs for each in by_score.values()]
        differ = min(counts) < max(counts)
        rows = [
            [name, each.mean, each.deviation, each.least, each.most, *([each.runs] if differ else [])]
            for name, each in by_score.items()
        ]
        columns = say_each("score", "mean", "standard deviation", "least", "most", *(["runs"] if differ else []))
        yield Table(columns, rows, say("{}, {} runs", say(split), max(counts)))


def repeats_page(
    series: Series,
    metrics: Mapping[str, Mapping[str, Any]],
    spreads: Mapping[str, Mapping[str, Spread]],
    folds: Sequence[int] | None,
) -> str:
    """The runs as one HTML page. `metrics`: run -> split -> report; `folds`: the number of rows of each."""
    recipe = series.recipe
    main = next((name for name in scores(recipe.task) if any(name in each for each in spreads.values())), "")
    numbers: dict[str, Any] = {}
    for split, by_score in spreads.items():
        if main in by_score:
            numbers[say("{} on {}, mean", main, say(split))] = by_score[main].mean
            if by_score[main].deviation is not None:
                numbers[say("its standard deviation on {}", say(split))] = by_score[main].deviation
    sections = [
        Section(say("Summary"), [KeyFigures(numbers)]),
        Section(say("Scores"), list(spread_tables(spreads))),
        Section(say("Runs"), list(_runs(metrics, main, folds))),
        Section(say("Recipe"), [Code(regular(series.folder / RECIPE).read_text(encoding="utf-8"))]),
    ]
    counts = len(series.members), len(series.rows)
    lead = say("{}, {} runs, {:,} training rows: {}", recipe.task, *counts, series.folder)
    return html_page(Report(say("Runs {}", series.folder.name), lead, sections))


def _runs(metrics: Mapping[str, Mapping[str, Any]], main: str, folds: Sequence[int] | None) -> Iterator[Part]:
    """The score `main` of each run, as a plot and as a table."""
    splits = list(dict.fromkeys(split for reports in metrics.values() for split in reports))
    dots: dict[str, list[Dot]] = {say(split): [] for split in splits}
    rows = []
    for i, (name, reports) in enumerate(metrics.items()):
        values = {split: single_scores(reports.get(split, {})).get(main) for split in splits}
        for split, value in values.items():
            if value is not None:
                dots[say(split)].append(Dot(i + 1, value, name))
        # The runs of a seed are those of fold 1, 2, ..., then come those of the next seed.
        held_out = [folds[i % len(folds)]] if folds else []
        rows.append([element("a", name, href=f"{name}/{REPORT}"), *held_out, *values.values()])
    columns = [
        say("run"),
        *(say_each("rows held out") if folds else []),
        *(say("{} on {}", main, say(split)) for split in splits),
    ]
    yield Figure(scatter(dots, say("run"), main))
    yield Table(columns, rows)
    if folds:
        yield say("Every training row was held out of one fold's training and predicted by it: predictions.jsonl.")
