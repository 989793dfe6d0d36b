"""Scores as tables."""

from __future__ import annotations

from nlpctl.layout import INTERVALS, USER_SCORES
from nlpctl.report.score_tables import score_tables


def test_a_score_of_ones_own_has_no_interval_of_the_task():
    """compute_metrics may give a score the name of one of the task's."""
    ends = {"accuracy": [0.25, 0.5], "macro_f1": [0.125, 0.5]}
    report = {"accuracy": 0.375, "macro_f1": 0.25, INTERVALS: ends, USER_SCORES: {"accuracy": 1.0}}
    (table,) = score_tables({"dev": report})
    assert table.rows == [["dev", 1.0, 0.25], ["  95 % interval", None, "0.125 to 0.500"]]
