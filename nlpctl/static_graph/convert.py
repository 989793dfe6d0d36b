"""The conversion: build the network, match and set its parameters, and verify the result."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nlpctl.errors import UserError
from nlpctl.models.head_labels import numbered
from nlpctl.models.parameters import matching as matching_names
from nlpctl.models.parameters import no_match
from nlpctl.models.weights import to_float32
from nlpctl.static_graph.maps import NameMap, built_in_map, built_in_names
from nlpctl.static_graph.match import Matcher, Matching
from nlpctl.static_graph.names import by_counted_name, by_recorded_name
from nlpctl.static_graph.parameters import TargetParameter, target_parameters
from nlpctl.static_graph.roles import by_place
from nlpctl.static_graph.targets import Target
from nlpctl.static_graph.variables import StaticModel


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
        found = {match.parameter.name for match in self.matching.matches}
        ambiguous = {each.name for ambiguity in self.matching.ambiguities for each in ambiguity.parameters}
        return [each for each in self.matching.parameters if each.name not in fresh | found | ambiguous]

    @property
    def complete(self) -> bool:
        return not self.lacking and not self.matching.ambiguities


def maps_for(target: Target) -> list[NameMap]:
    """The built-in maps of the target's family."""
    maps = [built_in_map(name) for name in built_in_names()]
    return [each for each in maps if target.family.model_type in each.families]


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


def fill(conversion: Conversion) -> None:
    """Give the network its values. UserError: a value is no number."""
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


def _match(source: StaticModel, target: Target, network: Any, maps: Sequence[NameMap]) -> Matching:
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
        if mismatch.found is None or mismatch.parameter.shape[-1] != count:
            return None
        if mismatch.found[:-1] != mismatch.parameter.shape[:-1]:
            return None
        sizes.add(mismatch.found[-1])
    return sizes.pop() if len(sizes) == 1 else None


def _allowed(matching: Matching, patterns: Sequence[str]) -> tuple[TargetParameter, ...]:
    """The parameters without a value that the patterns mean. UserError: a pattern means no parameter at all."""
    names = [name for parameter in matching.parameters for name in parameter.names]
    meant: set[str] = set()
    for pattern in patterns:
        found = matching_names(pattern, names)
        if not found:
            raise no_match(pattern, names, "--allow-missing", "parameter")
        meant.update(found)
    without = [*matching.missing, *(mismatch.parameter for mismatch in matching.mismatches)]
    return tuple(each for each in matching.parameters if each in without and meant.intersection(each.names))
