"""Reports as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nlpctl.runtime import console

AVERAGES = ("accuracy", "macro_f1", "micro_f1", "weighted_f1")


def score_tables(metrics: Mapping[str, Any]) -> None:
    """One table over all splits, then one per split with the figures of each label."""
    if not metrics:
        console.note("no dev or test data: nothing was scored")
        return
    rows = [[split, report["rows"], *(report[name] for name in AVERAGES)] for split, report in metrics.items()]
    console.table("", ["split", "rows", *AVERAGES], rows)
    for split, report in metrics.items():
        labels = [
            [label, figures["precision"], figures["recall"], figures["f1"], figures["support"]]
            for label, figures in report["labels"].items()
        ]
        console.table(f"\n{split}, per label", ["label", "precision", "recall", "f1", "rows"], labels)
