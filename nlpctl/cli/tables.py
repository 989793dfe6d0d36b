"""Reports as tables for people."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nlpctl import console
from nlpctl.names import counted
from nlpctl.report import score_tables as tables
from nlpctl.report.score_tables import ScoreTable
from nlpctl.runtime.crew import Share

_NARROWEST = 12  # columns wide; a text is not cut to less


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


def fitted(columns: Sequence[str], rows: Sequence[Sequence[Any]], texts: Collection[int]) -> list[list[Any]]:
    """`rows` with the cells of the columns `texts` cut, so that the table is no wider than the terminal.

    Unchanged where standard output is none: a program, or a pager, has room.
    """
    if not sys.stdout.isatty():
        return [list(row) for row in rows]
    cells = [[str(cell if cell is not None else "") for cell in row] for row in rows]
    widths = [max(console.display_width(line[i]) for line in [columns, *cells]) for i in range(len(columns))]
    room = shutil.get_terminal_size((100, 24)).columns - 3 * len(columns) - 1  # the frame
    room -= sum(width for i, width in enumerate(widths) if i not in texts)
    for left, i in zip(range(len(texts), 0, -1), sorted(texts, key=lambda i: widths[i]), strict=True):
        widths[i] = min(widths[i], max(_NARROWEST, room // left))  # what a narrow column leaves is for the wider ones
        room -= widths[i]
    return [[console.shortened(cell, width) for cell, width in zip(line, widths, strict=True)] for line in cells]


def tell_shares(workers: Sequence[Share]) -> None:
    """What each worker did, a line each."""
    for each in workers:
        speed = f" ({each.rows / each.seconds:,.0f} rows/s)" if each.seconds else ""
        lost = f", lost {counted(each.losses, 'times')}" if each.losses else ""
        console.note(f"  worker {each.worker}: {counted(each.rows, 'rows')} in {each.seconds:.1f} s{speed}{lost}")
