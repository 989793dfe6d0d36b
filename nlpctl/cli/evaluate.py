"""`nlpctl eval`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from nlpctl import console
from nlpctl.cli.options import (
    ClusterOption,
    EngineOption,
    ModelArgument,
    PrecisionOption,
    WorkersOption,
    engine_overrides,
    load_command_recipe,
    scored_data,
)
from nlpctl.cli.output import Json, give, score_tables, tell_shares
from nlpctl.config.positions import located
from nlpctl.console import display
from nlpctl.report.language import say, say_each
from nlpctl.report.model import Table
from nlpctl.report.text import fitted, show_table


def evaluate(
    ctx: typer.Context,
    model: ModelArgument,
    data: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="Labelled file to score; default: the data of the run.")
    ] = None,
    split: Annotated[
        list[str] | None, typer.Option("--split", help="train, dev or test; repeatable. Default: dev and test.")
    ] = None,
    engine: EngineOption = None,
    precision: PrecisionOption = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", metavar="MODEL", help="Another model, compared on the same rows; --engine is not for it."
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="COLUMN", help="Slice the rows by a column, or by label or length.")
    ] = None,
    target_precision: Annotated[
        float | None,
        typer.Option(
            "--target-precision", metavar="P", help="Find on dev the --min-confidence that gives it, such as 0.95."
        ),
    ] = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    json: Json = False,
) -> None:
    """Score a trained model on labelled data, with 95 % intervals.

    --against compares with another model row by row: the differences with their intervals, and rows that changed.
    --by shows where a model is weak: scores of slices, the worst first. The last tables show how many answers are as
    sure as some least confidence, and how many of these are right; --target-precision finds the one that is needed.

    Examples:

      nlpctl eval outputs/quickstart

      nlpctl eval outputs/quickstart/model more.tsv --json

      nlpctl eval outputs/new --against outputs/old

      nlpctl eval outputs/quickstart --by length

      nlpctl eval outputs/quickstart large.tsv --workers 8

      nlpctl eval outputs/quickstart --target-precision 0.95
    """
    given = scored_data(data, split or ())
    recipe = load_command_recipe(model, ctx, [*given, *engine_overrides(engine, precision)], purpose="apply")
    from nlpctl.inference.evaluate import evaluate as run_evaluation
    from nlpctl.report.score_tables import confidence_tables
    from nlpctl.runs.comparison import changed_rows, comparison_table, format_target, slice_table, slices_left_out
    from nlpctl.runtime.worker_slots import ParallelConfig

    other = None if against is None else load_command_recipe(against, ctx, purpose="apply")
    parallel = None if workers is None and cluster is None else ParallelConfig(workers, cluster)
    with located(recipe):
        splits = ("test",) if data is not None else tuple(split or ())
        result = run_evaluation(recipe, splits, other, by, target_precision, parallel)
    tell_shares(result.workers)
    if json:
        more: dict[str, Any] = {} if result.against is None else {"against": asdict(result.against)}
        if result.slices:
            more["slices"] = {name: [asdict(each) for each in listed] for name, listed in result.slices.items()}
            more["slices_left_out"] = result.left_out
        if parallel is not None:
            more["workers"] = [asdict(each) for each in result.workers]
        if result.target is not None:
            more["target"] = asdict(result.target)
        give({"model": result.model, "metrics": result.metrics, **more})
        return
    score_tables(result.metrics)
    for table in confidence_tables(result.metrics):
        show_table(table, apart=True)
    if result.target is not None:
        console.result(f"\n{format_target(result.target)}")
    for name, listed in result.slices.items():
        if listed:
            show_table(slice_table(name, by or "", listed), apart=True)
            if result.left_out[name]:
                console.result(slices_left_out(result.left_out[name]))
        else:
            console.note(say("{}: {} gives no slice of ten rows or more", name, by))
    if result.against is None:
        return
    models = [display(each) for each in (result.against.model, result.model)]
    for name, paired in result.against.paired.items():
        show_table(comparison_table(name, models, paired), apart=True)
        console.result(changed_rows(paired))
        rows = [
            [each.where and display(each.where), each.text, each.expected, each.other, each.given]
            for each in result.against.changed[name]
        ]
        if rows:
            columns = [*say_each("row", "text", "expected"), *models]
            title = say("{}: the first {} of {:,} rows that changed", name, len(rows), paired.gained + paired.lost)
            show_table(fitted(Table(columns, rows, title), texts=range(1, len(columns))), apart=True)
