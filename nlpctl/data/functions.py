"""Imports user functions that a recipe names as package.module:function; for data, training and compression."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nlpctl.checksums import sha256_of
from nlpctl.config.own_code import Part, current_directory_first, module_file, named_parts, refuse_unnamed
from nlpctl.config.schema import Recipe
from nlpctl.errors import NlpctlError, UserError
from nlpctl.names import did_you_mean
from nlpctl.upstream.changed_in_place import what_changed

_COMPUTING = ("model.network", "training.criterion")  # the parts that compute what gradients are of


def import_function(name: str, where: str, purpose: str) -> Callable[..., Any]:
    """The function that `package.module:function` names; the current directory is searched first.

    UserError, blaming the key `where`, if there is none, or if only an opened folder names it (config/own_code.py).
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


def import_part(part: Part, name: str) -> Callable[..., Any]:
    """What `name` names for a kind of part. UserError: it cannot be imported, or takes other arguments."""
    function = import_function(name, part.key, part.purpose)
    if part.takes is not None:
        check_call(function, part.takes, name, part.key)
    return function


def part_sums(recipe: Recipe) -> dict[str, dict[str, str]]:
    """Key -> name -> SHA-256 of the module's source ("" where it has no file), of all parts that `recipe` names.

    The modules are found, not run.
    """
    sums: dict[str, dict[str, str]] = {}
    for part, name in named_parts(recipe):
        file = module_file(name)
        sums.setdefault(part.key, {})[name] = "" if file is None else sha256_of(file)
    return sums


@contextlib.contextmanager
def parts_blamed(recipe: Recipe) -> Iterator[None]:
    """Inside, an exception that passes through the code of a part that `recipe` names becomes a UserError about it.

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
            computing = [part.key for part, _ in named_parts(recipe) if part.key in _COMPUTING]
            hint = "compute a new tensor there: h = h + y, not h.add_(y)"
            raise UserError(changed, where=" or ".join(computing), hint=hint) from None
        guilty = _part_in(error, recipe)
        if guilty is None:
            raise
        part, name = guilty
        message = f"{name} failed: {describe_error(error, inside=str(module_file(name)))}"
        raise UserError(message, where=part.key, hint=f"fix it; it is {part.purpose}") from None


def _part_in(error: Exception, recipe: Recipe) -> tuple[Part, str] | None:
    """The part through whose code the exception passed: through its own lines, else anywhere through its file."""
    frames = [(os.path.realpath(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    in_file = None
    for part, name in named_parts(recipe):
        file = module_file(name)
        inside = [line for each, line in frames if file is not None and each == os.path.realpath(file)]
        if inside and in_file is None:
            in_file = part, name
        if any(line in _lines(name) for line in inside):
            return part, name
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
