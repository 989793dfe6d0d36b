"""The files that the recipe of an opened run names.

A run names its files by absolute paths, which are the user's where the run is. Whoever sends a run could name any file,
and what a training or an export makes of it is passed on: terms, words, a vocabulary, labels. So what is not in the
folder is taken only if the folder shows that it was made from this very file, by a copy or a SHA-256: then nothing is
passed on that its sender did not have. The recipe of the user may name any file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.checksums import sha256_of, sha256_of_input
from nlpctl.config.environment import may_name_a_place
from nlpctl.config.library import shipped_root
from nlpctl.config.paths import INPUT_PATHS, TEXT_PATHS, VALUE_PATHS, dataset_files
from nlpctl.config.schema import Recipe, with_value
from nlpctl.config.sources import own_recipe_instead
from nlpctl.config.task_file import COPIED
from nlpctl.console import display
from nlpctl.errors import Problem, UserError
from nlpctl.files import json_of
from nlpctl.layout import CHECKPOINTS, MANIFEST, MODEL, SERIES, checkpoints_in, is_inside
from nlpctl.spelling import settings

_LISTS = {MANIFEST: ("data", "further_files"), SERIES: ("data", "others")}  # where SHA-256 of files stand, by path
_PASSED_ON = tuple(f"{section}.{key}" for section, key, _ in COPIED)  # what an export holds without a training
_OF_TRAINING = tuple(key for key in INPUT_PATHS if key != "runtime.cache_dir")  # where downloads are


def refuse_files_outside(recipe: Recipe, *, trains: bool, unread: tuple[str, ...] = ()) -> None:
    """UserError for files that an opened folder names and that it neither holds nor knows.

    `trains`: the command makes a model of the data too; else it reads them for the user alone. `unread`: what keys
    begin with that this command does not read.
    """
    problems = [*_of_libraries(recipe)]
    for key in (*_OF_TRAINING, *TEXT_PATHS, *VALUE_PATHS, "data.dataset") if trains else _PASSED_ON:
        if key.startswith(unread):
            continue
        for dotted, paths in _paths(recipe, key):
            origin = recipe.origins.get(dotted)
            if origin is None or origin.opened is None:
                continue
            outside = next((path for path in paths if not _is_of(path, origin.opened, recipe)), None)
            if outside is not None:
                changed = any(_known(origin.opened, str(outside)))
                state = "has changed since" if changed else "is neither in it nor what it was made from"
                message = f"{dotted}: {display(origin.opened)} names {outside}, which {state}"
                named = settings({dotted: ",".join(map(str, paths))})
                hint = f"if you want it read: {named}; {own_recipe_instead(origin.opened)}"
                problems.append(Problem(message, str(origin), hint))
    if problems:
        raise UserError(problems=problems)


def with_copies(recipe: Recipe) -> Recipe:
    """`recipe` with the copy in the opened run's model for a file that has changed or is gone."""
    for section, name, copied in COPIED:
        key = f"{section}.{name}"
        path, origin = attrgetter(key)(recipe), recipe.origins.get(key)
        if path is None or origin is None or origin.opened is None:
            continue
        gone = not Path(path).exists()
        if not gone and _is_of(Path(path), origin.opened, recipe):
            continue
        copy = next((file for file in _copies(origin.opened) if file.name == copied), None)
        if copy is not None:
            hint = "" if gone else f"; {settings({key: path})} takes the new one"
            state = "is gone" if gone else "has changed since the training"
            console.warn(f"{path} {state}; {display(copy)} is taken, as trained{hint}")
            recipe = with_value(recipe, key, os.path.abspath(copy))
    return recipe


def without_new_cache(recipe: Recipe) -> Recipe:
    """`recipe` without the cache folder that an opened run names, where there is none on this machine.

    It would be made, wherever the run says. One that exists is the user's, which a run of theirs names rightly.
    """
    path, origin = recipe.runtime.cache_dir, recipe.origins.get("runtime.cache_dir")
    if path is None or origin is None or origin.opened is None or Path(path).is_dir():
        return recipe
    console.note(f"{display(origin.opened)} names the cache folder {path}, which is not here; the usual one is taken")
    return with_value(recipe, "runtime.cache_dir", None)


def _paths(recipe: Recipe, key: str) -> Iterator[tuple[str, list[Path]]]:
    """The paths that the recipe gives for `key`, with the key that names them."""
    try:
        value: Any = attrgetter(key)(recipe)
    except AttributeError:  # of a section that is not there
        return
    if key in VALUE_PATHS:
        yield from ((f"{key}.{name}", [Path(each)]) for name, each in value.items() if _is_file(each))
    elif isinstance(value, str):
        yield key, [Path(value)]
    elif key in INPUT_PATHS:
        yield key, [Path(each) for each in value or ()]


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and Path(value).is_absolute()


def _of_libraries(recipe: Recipe) -> Iterator[Problem]:
    """Flags and variables that an opened folder sets and that may name a place: Paddle would load code from there, or
    write there. Their names tell, since any text is a file in the current folder."""
    for key in ("runtime.flags", "runtime.env"):
        for name, value in attrgetter(key)(recipe).items():
            origin = recipe.origins.get(f"{key}.{name}")
            if origin is not None and origin.opened is not None and may_name_a_place(key, name, value):
                message = f"{key}.{name}: {display(origin.opened)} sets it to {value}, and it may name a file or place"
                hint = f"if you want it used: {settings({f'{key}.{name}': value})}; {own_recipe_instead(origin.opened)}"
                yield Problem(message, str(origin), hint)


def _is_of(path: Path, opened: Path, recipe: Recipe) -> bool:
    """Whether the folder holds `path`, or a copy or the SHA-256 of it, or it came with nlpctl.

    True of what does not exist: whatever reads it raises the error.
    """
    if not path.is_absolute() or not path.exists() or is_inside(path, opened) or is_inside(path, shipped_root()):
        return True
    if path.is_dir():
        files = dataset_files(recipe) if str(path) == recipe.data.dataset else sorted(path.glob("*"))
        return all(_is_of(file, opened, recipe) for file in files if file.is_file())
    if not path.is_file():
        return False
    digest = sha256_of_input(path)
    return digest in _known(opened, str(path)) or digest in map(sha256_of, _copies(opened))


def _known(opened: Path, path: str) -> Iterator[str]:
    """The SHA-256 of the file, by what stands in the folder."""
    for name, lists in _LISTS.items():
        try:
            content = json_of(opened / name)
            yield from (str(content[each][path]) for each in lists if path in content.get(each, {}))
        except (OSError, ValueError, TypeError, AttributeError, KeyError):  # its reader raises the error
            continue


def _copies(opened: Path) -> Iterator[Path]:
    """The files that models of the folder hold a copy of, the model's before the newest checkpoint's. A link to a file
    outside is no copy."""
    folders = [opened / MODEL, *reversed(checkpoints_in(opened / CHECKPOINTS))]
    files = (folder / name for folder in folders for *_, name in COPIED)
    yield from (file for file in files if file.is_file() and is_inside(file, opened))
