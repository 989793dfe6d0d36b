"""`nlpctl card`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nlpctl import console
from nlpctl.cli.output import Json, LanguageOption, give


def card(
    model: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory, model folder or export.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write; default: RUN/README.md.")
    ] = None,
    language: LanguageOption = None,
    license: Annotated[
        str | None, typer.Option("--license", metavar="NAME", help="License of the model, such as apache-2.0.")
    ] = None,
    text_language: Annotated[
        str | None, typer.Option("--text-language", metavar="zh,en,...", help="Languages of the training texts.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the existing file.")] = False,
    json: Json = False,
) -> None:
    """Write a model card, as the Hugging Face hub shows it.

    Task, labels, data with hashes, training, scores with 95 % intervals, weak slices, limits, how to run and repeat it.
    All of it is read from the files of the run; what they do not say is left out. A card that was changed by hand is
    replaced only with --overwrite.

    Examples:

      nlpctl card outputs/quickstart --license apache-2.0 --text-language zh

      nlpctl card outputs/quickstart/export -o card.md --language zh
    """
    from nlpctl.runs.card import write_card

    languages = [] if text_language is None else [word.strip() for word in text_language.split(",")]
    written = write_card(model, output, license=license, text_languages=languages, overwrite=overwrite)
    give({"card": written})
    console.result(str(written))
