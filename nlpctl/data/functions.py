"""Imports user functions that a recipe names as package.module:function; for data, training and compression."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nlpctl.errors import UserError
from nlpctl.names import did_you_mean


def import_function(name: str, where: str, purpose: str) -> Callable[..., Any]:
    """The function that `package.module:function` names; the current directory is searched first.

    UserError if there is none, blaming the key `where`; `purpose`: "a function that yields dicts".
    """
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise UserError(f"{name!r} does not name a function", where=where, hint="write package.module:function")
    try:
        with _current_directory_first():
            module = importlib.import_module(module_name)
    except Exception as error:
        hint = f"modules are looked for in the current directory ({os.getcwd()}) and among the installed packages"
        raise UserError(f"cannot import {module_name!r}: {raised(error)}", where=where, hint=hint) from None
    if function_name not in vars(module):
        guess = did_you_mean(function_name, [key for key, value in vars(module).items() if callable(value)])
        hint = f"name a function of {vars(module).get('__file__') or module_name}"
        raise UserError(f"{module_name!r} has no {function_name!r}{guess}", where=where, hint=hint)
    function = vars(module)[function_name]
    if not callable(function):
        raise UserError(f"{name!r} is not a function", where=where, hint=f"name {purpose}")
    return function


def module_file(name: str) -> Path | None:
    """The file of the module that `package.module:function` names, or None. Only packages around it are run."""
    try:
        with _current_directory_first():
            found = importlib.util.find_spec(name.partition(":")[0])
    except Exception:  # of a package around it: whoever runs the function tells
        return None
    return None if found is None or found.origin is None or not os.path.isfile(found.origin) else Path(found.origin)


@contextlib.contextmanager
def _current_directory_first() -> Iterator[None]:
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


def raised(error: Exception, *callers: str) -> str:
    """The exception and the line of the user's code that raised it, without a traceback.

    `callers`: our own files on the way there.
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = (__file__, *callers)
    outside = [frame for frame in frames if frame.filename not in ours and "importlib" not in frame.filename]
    place = f" ({outside[-1].filename}:{outside[-1].lineno})" if outside else ""
    return f"{type(error).__name__}: {error}{place}"
