"""`nlpctl new`: a recipe for files of one's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nlpctl import console
from nlpctl.cli.output import Json, LanguageOption, give, tell_next
from nlpctl.console import display
from nlpctl.errors import UserError
from nlpctl.names import and_more

if TYPE_CHECKING:
    from nlpctl.datatools.new import Question


def new(
    train: Annotated[
        str | None, typer.Argument(metavar="[TRAIN]", help="Training file, or a folder with train, dev and test.")
    ] = None,
    dev: Annotated[
        str | None, typer.Option("--dev", metavar="FILE", help="Dev file; none: there is none. Default: beside TRAIN.")
    ] = None,
    test: Annotated[str | None, typer.Option("--test", metavar="FILE", help="Test file, as for --dev.")] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TASK", help="Default: by the look of the data.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", metavar="ROLE=COLUMN,...", help="Columns, such as text=review,label=stars."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="Encoder: a folder, python:PACKAGE/PATH, hf:ORG/NAME, a name of PaddleNLP's hub, or scratch. Default: "
            "one for the language of the texts that can be had here.",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option("--split", metavar="FOLDER", help="Without a dev file: cut train, dev and test into this folder."),
    ] = None,
    time: Annotated[
        bool | None,
        typer.Option(
            "--time/--no-time",
            help="Time some steps of the training: how long it takes on this machine, and whether bf16 is faster.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="The recipe. Default: named after the data.")
    ] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Ask nothing: take the defaults.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing recipe.")] = False,
    language: LanguageOption = None,
    json: Json = False,
) -> None:
    """Write a recipe for your data files.

    Looks at the files: format, columns, task, language, lengths, labels. Asks on a terminal; elsewhere, and with
    --yes, it takes what it found, and stops where it cannot know. Every value in the recipe has its reason beside it.
    A column that was found and is not wanted: --columns text_pair=none.

    Examples:

      nlpctl new

      nlpctl new data/train.tsv

      nlpctl new reviews.csv --columns text=review,label=stars --split parts -o reviews.yaml --yes
    """
    from nlpctl.datatools.new import Given, new_recipe
    from nlpctl.report.language import say  # late: not for --help

    given = Given(train, dev, test, task, _parse_columns(columns or []), model, split, time, output, overwrite)
    made = new_recipe(given, _ask if sys.stdin.isatty() and not (yes or json) else _default_answer)
    facts = {"recipe": made.path, "task": made.task, "model": made.model, "files": made.files, "seconds": made.seconds}
    give({**facts, "next": made.next, "decided": [{"what": what, "why": why} for what, why in made.decided]})
    for what, why in made.decided:
        console.note(say("{}: {}", what, why))
    tell_next(*made.next)
    console.result(display(made.path))


def _parse_columns(given: list[str]) -> dict[str, str]:
    """Role to column, of every ROLE=COLUMN,...; UserError for another form."""
    pairs = [pair.partition("=") for text in given for pair in text.split(",")]
    for role, equals, name in pairs:
        if not (role and equals and name):
            raise UserError(
                f"{role + equals + name!r} is not ROLE=COLUMN", "--columns", "such as text=review,label=stars"
            )
    return {role.strip(): name for role, _, name in pairs}


def _default_answer(question: Question) -> str:
    """The answer where nobody can be asked. UserError that names the flag if there is none."""
    answer = question.unasked or question.default
    if answer is None:
        options = f": {and_more(question.options, 20)}" if question.options else ""
        hint = question.hint or f"give it{options}"
        raise UserError(f"needed, and the data do not tell: {question.text}", question.flag, hint)
    if question.check is not None:
        question.check(answer)
    return answer


def _ask(question: Question) -> str:
    """Ask at the terminal until an answer passes the check of the question, and return it.

    KeyboardInterrupt where standard input ends.
    """
    from nlpctl.report.language import say  # late: not for --help

    if question.options:
        console.note(f"  {and_more(question.options, 20)}")
    default = "" if question.default is None else f" [{question.default}]"
    prompt = say("{}: ", f"{say(question.text)}{default}")
    while True:
        sys.stderr.write(console.visible(prompt))  # not input(), whose prompt is standard output
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise KeyboardInterrupt
        answer = line.strip() or question.default
        try:
            if answer and question.check is not None:
                question.check(answer)
        except UserError as error:
            console.error(error)
            continue
        if answer:
            return answer
