"""Values that commands take: no number is infinite, or larger than the libraries below can count.

No path is "-", unless the help of its option says that it is standard output. Whatever else names a file or a folder,
but for the outputs, is noted as an input (outputs.py).
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nlpctl.errors import Problem, UserError
from nlpctl.outputs import inputs_noted, note_inputs

# The parameters that name what is written, as the functions of the commands call them; all others are read.
WRITTEN = frozenset(("output", "embeddings", "html", "dest", "split"))
LARGEST = 2**32 - 1  # also the largest seed


def check_values(command: Any) -> None:
    """Wrap the callback of `command`, or of each command of a group, in checks of its values.

    UserError, before the command begins, lists every value that is refused.
    """
    for each in [*getattr(command, "commands", {}).values()] or [command]:
        if each.callback is not None:
            each.callback = _checked(each.callback, {param.name: param for param in each.params})


def _checked(callback: Callable, params: dict[str, Any]) -> Callable:
    @functools.wraps(callback)
    def checked(**values: Any) -> Any:
        wrong = [
            Problem(reason, params[name].opts[0] if name in params else name, hint)
            for name, value in values.items()
            for reason, hint in _value_problems(value, params.get(name))
        ]
        if wrong:
            raise UserError(problems=wrong)
        with inputs_noted():
            for name, value in values.items():
                if name in params and name not in WRITTEN:
                    note_inputs(_existing_paths(value), _help_name(params[name]))
            return callback(**values)

    return checked


def _help_name(param: Any) -> str:
    """The name of a parameter in the help: its flag, or the name of the argument."""
    return (param.metavar or param.name) if param.param_type_name == "argument" else param.opts[0]


def _existing_paths(value: Any) -> list[str]:
    """The files and folders that exist under the names in `value`, a text or path, or a list of these."""
    words = value if isinstance(value, list | tuple) else [value]
    paths = [os.path.expanduser(word) for word in words if isinstance(word, str | Path) and str(word)]
    return [path for path in paths if os.path.lexists(path)]


def _value_problems(value: Any, param: Any) -> list[tuple[str, str]]:
    """What is wrong with the value of a parameter, as (message, hint); [] if nothing is."""
    if value == Path("-") and "standard output" not in (getattr(param, "help", None) or ""):
        return [("- is not standard output here", "give a name")]
    if isinstance(value, int) and abs(value) > LARGEST:
        return [("this number is too large", f"at most {LARGEST:,}")]
    if isinstance(value, float) and not math.isfinite(value):
        return [(f"{value} is not a number to count with", "give a finite number")]
    return []
