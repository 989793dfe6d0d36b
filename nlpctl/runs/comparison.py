"""Comparisons of models and slices of data as tables."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nlpctl.report.language import say
from nlpctl.report.model import Number, Table
from nlpctl.spelling import option
from nlpctl.tasks.confidence import DIGITS
from nlpctl.tasks.slices import LABEL, LEAST_ROWS, LENGTH, MOST, Slice

if TYPE_CHECKING:
    from nlpctl.runs.runs import Difference
    from nlpctl.tasks.coverage import Target
    from nlpctl.tasks.intervals import Interval, Paired


def comparison_table(split: str, names: Sequence[str], paired: Paired) -> Table:
    """Two models on the same rows: each score, the difference with its interval, and p."""
    rows = []
    for score, each in paired.scores.items():
        ends = say("{:+.4f} to {:+.4f}", *each.interval)
        rows.append([score, each.first, each.second, f"{each.difference:+.4f}", ends, _p(each.p)])
    columns = [say("score"), *names, say("difference"), say("95 % interval"), "p"]
    return Table(columns, rows, say("{}, the same {:,} rows", split, paired.rows))


def differences_table(group: str, listed: Sequence[Difference], names: Sequence[str]) -> Table:
    """A row for everything of one group that differs, a column for each run; of two runs, also the change of scores."""
    rows = [[each.name, *(_cell(value, group) for value in each.values)] for each in listed]
    if group != "scores" or len(names) != 2:
        return Table([say(group), *names], rows)
    for row, each in zip(rows, listed, strict=True):
        first, second = each.values
        row.append(None if None in each.values else Number(f"{second - first:+.4f}"))
    return Table([say(group), *names, say("change")], rows)


def _cell(value: Any, group: str) -> str | None:
    """Data are named by their SHA-256."""
    if group == "data":
        return value and f"sha256 {value[:12]}"
    if isinstance(value, float) and group != "scores":
        return Number(f"{value:.12g}")  # as it was set: 20 epochs, a rate of 0.00005
    if isinstance(value, float):
        return Number(f"{value:.4f}" if abs(value) >= 1e-3 else f"{value:g}")
    if value is None or isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False)
    return Number(text) if type(value) is int else text


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def changed_rows(paired: Paired) -> str:
    """How many rows only one of the models answers right."""
    counts = say("right in the second only: {:,}; in the first only: {:,}", paired.gained, paired.lost)
    return counts if paired.mcnemar is None else say("{} (McNemar p {})", counts, _p(paired.mcnemar))


def format_target(target: Target) -> str:
    """The confidence that a precision needs, and what it keeps."""
    if target.min_confidence is None:
        return say("no least confidence gives {:.1%} right answers on dev", target.precision)
    limit = option("min-confidence", f"{target.min_confidence:.{DIGITS}g}")
    lines = [say("{} gives {:.1%} right answers on dev", limit, target.precision)]
    for split, kept in target.kept.items():
        parts = [say("{:.1%} of {:,} kept{}", kept.coverage, kept.decisions, _ends(kept.coverage_interval))]
        if kept.precision is not None:
            parts.append(say("of these {:.1%} right{}", kept.precision, _ends(kept.precision_interval)))
        lines.append(say("  {}: {}", split, say(", ").join(parts)))
    return "\n".join(lines)


def _ends(interval: Interval | None) -> str:
    return "" if interval is None else say(" ({:.1%} to {:.1%})", *interval)


def slice_name(by: str, name: str) -> str:
    """The name of a slice; that of one by length is said."""
    ends = re.fullmatch(r"(\d+) to (\d+) characters", name) if by == LENGTH else None
    return name if ends is None else say("{} to {} characters", *ends.groups())


def slices_left_out(count: int, shown: int = MOST) -> str:
    """What a table of slices, of which it has `shown` at most, does not show."""
    return say(
        "Slices not in the table: {:,}. It has the {} largest with {} rows or more, and of these the {} weakest.",
        *(count, MOST, LEAST_ROWS, shown),
    )


def slice_table(split: str, by: str, slices: Sequence[Slice]) -> Table:
    """The slices of a split, the worst first."""
    kind = say(by) if by in (LABEL, LENGTH) else by  # others are columns of the data
    rows = [
        [
            slice_name(by, each.name),
            each.rows,
            each.score,
            say("{:.3f} to {:.3f}", *each.interval),
            f"{each.above:+.4f}",
            say("{:+.4f} to {:+.4f}", *each.above_interval),
        ]
        for each in slices
    ]
    interval = say("95 % interval")
    columns = [kind, say("rows"), say("score"), interval, say("above the rest"), interval]
    return Table(columns, rows, say("{}, by {}", split, kind))
