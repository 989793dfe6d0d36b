"""`nlpctl params`: list, export, set, add and compare the parameters of a model."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from nlpctl import console
from nlpctl.cli.options import MODEL_HELP, ModelArgument
from nlpctl.cli.output import Json, give
from nlpctl.config.coerce import Mismatch, coerce_scalar
from nlpctl.config.library import is_recipe
from nlpctl.config.load import load_recipe
from nlpctl.errors import UserError
from nlpctl.names import counted, format_shape
from nlpctl.report.language import say, say_each
from nlpctl.report.model import Table
from nlpctl.report.text import show_table
from nlpctl.runtime.machine import memory_sizes

SETTINGS = {"help_option_names": ["-h", "--help"]}
Match = Annotated[
    list[str] | None,
    typer.Option(
        "--match",
        metavar="PATTERN",
        help="A name, a layer (ernie.embeddings), layers (ernie.encoder.layers.0-5) or wildcards (*.bias); repeatable.",
    ),
]
TrustEdits = Annotated[
    bool, typer.Option("--trust-edits", help="Read model folders even if files do not match their manifest.json.")
]
NewModel = Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Where to write the new model.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of values that are drawn.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")]

app = typer.Typer(
    name="params",
    help="List, change and compare the parameters of a model.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    context_settings=SETTINGS,
)


@app.command("ls", context_settings=SETTINGS)
def ls(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help=f"{MODEL_HELP} A recipe: the network that it would train.")
    ],
    match: Match = None,
    json: Json = False,
    trust_edits: TrustEdits = False,
) -> None:
    """List parameters: name, shape, size, mean and standard deviation.

    For a run and a recipe also whether each is trained or frozen, by which pattern of model.freeze, or not reached
    because the loss does not depend on it.

    Examples:

      nlpctl params ls outputs/quickstart

      nlpctl params ls outputs/quickstart --match 'classifier.*' --json

      nlpctl params ls freeze_encoder
    """
    from nlpctl.modeltools.params import list_parameters, list_parameters_to_train

    if is_recipe(model):
        rows = list_parameters_to_train(load_recipe(model), match or ("*",))
    else:
        rows = list_parameters(model, match or ("*",), trust_edits=trust_edits)
    total = sum(row.parameters for row in rows if row.same_as is None)  # shared parameters once
    if json:
        give({"parameters": [dataclasses.asdict(row) for row in rows], "total": total})
        return
    columns = say_each("name", "shape", "type", "parameters", "mean", "std", "same as")
    cells: list[list[Any]] = [
        [row.name, say(format_shape(row.shape)), row.dtype, f"{row.parameters:,}", row.mean, row.std, row.same_as]
        for row in rows
    ]
    counts = f"{counted(len(rows), 'names')}, {counted(total, 'parameters')}"
    if any(row.training is not None for row in rows):  # a model folder does not tell what was trained
        columns.append(say("training"))
        for cell, row in zip(cells, rows, strict=True):
            cell.append(row.training and say(row.training))
        trained = sum(row.parameters for row in rows if row.same_as is None and row.training == "trained")
        counts += f", {trained:,} of them trained"
    show_table(Table(columns, cells))
    console.note(f"{counts}; shared parameters are counted once")


@app.command("export", context_settings=SETTINGS)
def export(
    model: ModelArgument,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="A .npz file; .npy for one array.")],
    match: Match = None,
    overwrite: Overwrite = False,
    json: Json = False,
    trust_edits: TrustEdits = False,
) -> None:
    """Write parameters to a NumPy file, each under its name.

    Examples:

      nlpctl params export outputs/quickstart --match 'classifier.*' -o classifier.npz

      nlpctl params export outputs/quickstart --match ernie.embeddings.word_embeddings.weight -o words.npy
    """
    from nlpctl.modeltools.params import export_parameters

    names = export_parameters(model, match or ("*",), output, overwrite=overwrite, trust_edits=trust_edits)
    give({"output": output, "parameters": names})
    console.note(f"{counted(len(names), 'parameters')} -> {output}")


@app.command("set", context_settings=SETTINGS)
def set_values(
    model: ModelArgument,
    value: Annotated[
        list[str],
        typer.Option(
            "--value",
            metavar="PATTERN=VALUE",
            help="Names, and a number, a .npy file, or a distribution such as normal(0,0.02); repeatable.",
        ),
    ],
    output: NewModel,
    seed: Seed = 42,
    overwrite: Overwrite = False,
    json: Json = False,
    trust_edits: TrustEdits = False,
) -> None:
    """Write a copy of a model with other values in some parameters.

    Distributions: normal(mean,std), truncated_normal(mean,std), uniform(low,high), constant(value), xavier_normal,
    xavier_uniform, kaiming_normal, kaiming_uniform.

    Examples:

      nlpctl params set outputs/quickstart --value classifier.bias=0 -o outputs/without_bias

      nlpctl params set outputs/quickstart --value ernie.embeddings.word_embeddings.weight=words.npy -o outputs/words

      nlpctl params set outputs/quickstart --value 'classifier.weight=normal(0,0.02)' -o outputs/new_head
    """
    values = dict(_parse_assignment(text) for text in value)
    from nlpctl.modeltools.params import set_in_copy

    done = set_in_copy(model, values, output, seed=seed, overwrite=overwrite, trust_edits=trust_edits)
    give({"model": output, "set": done})
    for pattern, names in done.items():
        console.note(f"{pattern}: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''} ({len(names)} set)")
    console.note(f"model: {output}")


@app.command("add", context_settings=SETTINGS)
def add(
    model: ModelArgument,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the new parameter.")],
    shape: Annotated[str, typer.Option("--shape", metavar="N,M,...", help="Its shape.")],
    output: NewModel,
    value: Annotated[
        str, typer.Option("--value", metavar="VALUE", help="A number, a .npy file or a distribution.")
    ] = "xavier_normal",
    seed: Seed = 42,
    overwrite: Overwrite = False,
    json: Json = False,
    trust_edits: TrustEdits = False,
) -> None:
    """Write a copy of a model with one more parameter.

    A network of your own that creates a parameter of this name starts from the value, and trains it. PaddleNLP's
    networks compute nothing with it and leave it out.

    Examples:

      nlpctl params add outputs/quickstart --name w_tmp --shape 1,1 --value 0 -o outputs/with_w_tmp

      nlpctl params add outputs/quickstart --name gate.weight --shape 128,128 -o outputs/with_gate
    """
    sizes = _parse_shape(shape)
    number = _number_or_text(value)
    from nlpctl.modeltools.params import add_to_copy

    add_to_copy(model, name, sizes, number, output, seed=seed, overwrite=overwrite, trust_edits=trust_edits)
    give({"model": output, "name": name, "shape": sizes})
    console.note(f"{name}: {format_shape(sizes)} added")
    console.note(f"model: {output}")


@app.command("diff", context_settings=SETTINGS)
def diff(
    first: ModelArgument,
    second: Annotated[str, typer.Argument(metavar="OTHER", help="The model to compare it with.")],
    match: Match = None,
    json: Json = False,
    trust_edits: TrustEdits = False,
) -> None:
    """Compare two models parameter by parameter: which changed, by how much, and which are identical bit for bit.

    Examples:

      nlpctl params diff outputs/base outputs/frozen

      nlpctl params diff outputs/run/checkpoints/checkpoint-10 outputs/run --match ernie.encoder
    """
    from nlpctl.modeltools.params import diff_parameters

    differences = diff_parameters(first, second, match or ("*",), trust_edits=trust_edits)
    if json:
        give(dataclasses.asdict(differences))
        return
    rows = [(row.name, f"{row.largest:.3g}", f"{row.mean:.3g}", f"{row.share:.2%}") for row in differences.changed]
    rows += [
        (name, f"{say(format_shape(old))} -> {say(format_shape(new))}", "", "")
        for name, old, new in differences.reshaped
    ]
    rows += [(name, say("only in {}", first), "", "") for name in differences.only_first]
    rows += [(name, say("only in {}", second), "", "") for name in differences.only_second]
    if rows:
        show_table(Table(say_each("name", "largest change", "mean change", "share of its size"), rows))
    console.result(say("different parameters: {:,}; identical bit for bit: {:,}", len(rows), differences.same))


def _parse_assignment(text: str) -> tuple[str, float | str]:
    """Pattern and value of PATTERN=VALUE; a value that is no number (a path or a distribution) stays a text."""
    pattern, equals, value = text.partition("=")
    if not equals or not pattern or not value:
        raise UserError(f"{text!r} is not of the form PATTERN=VALUE", where="--value", hint="--value classifier.bias=0")
    return pattern.strip(), _number_or_text(value)


def _number_or_text(text: str) -> float | str:
    try:
        return coerce_scalar(text, float)
    except Mismatch:
        return text


def _parse_shape(text: str) -> tuple[int, ...]:
    """The sizes of --shape N,M,..., each at least 1. UserError for another form, and for more than the memory holds."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 100 and int(part) > 0 for part in parts):
        hint = "whole numbers of 1 or more: --shape 128,2"
        raise UserError(f"{text[:40]!r} is not a shape", where="--shape", hint=hint)
    sizes = tuple(map(int, parts))
    memory = memory_sizes()
    if memory is not None and 4 * math.prod(sizes) > memory["MemTotal"]:
        raise UserError("no array of this shape fits into the memory", where="--shape", hint="give smaller numbers")
    return sizes
