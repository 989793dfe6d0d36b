"""The keys of section compression that are nlpctl's own, beside those of PaddleNLP's CompressionArguments; what
their texts mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from nlpctl.config.declare import key

_BUDGET = re.compile(r"\s*(?:(\d+(?:\.\d+)?)\s*h)?\s*(?:(\d+(?:\.\d+)?)\s*m(?:in)?)?\s*(?:(\d+(?:\.\d+)?)\s*s)?\s*")


@dataclass(frozen=True)
class CompressionKeys:
    """The choice of the best compressed model, the time budget, and user functions."""

    evaluate: str | None = key(
        None,
        "Your own score, package.module:function(predict, rows) -> number or dict of numbers; higher is better, of a "
        "dict the first entry is used. It runs with your rights: name only code you trust.",
    )
    criterion: str | None = key(
        None,
        "Your own loss, package.module:function(outputs, labels) -> scalar: used by qat for training, by dynabert for "
        "importance, and weighted by distillation.hard. It runs with your rights: name only code you trust.",
    )
    max_drop: float = key(0.5, "How many points the best may score below the uncompressed model on dev.")
    sure: float | None = key(
        None,
        "How sure the choice must be that the drop is within max_drop, such as 0.9: in this share of resampled dev "
        "splits. Default: the drop on dev as it is.",
    )
    target: Literal["throughput", "latency", "size"] = key(
        "throughput",
        "What to optimise: rows per second at the largest of batch_sizes, latency of a batch at the smallest, or size "
        "on disk.",
    )
    budget: str | None = key(
        None, "Time budget, such as 30m or 1h30m; the most promising candidates are tried first. Default: no limit."
    )
    batch_sizes: tuple[int, ...] = key((1, 32), "Batch sizes that candidates are timed with.")


def parse_width(text: str) -> Fraction:
    """A width such as 3/4 or 0.75. ValueError, a sentence, for anything else."""
    try:
        width = Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{text!r} is not a fraction") from None
    if not 0 < width <= 1:
        raise ValueError(f"the width {text} is not above 0 and at most 1")
    return width


def parse_budget(text: str) -> float:
    """Seconds of a time such as 30m, 1h30m or 90s. ValueError, a sentence, for anything else."""
    match = _BUDGET.fullmatch(text)
    seconds = 0.0
    if match is not None:
        seconds = sum(float(part) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True) if part)
    if not seconds:
        raise ValueError(f"{text!r} is not a time")
    return seconds
