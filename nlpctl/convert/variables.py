"""The content of a static-graph source: named arrays, and optionally the program that uses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nlpctl.formats.program import Program


def dtype_name(array: np.ndarray) -> str:
    """float32, float64, float16, bfloat16 (held as uint16), int8, int16, int32, int64, uint8 or bool."""
    return "bfloat16" if array.dtype == np.uint16 else array.dtype.name


@dataclass(frozen=True)
class StaticVariable:
    """One array under the name that the program, or the file it lies in, gives it.

    `array` may be a read-only view of the mapped file. A bfloat16 variable is held as uint16, the bits, which
    `models.weights.to_float32` widens. `structured`: the name of the dygraph parameter it was saved from, such as
    `ernie.embeddings.word_embeddings.weight`, where the source records it.
    """

    name: str
    array: np.ndarray
    structured: str | None = None

    @property
    def dtype(self) -> str:
        """As `dtype_name` says it."""
        return dtype_name(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


@dataclass(frozen=True)
class StaticModel:
    """The variables of one source, by name, in the order of the source.

    `source`: what the user gave. `layout`: the recognised layout, in words for people. `program`: None where the
    source has none. `left_out`: names of variables that belong to an optimizer (moments, learning rates), which a
    dygraph model has no place for. `notes`: sentences the user should read, such as a file that was not used.
    """

    source: Path
    layout: str
    variables: Mapping[str, StaticVariable]
    program: Program | None = None
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
