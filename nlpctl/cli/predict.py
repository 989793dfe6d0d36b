"""`nlpctl predict`."""

from __future__ import annotations

import dataclasses
from io import StringIO
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nlpctl import console
from nlpctl.cli.options import (
    ClusterOption,
    EngineOption,
    MinConfidenceOption,
    ModelArgument,
    PrecisionOption,
    WorkersOption,
    engine_overrides,
    load_command_recipe,
)
from nlpctl.cli.output import Json, give, tell_shares
from nlpctl.config.input_formats import INPUT_FORMATS, PLAIN
from nlpctl.config.positions import located
from nlpctl.config.schema import Purpose
from nlpctl.errors import UserError
from nlpctl.names import counted

if TYPE_CHECKING:
    from nlpctl.inference.divided import DividedResult
    from nlpctl.inference.layer_outputs import LayerOutputsResult
    from nlpctl.inference.predict import PredictResult

FORMATS = ("auto", *INPUT_FORMATS)
PARTS = ("jsonl", "parquet")


def predict(
    ctx: typer.Context,
    model: ModelArgument,
    input: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT...",
            help="Files to label, folders of them, patterns; also .gz and .zst. Default, and -: standard input.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where to write; default, and -: standard output."),
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            help=f"{PLAIN} (a line each), "
            f"{', '.join(name for name in INPUT_FORMATS if name != PLAIN)}; auto: by the ending.",
        ),
    ] = "auto",
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep",
            metavar="KEYS",
            help="Keys of a row that its answer repeats: id,date; all; none. Default: all in jsonl, else none.",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Rows per batch.")] = 64,
    flush: Annotated[
        bool,
        typer.Option("--flush", help="Answer each batch as soon as it is read; --batch-size 1: each line, in a pipe."),
    ] = False,
    truncated: Annotated[
        bool, typer.Option("--truncated", help='Each answer says whether its text was cut: "truncated".')
    ] = False,
    engine: EngineOption = None,
    precision: PrecisionOption = None,
    min_confidence: MinConfidenceOption = None,
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    parts: Annotated[
        str | None,
        typer.Option("--parts", metavar="jsonl|parquet", help="-o is a folder: files in input order, and their list."),
    ] = None,
    embeddings: Annotated[
        Path | None,
        typer.Option(
            "--embeddings", metavar="FILE.npy", help="Semantic indexing: write vectors, float32 [rows, dim], here."
        ),
    ] = None,
    layer_outputs: Annotated[
        list[str] | None,
        typer.Option(
            "--layer-outputs",
            metavar="PATTERN",
            help="Write the outputs of these layers to -o OUT.npz: a name, ernie.encoder.layers.0-5, *; repeatable.",
        ),
    ] = None,
    float16: Annotated[
        bool, typer.Option("--float16", help="With --layer-outputs: half the size, about three digits.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted prediction.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output file.")] = False,
    json: Json = False,
) -> None:
    """Label a file or stdin with a trained model: one JSON line per row, in input order.

    Examples:

      nlpctl predict outputs/quickstart reviews.txt -o labelled.jsonl

      nlpctl predict outputs/quickstart reviews.tsv --keep id,date

      nlpctl predict outputs/quickstart reviews/*.jsonl.gz -o labelled.jsonl --workers 8

      nlpctl predict outputs/quickstart reviews.txt --min-confidence 0.9

      echo 房间很干净 | nlpctl predict outputs/quickstart

      nlpctl predict --task lexical_analysis texts.txt

      tail -f new.txt | nlpctl predict outputs/quickstart --batch-size 1 --flush

      nlpctl predict outputs/pairs texts.txt --embeddings texts.npy

      nlpctl predict outputs/quickstart reviews.txt --layer-outputs 'ernie.encoder.layers.*' -o layers.npz
    """
    check_format(format)
    output = None if output == Path("-") else output
    if layer_outputs and (resume or output is None or embeddings is not None):
        hint = "give -o OUT.npz, without --resume and --embeddings: this file cannot be written in parts"
        raise UserError("layer outputs can only be written to a .npz file", where="--layer-outputs", hint=hint)
    if float16 and not layer_outputs:
        raise UserError("applies to --layer-outputs only", where="--float16", hint="leave it out")
    divided = workers is not None or cluster is not None or parts is not None
    if embeddings is not None and (output is not None or (resume and not divided)):
        hint = "leave out -o and --resume: vectors replace the JSON lines and cannot be resumed"
        raise UserError("vectors are written to the --embeddings file only", where="--embeddings", hint=hint)
    if flush and (embeddings is not None or layer_outputs):
        hint = "leave out --flush: these files are written when they are complete"
        raise UserError("--flush applies to JSON lines only", where="--flush", hint=hint)
    of_lines = {"--keep": keep is not None, "--truncated": truncated, "--min-confidence": min_confidence is not None}
    for flag, given in of_lines.items():
        if given and (embeddings is not None or layer_outputs):
            raise UserError(f"{flag} applies to JSON lines only", where=flag, hint="leave it out")
    if resume and output is None and embeddings is None:
        raise UserError("standard output cannot be resumed", where="--resume", hint="name the output file: -o FILE")
    if divided:
        vectors = {"--embeddings": embeddings} if parts is not None else {}
        _refuse_divided(output or embeddings, parts, {"--flush": flush, "--layer-outputs": layer_outputs, **vectors})
    purpose: Purpose = "apply" if embeddings is None else "embed"
    purpose = "observe" if layer_outputs else purpose
    recipe = load_command_recipe(model, ctx, engine_overrides(engine, precision, min_confidence), purpose=purpose)
    from nlpctl.data.text.truncated import LONGER, warn_of_truncated
    from nlpctl.inference.embed import write_embeddings
    from nlpctl.inference.layer_outputs import write_layer_outputs
    from nlpctl.inference.predict import input_of
    from nlpctl.inference.predict import predict as run_prediction

    answers = None
    with located(recipe):
        source = input_of(recipe, input or ["-"], format)
        result: PredictResult | DividedResult | LayerOutputsResult
        if divided:
            from nlpctl.inference.divided import embed_divided, predict_divided

            if embeddings is not None:
                shares = embed_divided(
                    recipe, source, embeddings,
                    workers=workers, cluster=cluster, batch_size=batch_size, resume=resume, overwrite=overwrite,
                )  # fmt: skip
            else:
                assert output is not None  # _refuse_divided
                shares = predict_divided(
                    recipe, source, output,
                    workers=workers, cluster=cluster, keep=keep, batch_size=batch_size, parts=parts,
                    resume=resume, overwrite=overwrite, truncated=truncated,
                )  # fmt: skip
            tell_shares(shares.workers)
            result = shares
        elif embeddings is not None:
            result = write_embeddings(recipe, source, embeddings, batch_size=batch_size, overwrite=overwrite)
        elif layer_outputs and output is not None:
            arrays = write_layer_outputs(
                recipe, source, layer_outputs, output, batch_size=batch_size, float16=float16, overwrite=overwrite
            )
            for name, shape in arrays.shapes.items():
                console.note(f"  {name}  {' x '.join(map(str, shape))}")
            result = arrays
        else:
            answers = StringIO() if json and output is None else None
            result = run_prediction(
                recipe, source, output,
                keep=keep, batch_size=batch_size, flush=flush, resume=resume, overwrite=overwrite,
                truncated=truncated, stdout=answers,
            )  # fmt: skip
    content = dataclasses.asdict(result)
    if answers is not None:  # --json without -o: the answers are part of the one object on standard output
        content["answers"] = [loads(line) for line in answers.getvalue().split("\n")[:-1]]
    give(content)
    if result.output is not None:
        console.note(f"{counted(result.rows, 'rows')} ({result.bad_rows:,} bad) -> {result.output}")
    elif result.bad_rows:
        were = "was bad; its answer gives" if result.bad_rows == 1 else "were bad; their answers give"
        console.warn(f"{result.bad_rows:,} of {counted(result.rows, 'rows')} {were} the reason")
    marked = truncated or embeddings is not None or layer_outputs
    warn_of_truncated(recipe, result.truncated, result.rows, LONGER if marked else f"--truncated marks them; {LONGER}")


def _refuse_divided(output: Path | None, parts: str | None, others: dict[str, Any]) -> None:
    """UserError for what does not go together with --workers, --cluster and --parts."""
    if parts not in (None, *PARTS):
        raise UserError(f"there are no parts of {parts!r}", "--parts", f"one of {', '.join(PARTS)}")
    if output is None:
        raise UserError("a divided prediction is written to a file", "--workers", "name it: -o FILE")
    given = next((flag for flag, value in others.items() if value), None)
    if given is not None:
        hint = "leave it out, or leave out --workers, --cluster and --parts"
        raise UserError("cannot be divided among workers", given, hint)


def check_format(format: str) -> None:
    """UserError for an unknown value of --format."""
    if format not in FORMATS:
        raise UserError(f"there is no format {format!r}", where="--format", hint=f"one of {', '.join(FORMATS)}")
