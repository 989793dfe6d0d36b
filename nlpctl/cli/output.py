"""`--json`: one JSON object on standard output per command, also of one that fails. docs/json.md describes it.

    {"nlpctl": "0.2.0", "command": "eval", "ok": true, "exit_code": 0, "result": {...}, "warnings": [], "error": null}

A command calls `give` with its result, whether or not --json is there. The object is printed once, when the command has
ended. Whatever is written to standard output meanwhile, by a user's function or a library, goes to standard error.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import nlpctl
from nlpctl import console
from nlpctl.errors import EXIT_OK, NlpctlError, Problem
from nlpctl.layout import MODEL, REPORT
from nlpctl.names import counted

if TYPE_CHECKING:
    from nlpctl.config.schema import Recipe
    from nlpctl.report.model import Table
    from nlpctl.runtime.run_directory import RunDirectory
    from nlpctl.runtime.worker_pool import WorkerStats


def _choose_language(context: typer.Context, language: str | None) -> str | None:
    from nlpctl.report.language import in_language  # late: not for --help

    context.with_resource(in_language(language))  # until the command ends
    return language


LanguageOption = Annotated[
    str | None,
    typer.Option(
        "--language",
        metavar="en|zh",
        callback=_choose_language,
        help="Of pages, tables and comments; default: by the locale.",
    ),
]
FLAG = "--json"
Json = Annotated[bool, typer.Option(FLAG, help="Print one JSON object, also of a failure (docs/json.md).")]
SCHEMA, PROGRESS_SCHEMA = (Path(__file__).with_name(name) for name in ("json.schema.json", "progress.schema.json"))


@dataclass
class Envelope:
    """The result and the warnings of a command so far. `command`: without nlpctl, such as "runs ls"."""

    command: str
    result: Any = None
    warnings: list[str] = field(default_factory=list)

    def text(self, code: int, failure: NlpctlError | Problem | None) -> str:
        """The object as it is printed, as JSON. `failure`: why the command could not do what it was asked for."""
        content: dict[str, Any] = {
            "nlpctl": nlpctl.__version__,
            "command": self.command,
            "ok": code == EXIT_OK,
            "exit_code": code,
            "result": console.json_ready(self.result),
            "warnings": self.warnings,
            "error": None,
        }
        if failure is not None:  # the first problem, and all of them
            problems = failure.problems if isinstance(failure, NlpctlError) else (failure,)
            listed = [vars(problem) for problem in problems]
            content["error"] = {**listed[0], "problems": listed}
        return json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False)


_current: Envelope | None = None  # that of the command line that runs now, with --json


def give(result: Any) -> None:
    """Store `result`, which is JSON-ready but for paths and tuples, to be printed when the command ends.

    Without --json nothing happens.
    """
    if _current is not None:
        _current.result = result


@contextlib.contextmanager
def json_output(command: str) -> Iterator[Envelope]:
    """The envelope of `command`, which collects the result and the warnings inside the context.

    Standard output is standard error there, so that nothing else stands beside the object.
    """
    global _current
    out, sys.stdout = sys.stdout, sys.stderr
    with console.for_a_program() as warnings:
        _current = Envelope(command, warnings=warnings)
        try:
            yield _current
        finally:
            _current, sys.stdout = None, out


# -- scores, workers and what to do next, for people -----------------------------------------------


def score_tables(metrics: Mapping[str, Any]) -> None:
    """Per split the scores of each label and of each level of labels, then one table over all splits: what matters most
    stands last, where a terminal shows it."""
    if not metrics:
        console.note("no dev or test data: nothing was scored")
        return
    from nlpctl.report import score_tables as tables  # late: not for --help
    from nlpctl.report.text import show_table

    overall, *others = tables.score_tables(metrics)
    for table in others:
        show_table(table, apart=True)
    if others:
        console.result("")
    show_table(overall)


def show_answer(answer: str, table: Table, meaning: str, remarks: Iterable[str]) -> None:
    """What to take, the short table that it is from, what its columns mean, and what else is to know."""
    from nlpctl.report.language import say  # late: not for --help
    from nlpctl.report.text import show_table

    console.result(f"{answer}\n")
    show_table(table)
    console.note(f"{say(meaning)}\n")
    for sentence in remarks:
        console.note(sentence)


def tell_next(*commands: str) -> None:
    """The last lines of a command that made something: the command lines that use it."""
    from nlpctl.report.language import say  # late: not for --help

    if commands:
        console.note(say("next:"))
    for command in commands:
        console.note(f"  {say(command)}")


def answering(model: Path, task: str) -> str:
    """The command line that answers with a model or an export; for vectors, the one that makes them searchable."""
    from nlpctl.config.tasks import task_info  # late: not for --help

    if task_info(task).vectors:
        return f"nlpctl index build {_named(model)} FILE -o {_named(model, '_index')}"
    return f"nlpctl predict {_named(model)} FILE"


def _named(path: Path, ending: str = "") -> str:
    """A path as a command line names it."""
    return shlex.quote(f"{console.display(path)}{ending}")


def training_on(model: Path) -> str:
    """The command line that trains a model further."""
    return f"nlpctl train RECIPE --set model.name_or_path={_named(model)}"


def serving(model: Path) -> str:
    """The command line that serves an export."""
    return f"nlpctl serve {_named(model)}"


def searching(index: Path) -> str:
    """The command line that searches an index."""
    return f"nlpctl index search {_named(index)} QUERIES"


def tell_trained(run: RunDirectory, recipe: Recipe, metrics: Mapping[str, Any]) -> None:
    """Where the model of a run lies and the command lines that use it; where it is of no use, those that tell why."""
    from nlpctl.config.tasks import task_info  # late: not for --help
    from nlpctl.report.language import say
    from nlpctl.tasks.degenerate import useless_on

    path = Path(console.display(run.path))
    name = shlex.quote(str(path))
    console.note(say("model: {}", path / MODEL))
    if (run.path / REPORT).is_file():
        console.note(say("report: {}", path / REPORT))
    if useless_on(recipe, metrics) is not None:
        tell_next(f"nlpctl data inspect {name}", f"nlpctl train {name} --overfit-batch")
    elif task_info(recipe.task).pipeline == "fill-mask":  # an encoder for other tasks
        tell_next(training_on(path), answering(path, recipe.task))
    else:
        tell_next(answering(path, recipe.task), f"nlpctl eval {name} FILE", f"nlpctl export {name}")


def tell_shares(workers: Sequence[WorkerStats]) -> None:
    """A line per worker: its rows, seconds and losses."""
    for each in workers:
        speed = f" ({each.rows / each.seconds:,.0f} rows/s)" if each.seconds else ""
        lost = f", lost {counted(each.losses, 'times')}" if each.losses else ""
        console.note(f"  worker {each.worker}: {counted(each.rows, 'rows')} in {each.seconds:.1f} s{speed}{lost}")
