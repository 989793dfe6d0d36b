"""The recipes and configs that come with nlpctl, in an installed package and in a checkout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
