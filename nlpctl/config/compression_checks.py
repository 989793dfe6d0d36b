"""Checks of section compression: what its texts mean, and what PaddlePaddle 2.6 takes but does not do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from nlpctl.config.compression_keys import parse_budget, parse_width
from nlpctl.config.finding import Check, Finding
from nlpctl.config.schema import Recipe

FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def _parsed(key: str, text: str, parse: Callable[[str], Any], hint: str) -> Iterator[Finding]:
    try:
        parse(text)
    except ValueError as error:
        yield Finding((key,), f"{key}: {error}", hint)


def _widths(recipe: Recipe) -> Iterator[Finding]:
    for text in recipe.compression.width_mult_list or ():
        yield from _parsed("compression.width_mult_list", text, parse_width, "write fractions: 3/4, 1/2")


def _budget(recipe: Recipe) -> Iterator[Finding]:
    if recipe.compression.budget is not None:
        yield from _parsed("compression.budget", recipe.compression.budget, parse_budget, "write 30m, 1h30m or 90s")


def _functions(recipe: Recipe) -> Iterator[Finding]:
    section = recipe.compression
    for name, text in (("evaluate", section.evaluate), ("criterion", section.criterion)):
        if text is not None and not FUNCTION.fullmatch(text):
            key = f"compression.{name}"
            message = f"{key} {text!r} is not of the form package.module:function"
            yield Finding((key,), message, "for example my_project.scores:mine")


def _algorithms(recipe: Recipe) -> Iterator[Finding]:
    if "min_max" in (recipe.compression.algo_list or ()):
        message = "compression.algo_list: PaddlePaddle takes min_max and then quantises nothing"
        yield Finding(("compression.algo_list",), message, "use avg, mse, emd, hist, abs_max or KL")


def _input_type(recipe: Recipe) -> Iterator[Finding]:
    if recipe.compression.input_dtype == "int32":
        message = "compression.input_dtype: graphs need the int64 ids that tokenizers produce"
        yield Finding(("compression.input_dtype",), message, "leave it out")


def _batch_sizes(recipe: Recipe) -> Iterator[Finding]:
    if not recipe.compression.batch_sizes:
        yield Finding(("compression.batch_sizes",), "compression.batch_sizes is empty", "write [1, 32]")


COMPRESSION_CHECKS: tuple[Check, ...] = (
    _widths,
    _budget,
    _functions,
    _algorithms,
    _input_type,
    _batch_sizes,
)
