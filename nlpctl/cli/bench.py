"""`nlpctl bench`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nlpctl import console
from nlpctl.cli.options import MODEL_HELP, EngineOption, PrecisionOption, engine_overrides, load_command_recipe
from nlpctl.cli.output import Json, give
from nlpctl.config.positions import located
from nlpctl.config.ranges import COUNT, THREADS, Range
from nlpctl.errors import UserError
from nlpctl.outputs import refuse_output
from nlpctl.report.model import Table
from nlpctl.report.text import show_table

if TYPE_CHECKING:
    from nlpctl.modeltools.bench import BenchResult

COLUMNS = ("model", "engine", "threads", "batch", "samples/s", "range", "from text", "p50 ms", "p90 ms", "p99 ms",
           "load s", "peak MB", "disk MB")  # fmt: skip
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
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows per round.")] = 256,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Timed rounds, after one warm-up round.")] = 5,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write a page with plots.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the page.")] = False,
    json: Json = False,
) -> None:
    """Time models and exports on this machine, in every engine and precision that it can run.

    Each candidate is loaded in its own process. Candidates are timed in alternating rounds, so that other load on the
    machine affects all of them alike. Latencies are per batch; "from text" includes reading, tokenising and answering.

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
        give(dataclasses.asdict(result))
    else:
        _show(result)
    if html is not None:  # last: the figures took minutes and are printed even if the page cannot be written
        write_page(result, html)
        console.note(f"page: {html}")


def _parse_counts(text: str, flag: str, within: Range = COUNT) -> tuple[int, ...]:
    """Whole numbers separated by commas, each once. UserError for anything else."""
    words = text.split(",")
    if not all(word.strip().isdecimal() and len(word) < DIGITS and int(word) > 0 for word in words):
        hint = "separate them by commas: 1,32"
        raise UserError(f"expected whole numbers above 0, not {text[:40]!r}", where=flag, hint=hint)
    counts = tuple(dict.fromkeys(map(int, words)))
    for each in counts:
        if each not in within:
            raise UserError(f"{each} {within}", flag, "give fewer: more than the cores of a machine help nothing")
    return counts


def _show(result: BenchResult) -> None:
    rows = []
    for each in result.timed:
        for speed in each.speeds:
            figures = speed.engine
            text = speed.text_samples_per_second
            rows.append(
                [
                    each.model,
                    each.engine,
                    each.threads,
                    speed.batch_size,
                    f"{figures.samples_per_second:,.1f}",
                    f"{figures.slowest:,.1f} to {figures.fastest:,.1f}",
                    None if text is None else f"{text:,.1f}",
                    *(f"{value:.2f}" for value in (figures.p50_ms, figures.p90_ms, figures.p99_ms)),
                    f"{each.load_seconds:.2f}",
                    f"{each.peak_mb:.0f}",
                    f"{each.size_mb:.1f}",
                ]
            )
    show_table(Table(COLUMNS, rows))
    for name, reason in result.failed:
        console.warn(f"{name} was not timed: {reason}")
    console.note(", ".join(f"{name} {value}" for name, value in result.conditions.items()))
