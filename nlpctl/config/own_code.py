"""The code that a recipe names as package.module:function: what kinds there are, and who names it. Nothing is imported.

What the recipe of an opened folder names (a run, a model, an export) is `Unnamed`: it is imported only once the user
names it too, on the command line or in a recipe file of her own. Else whoever sends a folder would run code: a name
needs no file in it, since runpy:run_path takes any.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from nlpctl.config.positions import display
from nlpctl.config.schema import DataSection, Recipe, with_value
from nlpctl.config.sources import own_recipe_instead
from nlpctl.errors import UserError
from nlpctl.spelling import settings

# --------------------------------------------------------------------------------------------------
# The parts of a training that a recipe may name as module:function: what each takes and gives. A new kind is an entry
# of PARTS, its key in the schema, and the place that calls it.


@dataclass(frozen=True)
class Part:
    """One kind of part. `key`: the recipe key that names it, one name or a list.

    `takes`: its positional arguments; None: they differ. `gives`: what it returns, in words. `changes_training`: the
    weights depend on it, so a run goes on with the same source only.
    """

    key: str
    takes: tuple[str, ...] | None
    gives: str
    changes_training: bool = True

    @property
    def purpose(self) -> str:
        """For messages: "a function (row) that returns a dict"."""
        takes = "" if self.takes is None else f" ({', '.join(self.takes)})"
        return f"a function{takes} that returns {self.gives}"


PARTS: tuple[Part, ...] = (
    Part("data.reader", None, "dicts, one per row"),
    Part("data.map", ("row",), "a dict, the row as it is to be read"),
    Part("data.filter", ("row",), "true or false"),
    Part("model.network", ("config",), "a paddle.nn.Layer"),
    Part("training.criterion", ("outputs", "labels"), "the mean loss of the batch, a scalar tensor"),
    Part("training.optimizer", ("model", "args"), "a paddle.optimizer.Optimizer"),
    Part("training.scheduler", ("args", "num_training_steps"), "a paddle.optimizer.lr.LRScheduler"),
    Part("training.data_collator", ("tokenizer",), "a function (features) that returns a batch"),
    Part("training.compute_metrics", ("eval_prediction",), "a dict of names and numbers", changes_training=False),
    Part("training.preprocess_logits_for_metrics", ("logits", "labels"), "a tensor", changes_training=False),
    Part("training.callbacks", (), "a paddlenlp.trainer.TrainerCallback", changes_training=False),
)


def part_of(key: str) -> Part:
    """The entry of `key`."""
    return next(part for part in PARTS if part.key == key)


def names_of(recipe: Recipe, key: str) -> tuple[str, ...]:
    """The code that the recipe names under `key`, in order; empty if it names none."""
    value = attrgetter(key)(recipe)
    return value if isinstance(value, tuple) else () if value is None else (value,)


def named_parts(recipe: Recipe) -> Iterator[tuple[Part, str]]:
    """Every part that the recipe names."""
    for part in PARTS:
        for name in names_of(recipe, part.key):
            yield part, name


# -- whose code runs -------------------------------------------------------------------------------

_STUDENT = "distillation.model.network"
# Every key that names code. A new one must be here, or an opened folder could run what it names.
CODE_KEYS = (*(part.key for part in PARTS), "compression.criterion", "compression.evaluate", _STUDENT)
_HERE = Path()
_ANSWERING = ("data.", "model.")  # all that a command needs which trains nothing


class Unnamed(str):
    """The name of code that an opened `folder` names, and the user does not. `flags`: what names it, and what else the
    folder names for the same commands."""

    folder: Path
    flags: str

    def __new__(cls, name: str, folder: Path = _HERE, flags: str = "") -> Unnamed:
        made = super().__new__(cls, name)
        made.folder, made.flags = folder, flags
        return made


def refuse_unnamed(name: str | None, key: str) -> None:
    """UserError, blaming `key`, if an opened folder alone names this code. Called before anything is imported."""
    if not isinstance(name, Unnamed):
        return
    file = module_file(name)
    place = "" if file is None else f" of {display(file)}"
    hint = f"if you trust it, name it too: {name.flags}; {own_recipe_instead(name.folder)}"
    raise UserError(f"{display(name.folder)} asks to run code: {name}{place}", where=key, hint=hint)


def require_rows_named(data: DataSection) -> None:
    """`require_named` of what reads rows, before a model is loaded for them."""
    for key, names in (("data.reader", (data.reader,)), ("data.map", data.map), ("data.filter", data.filter)):
        for name in names:
            refuse_unnamed(name, key)


def require_named(recipe: Recipe) -> None:
    """UserError for the first code that an opened folder alone names in `recipe`, for a command that trains."""
    for key in CODE_KEYS:
        tried = recipe.search.space.get(key)
        for name in (*names_of(recipe, key), *_flat(tried.choices if tried is not None else ())):
            refuse_unnamed(name, key)


def marked(recipe: Recipe, *, trains: bool) -> Recipe:
    """`recipe` with every name of code Unnamed that comes from a file of an opened folder (Origin.opened).

    `trains`: the command may need all that it names, else what answering takes.
    """
    opened = {key: _opened(recipe, key) for key in CODE_KEYS if names_of(recipe, key)}
    foreign = {key: folder for key, folder in opened.items() if folder is not None}
    for key, folder in foreign.items():
        flags = _settings(recipe, [each for each in foreign if trains or each == key or each.startswith(_ANSWERING)])
        mark = partial(Unnamed, folder=folder, flags=flags)
        recipe = with_value(recipe, key, _each(attrgetter(key)(recipe), mark))
    space = dict(recipe.search.space)
    for key in space.keys() & {*CODE_KEYS}:
        tried_by = _opened(recipe, f"search.space.{key}")
        if tried_by is not None:
            choices = space[key].choices
            flags = settings({f"search.space.{key}": _in_yaml(choices)})
            space[key] = replace(space[key], choices=_each(choices, partial(Unnamed, folder=tried_by, flags=flags)))
    return replace(recipe, search=replace(recipe.search, space=space))


def of_folder(recipe: Recipe, folder: Path) -> Recipe:
    """`recipe`, of a file that a recipe in the opened `folder` names, with all its names of code Unnamed."""
    origins = {key: replace(origin, opened=folder) for key, origin in recipe.origins.items()}
    return marked(replace(recipe, origins=origins), trains=True)


def with_names_of(own: Recipe, user: Recipe) -> Recipe:
    """`own`, the recipe of a folder, with the names of code that `user` names under the same key; a student's network
    also as one of its own. `user`: the recipe of the command."""
    users = [user] if user.student is None else [user, user.student]
    for key in CODE_KEYS:
        named = [name for each in users for name in names_of(each, key)]
        named += names_of(user, _STUDENT) if key == "model.network" else ()
        trusted = {name: name for name in named if not isinstance(name, Unnamed)}
        value = attrgetter(key)(own)
        if value:
            own = with_value(own, key, _each(value, partial(_trusted, trusted)))
    return own


def _opened(recipe: Recipe, key: str) -> Path | None:
    """The opened folder whose file gives `key` its value; None: the user does, or it is the default."""
    origin = recipe.origins.get(key)
    return None if origin is None else origin.opened


def _each(value: Any, change: Callable[[str], str]) -> Any:
    """A name, or lists of names, with each of them changed."""
    if isinstance(value, str):
        return change(value)
    return tuple(_each(each, change) for each in value) if isinstance(value, tuple) else value


def _trusted(known: dict[str, str], name: str) -> str:
    return known.get(name, name)


def _flat(choices: Any) -> Iterator[str]:
    """The names in what is tried of a key, one by one or in lists."""
    if isinstance(choices, str):
        yield choices
    for each in choices if isinstance(choices, tuple) else ():
        yield from _flat(each)


def _in_yaml(choices: Any) -> str:
    if isinstance(choices, tuple):
        return f"[{', '.join(map(_in_yaml, choices))}]"
    return "null" if choices is None else str(choices)


def _settings(recipe: Recipe, keys: Sequence[str]) -> str:
    """What names the values of some keys, whatever signs a name holds."""
    return settings({key: ",".join(names_of(recipe, key)) for key in keys})


def module_file(name: str) -> Path | None:
    """The file of the module that `package.module:function` names, or None."""
    last = _origins(name)[-1]
    return Path(last) if last is not None and os.path.isfile(last) else None


def _origins(name: str) -> list[str | None]:
    """The files that importing the module of `name` runs: its packages, then its own; None for one without a file."""
    first, *inner = name.partition(":")[0].split(".")
    try:
        with current_directory_first():
            spec = importlib.util.find_spec(first)
            origins = [None if spec is None else spec.origin]
            places = list((spec and spec.submodule_search_locations) or ())
            module = first
            for part in inner:
                places = getattr(sys.modules.get(module), "__path__", places)
                module = f"{module}.{part}"
                origin, places = _submodule(module, list(places))
                origins.append(origin)
            return origins
    except (ImportError, ValueError):  # of a module without a spec, such as __main__: importing it raises the error
        return [None]


def _submodule(module: str, places: Sequence[str]) -> tuple[str | None, list[str]]:
    """The file of a module in a package of `places`, and the folders of its own modules.

    Python's own search would import the package.
    """
    portions: list[str] = []
    for place in places:
        finder = pkgutil.get_importer(place)
        spec = None if finder is None else finder.find_spec(module)
        if spec is not None and spec.loader is not None:
            return spec.origin, list(spec.submodule_search_locations or ())
        portions += (spec and spec.submodule_search_locations) or ()  # a package without __init__.py
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
