"""A learning curve as one HTML page."""

from __future__ import annotations

import numpy as np

from nlpctl.experiments.learning_curve import Curve, LearningCurve
from nlpctl.layout import REPORT
from nlpctl.report.html import element
from nlpctl.report.model import Figure, KeyFigures, Report, Section, Table, percent
from nlpctl.report.page import html_page
from nlpctl.report.plots import lines

_DRAWN = 80  # points of a line
_BEYOND = 2  # times the rows there are


def curve_page(learned: LearningCurve, curve: Curve) -> str:
    """The text of the page."""
    first = learned.points[0].rows
    places = np.geomspace(first, _BEYOND * learned.rows, _DRAWN).tolist()
    fitted = [(rows, *curve.score(rows)) for rows in places]
    drawn = {
        "mean of the runs": [(point.rows, point.mean) for point in learned.points],
        "curve": [(rows, score) for rows, score, _ in fitted],
        "95 % interval, lower end": [(rows, ends[0]) for rows, _, ends in fitted],
        "upper end": [(rows, ends[1]) for rows, _, ends in fitted],
    }
    tiles = {
        "training rows": learned.rows,
        f"{learned.metric} of all rows": learned.whole,
        f"{learned.metric} of twice as many": learned.double,
    }
    rows = []
    for point in learned.points:
        links = [
            element("span", element("a", f"{score:.4f}", href=f"{name}/{REPORT}"), " ")
            for name, score in zip(point.runs, point.scores, strict=True)
        ]
        share = percent(point.rows / learned.rows)
        rows.append([point.rows, share, element("span", *links), point.mean, point.fitted])
    score = f"{learned.metric} on {learned.split}"
    sections = [
        Section("Answer", [KeyFigures(tiles), learned.told]),
        Section("Curve", [Figure(lines(drawn, "training rows", score, marks={"now": learned.rows}))]),
        Section("Runs", [Table(["rows", "share", "runs", "mean", "curve"], rows)]),
    ]
    return html_page(Report(f"Learning curve {learned.folder.name}", f"{score}: {learned.folder}", sections))
