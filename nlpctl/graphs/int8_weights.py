"""The int8 weights of a program, as Paddle's quantisers write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nlpctl.graphs.program_edit import copied, only
from nlpctl.upstream.static_int8 import LARGEST


@dataclass(frozen=True)
class Int8Weight:
    """A weight that is int8 in the file: `steps` * `bounds` / 127 along `axis`; `operator` dequantises it.

    `bounds`: one value, or one per index along the axis.
    """

    steps: np.ndarray
    bounds: np.ndarray
    axis: int
    operator: Any

    @property
    def name(self) -> str:
        return only(self.operator.inputs, "X")

    @property
    def scale_name(self) -> str:
        return only(self.operator.inputs, "Scale")

    @property
    def product(self) -> str:
        """The variable that holds the values."""
        return only(self.operator.outputs, "Y")

    @property
    def step(self) -> np.ndarray:
        """The value of one step, in a shape that broadcasts with `steps`."""
        shape = [1] * self.steps.ndim
        if self.bounds.size > 1:
            shape[self.axis] = -1
        return self.bounds.astype(np.float32).reshape(shape) / LARGEST

    @property
    def values(self) -> np.ndarray:
        return self.steps.astype(np.float32) * self.step

    @property
    def column_bounds(self) -> np.ndarray:
        """The bound of each column of a matrix, whichever axis `bounds` belongs to."""
        if self.bounds.size == 1:
            return np.full(self.steps.shape[1], self.bounds.item(), np.float32)
        return self.bounds if self.axis == 1 else np.abs(self.values).max(axis=0)


def int8_weights(desc: Any, arrays: Mapping[str, np.ndarray]) -> Iterable[Int8Weight]:
    """The weights of a program that a dequantize_linear dequantises."""
    for op in desc.blocks[0].ops:
        if op.type == "dequantize_linear" and only(op.inputs, "X") in arrays:
            axis = next(attribute.i for attribute in op.attrs if attribute.name == "quant_axis")
            bounds = arrays[only(op.inputs, "Scale")].reshape(-1)
            yield Int8Weight(arrays[only(op.inputs, "X")], bounds, axis, copied(op))
