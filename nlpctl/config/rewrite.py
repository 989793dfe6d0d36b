"""Changing the files that section data of a recipe names, in the recipe's text: comments and layout stay."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from nlpctl.config.changed_text import edited
from nlpctl.config.library import shipped_root
from nlpctl.config.positions import display
from nlpctl.config.schema import Recipe, SplitFilesSection
from nlpctl.errors import UserError
from nlpctl.files import write_text_atomic
from nlpctl.layout import MANIFEST

_PASTE = "paste the lines that are printed without --write"
_OTHER_SOURCES = ("dataset", "reader")
_SAFE = re.compile(r"[\w./][\w./-]*")


def in_recipe(recipe: Recipe, file: Path) -> str:
    """`file` as the recipe is to name it: relative to its folder; absolute in a shipped recipe or that of a run."""
    path = _own_file(recipe)
    return os.path.abspath(file) if path is None else named_from(path.parent, file)


def named_from(folder: Path, file: Path) -> str:
    """`file` as a recipe in `folder` is to name it: relative where that leads to the same file."""
    folder, absolute = Path(os.path.abspath(folder)), os.path.abspath(file)
    relative = os.path.relpath(absolute, folder)
    # Where the way leads through a link, .. may be another folder than its name says.
    return relative if (folder / relative).resolve() == Path(absolute).resolve() else absolute


def as_yaml(name: str) -> str:
    """The path `name` as a value of YAML, quoted if it must be."""
    return name if _SAFE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def refuse_rewriting(recipe: Recipe) -> None:
    """UserError if `write_files` cannot change the recipe: it is shipped with nlpctl, or reads no files."""
    if _own_file(recipe) is None:
        hint = "copy it first: nlpctl recipe copy"
        raise UserError("--write changes a recipe file of your own only", where="--write", hint=hint)
    for key in _OTHER_SOURCES:
        if getattr(recipe.data, key) is not None:
            message = f"the recipe reads its rows by data.{key}, not from files"
            raise UserError(message, where=recipe.where(f"data.{key}"), hint=f"leave out --write; {_PASTE}")
    for part in ("train", "dev", "test"):
        if getattr(recipe.data.by_split, part) != SplitFilesSection():
            message = f"the new {part} file would be read by this, and is like the training files"
            hint = f"leave out --write; {_PASTE}, and set it anew"
            raise UserError(message, where=recipe.where(f"data.by_split.{part}"), hint=hint)


def write_files(recipe: Recipe, files: Mapping[str, Path]) -> None:
    """Let data.train, dev, test of the recipe name `files`; all else in it stays as it is.

    UserError if the text cannot be changed without changing more than that.
    """
    path = _own_file(recipe)
    assert path is not None  # refuse_rewriting
    with open(path, encoding="utf-8", newline="") as stream:
        text = stream.read()
    names = {part: in_recipe(recipe, file) for part, file in files.items()}
    changed = with_data(text, names)
    if changed is None:
        raise UserError("the recipe's text cannot be changed safely", where=display(path), hint=_PASTE)
    write_text_atomic(path, changed)


def with_data(text: str, values: Mapping[str, str]) -> str | None:
    """`text` of a recipe with `values` in its section data; None if more than these values would change."""
    wanted = dict(yaml.safe_load(text) or {})
    if any((wanted.get("data") or {}).get(key) is not None for key in _OTHER_SOURCES):
        return None
    wanted["data"] = {**(wanted.get("data") or {}), **values}
    changed = edited(text, ("data",), {key: as_yaml(value) for key, value in values.items()})
    try:
        found = None if changed is None else yaml.safe_load(changed)
    except yaml.YAMLError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("data"), dict):
        return None
    found["data"] |= {key: values[key] for key in values if found["data"].get(key) == [values[key]]}
    return changed if found == wanted else None


def _own_file(recipe: Recipe) -> Path | None:
    """The recipe's file; None if it is shipped, or that of a run or a model."""
    path = recipe.path
    if path is None or path.suffix not in (".yaml", ".yml") or path.with_name(MANIFEST).exists():
        return None
    shipped = (shipped_root() / name for name in ("recipes", "configs"))
    return None if any(path.resolve().is_relative_to(folder.resolve()) for folder in shipped) else path
