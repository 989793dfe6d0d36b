"""`nlpctl explain`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from nlpctl import console
from nlpctl.cli.options import ModelArgument, load_command_recipe
from nlpctl.cli.output import Json, LanguageOption, give
from nlpctl.cli.predict import check_format
from nlpctl.config.positions import located
from nlpctl.errors import UserError
from nlpctl.names import counted, did_you_mean
from nlpctl.report.language import say

if TYPE_CHECKING:
    from nlpctl.inference.attribution import Baseline, Method
    from nlpctl.inference.explain import Explained

METHODS, BASELINES = ("integrated_gradients", "occlusion"), ("pad", "mask", "unk")
STRONGEST = 5  # tokens listed per text
_FOR, _AGAINST = (153, 75, 33), (223, 215, 208)  # background colours of a 256-colour terminal, weak to strong


def explain(
    ctx: typer.Context,
    model: ModelArgument,
    input: Annotated[str, typer.Argument(metavar="INPUT", help="File to explain; - reads standard input.")] = "-",
    method: Annotated[
        str, typer.Option("--method", metavar="METHOD", help=f"{' or '.join(METHODS)}.")
    ] = "integrated_gradients",
    label: Annotated[
        str | None, typer.Option("--label", metavar="LABEL", help="Label to explain; default: the predicted one.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="TOKEN",
            help="What replaces a token: pad, mask or unk. Default: pad; for occlusion mask, or unk without a mask.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write .html, .jsonl or .json.")
    ] = None,
    format: Annotated[str, typer.Option("--format", help="Format: text, tsv, csv, jsonl, json, or auto.")] = "auto",
    language: LanguageOption = None,
    json: Json = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output file.")] = False,
) -> None:
    """Show what each token of a text contributes to its label.

    For classification. Contributions are in log odds of the label: positive ones support it, negative ones oppose it.

    Examples:

      echo 房间很干净 | nlpctl explain outputs/quickstart

      nlpctl explain outputs/quickstart reviews.txt -o reviews.html

      nlpctl explain outputs/quickstart reviews.txt --method occlusion --label 差评 --json
    """
    for given, known, where in ((method, METHODS, "--method"), (baseline, BASELINES, "--baseline")):
        if given is not None and given not in known:
            raise UserError(f"there is no {given!r}{did_you_mean(given, known)}", where, f"one of {', '.join(known)}")
    check_format(format)
    recipe = load_command_recipe(model, ctx, purpose="apply")
    from nlpctl.inference.explain import check_output, write_explanations
    from nlpctl.inference.explain import explain as run_explanation
    from nlpctl.inference.predict import input_of

    with located(recipe):
        source = input_of(recipe, [input], format)
        if output is not None:
            check_output(output, overwrite)
        rows = run_explanation(
            recipe, source, method=cast("Method", method), label=label, baseline=cast("Baseline | None", baseline)
        )
        if output is not None:
            explained = []
            with console.progress(None, "explain") as bar:
                for row in rows:
                    explained.append(row)
                    bar.advance()
            write_explanations(explained, model, output, overwrite=overwrite)
            give({"output": output, "texts": len(explained)})
            console.note(f"{counted(len(explained), 'texts')} -> {output}")
            return
        if json:
            give({"texts": [row.to_json() for row in rows]})
            return
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        for row in rows:
            console.result(format_explanation(row, colour), painted=colour)


def format_explanation(row: Explained, colour: bool) -> str:
    """The label, the text, and the tokens that support and oppose the label most, as lines.

    `colour`: the tokens of the text have a background by their contribution.
    """
    clean = console.visible if colour else str  # painted text is printed as it is, so its parts are cleaned here
    most = max((abs(token.contribution) for token in row.tokens), default=0.0)
    text = ""
    for token in row.tokens:
        word = _highlight(token.text, token.contribution, most) if colour else token.text
        text += word if token.joined else f" {word}"
    lines = [f"{clean(row.label)}  {row.probability:.3f}", f"  {text}"]
    for side, tokens in zip((say("  for:     "), say("  against: ")), row.strongest(STRONGEST), strict=True):
        if tokens:
            lines.append(side + say(", ").join(f"{clean(each.text)} {each.contribution:+.3g}" for each in tokens))
    return "\n".join(lines) + "\n"


def _highlight(text: str, contribution: float, most: float) -> str:
    """A token on a background that is the stronger, the nearer its contribution is to `most`, the largest one."""
    text = console.visible(text)
    level = int(abs(contribution) / most * 4) if most else 0  # 0: none
    if not level:
        return text
    shade = (_FOR if contribution > 0 else _AGAINST)[min(level, 3) - 1]
    return f"\033[30;48;5;{shade}m{text}\033[0m"
