"""Reports as tables for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nlpctl import console
from nlpctl.report import score_tables as tables
from nlpctl.report.score_tables import ScoreTable


def score_tables(metrics: Mapping[str, Any]) -> None:
    """One table over all splits, then per split the scores of each label and of each level of labels."""
    if not metrics:
        console.note("no dev or test data: nothing was scored")
        return
    for each in tables.score_tables(metrics):
        show(each)


def show(table: ScoreTable) -> None:
    """Print one table."""
    console.table(f"\n{table.title}" if table.title else "", table.columns, table.rows)
