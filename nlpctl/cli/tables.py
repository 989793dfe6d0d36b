"""Reports as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.report import score_tables as tables

if TYPE_CHECKING:
    from nlpctl.tasks.intervals import Paired, Slice


def score_tables(metrics: Mapping[str, Any]) -> None:
    """One table over all splits, then per split the scores of each label and of each level of labels."""
    if not metrics:
        console.note("no dev or test data: nothing was scored")
        return
    for each in tables.score_tables(metrics):
        console.table(f"\n{each.title}" if each.title else "", each.columns, each.rows)


def comparison_table(split: str, names: Sequence[str], paired: Paired) -> None:
    """Two models on the same rows: each score, the difference with its interval and p, and how many rows changed."""
    rows = [
        [score, each.first, each.second, f"{each.difference:+.4f}", "{:+.4f} to {:+.4f}".format(*each.interval), each.p]
        for score, each in paired.scores.items()
    ]
    title = f"\n{split}, the same {paired.rows:,} rows"
    console.table(title, ["score", *names, "difference", "95 % interval", "p"], rows)
    told = f"right in the second only: {paired.gained:,}; in the first only: {paired.lost:,}"
    console.result(f"{told} (McNemar p {paired.mcnemar:.3f})")


def slice_table(split: str, by: str, slices: Sequence[Slice]) -> None:
    """The slices of a split, the worst first."""
    if not slices:
        console.note(f"{split}: all rows are in one slice by {by}")
        return
    rows = [
        [
            each.name,
            each.rows,
            each.score,
            "{:.3f} to {:.3f}".format(*each.interval),
            f"{each.above:+.4f}",
            "{:+.4f} to {:+.4f}".format(*each.above_interval),
        ]
        for each in slices
    ]
    columns = [by, "rows", "score", "95 % interval", "above the rest", "95 % interval"]
    console.table(f"\n{split}, by {by}", columns, rows)
