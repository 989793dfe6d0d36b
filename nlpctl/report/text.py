"""Tables on standard output: drawn on a terminal, aligned plain text in a pipe (rank 0 only)."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from nlpctl import console
from nlpctl.report.model import Table

_NARROWEST = 12  # columns of the terminal; a text is not cut to less


def show_table(table: Table, *, apart: bool = False) -> None:
    """Write a table to standard output. `apart`: with an empty line before its title, if it has one."""
    if not console.gives_results():
        return
    if apart and table.title:
        table = replace(table, title=f"\n{table.title}")
    with console.standard_output():
        if sys.stdout.isatty():
            from rich.console import Console  # importing rich takes 50 ms, so only for terminals

            screen = Console(file=sys.stdout)
            screen.print(_drawn(_turned(table, screen.width)))
        else:
            sys.stdout.write(aligned(table) + "\n")
        sys.stdout.flush()


def watch_table(make: Callable[[], Table], seconds: float) -> None:
    """Draw the table that `make` returns in place, every `seconds`, until Ctrl-C; where stdout is no terminal, once."""
    if not sys.stdout.isatty():
        show_table(make())
        return
    from rich.console import Console
    from rich.live import Live

    with contextlib.suppress(KeyboardInterrupt), Live(console=Console(file=sys.stdout), auto_refresh=False) as live:
        while True:
            live.update(_drawn(make()), refresh=True)
            time.sleep(seconds)


def aligned(table: Table) -> str:
    """The table as lines of plain text, without a line end; Chinese characters count as two columns wide."""
    lines = [list(table.columns), *([_cell(value) for value in row] for row in table.rows)]
    widths = [max(console.display_width(line[i]) for line in lines) for i in range(len(table.columns))]
    lines.insert(1, ["-" * width for width in widths])
    text = [table.title] if table.title else []
    for line in lines:
        padded = [cell + " " * (width - console.display_width(cell)) for cell, width in zip(line, widths, strict=True)]
        text.append("  ".join(padded).rstrip())
    return "\n".join(text)


def fitted(table: Table, texts: Collection[int]) -> Table:
    """The table with the cells of the columns `texts` cut, so that it is no wider than the terminal.

    Unchanged where standard output is none: a program, or a pager, has room.
    """
    if not sys.stdout.isatty():
        return table
    columns = table.columns
    cells = [[str(cell if cell is not None else "") for cell in row] for row in table.rows]
    widths = [max(console.display_width(line[i]) for line in [columns, *cells]) for i in range(len(columns))]
    room = shutil.get_terminal_size((100, 24)).columns - 3 * len(columns) - 1  # the frame
    room -= sum(width for i, width in enumerate(widths) if i not in texts)
    for left, i in zip(range(len(texts), 0, -1), sorted(texts, key=lambda i: widths[i]), strict=True):
        widths[i] = min(widths[i], max(_NARROWEST, room // left))  # what a narrow column leaves is for the wider ones
        room -= widths[i]
    cut = [[console.shortened(cell, width) for cell, width in zip(line, widths, strict=True)] for line in cells]
    return replace(table, rows=cut)


def _turned(table: Table, room: int) -> Table:
    """The table, or, if only so it fits into `room` columns of a terminal, its columns as rows.

    A table of scores has a column per score; words broken within a column of four letters cannot be read.
    """
    lines = [list(table.columns), *map(list, table.rows)]
    first, *others = (list(line) for line in zip(*lines, strict=True))
    turned = replace(table, columns=[_cell(cell).strip() for cell in first], rows=others)
    return turned if _drawn_width(table) > room >= _drawn_width(turned) else table


def _drawn_width(table: Table) -> int:
    """Columns of a terminal that the drawn table takes, with its frame."""
    lines = [list(table.columns), *table.rows]
    cells = (max(console.display_width(_cell(line[i])) for line in lines) for i in range(len(table.columns)))
    return sum(cells) + 3 * len(table.columns) + 1


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return "" if value is None else console.visible(str(value))


def _drawn(table: Table) -> Any:
    """A table of rich. Its texts are `Text`: "[x]" in a cell must not be read as markup."""
    from rich.table import Table as RichTable
    from rich.text import Text

    title = Text(console.visible(table.title)) if table.title else None
    drawn = RichTable(title=title, title_justify="left")
    for column in table.columns:
        drawn.add_column(Text(console.visible(column)), overflow="fold")
    for row in table.rows:
        drawn.add_row(*[Text(_cell(value)) for value in row])
    return drawn
