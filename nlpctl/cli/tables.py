"""Reports as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nlpctl import console


def score_tables(metrics: Mapping[str, Any]) -> None:
    """One table over all splits, then per split the scores of each label and of each level of labels."""
    if not metrics:
        console.note("no dev or test data: nothing was scored")
        return
    names = list(dict.fromkeys(name for report in metrics.values() for name in _figures(report)))
    rows = [[split, *(report.get(name) for name in names)] for split, report in metrics.items()]
    console.table("", ["split", *names], rows)
    for split, report in metrics.items():
        if "labels" not in report:
            continue
        labels = [
            [label, figures["precision"], figures["recall"], figures["f1"], figures["support"]]
            for label, figures in report["labels"].items()
        ]
        console.table(f"\n{split}, per label", ["label", "precision", "recall", "f1", "support"], labels)
        if "levels" in report:  # of hierarchical labels
            names = ["labels", "micro_f1", "macro_f1"]
            levels = [[level, *(figures[name] for name in names)] for level, figures in report["levels"].items()]
            console.table(f"\n{split}, per level", ["level", *names], levels)


def _figures(report: Mapping[str, Any]) -> list[str]:
    """The entries of a report that are single numbers."""
    return [name for name, value in report.items() if isinstance(value, int | float)]
