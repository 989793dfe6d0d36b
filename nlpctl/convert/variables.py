"""The content of a static-graph source: named arrays, and optionally the program that uses them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nlpctl.formats.program import Program


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


def dtype_name(array: np.ndarray) -> str:
    """float32, float64, float16, bfloat16 (held as uint16), int8, int16, int32, int64, uint8 or bool."""
    return "bfloat16" if array.dtype == np.uint16 else array.dtype.name


# -- variables of an optimizer ----------------------------------------------------------------------------------------

# `save_persistables` writes the variables of the optimizer to the same folder as those of the network. The accumulators
# of Paddle's optimizers are named PARAMETER_WORD_NUMBER:
_WORDS = (
    "moment moment1 moment2 beta1_pow_acc beta2_pow_acc velocity momentum mean_square mean_grad inf_norm squared "
    "linear _avg_squared_grad _avg_squared_update dgc_u dgc_v fp32_master"
)
_ACCUMULATOR = re.compile(rf"(.+)_(?:{'|'.join(_WORDS.split())})_\d+")
_GLOBAL = re.compile(
    r"(scheduled_)?learning_rate(_\d+)?|@LR_DECAY_COUNTER@|@LR_DECAY_\w+|loss_scaling_\d+|num_(good|bad)_steps_\d+"
)


def optimizer_state(names: Collection[str]) -> frozenset[str]:
    """Those of `names` that belong to an optimizer: learning rates, and accumulators of a parameter among `names`."""
    known = frozenset(names)

    def is_state(name: str) -> bool:
        if _GLOBAL.fullmatch(name):
            return True
        accumulator = _ACCUMULATOR.fullmatch(name)
        if accumulator is None:
            return False
        # Of a parameter, or of its fp32 master copy: PARAMETER_fp32_master_0_moment1_0.
        master = re.fullmatch(r"(.+)_fp32_master_\d+", accumulator[1])
        return (master or accumulator)[1] in known

    return frozenset(name for name in known if is_state(name))
