"""The recipes and configs that come with nlpctl, in an installed package and in a checkout."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import yaml

from nlpctl.console import display
from nlpctl.errors import Problem, UserError
from nlpctl.files import staged_file, writing
from nlpctl.outputs import refuse_part

PREFIX = "nlpctl:"  # nlpctl:configs/base.yaml in `extends`, nlpctl:recipes/... as a source

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class ShippedRecipe:
    """A recipe of the library: `sentiment/chnsenticorp`, its file, and the first line of its header."""

    name: str
    path: Path
    title: str


def shipped_root() -> Path:
    """The folder that holds `recipes` and `configs`."""
    packaged = _PACKAGE / "_shipped"
    return packaged if packaged.is_dir() else _PACKAGE.parent


def shipped_path(reference: str) -> Path:
    """The file of `nlpctl:configs/base.yaml`; it need not exist."""
    return shipped_root() / reference.removeprefix(PREFIX)


def shipped_recipes() -> list[ShippedRecipe]:
    """All recipes of the library, by name."""
    root = shipped_root() / "recipes"
    paths = sorted(path for path in root.rglob("*.yaml") if path.is_file())
    return [ShippedRecipe(path.relative_to(root).with_suffix("").as_posix(), path, _title(path)) for path in paths]


def find_recipe(name: str) -> ShippedRecipe | None:
    """The recipe called `name`: with or without folder (where unambiguous), recipes/ or .yaml."""
    wanted = name.removeprefix(PREFIX).removeprefix("recipes/").removesuffix(".yaml").strip("/")
    recipes = shipped_recipes()
    exact = [recipe for recipe in recipes if recipe.name == wanted]
    same_last = [recipe for recipe in recipes if wanted in recipe.name.split("/")]
    matches = exact or same_last
    return matches[0] if len(matches) == 1 else None


def is_recipe(source: str) -> bool:
    """Whether `source` names a recipe, by its ending or as one of the library, and not a folder."""
    return not Path(source).is_dir() and (source.endswith((".yaml", ".yml")) or find_recipe(source) is not None)


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as stream:
        first = stream.readline()
    return first.lstrip("# ").strip() if first.startswith("#") else ""


# -- copying a shipped recipe, so that it works in any folder --------------------------------------


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
        hint = "name another folder, or use @[overwrite=true]"
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
