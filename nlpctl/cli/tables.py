"""Reports as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nlpctl import console

if TYPE_CHECKING:
    from nlpctl.tasks.intervals import Paired, Slice


def score_tables(metrics: Mapping[str, Any]) -> None:
    """One table over all splits, then per split the scores of each label and of each level of labels."""
    if not metrics:
        console.note("no dev or test data: nothing was scored")
        return
    from nlpctl.runners.runs import score_rows

    console.table("", *score_rows(metrics))
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
