"""The user's code, which a recipe names as package.module:function: what kinds there are, who names it, importing it.

What the recipe of an opened folder names (a run, a model, an export) is `Unnamed`: it is imported only once the user
names it too, on the command line or in a recipe file of her own. Else whoever sends a folder would run code: a name
needs no file in it, since runpy:run_path takes any.

Where it is called: data/open_split.py reads by data.reader, data/changed_rows.py by data.map and data.filter;
models/user_network.py builds a network of model.network; training/user_code.py imports all that a training calls, and
tries it on a few rows; training/user_loss.py makes a loss of a criterion; compress/user_code.py has that of `compress`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from nlpctl.checksums import sha256_of
from nlpctl.config.schema import DataSection, Recipe, with_value
from nlpctl.config.sources import own_recipe_instead
from nlpctl.console import display
from nlpctl.errors import NlpctlError, UserError
from nlpctl.names import did_you_mean
from nlpctl.spelling import settings
from nlpctl.upstream.changed_in_place import what_changed

# --------------------------------------------------------------------------------------------------
# What a recipe may name as module:function: what each takes and gives. A new kind is an entry
# of CODE_KINDS, its key in the schema, and the place that calls it.


@dataclass(frozen=True)
class CodeKind:
    """One kind of code. `key`: the recipe key that names it, one name or a list.

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


CODE_KINDS: tuple[CodeKind, ...] = (
    CodeKind("data.reader", None, "dicts, one per row"),
    CodeKind("data.map", ("row",), "a dict, the row as it is to be read"),
    CodeKind("data.filter", ("row",), "true or false"),
    CodeKind("model.network", ("config",), "a paddle.nn.Layer"),
    CodeKind("training.criterion", ("outputs", "labels"), "the mean loss of the batch, a scalar tensor"),
    CodeKind("training.optimizer", ("model", "args"), "a paddle.optimizer.Optimizer"),
    CodeKind("training.scheduler", ("args", "num_training_steps"), "a paddle.optimizer.lr.LRScheduler"),
    CodeKind("training.data_collator", ("tokenizer",), "a function (features) that returns a batch"),
    CodeKind("training.compute_metrics", ("eval_prediction",), "a dict of names and numbers", changes_training=False),
    CodeKind("training.preprocess_logits_for_metrics", ("logits", "labels"), "a tensor", changes_training=False),
    CodeKind("training.callbacks", (), "a paddlenlp.trainer.TrainerCallback", changes_training=False),
)
COMPRESSION_KINDS: tuple[CodeKind, ...] = (  # of `nlpctl compress`
    CodeKind("compression.criterion", ("outputs", "labels"), "the mean loss of the batch, a scalar tensor"),
    CodeKind("compression.evaluate", ("predict", "rows"), "a number, or a dict of names and numbers"),
)


def kind_of_code(key: str) -> CodeKind:
    """The entry of `key`."""
    return next(kind for kind in (*CODE_KINDS, *COMPRESSION_KINDS) if kind.key == key)


def names_of(recipe: Recipe, key: str) -> tuple[str, ...]:
    """The code that the recipe names under `key`, in order; empty if it names none."""
    value = attrgetter(key)(recipe)
    return value if isinstance(value, tuple) else () if value is None else (value,)


def named_code(recipe: Recipe) -> Iterator[tuple[CodeKind, str]]:
    """All code that the recipe names but for `nlpctl compress`, and of which kind it is."""
    for kind in CODE_KINDS:
        for name in names_of(recipe, kind.key):
            yield kind, name


# -- whose code runs -------------------------------------------------------------------------------

_STUDENT = "distillation.model.network"
# Every key that names code. A new one must be here, or an opened folder could run what it names.
CODE_KEYS = (*(kind.key for kind in (*CODE_KINDS, *COMPRESSION_KINDS)), _STUDENT)
_HERE = Path()
_COMPUTING = ("model.network", "training.criterion")  # they compute what gradients are of
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


# -- finding its file, without running it -------------------------------------------------------------


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


# -- importing it, and saying what it did wrong --------------------------------------------------------


def import_function(name: str, where: str, purpose: str) -> Callable[..., Any]:
    """The function that `package.module:function` names; the current directory is searched first.

    UserError, blaming the key `where`, if there is none, or if only an opened folder names it.
    `purpose`: "a function that yields dicts".
    """
    refuse_unnamed(name, where)
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise UserError(f"{name!r} does not name a function", where=where, hint="write package.module:function")
    try:
        with current_directory_first():
            module = importlib.import_module(module_name)
    except Exception as error:
        hint = f"modules are looked for in the current directory ({os.getcwd()}) and among the installed packages"
        raise UserError(f"cannot import {module_name!r}: {describe_error(error)}", where=where, hint=hint) from None
    if function_name not in vars(module):
        guess = did_you_mean(function_name, [key for key, value in vars(module).items() if callable(value)])
        hint = f"name a function of {vars(module).get('__file__') or module_name}"
        raise UserError(f"{module_name!r} has no {function_name!r}{guess}", where=where, hint=hint)
    function = vars(module)[function_name]
    if not callable(function):
        raise UserError(f"{name!r} is not a function", where=where, hint=f"name {purpose}")
    return function


def check_call(function: Callable[..., Any], takes: Sequence[str], name: str, where: str) -> None:
    """UserError, blaming the key `where`, if `function` cannot be called with as many arguments as `takes` names."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function in C tells only when it is called
        return
    try:
        signature.bind(*takes)
    except TypeError as error:
        short = name.partition(":")[2]
        message = f"{name} is called as {short}({', '.join(takes)}), but is defined as {short}{signature}: {error}"
        raise UserError(message, where=where, hint="change its arguments") from None


def import_code(kind: CodeKind, name: str) -> Callable[..., Any]:
    """What `name` names for a kind of code. UserError: it cannot be imported, or takes other arguments."""
    function = import_function(name, kind.key, kind.purpose)
    if kind.takes is not None:
        check_call(function, kind.takes, name, kind.key)
    return function


def code_sums(recipe: Recipe) -> dict[str, dict[str, str]]:
    """Key -> name -> SHA-256 of the module's source ("" where it has no file), of all code that `recipe` names.

    The modules are found, not run.
    """
    sums: dict[str, dict[str, str]] = {}
    for kind, name in named_code(recipe):
        file = module_file(name)
        sums.setdefault(kind.key, {})[name] = "" if file is None else sha256_of(file)
    return sums


@contextlib.contextmanager
def user_code_blamed(recipe: Recipe) -> Iterator[None]:
    """Inside, an exception that passes through code that `recipe` names becomes a UserError about it.

    So does the error of a gradient that such code made impossible by a change in place. Our own errors and a lack of
    memory pass as they are.
    """
    try:
        yield
    except (NlpctlError, MemoryError):
        raise
    except Exception as error:
        changed = what_changed(error)
        if changed is not None:  # it comes out of the backward pass, which is nobody's code
            computing = [kind.key for kind, _ in named_code(recipe) if kind.key in _COMPUTING]
            hint = "compute a new tensor there: h = h + y, not h.add_(y)"
            raise UserError(changed, where=" or ".join(computing), hint=hint) from None
        guilty = _guilty(error, recipe)
        if guilty is None:
            raise
        kind, name = guilty
        message = f"{name} failed: {describe_error(error, inside=str(module_file(name)))}"
        raise UserError(message, where=kind.key, hint=f"fix it; it is {kind.purpose}") from None


def _guilty(error: Exception, recipe: Recipe) -> tuple[CodeKind, str] | None:
    """The code through which the exception passed: through its own lines, else anywhere through its file."""
    frames = [(os.path.realpath(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    in_file = None
    for kind, name in named_code(recipe):
        file = module_file(name)
        inside = [line for each, line in frames if file is not None and each == os.path.realpath(file)]
        if inside and in_file is None:
            in_file = kind, name
        if any(line in _lines(name) for line in inside):
            return kind, name
    return in_file


def _lines(name: str) -> range:
    """The lines of a function or class in its file; none where that is not known."""
    module, _, function = name.partition(":")
    try:
        source, first = inspect.getsourcelines(vars(sys.modules[module])[function])
    except (KeyError, OSError, TypeError):
        return range(0)
    return range(first, first + len(source))


def describe_error(error: Exception, *callers: str, inside: str | None = None) -> str:
    """The exception and the line of the user's code that raised it, without a traceback.

    `callers`: our own files on the way there. `inside`: the file of which the last line is wanted.
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = (__file__, *callers)
    outside = [frame for frame in frames if frame.filename not in ours and "importlib" not in frame.filename]
    if inside is not None:
        outside = [frame for frame in frames if os.path.realpath(frame.filename) == os.path.realpath(inside)]
    place = f" ({outside[-1].filename}:{outside[-1].lineno})" if outside else ""
    return f"{type(error).__name__}: {error}{place}"
