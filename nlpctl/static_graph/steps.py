"""The steps of a name map, which transform the arrays of static variables into parameters.

A step maps a list of arrays to a list: most change each array, some join all into one, `split` cuts each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nlpctl.errors import UserError
from nlpctl.names import did_you_mean, listed

TARGET = "target"  # in place of a shape: that of the parameter
Arrays = list[np.ndarray]
Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Step:
    """One step. `value`: what stands behind its name in the map, None if nothing does; `where`: file and line."""

    name: str
    value: Any
    where: str

    def plain(self) -> Any:
        """The step as a map file has it."""
        return self.name if self.value is None else {self.name: self.value}


def parse_step(content: Any, where: str) -> Step:
    """A step as written, `transpose` or `{split: {axis: 1}}`. UserError: no such step, or a value that it cannot take.
    """
    if isinstance(content, str):
        content = {content: None}
    if not isinstance(content, dict) or len(content) != 1:
        raise UserError("a step is a name, or one name with a value", where, "such as - transpose, or - concatenate: 0")
    name, value = next(iter(content.items()))
    if name not in _STEPS:
        raise UserError(f"there is no step {name!r}{did_you_mean(name, _STEPS)}", where, f"steps: {listed(_STEPS)}")
    if not _STEPS[name].accepts(value):
        raise UserError(f"{name} cannot take {value!r}", where, f"write it as {_STEPS[name].example}")
    return Step(name, value, where)


def run_steps(steps: Sequence[Step], arrays: Sequence[np.ndarray], targets: Shapes) -> Arrays:
    """The arrays after all steps. `targets`: the shapes of the parameters. UserError: a step does not fit."""
    current = list(arrays)
    for step in steps:
        try:
            current = _STEPS[step.name].run(current, step.value, targets)
        except (ValueError, IndexError) as error:  # NumPy's words for what does not fit
            shapes = " and ".join(str(list(array.shape)) for array in current)
            raise UserError(f"{step.name} does not fit arrays of shape {shapes} ({error})", step.where, _MEND) from None
    return current


_SMALL = 1 << 20  # values that any array may have
_MEND = "correct the step; `nlpctl convert-static ... --plan` shows the shapes of all variables and parameters"


@dataclass(frozen=True)
class _Kind:
    """`accepts`: whether a value is of the right form. `example`: as in a map file."""

    run: Callable[[Arrays, Any, Shapes], Arrays]
    accepts: Callable[[Any], bool]
    example: str


def _transpose(arrays: Arrays, order: list[int] | None, targets: Shapes) -> Arrays:
    return [np.transpose(array, order) for array in arrays]


def _reshape(arrays: Arrays, shape: list[int] | str, targets: Shapes) -> Arrays:
    return [array.reshape(to) for array, to in zip(arrays, _shapes(arrays, shape, targets), strict=True)]


def _split(arrays: Arrays, how: Mapping[str, Any], targets: Shapes) -> Arrays:
    axis = how["axis"]
    if "parts" in how:
        return [part for array in arrays for part in np.split(array, how["parts"], axis)]
    return [part for array in arrays for part in np.split(array, np.cumsum(_sizes(array, how))[:-1], axis)]


def _sizes(array: np.ndarray, how: Mapping[str, Any]) -> list[int]:
    """The sizes of a split's parts; a -1 stands for the rest."""
    sizes, have = how["sizes"], array.shape[how["axis"]]
    rest = have - sum(size for size in sizes if size != -1)
    if sizes.count(-1) > 1 or rest < 0 or (rest > 0 and -1 not in sizes):
        raise ValueError(f"sizes {sizes} are not those of axis {how['axis']}, which has {have}")
    return [rest if size == -1 else size for size in sizes]


def _concatenate(arrays: Arrays, axis: int, targets: Shapes) -> Arrays:
    return [np.concatenate(arrays, axis)]


def _stack(arrays: Arrays, axis: int, targets: Shapes) -> Arrays:
    return [np.stack(arrays, axis)]


def _add(arrays: Arrays, value: None, targets: Shapes) -> Arrays:
    if len({array.size for array in arrays}) != 1:
        raise ValueError("they differ in size")
    return [np.sum([array.reshape(arrays[0].shape) for array in arrays], axis=0, dtype=arrays[0].dtype)]


def _reorder(arrays: Arrays, order: list[int], targets: Shapes) -> Arrays:
    if sorted(order) != list(range(len(arrays))):
        raise ValueError(f"the order does not name each of {len(arrays)} arrays once")
    return [arrays[index] for index in order]


def _pad(arrays: Arrays, to: list[int] | str, targets: Shapes) -> Arrays:
    """Zeros behind the end of each axis."""
    shapes, known = _shapes(arrays, to, targets), sum(map(math.prod, targets)) + sum(array.size for array in arrays)
    for shape in shapes:
        if math.prod(shape) > max(known, _SMALL):
            raise ValueError(f"{list(shape)} is larger than all that goes in, and than the parameters")
    return [
        np.pad(array, [(0, size - have) for have, size in zip(array.shape, shape, strict=True)])
        for array, shape in zip(arrays, shapes, strict=True)
    ]


def _shapes(arrays: Arrays, shape: list[int] | str, targets: Shapes) -> Shapes:
    if shape != TARGET:
        return [tuple(shape)] * len(arrays)
    if len(arrays) != len(targets):
        raise ValueError(f"{len(arrays)} arrays for {len(targets)} parameters")
    return targets


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _integers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_integer, value))


def _shape_value(value: Any) -> bool:
    return value == TARGET or _integers(value)


def _split_value(value: Any) -> bool:
    if not isinstance(value, dict) or not _integer(value.get("axis")):
        return False
    parts = set(value) == {"axis", "parts"} and _integer(value["parts"]) and value["parts"] > 0
    sizes = value.get("sizes")
    return parts or (set(value) == {"axis", "sizes"} and _integers(sizes) and all(size >= -1 for size in sizes))


_STEPS = {
    "transpose": _Kind(_transpose, lambda value: value is None or _integers(value), "transpose, or transpose: [1, 0]"),
    "reshape": _Kind(_reshape, _shape_value, "reshape: [12, -1], or reshape: target"),
    "split": _Kind(_split, _split_value, "split: {axis: 1, parts: 3}, or split: {axis: 0, sizes: [1, 2, -1]}"),
    "concatenate": _Kind(_concatenate, _integer, "concatenate: 0, the axis"),
    "stack": _Kind(_stack, _integer, "stack: 0, the new axis"),
    "add": _Kind(_add, lambda value: value is None, "add"),
    "reorder": _Kind(_reorder, _integers, "reorder: [1, 0], places in the list of arrays"),
    "pad": _Kind(_pad, _shape_value, "pad: target, or pad: [100, 8]"),
}
