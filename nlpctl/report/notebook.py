"""What a notebook shows of results: tables, and a run's page in a frame in which nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nlpctl.layout import REPORT
from nlpctl.names import counted
from nlpctl.report.html import Html, element, joined
from nlpctl.report.page import Number, folded, percent, table
from nlpctl.report.score_tables import score_tables

_STYLE = Html(
    "<style>.nlpctl th,.nlpctl td{text-align:left;padding:2px 10px 2px 0}.nlpctl caption{text-align:left}"
    ".nlpctl th.number,.nlpctl td.number{text-align:right;font-variant-numeric:tabular-nums}"
    ".nlpctl summary{cursor:pointer}</style>"
)
_FRAME = "width:100%;height:640px;border:1px solid #ccc;border-radius:4px"
_PAGE = "report"


class Scores(dict[str, Any]):
    """Scores as metrics.json has them, of one split or by split. A notebook shows them as tables."""

    def _repr_html_(self) -> str:
        return _shown(_scores(self))


def run_html(path: Path, metrics: Mapping[str, Any]) -> str:
    """A run: where it is, its scores, and its page, folded."""
    return _shown(element("b", path), _scores(metrics), _page_in_frame(path / REPORT))


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
    columns = ["graph", "engine", "precision", "largest difference", "agreement"]
    compared = f"compared with the network on {counted(report['rows']['count'], 'rows')}"
    return _shown(element("b", path), table(columns, rows, compared))


def facts_html(facts: Mapping[str, Any]) -> str:
    """Facts by their names."""
    (first, value), *others = facts.items()
    return _shown(table([first, str(value)], others))


def _shown(*parts: Html) -> str:
    return str(element("div", _STYLE, *parts, class_="nlpctl"))


def _scores(metrics: Mapping[str, Any]) -> Html:
    """Scores as tables; those per label are folded."""
    if not metrics:
        return Html("")
    one = not all(isinstance(each, Mapping) for each in metrics.values())
    first, *others = score_tables({"": metrics} if one else metrics)
    all_splits = table(first.columns[one:], [row[one:] for row in first.rows])  # of one split, its name is not known
    return joined(
        all_splits, *[folded(each.title.removeprefix(", "), table(each.columns, each.rows)) for each in others]
    )


def _page_in_frame(path: Path) -> Html:
    """The page `path`, folded. It has no scripts, and a frame with `sandbox` runs none."""
    if not path.is_file():
        return Html("")
    page = path.read_text(encoding="utf-8")
    return folded(_PAGE, element("iframe", srcdoc=page, sandbox="", style=_FRAME, title=_PAGE))
