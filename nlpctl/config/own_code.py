"""Where the code lies that a recipe names as package.module:function. Nothing is imported here, no package either.

Code of the folder that a command opens is never run: neither flat modules nor packages, whoever names them.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from nlpctl.config.own_parts import PARTS, named_parts
from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.layout import whole_folder

_OF_COMPRESSION = ("criterion", "evaluate")


def module_file(name: str) -> Path | None:
    """The file of the module that `package.module:function` names, or None."""
    last = _origins(name)[-1]
    return Path(last) if last is not None and os.path.isfile(last) else None


def refuse_code_of(folder: Path, recipe: Recipe) -> None:
    """UserError if a function or class that `recipe` names lies in the run or model that `folder` is of."""
    named = [(part.key, name) for part, name in named_parts(recipe)]
    for part in PARTS:
        tried = recipe.search.space.get(part.key)
        named += [(f"search.space.{part.key}", name) for name in _names(tried.choices if tried else ())]
    named += [(f"compression.{key}", getattr(recipe.compression, key)) for key in _OF_COMPRESSION]
    for key, name in named:
        if name is not None:
            refuse_code_inside(folder, key, name)


def _names(choices: object) -> Iterator[str]:
    """The texts in what is tried of a key, one by one or in lists."""
    if isinstance(choices, str):
        yield choices
    for each in choices if isinstance(choices, tuple) else ():
        yield from _names(each)


def refuse_code_inside(folder: Path, key: str, name: str) -> None:
    """UserError, blaming `key`, if importing `name` would run a file of the run or model that `folder` is of."""
    whole = whole_folder(folder)
    for origin in _origins(name):
        if origin is not None and {whole, folder.absolute()} & {*Path(origin).resolve().parents, *Path(origin).parents}:
            message = f"{name} would be imported from {origin}, which came with {whole}"
            hint = "read it; if you trust it, copy it to another folder, and run the command there"
            raise UserError(message, where=key, hint=hint)


def _origins(name: str) -> list[str | None]:
    """The files that importing the module of `name` runs: its packages, then its own; None for one without a file."""
    first, *inner = name.partition(":")[0].split(".")
    try:
        with current_directory_first():
            found = importlib.util.find_spec(first)
            origins = [None if found is None else found.origin]
            places = list((found and found.submodule_search_locations) or ())
            module = first
            for part in inner:
                places = getattr(sys.modules.get(module), "__path__", places)
                module = f"{module}.{part}"
                origin, places = _submodule(module, list(places))
                origins.append(origin)
            return origins
    except (ImportError, ValueError):  # of a module without a spec, such as __main__: whoever imports it tells
        return [None]


def _submodule(module: str, places: Sequence[str]) -> tuple[str | None, list[str]]:
    """The file of a module in a package of `places`, and the folders of its own modules.

    Python's own search would import the package.
    """
    portions: list[str] = []
    for place in places:
        finder = pkgutil.get_importer(place)
        found = None if finder is None else finder.find_spec(module)
        if found is not None and found.loader is not None:
            return found.origin, list(found.submodule_search_locations or ())
        portions += (found and found.submodule_search_locations) or ()  # a package without __init__.py
    return None, portions


@contextlib.contextmanager
def current_directory_first() -> Iterator[None]:
    """Inside the context, modules are looked for in the current directory first, new ones included."""
    here = os.getcwd()
    # A console script does not put the current directory on sys.path, as `python -m` does.
    sys.path.insert(0, here)
    try:
        # A module written after the interpreter began (by a test, a notebook) is invisible to cached directory
        # listings.
        importlib.invalidate_caches()
        yield
    finally:
        sys.path.remove(here)
