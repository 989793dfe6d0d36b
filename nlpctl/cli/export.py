"""`nlpctl export`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from nlpctl import console
from nlpctl.cli.options import ModelArgument, load_command_recipe
from nlpctl.cli.output import Json, answering, give, serving, tell_next
from nlpctl.config.positions import located
from nlpctl.errors import UserError
from nlpctl.export.layouts.weights import WEIGHTS
from nlpctl.export.strategies import export_precisions
from nlpctl.files import read_json
from nlpctl.layout import EXPORT_REPORT
from nlpctl.report.language import say, say_counted, say_each
from nlpctl.report.model import Table
from nlpctl.report.text import show_table


def export(
    ctx: typer.Context,
    model: ModelArgument,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="Where to write; default: RUN/export.")
    ] = None,
    format: Annotated[
        str, typer.Option("--format", metavar="NAMES", help="paddle (Paddle Inference), onnx (ONNX Runtime), or both.")
    ] = "paddle,onnx",
    precision: Annotated[
        str,
        typer.Option(
            "--precision",
            metavar="NAMES",
            help="fp32; fp16 adds an ONNX graph for cards; int8 adds 8-bit graphs by every method that passes; "
            f"{', '.join(export_precisions()[3:])}: by that method only.",
        ),
    ] = "fp32",
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            metavar="NAME",
            help="For other programs instead: a model repository of graphs (triton, paddle-serving), or weights that "
            "they load (transformers, sentence-transformers, cross-encoder).",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FILE", help="Rows to compare on; default: those of dev, test or train."),
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Number of rows to compare on.")] = 256,
    timing: Annotated[
        float,
        typer.Option(
            "--timing",
            min=0.0,
            metavar="SECONDS",
            help="How long to time the engines and precisions, at most, for auto; 0: not at all.",
        ),
    ] = 20.0,
    json: Json = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing export.")] = False,
) -> None:
    """Write a trained model as graphs that run without its code.

    Every graph is run and compared with the network, on rows of dev or test, in batches from 1 token to the longest
    length. If answers differ, nothing is written and the exit code is 1.

    Examples:

      nlpctl export outputs/quickstart

      nlpctl export outputs/quickstart --format onnx --precision int8

      nlpctl export outputs/quickstart/model -o quickstart-export --data reviews.tsv
    """
    _refuse_unused(ctx, layout)
    recipe = load_command_recipe(model, ctx, purpose="apply")
    from nlpctl.export.export import export as run_export
    from nlpctl.export.request import ExportRequest
    from nlpctl.inference.open_model import warn_of_unused_flags
    from nlpctl.models.find import find_trained_model

    with located(recipe):
        warn_of_unused_flags(recipe, ("inference", "compression", "distillation", "search"))
        request = ExportRequest(_split_names(format), _split_names(precision), data, rows)
        if not layout:  # engine and precision `auto` go by times and scores, for which another server has no use
            request = dataclasses.replace(request, timing=timing, scored=True)
        result = run_export(
            recipe, find_trained_model(recipe), request, output=output, overwrite=overwrite, layout=layout
        )
    if json:
        report = {"layout": layout} if layout is not None else read_json(result.folder / EXPORT_REPORT)
        left_out = {"left_out": result.left_out} if result.manifest is None else {}
        give({"folder": result.folder, **report, **left_out})
        return
    if result.manifest is None:
        console.note(f"{result.folder}: weights and tokenizer for {layout}, read again to the same bits")
        for each in result.left_out:
            console.warn(f"the layout does not hold {each}")
        return
    compared = [
        [graph.files[0], check.engine, check.precision, f"{check.difference:.2g}", f"{check.agreement:.2%}"]
        for graph in result.manifest.graphs
        for check in graph.checks
    ]
    columns = say_each("graph", "engine", "precision", "largest difference", "agreement")
    compared_on = say("compared with the network on {}", say_counted(result.manifest.rows, "rows"))
    show_table(Table(columns, compared, say("{}: {}", result.folder, compared_on)))
    if layout is None:  # or else another program serves the folder
        tell_next(answering(result.folder, recipe.task), serving(result.folder))


def _refuse_unused(ctx: typer.Context, layout: str | None) -> None:
    """UserError if an option is given that `layout` leaves without effect."""
    unused: dict[str, str] = {}
    if layout is not None:
        unused["timing"] = "engines are timed for `auto`, of which another program has no use"
    if layout in WEIGHTS:
        unused["format"] = f"{layout} holds weights, and a format is one of graphs"
        unused["precision"] = f"{layout} holds weights in fp32, which these libraries round when they load"
        unused["data"] = unused["rows"] = "weights are compared bit by bit, which needs no rows"
    for option, why in unused.items():
        source = ctx.get_parameter_source(option)
        if source is not None and source.name != "DEFAULT":
            raise UserError(why, where=f"--{option}", hint="leave it out")


def _split_names(text: str) -> tuple[str, ...]:
    """Names separated by commas, each once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
