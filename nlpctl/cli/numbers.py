"""Numbers that flags take: none is infinite, or larger than the libraries below can count."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from nlpctl.errors import Problem, UserError

LARGEST = 2**32 - 1  # also the largest seed


def bound_numbers(command: Any) -> None:
    """Let `command`, or each one of a group, refuse numbers out of range before it begins."""
    for each in [*getattr(command, "commands", {}).values()] or [command]:
        if each.callback is not None:
            each.callback = _bounded(each.callback, {param.name: param.opts[0] for param in each.params})


def _bounded(callback: Callable, flags: dict[str, str]) -> Callable:
    @functools.wraps(callback)
    def bounded(**values: Any) -> Any:
        wrong = [
            Problem(reason, flags.get(name, name), hint)
            for name, value in values.items()
            for reason, hint in _wrong(value)
        ]
        if wrong:
            raise UserError(problems=wrong)
        return callback(**values)

    return bounded


def _wrong(value: Any) -> list[tuple[str, str]]:
    if isinstance(value, int) and abs(value) > LARGEST:
        return [("this number is too large", f"at most {LARGEST:,}")]
    if isinstance(value, float) and not math.isfinite(value):
        return [(f"{value} is not a number to count with", "give a finite number")]
    return []
