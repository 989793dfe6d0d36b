"""Values that parameters are set to: numbers, arrays in .npy files, and draws from distributions."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nlpctl.config.distributions import (
    BY_SHAPE,
    BadDistribution,
    Distribution,
    is_distribution,
    read_distribution,
)
from nlpctl.errors import UserError
from nlpctl.formats.array_files import map_numpy
from nlpctl.outputs import refuse_pipe

WITHIN = 2.0  # truncated_normal: draws further than this many standard deviations from the mean are drawn again


def value_for(name: str, shape: Sequence[int], value: float | str, where: str, seed: int = 0) -> np.ndarray:
    """`value` as float32 of `shape` for the parameter `name`: a number, a .npy file, or a distribution.

    A draw depends on `seed`, `name` and `shape` alone, not on what else is set. UserError: it does not fit.
    """
    if not isinstance(value, str):
        return np.full(shape, value, np.float32)
    if not is_distribution(value):
        return _read(name, shape, Path(value), where)
    try:
        found = read_distribution(value)
    except BadDistribution as error:
        raise UserError(str(error), where=where, hint=error.hint) from None
    return _draw(found, name, tuple(shape), where, seed)


def _draw(found: Distribution, name: str, shape: tuple[int, ...], where: str, seed: int) -> np.ndarray:
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    values = found.values
    if found.kind in BY_SHAPE:
        drawn = _by_shape(found, name, shape, where, generator)
    elif found.kind == "uniform":
        drawn = generator.uniform(values["low"], values["high"], shape)
    elif found.kind == "normal":
        drawn = generator.normal(values["mean"], values["std"], shape)
    elif found.kind == "truncated_normal":
        drawn = values["mean"] + values["std"] * _truncated(generator, shape)
    else:
        drawn = np.full(shape, values["value"])
    return drawn.astype(np.float32)


def _truncated(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    drawn = generator.normal(size=shape)
    while (far := np.abs(drawn) > WITHIN).any():
        drawn[far] = generator.normal(size=int(far.sum()))
    return drawn


def _by_shape(
    found: Distribution, name: str, shape: tuple[int, ...], where: str, generator: np.random.Generator
) -> np.ndarray:
    """Xavier (Glorot and Bengio, 2010) and Kaiming (He et al., 2015), with the fans that Paddle counts."""
    if len(shape) < 2:
        hint = "name matrices only, such as classifier.weight; biases and norms take normal, uniform or a number"
        raise UserError(f"{found.kind} is for matrices, but {name} is {list(shape)}", where=where, hint=hint)
    fan_in, fan_out = _fans(shape)
    if found.kind.startswith("xavier_"):
        std = found.values["gain"] * math.sqrt(2 / (fan_in + fan_out))
    else:
        std = math.sqrt(2 / (1 + found.values["negative_slope"] ** 2) / fan_in)
    if found.kind.endswith("_normal"):
        return generator.normal(0.0, std, shape)
    return generator.uniform(-std * math.sqrt(3), std * math.sqrt(3), shape)


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Inputs and outputs of a weight: a matrix is [in, out], a kernel [out, in, width...]."""
    if len(shape) == 2:
        return shape[0], shape[1]
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def _read(name: str, shape: Sequence[int], file: Path, where: str) -> np.ndarray:
    refuse_pipe(file, where)
    try:
        array = map_numpy(file)  # its shape is checked before its values are read
    except (OSError, ValueError) as error:
        message = f"{file.name} cannot be read ({error})"
        raise UserError(message, where=where, hint="write it with numpy.save(FILE, array)") from None
    if array.dtype.kind not in "fiu":
        raise UserError(f"{file.name} holds no array of numbers", where=where, hint="write it with numpy.save")
    if array.shape != tuple(shape):
        message = f"{file.name} is {list(array.shape)}, but {name} is {list(shape)}"
        raise UserError(message, where=where, hint="give an array of that shape, or a name that matches less")
    if not np.isfinite(array).all():
        raise UserError(f"{file.name} holds NaN or infinite values", where=where, hint="give finite numbers")
    return array.astype(np.float32)
