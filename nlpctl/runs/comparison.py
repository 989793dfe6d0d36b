"""Comparisons of models and slices of data as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nlpctl.report.model import Table
from nlpctl.spelling import option
from nlpctl.tasks.confidence import DIGITS
from nlpctl.tasks.slices import Slice

if TYPE_CHECKING:
    from nlpctl.tasks.coverage import Target
    from nlpctl.tasks.intervals import Interval, Paired


def comparison_table(split: str, names: Sequence[str], paired: Paired) -> Table:
    """Two models on the same rows: each score, the difference with its interval, and p."""
    rows = []
    for score, each in paired.scores.items():
        ends = "{:+.4f} to {:+.4f}".format(*each.interval)
        rows.append([score, each.first, each.second, f"{each.difference:+.4f}", ends, _p(each.p)])
    columns = ["score", *names, "difference", "95 % interval", "p"]
    return Table(columns, rows, f"{split}, the same {paired.rows:,} rows")


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def changed_rows(paired: Paired) -> str:
    """How many rows only one of the models answers right."""
    counts = f"right in the second only: {paired.gained:,}; in the first only: {paired.lost:,}"
    return counts if paired.mcnemar is None else f"{counts} (McNemar p {_p(paired.mcnemar)})"


def format_target(target: Target) -> str:
    """The confidence that a precision needs, and what it keeps."""
    if target.min_confidence is None:
        return f"no least confidence gives {target.precision:.1%} right answers on dev"
    limit = option("min-confidence", f"{target.min_confidence:.{DIGITS}g}")
    lines = [f"{limit} gives {target.precision:.1%} right answers on dev"]
    for split, kept in target.kept.items():
        parts = [f"{kept.coverage:.1%} of {kept.decisions:,} kept{_ends(kept.coverage_interval)}"]
        if kept.precision is not None:
            parts.append(f"of these {kept.precision:.1%} right{_ends(kept.precision_interval)}")
        lines.append(f"  {split}: {', '.join(parts)}")
    return "\n".join(lines)


def _ends(interval: Interval | None) -> str:
    return "" if interval is None else " ({:.1%} to {:.1%})".format(*interval)


def slice_table(split: str, by: str, slices: Sequence[Slice]) -> Table:
    """The slices of a split, the worst first."""
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
    return Table(columns, rows, f"{split}, by {by}")
