"""Copying a shipped recipe, so that it works in any folder."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from nlpctl.config.library import PREFIX, ShippedRecipe, find_recipe, shipped_recipes, shipped_root
from nlpctl.config.positions import display
from nlpctl.errors import Problem, UserError
from nlpctl.files import staged_file, writing
from nlpctl.outputs import refuse_part


def copy_recipe(name: str, folder: Path, *, overwrite: bool) -> list[Path]:
    """Copy the shipped recipe `name` and its data into `folder`; returns the written files.

    Raises UserError when there is no such recipe, or when a file would be overwritten.
    """
    recipe = find_recipe(name)
    if recipe is None:
        known = ", ".join(each.name for each in shipped_recipes())
        raise UserError(f"no recipe of nlpctl is called {name!r}", hint=f"there are: {known}")
    folder = Path(os.path.expanduser(folder))
    if folder.exists() and not folder.is_dir():
        raise UserError("is a file, not a folder", where=display(folder), hint="name a folder, new or old")
    targets = {source: folder / source.relative_to(recipe.path.parent) for source in _files_of(recipe)}
    for target in targets.values():
        refuse_part(target)
    existing = [target for target in targets.values() if target.exists()]
    if existing and not overwrite:
        hint = "name another folder, or use --overwrite"
        raise UserError(problems=[Problem("this file exists", display(target), hint) for target in existing])
    for source, target in targets.items():
        content = portable_text(source).encode() if source == recipe.path else source.read_bytes()
        with writing(target, "name another folder"), staged_file(target) as stream:
            stream.write(content)
    return list(targets.values())


def portable_text(path: Path) -> str:
    """The shipped recipe's text with each relative `extends` as nlpctl:..., comments and layout as they are."""
    text = path.read_text(encoding="utf-8")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    values = [value for key, value in root.value if key.value == "extends"]
    nodes = [node for value in values for node in (value.value if isinstance(value, yaml.SequenceNode) else [value])]
    for node in sorted(nodes, key=lambda node: node.start_mark.index, reverse=True):
        if not node.value.startswith(PREFIX):
            target = (path.parent / node.value).resolve().relative_to(shipped_root().resolve())
            text = text[: node.start_mark.index] + PREFIX + target.as_posix() + text[node.end_mark.index :]
    return text


def _files_of(recipe: ShippedRecipe) -> list[Path]:
    """The recipe and the other files of its folder, except other recipes."""
    others = {each.path for each in shipped_recipes()} - {recipe.path}
    files = (path for path in sorted(recipe.path.parent.rglob("*")) if path.is_file() and path not in others)
    return [path for path in files if "__pycache__" not in path.parts]
