"""The recipe of the best trial of a sweep: the text of what was swept, with its comments, and the values found."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from nlpctl.config.dump import dump_recipe
from nlpctl.config.library import PREFIX
from nlpctl.config.load import load_recipe
from nlpctl.config.paths import INPUT_PATHS, NAMES, TEXT_PATHS
from nlpctl.config.recipe_of import with_settings
from nlpctl.config.recipe_text import commented, edited, holds, value_text, without
from nlpctl.config.schema import Recipe, SearchSection, value_of
from nlpctl.errors import UserError
from nlpctl.files import staged_path
from nlpctl.report.language import say

_OUTPUT = "training.output_dir"


def best_text(
    recipe: Recipe,
    own: str | None,
    values: Mapping[str, Any],
    comments: Mapping[str, str],
    file: Path,
    output: Path,
) -> str:
    """The text of a whole recipe that says `values`, to be written to `file`; its run directory is `output`. What is
    added as a comment is in the language of now.

    `recipe`: what was swept; `own`: its `own_text`. `comments`: where each of the values came from. What the command
    line set is written out, too. Where the text cannot be changed safely, the resolved recipe is written in its place.
    """
    changed = with_settings(recipe, {**values, _OUTPUT: str(output)})
    best = dataclasses.replace(changed, search=SearchSection())
    typed = {
        key: str(origin) for key, origin in recipe.origins.items()
        if origin.source.startswith("-") and not key.startswith("search.") and key not in values and key != "task"
    }  # fmt: skip
    settings = {key: value_of(best, key) for key in _leaves(typed)} | dict(values) | {_OUTPUT: str(output)}
    notes = {key: say("from the command line: {}", flag) for key, flag in typed.items()} | dict(comments)
    notes[_OUTPUT] = say("the run directory of a new training; the trials have their own")
    if own is not None:
        with contextlib.suppress(yaml.YAMLError):  # an anchor went with what was changed
            with_paths = _with_absolute_paths(own, recipe)
            text = None if with_paths is None else _with_values(without(with_paths, "search"), settings, notes)
            if text is not None and _reads_as(best, text, file):
                return text
    head = say("The best recipe of a sweep: every value that differs from its default, with absolute paths.")
    body = dump_recipe(best).partition("\ntask: ")
    text = _with_values(f"# {head}\ntask: {body[2]}", settings, notes)
    assert text is not None  # our own layout
    return text


def _leaves(keys: Iterable[str]) -> list[str]:
    """The keys that are not sections of others."""
    keys = list(keys)
    return [key for key in keys if not any(other.startswith(f"{key}.") for other in keys)]


def own_text(recipe: Recipe) -> str | None:
    """The text of the recipe's file, as it is now; None if it has none."""
    if recipe.path is None or recipe.path.suffix not in (".yaml", ".yml"):
        return None
    with open(recipe.path, encoding="utf-8", newline="") as stream:
        return stream.read()


def _with_values(text: str, values: Mapping[str, Any], comments: Mapping[str, str]) -> str | None:
    """`text` with all of the values, each below its comment; None if that cannot be written."""
    changed: str | None = text
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        changed = None if changed is None else edited(changed, section.split("."), {name: _exact(value)}, last=True)
    return None if changed is None else commented(changed, comments)


def _with_absolute_paths(text: str, recipe: Recipe) -> str | None:
    """The paths that the text itself has, absolute: the new file lies elsewhere."""
    changed: str | None = text
    for key in (*INPUT_PATHS, *TEXT_PATHS, *NAMES):
        if changed is not None and holds(changed, key) and (value := value_of(recipe, key)):
            section, _, name = key.rpartition(".")
            one = value[0] if isinstance(value, tuple) and len(value) == 1 else value
            changed = edited(changed, section.split("."), {name: _exact(one)})
    parents = (yaml.safe_load(text) or {}).get("extends")
    if changed is None or parents is None or recipe.path is None:
        return changed
    names = parents if isinstance(parents, list) else [parents]
    folder = recipe.path.parent
    whole = [each if each.startswith(PREFIX) else os.path.abspath(folder / os.path.expanduser(each)) for each in names]
    return edited(changed, (), {"extends": _exact(whole if isinstance(parents, list) else whole[0])})


def _exact(value: Any) -> str:
    """A value as YAML that gives it back, every digit included."""
    return repr(value) if isinstance(value, float) else value_text(value)


def _reads_as(recipe: Recipe, text: str, file: Path) -> bool:
    """Whether `text`, as a file beside `file`, is read as this recipe."""
    trial = staged_path(file)
    trial.write_text(text, encoding="utf-8", newline="")
    try:
        loaded = load_recipe(trial, purpose="apply")
    except UserError:
        return False
    finally:
        trial.unlink()
    return dataclasses.replace(loaded, search=SearchSection()) == recipe
