"""Forward hooks that are there inside a `with` alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any


@contextlib.contextmanager
def hooked(hooks: Iterable[Any]) -> Iterator[None]:
    """`hooks`, as a layer gives them when they are registered, are removed at the end."""
    hooks = list(hooks)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
