"""`nlpctl convert-static`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from nlpctl import console
from nlpctl.cli.output import Json, answering, give, tell_next, training_on
from nlpctl.errors import NlpctlError, UserError
from nlpctl.report.language import say
from nlpctl.report.text import show_table

if TYPE_CHECKING:
    from nlpctl.convert.convert_static import ConversionReport

_MAP_ENDING = ".yaml"


def convert_static(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Folder, file, archive or prefix of static parameters; python:PACKAGE/PATH is inside a package.",
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="MODEL",
            help="What it becomes: a model folder, run, task:NAME or python:PACKAGE/PATH, a config.json, a built-in "
            "model of PaddleNLP (ernie-1.0), a class (BertForMaskedLM), or lac.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Folder to write; with --plan, the map file.")
    ] = None,
    class_name: Annotated[
        str | None,
        typer.Option(
            "--class", metavar="CLASS", help="The network's class, such as ErnieForSequenceClassification."
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="A value of the network's config; repeatable."),
    ] = None,
    map_name: Annotated[
        str, typer.Option("--map", metavar="auto|NAME|FILE.yaml", help="How variable names are matched.")
    ] = "auto",
    labels: Annotated[
        Path | None, typer.Option("--labels", metavar="FILE", help="The labels, one per line in the order of ids.")
    ] = None,
    vocabulary: Annotated[
        Path | None,
        typer.Option("--vocabulary", metavar="FILE", help="vocab.txt, or a folder with a tokenizer (lac: word.dic)."),
    ] = None,
    allow_missing: Annotated[
        list[str] | None,
        typer.Option("--allow-missing", metavar="PATTERN", help="Parameters that may stay new; repeatable."),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Dry run: show the matches and write them as a map.")] = False,
    json: Json = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")] = False,
) -> None:
    """Turn the parameters of a static graph into a model folder that can be trained further.

    Reads what Paddle 1.x and 2.x write: a file per variable, a combined file with its program, paddle.static.save,
    jit.save; .npy and .npz; archives of these. Every parameter must be found. If the static program still runs, both
    networks must give the same outputs.

    Examples:

      nlpctl convert-static inference/ --to outputs/quickstart -o outputs/from_inference

      nlpctl convert-static ERNIE_1.0/params --to ernie-1.0 --class ErnieModel --vocabulary ERNIE_1.0/vocab.txt -o ernie

      nlpctl convert-static ERNIE_1.0/params --to ernie-1.0 --plan -o ernie.yaml
    """
    from nlpctl.convert.convert_static import ConversionRequest, plan_static
    from nlpctl.convert.convert_static import convert_static as convert
    from nlpctl.inference.named_model import named_model

    values = dict(_parse_assignment(text) for text in config or ())
    request = ConversionRequest(
        source, named_model(to), class_name, values, map_name, labels, vocabulary, tuple(allow_missing or ())
    )
    if plan:
        file = _map_file(output, source)
        report = plan_static(request, file, overwrite=overwrite)
        _show(report, json, every_parameter=True, map=file)
        console.note(f"map: {file}")
        return
    if output is None:
        raise UserError("no output folder", "-o", "use -o DIR, or --plan for a dry run")
    try:
        done = convert(request, output, overwrite=overwrite)
    except NlpctlError as error:
        if "report" in vars(error):  # what matched and what did not is worth more than the message alone
            _show(vars(error)["report"], json)
        raise
    _show(done.report, json, model=output)
    console.note(say("model: {}", output))
    if not done.usable:
        console.note("it has no vocabulary, which all other commands need: --vocabulary FILE brings one")
    elif done.task is None:  # an encoder without a head
        tell_next(training_on(output))
    else:
        tell_next(answering(output, done.task), training_on(output))


def _show(report: ConversionReport, json: bool, *, every_parameter: bool = False, **written: Path) -> None:
    if json:
        give({**report.to_json(), **written})
        return
    if every_parameter and report.matched:
        show_table(report.matched_table)
    for table in report.open_tables:
        show_table(table)
    for line in report.summary:
        console.result(line)


def _map_file(output: Path | None, source: str) -> Path:
    """FILE.yaml as given; for a folder, or by default, a file of that name next to it."""
    if output is None:
        return Path(f"{Path(source.removeprefix('python:')).name}.map{_MAP_ENDING}")
    return output if output.suffix == _MAP_ENDING else output.with_name(f"{output.name}.map{_MAP_ENDING}")


def _parse_assignment(text: str) -> tuple[str, Any]:
    """Key and value of KEY=VALUE; VALUE is YAML, or else a text. UserError for another form, and for a mapping."""
    key, equals, text_value = text.partition("=")
    try:
        value = yaml.safe_load(text_value)
    except yaml.YAMLError:
        value = text_value
    if not equals or not key.strip() or not text_value.strip() or isinstance(value, dict):
        raise UserError(f"{text!r} is not of the form KEY=VALUE", "--config", "--config num_hidden_layers=12")
    return key.strip(), value
