"""The conversion: build the network, match its parameters to the static variables, and give it their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl.convert.graph import by_place
from nlpctl.convert.maps import NameMap
from nlpctl.convert.match import Matcher, Matching, TargetParameter, target_parameters
from nlpctl.convert.names import by_counted_name, by_recorded_name
from nlpctl.convert.targets import Target
from nlpctl.convert.variables import StaticModel
from nlpctl.errors import UserError
from nlpctl.models.head_labels import numbered
from nlpctl.models.parameters import matching as matching_names
from nlpctl.models.parameters import no_match
from nlpctl.models.source import weights_file
from nlpctl.models.weights import read_weights_file, to_float32


@dataclass(frozen=True)
class Conversion:
    """A network with the arrays for its parameters. `fresh`: parameters that are allowed to stay newly initialised."""

    source: StaticModel
    target: Target
    network: Any
    matching: Matching
    fresh: tuple[TargetParameter, ...]

    @property
    def lacking(self) -> list[TargetParameter]:
        """Parameters without a value that were not allowed to have none: missing ones and mismatches."""
        fresh = {parameter.name for parameter in self.fresh}
        matched = {match.parameter.name for match in self.matching.matches}
        ambiguous = {each.name for ambiguity in self.matching.ambiguities for each in ambiguity.parameters}
        return [each for each in self.matching.parameters if each.name not in fresh | matched | ambiguous]

    @property
    def complete(self) -> bool:
        return not self.lacking and not self.matching.ambiguities


def plan(
    source: StaticModel,
    target: Target,
    maps: Sequence[NameMap],
    overrides: Mapping[str, Any],
    allow_missing: Sequence[str] = (),
) -> Conversion:
    """Build the network and match its parameters. Nothing is set yet.

    Where only the source knows how many labels there are, the network is built for as many. UserError: the target or
    a map is wrong, or a pattern of `allow_missing` means no parameter.
    """
    network = target.build(overrides)
    matching = _match(source, target, network, maps)
    if target.head.labelled and not target.labels_known:
        # The network must be built once to learn from its mismatches how many labels the source has.
        count = _labels_in(matching, len(target.labels))
        if count is not None:
            target = dataclasses.replace(target, labels=numbered(count))
            network = target.build(overrides)
            matching = _match(source, target, network, maps)
    return Conversion(source, target, network, matching, _allowed(matching, allow_missing))


def _match(source: StaticModel, target: Target, network: Any, maps: Sequence[NameMap]) -> Matching:
    """Apply the methods one after the other, the surest first; each sees what those before left open."""
    prefix = target.family.prefix
    matcher = Matcher(target_parameters(network, prefix), source.variables, prefix)
    for name_map in maps:
        matcher.use_map(name_map)
    by_recorded_name(matcher)
    by_counted_name(matcher)
    if source.program is not None:
        # Last, because it is the only way that infers from structure instead of names.
        by_place(matcher, source.program, network)
    return matcher.result()


def _labels_in(matching: Matching, count: int) -> int | None:
    """The number of labels of the source, if all mismatches are parameters with one entry per label; else None."""
    sizes = set()
    for mismatch in matching.mismatches:
        if mismatch.shape is None or mismatch.parameter.shape[-1] != count:
            return None
        if mismatch.shape[:-1] != mismatch.parameter.shape[:-1]:
            return None
        sizes.add(mismatch.shape[-1])
    return sizes.pop() if len(sizes) == 1 else None


def _allowed(matching: Matching, patterns: Sequence[str]) -> tuple[TargetParameter, ...]:
    """The parameters without a value that the patterns mean. UserError: a pattern means no parameter at all."""
    names = [name for parameter in matching.parameters for name in parameter.names]
    meant: set[str] = set()
    for pattern in patterns:
        named = matching_names(pattern, names)
        if not named:
            raise no_match(pattern, names, "@[allow-missing]", "parameter")
        meant.update(named)
    without = [*matching.missing, *(mismatch.parameter for mismatch in matching.mismatches)]
    return tuple(each for each in matching.parameters if each in without and meant.intersection(each.names))


def fill(conversion: Conversion) -> None:
    """Set the parameters of the network, in place, to the arrays that they were matched with.

    Half precision is widened to float32. UserError: a value is NaN or infinite.
    """
    parameters = {**conversion.network.state_dict()}
    for match in conversion.matching.matches:
        name = match.parameter.name
        if match.parameter.is_integer:
            parameters[name].set_value(match.array.astype(match.parameter.dtype))
            continue
        array = to_float32(match.array)
        if not np.isfinite(array).all():
            raise UserError(
                f"{' + '.join(match.candidate.static)} holds NaN or infinite values",
                where=str(conversion.source.source),
                hint="use an earlier checkpoint of the static model",
            )
        parameters[name].set_value(np.ascontiguousarray(array))


def has_weights_of(conversion: Conversion, folder: Path) -> bool:
    """Whether the network, once filled, got the values that the weights of a model folder have, bit by bit."""
    file = weights_file(folder)
    try:
        arrays = {} if file is None else read_weights_file(file).arrays
    except UserError:  # damaged: the conversion may be there to replace them
        return False
    state = conversion.network.state_dict()
    for parameter in (match.parameter for match in conversion.matching.matches):
        name = next((name for name in parameter.names if name in arrays), None)
        if name is None or not np.array_equal(to_float32(arrays[name]), state[parameter.name].numpy()):
            return False
    return True
