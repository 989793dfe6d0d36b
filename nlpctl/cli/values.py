"""Values that commands take: no number is infinite, or larger than the libraries below can count.

No path is "-", unless the help of its option says that it is standard output.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nlpctl.errors import Problem, UserError

LARGEST = 2**32 - 1  # also the largest seed


def check_values(command: Any) -> None:
    """Let `command`, or each one of a group, refuse such values before it begins."""
    for each in [*getattr(command, "commands", {}).values()] or [command]:
        if each.callback is not None:
            each.callback = _checked(each.callback, {param.name: param for param in each.params})


def _checked(callback: Callable, params: dict[str, Any]) -> Callable:
    @functools.wraps(callback)
    def checked(**values: Any) -> Any:
        wrong = [
            Problem(reason, params[name].opts[0] if name in params else name, hint)
            for name, value in values.items()
            for reason, hint in _wrong(value, params.get(name))
        ]
        if wrong:
            raise UserError(problems=wrong)
        return callback(**values)

    return checked


def _wrong(value: Any, param: Any) -> list[tuple[str, str]]:
    if value == Path("-") and "standard output" not in (getattr(param, "help", None) or ""):
        return [("- is not standard output here", "give a name")]
    if isinstance(value, int) and abs(value) > LARGEST:
        return [("this number is too large", f"at most {LARGEST:,}")]
    if isinstance(value, float) and not math.isfinite(value):
        return [(f"{value} is not a number to count with", "give a finite number")]
    return []
