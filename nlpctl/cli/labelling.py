"""`nlpctl data next` and `convert`: what to label, and the formats of labelling programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nlpctl import console
from nlpctl.cli.envelope import Json, give
from nlpctl.cli.options import ModelArgument, load_command_recipe, load_data_recipe
from nlpctl.cli.predict import check_format
from nlpctl.config.located import located
from nlpctl.config.positions import display
from nlpctl.errors import UserError
from nlpctl.names import counted

MEASURES = ("margin", "entropy")
ToOption = typer.Option("--to", metavar="FORMAT", help="Format of FILE: jsonl, label_studio or doccano.")
SHOWN = 10  # rows of the table
TEXT_WIDTH = 60  # characters of a text in it


def next_rows(
    ctx: typer.Context,
    model: ModelArgument,
    input: Annotated[list[str], typer.Argument(metavar="UNLABELLED...", help="Files of rows without labels.")],
    count: Annotated[int, typer.Option("-n", "--rows", min=1, metavar="N", help="How many rows to choose.")] = 200,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="File of the chosen rows.")
    ] = None,
    measure: Annotated[str, typer.Option("--by", metavar="margin|entropy", help="How doubt is measured.")] = "margin",
    pool: Annotated[
        int | None,
        typer.Option(
            "--pool",
            min=1,
            metavar="N",
            help="Choose rows unlike each other among the N most uncertain ones; default: 10 times -n.",
        ),
    ] = None,
    format: Annotated[str, typer.Option("--format", help="Format of UNLABELLED, as in predict.")] = "auto",
    to: Annotated[str, ToOption] = "jsonl",
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Rows per batch.")] = 64,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    json: Json = False,
) -> None:
    """Choose the rows whose labels would teach the model most.

    Of the rows that the model is most unsure of, those are chosen that are unlike each other, by the vectors with which
    the network decides. Rows that are in the labelled data already are left out. The file has the rows with an empty
    column for the label: fill it in, and add the file to data.train. Tasks for Label Studio begin with what the model
    answers, and come with a labelling interface (.xml).

    Examples:

      nlpctl data next outputs/quickstart reviews.txt -n 100 -o to_label.jsonl

      nlpctl data next outputs/quickstart reviews/*.jsonl.gz -n 100 --by entropy --pool 100

      nlpctl data next outputs/quickstart reviews.txt -n 100 -o tasks.json --to label_studio
    """
    check_format(format)
    if measure not in MEASURES:
        raise UserError(f"there is no measure {measure!r}", where="--by", hint=f"one of {', '.join(MEASURES)}")
    recipe = load_command_recipe(model, ctx, purpose="apply")
    from nlpctl.runners.labelling import next_rows as choose
    from nlpctl.runners.predict import input_of

    with located(recipe):
        source = input_of(recipe, input, format)
        options = {"kind": to, "measure": measure, "pool": pool, "batch_size": batch_size, "overwrite": overwrite}
        found = choose(recipe, source, count, output, **options)
    give(found.to_json())
    told = [f"{counted(found.rows, 'rows')} read"]
    told += [f"{found.known:,} left out, which are labelled already"] if found.known else []
    told += [f"{found.bad:,} bad"] if found.bad else []
    console.note(", ".join(told))
    rows = [
        [display(row.where), row.text[:TEXT_WIDTH], row.told[:TEXT_WIDTH], row.confidence, row.stands_for]
        for row in found.chosen[:SHOWN]
    ]
    if rows:
        console.table("", ["row", "text", "predicted", "confidence", "stands for"], rows)
    if output is None and not json and len(found.chosen) > SHOWN:
        console.note(f"and {len(found.chosen) - SHOWN:,} more: -o FILE writes all of them")
    if len(found.chosen) < count:
        console.warn(f"only {counted(len(found.chosen), 'rows')} to choose from")
    if output is not None:
        console.note(f"{counted(len(found.chosen), 'rows')} to label: {output}")
    if found.interface is not None:
        console.note(f"labelling interface: {display(found.interface)}")


def convert(
    ctx: typer.Context,
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="Recipe, run, or the name of a shipped recipe.")],
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="A data file, used instead of the recipe's data.")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="File to write.")] = ...,
    to: Annotated[str, ToOption] = "jsonl",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    json: Json = False,
) -> None:
    """Write labelled rows for Label Studio or doccano, or what these export as jsonl.

    The training rows, or those of FILE, with their labels as annotations. Beside tasks for Label Studio stands the
    labelling interface (.xml) that they are for.

    Examples:

      nlpctl data convert my.yaml -o tasks.json --to label_studio

      nlpctl data convert my.yaml exported.json -o rows.jsonl
    """
    resolved = load_data_recipe(recipe, file, ctx)
    from nlpctl.runners.annotations import convert as write

    with located(resolved):
        done = write(resolved, output, to, overwrite=overwrite)
    give(done.to_json())
    console.note(f"{counted(done.rows, 'rows')}: {display(done.output)}")
    if done.interface is not None:
        console.note(f"labelling interface: {display(done.interface)}")
