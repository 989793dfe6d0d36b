"""`--json`: one JSON object on standard output per command, also of one that fails. docs/json.md describes it.

    {"nlpctl": "0.2.0", "command": "eval", "ok": true, "exit_code": 0, "result": {...}, "warnings": [], "error": null}

A command calls `give` with its result, whether or not --json is there. The object is printed once, when the command has
ended. Whatever is written to standard output meanwhile, by a user's function or a library, goes to standard error.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

import nlpctl
from nlpctl import console
from nlpctl.errors import EXIT_OK, NlpctlError, Problem
from nlpctl.names import counted
from nlpctl.report import score_tables as tables
from nlpctl.report.score_tables import ScoreTable
from nlpctl.runtime.worker_pool import WorkItem

FLAG = "--json"
Json = Annotated[bool, typer.Option(FLAG, help="Print one JSON object, also of a failure (docs/json.md).")]
SCHEMA, PROGRESS_SCHEMA = (Path(__file__).with_name(name) for name in ("json.schema.json", "progress.schema.json"))


@dataclass
class Envelope:
    """What a command has given so far. `command`: without nlpctl, such as "runs ls"."""

    command: str
    result: Any = None
    warnings: list[str] = field(default_factory=list)

    def text(self, code: int, failure: NlpctlError | Problem | None) -> str:
        """The object as it is printed. `failure`: why the command could not do what it was asked for."""
        content = {
            "nlpctl": nlpctl.__version__,
            "command": self.command,
            "ok": code == EXIT_OK,
            "exit_code": code,
            "result": console.plain(self.result),
            "warnings": self.warnings,
            "error": None if failure is None else _error(failure),
        }
        return json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False)


_current: Envelope | None = None


def give(result: Any) -> None:
    """Keep `result`, which is JSON-ready but for paths and tuples, to be printed when the command ends."""
    if _current is not None:
        _current.result = result


@contextlib.contextmanager
def kept(command: str) -> Iterator[Envelope]:
    """Keep what is given and warned inside the context, in which standard output is standard error."""
    global _current
    out, sys.stdout = sys.stdout, sys.stderr
    with console.for_a_program() as warnings:
        _current = Envelope(command, warnings=warnings)
        try:
            yield _current
        finally:
            _current, sys.stdout = None, out


def _error(failure: NlpctlError | Problem) -> dict[str, Any]:
    """The first problem, and all of them."""
    problems = failure.problems if isinstance(failure, NlpctlError) else (failure,)
    listed = [vars(problem) for problem in problems]
    return {**listed[0], "problems": listed}


# Reports as tables for people.

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


def tell_shares(workers: Sequence[WorkItem]) -> None:
    """What each worker did, a line each."""
    for each in workers:
        speed = f" ({each.rows / each.seconds:,.0f} rows/s)" if each.seconds else ""
        lost = f", lost {counted(each.losses, 'times')}" if each.losses else ""
        console.note(f"  worker {each.worker}: {counted(each.rows, 'rows')} in {each.seconds:.1f} s{speed}{lost}")
