"""The parameters of a network by name: matching patterns and setting values.

A pattern is a full name (classifier.bias), the name of a layer and so of all below it (ernie.encoder), either with
a range of numbers as one part (ernie.encoder.layers.0-5), or with the wildcards of fnmatch (*.norm1.*), of which *
also stands for dots.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nlpctl.errors import UserError
from nlpctl.models.initial_values import value_for
from nlpctl.names import nearest

_RANGE = re.compile(r"(\d+)-(\d+)")


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
        found = matching(pattern, names)
        if not found:
            raise no_match(pattern, names, where, "parameter")
        chosen.update(found)
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
