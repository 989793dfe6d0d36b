"""`nlpctl runs`: list, show and compare runs, and show their curves."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nlpctl import console
from nlpctl.cli.output import Json, give, score_tables
from nlpctl.console import display
from nlpctl.errors import UserError
from nlpctl.layout import BEST_EXPORT, CONFIDENCE
from nlpctl.names import did_you_mean
from nlpctl.report.language import say, say_counted, say_each, say_names
from nlpctl.report.model import MB, Number, Table, format_moment
from nlpctl.report.score_tables import format_ece
from nlpctl.report.text import fitted, show_table, watch_table

if TYPE_CHECKING:
    from nlpctl.runs.live_runs import LiveRun
    from nlpctl.runs.runs import RunRecord

SETTINGS = {"help_option_names": ["-h", "--help"]}
SORTS = ("name", "started", "dev", "test")
WATCH_SECONDS = 2.0
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]

app = typer.Typer(
    name="runs",
    help="List, show and compare runs; show their curves.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    context_settings=SETTINGS,
)


@app.command("ls", context_settings=SETTINGS)
def ls(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Folder to search for runs.")] = Path("outputs"),
    sort: Annotated[str, typer.Option("--sort", help=f"Sort by {', '.join(SORTS)} (best score first).")] = "started",
    watch: Annotated[
        bool, typer.Option("--watch", help="Show what trains now, again and again until Ctrl-C; in a pipe once.")
    ] = False,
    json: Json = False,
) -> None:
    """List the runs in a folder: state, task, model, duration, scores.

    The scores are of the metric that chose the model. A run with unreadable files is shown as damaged; stderr names the
    files.

    Examples:

      nlpctl runs ls

      nlpctl runs ls experiments --sort dev

      nlpctl runs ls --watch
    """
    if sort not in SORTS:
        hint = f"one of {', '.join(SORTS)}"
        raise UserError(f"there is no order {sort!r}{did_you_mean(sort, SORTS)}", where="--sort", hint=hint)
    if watch:
        _watch(folder, json)
        return
    from nlpctl.runs.run_files import warn_of_damage
    from nlpctl.runs.runs import open_all

    records, unreadable = open_all(folder)
    warn_of_damage([problem for record in records for problem in record.damage] + [each.damage for each in unreadable])
    records.sort(key=lambda record: _sort_key(record, sort))
    if json:
        give([each.to_json() for each in records] + [each.to_json() for each in unreadable])
    elif not records and not unreadable:
        console.note(f"no runs in {folder}")
    else:
        columns = say_each("run", "state", "task", "model", "step", "started", "time", "metric", "dev", "test")
        lines = [_row(record, folder) for record in records]
        unknown = [None] * (len(columns) - 2)
        lines += [[os.path.relpath(each.path, folder), say(each.shown_state), *unknown] for each in unreadable]
        show_table(Table(columns, lines))


def _watch(folder: Path, json: bool) -> None:
    """Show the runs in progress again and again, with those that end meanwhile; with --json once."""
    from nlpctl.runs.live_runs import LiveRuns

    runs = LiveRuns(folder)
    if json:
        give([each.to_json() for each in runs.now()])
        return
    if not runs.now():
        console.note(f"no run in {folder} trains now")
    columns = say_each("run", "state", "step", "done", "loss", "metric", "dev", "left")
    watch_table(lambda: Table(columns, [_live_row(each, folder) for each in runs.now()]), WATCH_SECONDS)


def _live_row(run: LiveRun, folder: Path) -> list[Any]:
    state = say(run.state) if run.host in (None, socket.gethostname()) else say("{} on {}", run.state, run.host)
    step, done = f"{run.step}", None
    if run.total:
        step, done = f"{run.step}/{run.total}", f"{run.step / run.total:.0%}"
    left = None if run.left is None else str(timedelta(seconds=round(run.left)))
    name = os.path.relpath(run.path, folder)
    return [name, state, step, done, run.loss, run.metric, run.score, left]


@app.command("show", context_settings=SETTINGS)
def show(run: RunArgument, json: Json = False) -> None:
    """Show one run: its settings, its course, its results.

    nlpctl runs show outputs/quickstart
    """
    from nlpctl.runs.run_files import warn_of_damage
    from nlpctl.runs.runs import INCIDENTS, facts, open_run

    record = open_run(run)
    warn_of_damage(record.damage)
    if json:
        give(record.to_json())
        return
    for name, value in facts(record).items():
        title = say("{}:", say(name))
        console.result(f"{title}{' ' * (17 - console.display_width(title))}{value}")
    if record.metrics:
        console.result("")
        score_tables(record.metrics)
        for split, report in record.metrics.items():
            if CONFIDENCE in report:
                console.result(f"{split}: {format_ece(report)}")
    incidents = [[say(INCIDENTS[each["event"]]), each["step"], _format_event(each)] for each in record.incidents()]
    if incidents:
        columns = say_each("event|what", "step", "details")
        show_table(Table(columns, incidents, say("Incidents")), apart=True)


@app.command("diff", context_settings=SETTINGS)
def diff(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="Two run directories or more.")],
    json: Json = False,
) -> None:
    """Show what differs between runs: recipe, environment, data, scores.

    The scores of two runs on the same rows are compared in pairs: the difference, its 95 % interval, and p.

    nlpctl runs diff outputs/first outputs/second
    """
    if len(runs) < 2:
        raise UserError("a comparison needs two runs or more", where="RUN", hint="name two run directories or more")
    from nlpctl.runs.comparison import changed_rows, comparison_table, differences_table
    from nlpctl.runs.run_files import warn_of_damage
    from nlpctl.runs.runs import differences, open_run, paired

    records = [open_run(run) for run in runs]
    warn_of_damage([problem for record in records for problem in record.damage])
    groups = differences(records)
    pairs = paired(*records) if len(records) == 2 else {}
    if json:
        names = [str(run) for run in runs]
        by_group = {
            group: {each.name: dict(zip(names, each.values, strict=True)) for each in listed}
            for group, listed in groups.items()
        }
        by_split = {split: each if isinstance(each, str) else asdict(each) for split, each in pairs.items()}
        states = {str(run): record.state for run, record in zip(runs, records, strict=True)}
        give({"runs": names, "states": states, "differences": by_group, "paired": by_split})
        return
    for group, listed in groups.items():
        if listed:
            table = differences_table(group, listed, _short_names(runs))
            show_table(fitted(table, texts=range(1, len(table.columns))))
            console.result("")
    for split, each in pairs.items():
        if isinstance(each, str):  # why the scores of this split cannot be paired
            console.result(say("{}: no paired comparison, since {}.", split, say(each)))
        else:
            show_table(comparison_table(split, _short_names(runs), each), apart=True)
            console.result(changed_rows(each))
    for record in records:
        if record.state != "finished" and not record.metrics:
            unfinished = say("{}: {}, so there are no scores yet.", display(record.run.path), say(record.shown_state))
            console.result(unfinished)
    same = [group for group, listed in groups.items() if not listed]
    if same:
        console.result(say("the same: {}", say(", ").join(map(say, same))))


@app.command("board", context_settings=SETTINGS)
def board(
    folder: Annotated[Path, typer.Argument(metavar="[OUTPUTS]", help="A run, or a folder of runs.")] = Path("outputs"),
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0: all addresses.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on; 0: any free port.")] = 8040,
) -> None:
    """Show the curves and graphs of runs in the browser, with VisualDL; Ctrl-C stops it.

    Examples:

      nlpctl runs board

      nlpctl runs board outputs/quickstart --port 0
    """
    from nlpctl.ui.board import show_board

    show_board(folder, host, port)


@app.command("clean", context_settings=SETTINGS)
def clean(
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="[FOLDER...]", help="Runs, or folders of runs; default: outputs.")
    ] = None,
    only: Annotated[str | None, typer.Option("--only", metavar="KIND,...", help="Only these kinds.")] = None,
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", help="Checkpoints that a finished run keeps; --continue needs one.")
    ] = 1,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without a question.")] = False,
    json: Json = False,
) -> None:
    """List what finished runs need no more, with sizes; delete it once you agree.

    Kinds: checkpoints of finished runs but the newest; doubles, weights that a checkpoint and the model both hold;
    leftovers of killed commands; candidates that compress chose best/ from; trials, the models of a finished sweep
    but the best. Models, exports, best/, scores and logs stay, and so do runs in progress and what --resume needs.
    Links are not followed.

    Examples:

      nlpctl runs clean

      nlpctl runs clean outputs/quickstart outputs/sweep --only checkpoints,leftovers --yes
    """
    from nlpctl.runs.clean import CANDIDATE, KINDS, Cleaning, Deleted, delete

    names = [word.strip() for word in (only or "").split(",")]
    for name in names if only is not None else ():
        if name not in KINDS:
            raise UserError(f"there is no kind {name!r}{did_you_mean(name, KINDS)}", "--only", f"of {', '.join(KINDS)}")
    if keep < 0:
        raise UserError(f"{keep} is no number of checkpoints", where="--keep", hint="give 0 or more")
    cleaning = Cleaning(KINDS if only is None else names, keep)
    places = folders or [Path("outputs")]
    found = [each for folder in places for each in cleaning.find(folder)]
    _tell_busy(cleaning.busy)
    lines = [(each.kind, display(each.path), each.size) for each in found]
    if found:
        total = (say("total"), "", sum(each.size for each in found))
        rows = [[kind, path, Number(f"{size / MB:,.1f}")] for kind, path, size in (*lines, total)]
        show_table(Table([*say_each("what", "where"), "MB"], rows))
    if any(each.kind == CANDIDATE for each in found):
        console.note(
            say("{}: `nlpctl compress` would make them again, trainings too; {}/ stays", CANDIDATE, BEST_EXPORT)
        )
    asks = sys.stdin.isatty() and not json
    told = len(cleaning.busy)
    wanted = bool(found) and (yes or (asks and _agrees()))
    deleted = delete(cleaning, places, found) if wanted else Deleted()
    _tell_busy(cleaning.busy[told:])
    listed, gone = ([each.to_json() for each in items] for items in (found, deleted.gone))
    give({"found": listed, "deleted": gone, "freed": deleted.freed, "busy": cleaning.busy})
    if not found:
        console.note(say("there is nothing to delete"))
    elif deleted.gone or deleted.freed:
        console.note(say("{:,.1f} MB are free", deleted.freed / MB))
    elif wanted or asks:
        console.note(say("nothing was deleted"))
    else:
        console.note(say("nothing was deleted; @[yes] deletes what is listed"))
    if deleted.problems:
        raise UserError(problems=deleted.problems)


def _tell_busy(folders: Iterable[Path]) -> None:
    for folder in folders:
        console.note(say("{} is left alone: a command works there, or it cannot be locked", display(folder)))


def _agrees() -> bool:
    """Whether a person at the terminal wants what is listed deleted; only yes is yes."""
    sys.stderr.write(say("delete this? [y/N]: "))  # not input(), whose prompt is standard output
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


@app.command("send", context_settings=SETTINGS)
def send(
    run: RunArgument,
    follow: Annotated[bool, typer.Option("--follow", hidden=True, help="Until standard input ends.")] = False,
    json: Json = False,
) -> None:
    """Send a run to MLflow, at MLFLOW_TRACKING_URI; by default to the folder mlruns here.

    What the server has of the run is not sent again. A training with report_to: mlflow does this while it runs.

    Examples:

      nlpctl runs send outputs/quickstart

      MLFLOW_TRACKING_URI=http://tracking:5000 MLFLOW_EXPERIMENT_NAME=reviews nlpctl runs send outputs/quickstart
    """
    from nlpctl.runs.tracking import follow_run, send_run

    sent = follow_run(run) if follow else send_run(run)
    give(asdict(sent))
    console.result(say("{}, run {}: {} sent", sent.uri, sent.run_id, say_counted(sent.events, "events")))


def _sort_key(record: RunRecord, sort: str) -> tuple[Any, ...]:
    """By which `runs ls --sort` orders; runs without the score come last."""
    name = str(record.run.path)
    if sort == "name":
        return (name,)
    if sort == "started":
        return (record.manifest["started"] or "", name)
    score = record.score(sort, record.metric)
    if score is None:
        return (1, 0.0, name)
    return (0, score if record.less_is_better else -score, name)


def _row(record: RunRecord, folder: Path) -> list[Any]:
    metric = record.metric
    return [
        os.path.relpath(record.run.path, folder),
        say(record.shown_state),
        record.recipe.task,
        say(record.model),
        record.step,
        format_moment(record.manifest["started"]),
        record.duration,
        metric,
        record.score("dev", metric),
        record.score("test", metric),
    ]


def _short_names(runs: list[Path]) -> list[str]:
    """The shortest ends of the paths that differ from each other."""
    whole = [Path(os.path.abspath(run)).parts for run in runs]
    for count in range(1, max(map(len, whole)) + 1):
        names = [os.path.join(*parts[-count:]) for parts in whole]
        if len(set(names)) == len(names):
            return names
    return [str(run) for run in runs]


def _format_event(event: Mapping[str, Any]) -> str:
    """The values of an event but for its time, name and step; lists are cut to their first entry."""
    texts = []
    for name, value in event.items():
        if name in ("time", "event", "step"):
            continue
        if isinstance(value, list):
            value = say_names([str(each) for each in value], most=1) or say("none")
        texts.append(f"{name}: {value}")
    return ", ".join(texts)
