"""Messages about a key say where the key was set."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from nlpctl.config.schema import Recipe
from nlpctl.errors import NeedsRestart, UserError


@contextlib.contextmanager
def located(recipe: Recipe) -> Iterator[None]:
    """A UserError of the body that blames a key of `recipe` names the file and line, or the flag, that set it.

    The modules that do the work are given sections of a recipe and know only the keys.
    """
    try:
        yield
    except NeedsRestart:  # blames no key
        raise
    except UserError as error:
        problems = [dataclasses.replace(problem, where=recipe.where(problem.where)) for problem in error.problems]
        raise UserError(problems=problems) from error
