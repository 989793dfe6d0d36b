"""Several runs of one recipe as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nlpctl.config.tasks import scores
from nlpctl.experiments.series import Series
from nlpctl.experiments.spread import Spread, spread_tables
from nlpctl.files import regular
from nlpctl.layout import RECIPE, REPORT
from nlpctl.report.html import element
from nlpctl.report.model import Code, Figure, KeyFigures, Part, Report, Section, Table
from nlpctl.report.page import html_page
from nlpctl.report.plots import Dot, scatter
from nlpctl.report.score_tables import figures as single_scores


def many_page(
    series: Series,
    metrics: Mapping[str, Mapping[str, Any]],
    found: Mapping[str, Mapping[str, Spread]],
    folds: Sequence[int] | None,
) -> str:
    """The text of the page. `metrics`: run -> split -> report; `folds`: the number of rows of each."""
    recipe = series.recipe
    main = next((name for name in scores(recipe.task) if any(name in each for each in found.values())), "")
    sections = [
        Section("Summary", [KeyFigures(_tiles(found, main))]),
        Section("Scores", list(spread_tables(found))),
        Section("Runs", list(_runs(metrics, main, folds))),
        Section("Recipe", [Code(regular(series.folder / RECIPE).read_text(encoding="utf-8"))]),
    ]
    lead = f"{recipe.task}, {len(series.members)} runs, {len(series.rows):,} training rows: {series.folder}"
    return html_page(Report(f"Runs {series.folder.name}", lead, sections))


def _tiles(found: Mapping[str, Mapping[str, Spread]], main: str) -> dict[str, Any]:
    tiles: dict[str, Any] = {}
    for split, each in found.items():
        if main in each:
            tiles[f"{main} on {split}, mean"] = each[main].mean
            if each[main].deviation is not None:
                tiles[f"its standard deviation on {split}"] = each[main].deviation
    return tiles


def _runs(metrics: Mapping[str, Mapping[str, Any]], main: str, folds: Sequence[int] | None) -> Iterator[Part]:
    splits = list(dict.fromkeys(split for reports in metrics.values() for split in reports))
    scored = {name: {split: single_scores(reports.get(split, {})).get(main) for split in splits}
              for name, reports in metrics.items()}  # fmt: skip
    numbered = list(enumerate(scored.items(), 1))
    dots = {
        split: [Dot(i, each[split], name) for i, (name, each) in numbered if each[split] is not None]
        for split in splits
    }
    yield Figure(scatter(dots, "run", main))
    rows = []
    for i, (name, each) in enumerate(scored.items()):
        link = element("a", name, href=f"{name}/{REPORT}")
        held = [folds[i % len(folds)]] if folds else []
        rows.append([link, *held, *(each[split] for split in splits)])
    columns = ["run", *(["rows held out"] if folds else []), *(f"{main} on {split}" for split in splits)]
    yield Table(columns, rows)
    if folds:
        yield "Every training row was held out of one fold's training and predicted by it: predictions.jsonl."
