"""`nlpctl bench`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nlpctl import console
from nlpctl.cli.options import MODEL_HELP, EngineOption, PrecisionOption, engine_overrides, load_command_recipe
from nlpctl.cli.output import Json, LanguageOption, give, show_answer
from nlpctl.config.positions import located
from nlpctl.config.ranges import COUNT, THREADS, Range
from nlpctl.errors import UserError
from nlpctl.names import full_width_signs
from nlpctl.outputs import refuse_output
from nlpctl.report.language import say
from nlpctl.report.text import show_table

if TYPE_CHECKING:
    from nlpctl.modeltools.bench import BenchResult

DIGITS = 8  # more than a number of rows or threads has


def bench(
    ctx: typer.Context,
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help=f"{MODEL_HELP} Several: side by side.")],
    batch_size: Annotated[str, typer.Option("--batch-size", metavar="N,N", help="Rows per batch.")] = "1,32",
    threads: Annotated[
        str | None, typer.Option("--threads", metavar="N,N", help="Threads; default: all physical cores.")
    ] = None,
    engine: EngineOption = None,
    precision: PrecisionOption = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FILE", help="Rows to time with; default: those of dev or test.")
    ] = None,
    length: Annotated[
        int | None, typer.Option("--length", min=1, help="Make every row this many tokens long.")
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows per round; fewer than a batch are repeated.")] = 256,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Timed rounds, after one warm-up round.")] = 5,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write a page with plots.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the page.")] = False,
    details: Annotated[
        bool, typer.Option("--details", help="Also print ranges, latencies, speed from text and loading.")
    ] = False,
    language: LanguageOption = None,
    json: Json = False,
) -> None:
    """Time models and exports on this machine, in every engine and precision that it can run.

    Each candidate is loaded in its own process. Candidates are timed in alternating rounds, so that other load on the
    machine affects all of them alike. The first line says what to take of a model: the fastest that decides as the
    network did when it was exported (inference.max_drop, inference.min_agreement). Nothing is scored, so of several
    models the fastest may be a worse one.

    Examples:

      nlpctl bench outputs/quickstart/export

      nlpctl bench outputs/quickstart outputs/quickstart/export --batch-size 1,8,32 --threads 1,2

      nlpctl bench outputs/quickstart/export --length 128 --html speed.html
    """
    sizes = _parse_counts(batch_size, "--batch-size")
    threads_tried = () if threads is None else _parse_counts(threads, "--threads", THREADS)
    given = engine_overrides(engine, precision)
    recipes = [load_command_recipe(model, ctx, given, purpose="apply") for model in models]
    from nlpctl.inference.timed_process import TimedRows
    from nlpctl.modeltools.bench import Plan, write_page
    from nlpctl.modeltools.bench import bench as run_benchmark

    if data is not None and not data.is_file():
        raise UserError("no such file", where=str(data), hint="check the path")
    if html is not None:
        refuse_output(html, overwrite, exists="the page exists")
    with located(recipes[0]):
        result = run_benchmark(recipes, Plan(TimedRows(data, rows, length), sizes, threads_tried, rounds))
    if json:
        give(result.to_json())
    else:
        _show(result, details)
    if html is not None:  # last: the figures took minutes and are printed even if the page cannot be written
        write_page(result, html)
        console.note(say("page: {}", html))


def _parse_counts(text: str, flag: str, within: Range = COUNT) -> tuple[int, ...]:
    """Whole numbers separated by commas, each once. UserError for anything else."""
    words = text.split(",")
    if not all(word.strip().isdecimal() and len(word) < DIGITS and int(word) > 0 for word in words):
        hint = "separate them by commas: 1,32" + full_width_signs(text)
        raise UserError(f"expected whole numbers above 0, not {text[:40]!r}", where=flag, hint=hint)
    counts = tuple(dict.fromkeys(map(int, words)))
    for each in counts:
        if each not in within:
            raise UserError(f"{each} {within}", flag, "give fewer: more than the cores of a machine help nothing")
    return counts


def _show(result: BenchResult, details: bool) -> None:
    from nlpctl.inference.timed_process import conditions_table
    from nlpctl.modeltools.bench import OF_DETAILS, OF_SPEEDS, answer, details_table, remarks, short_table

    show_answer(answer(result), short_table(result), OF_SPEEDS, remarks(result))
    if details:
        show_table(replace(details_table(result), title=say("{}:", say("Everything that was measured"))), apart=True)
        console.note(say(OF_DETAILS))
    else:
        console.note(say("ranges, latencies, speed from text, loading: @[details], or the page of @[html=FILE]"))
    console.note(say(", ").join(f"{name} {value}" for name, value in conditions_table(result.conditions).rows))
