"""What a notebook shows of results: tables, and a run's page in a frame in which nothing runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nlpctl.layout import REPORT
from nlpctl.report.html import Html, element
from nlpctl.report.language import say, say_counted, say_each
from nlpctl.report.model import Folded, Number, Part, Table, percent
from nlpctl.report.page import draw
from nlpctl.report.score_tables import score_tables

_STYLE = Html(
    "<style>.nlpctl th,.nlpctl td{text-align:left;padding:2px 10px 2px 0}.nlpctl caption{text-align:left}"
    ".nlpctl th.number,.nlpctl td.number{text-align:right;font-variant-numeric:tabular-nums}"
    ".nlpctl summary{cursor:pointer}</style>"
)
_FRAME = "width:100%;height:640px;border:1px solid #ccc;border-radius:4px"


class Scores(dict[str, Any]):
    """Scores as metrics.json has them, of one split or by split. A notebook shows them as tables."""

    def _repr_html_(self) -> str:
        return _framed(*_scores(self))


def run_html(path: Path, metrics: Mapping[str, Any]) -> str:
    """A run: where it is, its scores, and its page, folded."""
    return _framed(element("b", path), *_scores(metrics), *_page_in_frame(path / REPORT))


def export_html(path: Path, report: Mapping[str, Any]) -> str:
    """An export and the comparison of its graphs with the network. `report`: the content of report.json."""
    rows = [
        [
            graph["files"][0],
            check["engine"],
            check["precision"],
            Number(f"{check['largest_difference']:.2g}"),
            percent(check["agreement"]),
        ]
        for graph in report["graphs"]
        for check in graph["checks"]
    ]
    columns = say_each("graph", "engine", "precision", "largest difference", "agreement")
    compared = say("compared with the network on {}", say_counted(report["rows"]["count"], "rows"))
    return _framed(element("b", path), Table(columns, rows, compared))


def facts_html(facts: Mapping[str, Any]) -> str:
    """Facts by their names."""
    (first, value), *others = facts.items()
    return _framed(Table([first, str(value)], others))


def _framed(*parts: Part) -> str:
    """The parts with the styles that they need outside of a page."""
    return str(element("div", _STYLE, *map(draw, parts), class_="nlpctl"))


def _scores(metrics: Mapping[str, Any]) -> Iterator[Part]:
    """Scores as tables; those per label are folded."""
    if not metrics:
        return
    one = not all(isinstance(each, Mapping) for each in metrics.values())
    first, *others = score_tables({"": metrics} if one else metrics)
    unnamed = one and len(first.rows) == 1  # the name of a single split is not known; below it may be its intervals
    yield Table(first.columns[unnamed:], [row[unnamed:] for row in first.rows])
    for each in others:
        yield Folded(each.title.lstrip(",， "), [replace(each, title="")])


def _page_in_frame(path: Path) -> Iterator[Part]:
    """The page `path`, folded. It has no scripts, and a frame with `sandbox` runs none."""
    if path.is_file():
        page = path.read_text(encoding="utf-8")
        name = say("report")
        yield Folded(name, [element("iframe", srcdoc=page, sandbox="", style=_FRAME, title=name)])
