"""The parameters of a network by name: matching patterns and setting values.

A pattern is a full name (classifier.bias), the name of a layer and so of all below it (ernie.encoder), either with
a range of numbers as one part (ernie.encoder.layers.0-5), or with the wildcards of fnmatch (*.norm1.*), of which *
also stands for dots.
"""

from __future__ import annotations

import fnmatch
import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

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
from nlpctl.names import nearest
from nlpctl.outputs import refuse_pipe

_RANGE = re.compile(r"(\d{1,4})-(\d{1,4})")


def named(network: Any) -> dict[str, Any]:
    """Every name -> its parameter, in the network's order. A parameter that is shared has several names."""
    return {
        f"{place}.{name}" if place else name: parameter
        for place, layer in network.named_sublayers(include_self=True)
        for name, parameter in layer._parameters.items()
        if parameter is not None
    }


def select(patterns: Sequence[str], names: Iterable[str], where: str) -> list[str]:
    """The `names` that match at least one of `patterns`, in their order.

    Raises UserError, blaming the key `where`, for a pattern without a match.
    """
    names = list(names)
    chosen: set[str] = set()
    for pattern in patterns:
        matches = matching(pattern, names)
        if not matches:
            raise no_match(pattern, names, where, "parameter")
        chosen.update(matches)
    return [name for name in names if name in chosen]


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that match `pattern`, in their order."""
    # A layer's name selects everything below it.
    expression = re.compile(rf"(?:{whole_name(pattern)})(?:\..*)?")
    return [name for name in names if expression.fullmatch(name)]


def whole_name(pattern: str) -> str:
    """The regular expression of `pattern`, for whole names."""
    parts = []
    for part in pattern.split("."):
        numbers = _RANGE.fullmatch(part)
        if numbers:
            parts.append("(?:" + "|".join(map(str, range(int(numbers[1]), int(numbers[2]) + 1))) + ")")
        else:
            # translate returns (?s:...)\Z; parts are joined into one expression, so the wrapper goes.
            parts.append(fnmatch.translate(part)[len("(?s:") : -len(r")\Z")])
    return "(?s:" + r"\.".join(parts) + ")"


def no_match(pattern: str, names: Sequence[str], where: str, kind: str) -> UserError:
    """The error for a pattern that means no parameter (or layer: `kind`)."""
    prefixes = {name.rsplit(".", cut)[0] for name in names for cut in range(name.count(".") + 1)}
    near = nearest(pattern.replace("*", "").strip("."), sorted(prefixes))
    hint = f"did you mean {near}? " if near else ""
    return UserError(
        f"{pattern!r} matches no {kind}",
        where=where,
        hint=f"{hint}names go from {names[0]} to {names[-1]}" + (f" ({len(names)} in all)" if not near else ""),
    )


def trains(network: Any) -> bool:
    """Whether gradients train a parameter; otherwise the task fits what is not frozen."""
    return any(not parameter.stop_gradient for parameter in named(network).values())


def count(parameters: Iterable[Any]) -> int:
    """The number of elements of all parameters; a shared parameter counts once."""
    return sum(int(parameter.size) for parameter in {id(each): each for each in parameters}.values())


def set_parameters(network: Any, values: Mapping[str, float | str], where: str, seed: int = 0) -> dict[str, list[str]]:
    """Set parameters as `values` says: pattern to a number, a .npy file or a distribution. Returns pattern to names.

    Later patterns win. What is drawn depends on `seed` and on the parameter's first name. UserError, blaming
    `where`.PATTERN: nothing matches, or the value does not fit.
    """
    parameters = named(network)
    first: dict[int, str] = {}
    for name, parameter in parameters.items():
        first.setdefault(id(parameter), name)
    done = {}
    for pattern, value in values.items():
        key = f"{where}.{pattern}"
        done[pattern] = select([pattern], parameters, key)
        for name in done[pattern]:
            parameter = parameters[name]
            parameter.set_value(value_for(first[id(parameter)], parameter.shape, value, key, seed))
    return done


# -- values that parameters are set to: numbers, arrays in .npy files, and draws from distributions -------------------

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
        distribution = read_distribution(value)
    except BadDistribution as error:
        raise UserError(str(error), where=where, hint=error.hint) from None
    return _draw(distribution, name, tuple(shape), where, seed)


def _draw(distribution: Distribution, name: str, shape: tuple[int, ...], where: str, seed: int) -> np.ndarray:
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    values = distribution.values
    if distribution.kind in BY_SHAPE:
        drawn = _by_shape(distribution, name, shape, where, generator)
    elif distribution.kind == "uniform":
        drawn = generator.uniform(values["low"], values["high"], shape)
    elif distribution.kind == "normal":
        drawn = generator.normal(values["mean"], values["std"], shape)
    elif distribution.kind == "truncated_normal":
        drawn = generator.normal(size=shape)
        while (far := np.abs(drawn) > WITHIN).any():
            drawn[far] = generator.normal(size=int(far.sum()))
        drawn = values["mean"] + values["std"] * drawn
    else:
        drawn = np.full(shape, values["value"])
    return drawn.astype(np.float32)


def _by_shape(
    distribution: Distribution, name: str, shape: tuple[int, ...], where: str, generator: np.random.Generator
) -> np.ndarray:
    """Xavier (Glorot and Bengio, 2010) and Kaiming (He et al., 2015), with the fans that Paddle counts."""
    if len(shape) < 2:
        hint = "name matrices only, such as classifier.weight; biases and norms take normal, uniform or a number"
        raise UserError(f"{distribution.kind} is for matrices, but {name} is {list(shape)}", where=where, hint=hint)
    # A linear layer's matrix is [in, out]; a kernel is [out, in, width...], and each width multiplies both fans.
    field = math.prod(shape[2:])
    fan_in, fan_out = shape if len(shape) == 2 else (shape[1] * field, shape[0] * field)
    if distribution.kind.startswith("xavier_"):
        std = distribution.values["gain"] * math.sqrt(2 / (fan_in + fan_out))
    else:
        std = math.sqrt(2 / (1 + distribution.values["negative_slope"] ** 2) / fan_in)
    if distribution.kind.endswith("_normal"):
        return generator.normal(0.0, std, shape)
    return generator.uniform(-std * math.sqrt(3), std * math.sqrt(3), shape)


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
