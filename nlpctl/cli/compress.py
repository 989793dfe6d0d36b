"""`nlpctl compress`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nlpctl import console
from nlpctl.cli.options import ClusterOption, ModelArgument, load_command_recipe
from nlpctl.cli.output import Json, LanguageOption, answering, give, serving, show_answer, tell_next
from nlpctl.compress.strategies import strategies
from nlpctl.config.load import Override
from nlpctl.config.positions import located
from nlpctl.config.schema import CompressionSection
from nlpctl.files import read_json
from nlpctl.layout import BEST_EXPORT
from nlpctl.report.language import say
from nlpctl.report.text import show_table

if TYPE_CHECKING:
    from nlpctl.compress.result import CompressResult


STRATEGY_HELP = (
    "Strategies to try, separated by commas; A+B applies A, then B. "
    f"{'; '.join(f'{strategy.name}: {strategy.help}' for strategy in strategies().values())}. "
    f"Default: {CompressionSection().strategy}."
)


def compress(
    ctx: typer.Context,
    model: ModelArgument,
    strategy: Annotated[
        str | None,
        typer.Option("--strategy", metavar="NAMES", help=STRATEGY_HELP),
    ] = None,
    max_drop: Annotated[
        str | None,
        typer.Option("--max-drop", metavar="POINTS", help="Points that the best may lose on dev; default: 0.5."),
    ] = None,
    sure: Annotated[
        str | None,
        typer.Option("--sure", metavar="SHARE", help="How sure to be of that, such as 0.9; default: dev as it is."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="WHAT", help="What to optimise: throughput, latency or size."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Time budget, such as 30m or 1h30m.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="Where to write; default: RUN/compress.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, metavar="N", help="Make N candidates at a time; timed they are alone."),
    ] = None,
    cluster: ClusterOption = None,
    details: Annotated[
        bool, typer.Option("--details", help="Also print every candidate with all figures, as in report.html.")
    ] = False,
    language: LanguageOption = None,
    json: Json = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Discard existing results.")] = False,
) -> None:
    """Compress a trained model in several ways, score every candidate in its engine, and pick the best.

    Every candidate is scored on dev in every engine and precision of this machine, next to the uncompressed model.
    FOLDER/best is an export that predict, eval, bench and serve accept. Run an interrupted command again to continue
    it. The model itself is never changed. Strategy settings are flags too: --width_mult_list 3/4 1/2,
    --algo_list avg, --num_train_epochs 2, --evaluate my_module:score and so on; see docs/compression.md.

    Examples:

      nlpctl compress outputs/quickstart --strategy ort-dynamic,ort-static

      nlpctl compress outputs/quickstart --strategy dynabert+ort-dynamic --width_mult_list 3/4 1/2

      nlpctl compress outputs/quickstart --strategy distill,ort-static --workers 2

      nlpctl compress outputs/quickstart --strategy distill,ort-static --cluster auto

      nlpctl compress outputs/quickstart/export -o small --strategy ort-dynamic --set data.dev=dev.tsv
    """
    given = {"strategy": strategy, "max_drop": max_drop, "sure": sure, "target": target, "budget": budget}
    overrides = [
        Override(f"compression.{name}", text, f"--{name.replace('_', '-')}")
        for name, text in given.items()
        if text is not None
    ]
    recipe = load_command_recipe(model, ctx, overrides, purpose="apply")
    from nlpctl.compress.compress import compress as run_compression
    from nlpctl.models.find import find_trained_model
    from nlpctl.runtime.worker_slots import ParallelConfig

    with located(recipe):
        source = find_trained_model(recipe)
        parallel = ParallelConfig(workers, cluster)
        result = run_compression(recipe, source, output=output, overwrite=overwrite, parallel=parallel)
    show(result, json, details)
    if not json:
        best = result.folder / BEST_EXPORT
        tell_next(answering(best, recipe.task), serving(best))


def show(result: CompressResult, json: bool, details: bool = False) -> None:
    """Print what to take, and with `details` all rows. NlpctlError, afterwards: nothing that was asked for could be
    made."""
    if json:
        from nlpctl.compress.report import JSON

        give({"folder": result.folder, **read_json(result.folder / JSON)})
    else:
        _show(result, details)
        if result.failures:
            from nlpctl.compress.report import MARKDOWN

            names = ", ".join(failure.name for failure in result.failures)
            console.warn(f"not in the table: {names}; {result.folder / MARKDOWN} says why")
    if result.failed is not None:
        raise result.failed


def _show(result: CompressResult, details: bool) -> None:
    from nlpctl.compress.report import HTML, tables
    from nlpctl.compress.result import OF_ALTERNATIVES, alternatives_table, answer, reasons

    show_answer(answer(result), alternatives_table(result), OF_ALTERNATIVES, reasons(result))
    if details:
        for table, meaning in tables(result):
            show_table(replace(table, title=f"{table.title}:"), apart=True)
            console.note(meaning)
    else:
        more = "all {} rows, with intervals, latencies, memory: @[details], or {}"
        console.note(say(more, len(result.rows), result.folder / HTML))
