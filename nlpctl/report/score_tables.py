"""Scores as tables: one over all splits, then those of each label and of each level of labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class ScoreTable(NamedTuple):
    """A table of scores; the first one has no title."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def score_tables(metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[ScoreTable]:
    """The tables of `metrics`, which hold a report for every split, as metrics.json does."""
    names = list(dict.fromkeys(name for report in metrics.values() for name in _figures(report)))
    rows = [[split, *(report.get(name) for name in names)] for split, report in metrics.items()]
    yield ScoreTable("", ["split", *names], rows)
    for split, report in metrics.items():
        if "labels" not in report:
            continue
        of_label = ["precision", "recall", "f1", "support"]
        labels = [[label, *(figures[name] for name in of_label)] for label, figures in report["labels"].items()]
        yield ScoreTable(f"{split}, per label", ["label", *of_label], labels)
        if "levels" in report:  # of hierarchical labels
            of_level = ["labels", "micro_f1", "macro_f1"]
            levels = [[level, *(figures[name] for name in of_level)] for level, figures in report["levels"].items()]
            yield ScoreTable(f"{split}, per level", ["level", *of_level], levels)


def _figures(report: Mapping[str, Any]) -> list[str]:
    """The entries of a report that are single numbers."""
    return [name for name, value in report.items() if isinstance(value, int | float)]
