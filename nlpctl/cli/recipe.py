"""`nlpctl recipe`: list, show, check and copy recipes. None of this imports Paddle."""

from __future__ import annotations

import os
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from nlpctl import console
from nlpctl.cli.field_flags import field_flags
from nlpctl.cli.options import RecipeCommand, load_command_recipe
from nlpctl.cli.output import Json, give
from nlpctl.config.dump import recipe_values, to_yaml
from nlpctl.config.json_schema import recipe_json_schema
from nlpctl.config.keys import CUTOFF, Key
from nlpctl.config.library import copy_recipe, shipped_recipes
from nlpctl.config.reference import WORDS
from nlpctl.config.refused_keys import MANAGED, UNSUPPORTED
from nlpctl.config.schema import Purpose, Recipe
from nlpctl.console import display
from nlpctl.errors import Problem, UserError
from nlpctl.names import nearest
from nlpctl.report.language import language, say, say_each
from nlpctl.report.model import Table
from nlpctl.report.text import show_table
from nlpctl.spelling import spelled

SETTINGS = {"help_option_names": ["-h", "--help"]}
Source = Annotated[
    str, typer.Argument(metavar="RECIPE", help="Recipe file, shipped recipe, run directory or model folder.")
]

app = typer.Typer(
    name="recipe",
    help="List, show, copy and check recipes.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    context_settings=SETTINGS,
)


@app.command("ls", context_settings=SETTINGS)
def ls(json: Json = False) -> None:
    """List the recipes that come with nlpctl."""
    recipes = shipped_recipes()
    if json:
        give([{"name": each.name, "title": each.title, "path": each.path} for each in recipes])
    else:
        show_table(Table(say_each("recipe", "what it does"), [[each.name, say(each.title)] for each in recipes]))


@app.command("show", cls=RecipeCommand, context_settings=SETTINGS)
def show(
    ctx: typer.Context,
    recipe: Source,
    origins: Annotated[bool, typer.Option("--origins", help="Add where each value came from.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Show defaults too, not only changed values.")] = False,
    json: Json = False,
) -> None:
    """Print the resolved recipe: extended, interpolated, typed, and overridden by your flags.

    nlpctl recipe show my.yaml --learning_rate 1e-4 --origins
    """
    resolved = load_command_recipe(recipe, ctx, purpose="apply")
    values = recipe_values(resolved, everything=everything)
    if json:
        places = {dotted: str(resolved.origins[dotted]) for dotted in _leaves(values, "", resolved)}
        give({"recipe": values, "origins": places} if origins else values)
    else:
        console.result((_annotated(values, resolved) if origins else to_yaml(values)).rstrip("\n"))


@app.command("copy", context_settings=SETTINGS)
def copy(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A recipe of `nlpctl recipe ls`.")],
    dest: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder for the recipe and its data.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    json: Json = False,
) -> None:
    """Copy a shipped recipe and its data files to a folder.

    nlpctl recipe copy quickstart my_reviews
    """
    files = copy_recipe(name, dest, overwrite=overwrite)
    give({"files": files})
    for path in files:
        console.result(display(path))


@app.command("validate", cls=RecipeCommand, context_settings=SETTINGS)
def validate(
    ctx: typer.Context,
    recipes: Annotated[list[str], typer.Argument(metavar="RECIPE...", help="Recipe files, runs or model folders.")],
    json: Json = False,
) -> None:
    """Check recipes: list every problem with file and line. Exit code 2 if there is one.

    The beginnings of the data files are read, and a column that is not there is told with those that are.
    """
    problems = {source: _problems(source, ctx) for source in recipes}
    give(
        [
            {"recipe": source, "ok": not listed, "problems": [vars(problem) for problem in listed]}
            for source, listed in problems.items()
        ]
    )
    for source, listed in problems.items():
        if not listed:
            console.result(f"ok {source}")
    if any(problems.values()):
        raise UserError(problems=[problem for listed in problems.values() for problem in listed])


@app.command("schema", context_settings=SETTINGS)
def schema() -> None:
    """Print the JSON Schema of recipes.

    nlpctl recipe schema > recipe.schema.json, then start a recipe with
    # yaml-language-server: $schema=recipe.schema.json
    """
    console.result(dumps(recipe_json_schema(), ensure_ascii=False, indent=2))


@app.command("flags", context_settings=SETTINGS)
def flags(
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Only flags with this in name or help.")] = "",
    json: Json = False,
) -> None:
    """List the flags that every command with a recipe takes: name, type, default, meaning; last those refused."""
    wanted = pattern.lstrip("-").replace("-", "_").lower()
    matching = {
        name: key
        for name, key in field_flags().items()
        if key.dotted not in MANAGED and (wanted in name.lower() or pattern.lower() in key.help.lower())
    }
    matching = dict(sorted(matching.items(), key=lambda item: item[1].dotted in UNSUPPORTED))  # those come last
    if not matching:
        near = nearest(wanted, field_flags(), CUTOFF)
        raise UserError(
            f"no flag matches {pattern!r}", hint=f"did you mean --{near}?" if near else "give a part of its name"
        )
    if json:
        give(
            [
                {
                    "flag": f"--{name}",
                    "key": key.dotted,
                    "type": key.type_text,
                    "default": key.default,
                    "help": key.help,
                    "refused": spelled(UNSUPPORTED.get(key.dotted, "")) or None,
                }
                for name, key in matching.items()
            ]
        )
        return
    words = WORDS[language()]()
    rows = []
    for name, key in matching.items():
        if key.dotted in UNSUPPORTED:
            rows.append([f"--{name}", "", "", say("refused: {}", words.refused(key.dotted))])
        else:
            rows.append([f"--{name}", words.type_text(key), _format_default(key), words.meaning(key)])
    show_table(Table(say_each("flag", "type", "default", "meaning"), rows))


def _problems(source: str, ctx: typer.Context) -> tuple[Problem, ...]:
    """All problems of one source; () if it is sound.

    What is only applied, such as a run or a model folder, needs no training data.
    """
    from nlpctl.data.validate import column_problems, needs_no_data

    purpose: Purpose = "train"
    try:
        if os.path.isdir(source) or needs_no_data(load_command_recipe(source, ctx, purpose="apply")):
            purpose = "apply"
    except UserError:
        pass  # loading it for a training, below, names the same problems and what a training lacks
    try:
        recipe = load_command_recipe(source, ctx, purpose=purpose)
    except UserError as error:
        return error.problems
    return tuple(column_problems(recipe)) if purpose == "train" else ()


def _annotated(values: dict[str, Any], recipe: Recipe) -> str:
    """The YAML with a comment on every line that says where its value came from."""
    rows: list[tuple[str, str]] = []

    def walk(section: dict[str, Any], prefix: str, indent: str) -> None:
        for name, value in section.items():
            dotted = f"{prefix}{name}"
            if _is_section(value, dotted, recipe):
                rows.append((f"{indent}{name}:", ""))
                walk(value, f"{dotted}.", indent + "  ")
            else:
                first, *others = to_yaml({name: value}).rstrip("\n").split("\n")
                rows.append((indent + first, str(recipe.origins[dotted])))
                rows.extend((indent + line, "") for line in others)

    walk(values, "", "")
    width = min(60, max(len(text) for text, _ in rows)) + 2
    return "\n".join(f"{text:<{width}}# {origin}" if origin else text for text, origin in rows)


def _is_section(value: Any, dotted: str, recipe: Recipe) -> bool:
    """Whether keys stand below `dotted`. The value of one key may be a dict, too, such as a range of a search."""
    return isinstance(value, dict) and bool(value) and any(name.startswith(f"{dotted}.") for name in recipe.origins)


def _leaves(values: dict[str, Any], prefix: str, recipe: Recipe) -> list[str]:
    """The dotted keys of `values` that have a value, not keys below them."""
    keys: list[str] = []
    for name, value in values.items():
        dotted = f"{prefix}{name}"
        keys += _leaves(value, f"{dotted}.", recipe) if _is_section(value, dotted, recipe) else [dotted]
    return keys


def _format_default(key: Key) -> str:
    """The default as a recipe would spell it: YAML in one line, without the brackets of the list that it is put in."""
    return to_yaml([list(key.default) if isinstance(key.default, tuple) else key.default]).strip()[1:-1]
