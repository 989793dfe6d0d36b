"""The conversion: build the network, match and set its parameters, and verify the result."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl.convert.maps import NameMap, built_in_map, built_in_names
from nlpctl.convert.match import Matcher, Matching
from nlpctl.convert.names import by_counted_name, by_place, by_recorded_name
from nlpctl.convert.parameters import TargetParameter, target_parameters
from nlpctl.convert.targets import Target
from nlpctl.convert.variables import StaticModel
from nlpctl.data.readers.lines import read_lines
from nlpctl.errors import UserError
from nlpctl.models.families import OWN, Family
from nlpctl.models.head_labels import numbered
from nlpctl.models.parameters import matching as matching_names
from nlpctl.models.parameters import no_match
from nlpctl.models.tokenizer import load_tokenizer
from nlpctl.models.weights import to_float32


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


# Separates the variables of an optimizer from those of a network; `save_persistables` writes both to one folder.

# The accumulators of Paddle's optimizers, each named PARAMETER_WORD_NUMBER
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
        accumulator = _ACCUMULATOR.fullmatch(name)
        # an accumulator may itself have a master copy, PARAMETER_fp32_master_0_moment1_0
        return _GLOBAL.fullmatch(name) is not None or (accumulator is not None and _base(accumulator[1]) in known)

    return frozenset(name for name in known if is_state(name))


def _base(name: str) -> str:
    master = re.fullmatch(r"(.+)_fp32_master_\d+", name)
    return master[1] if master else name


# Builds a tokenizer from a vocabulary file, including those of Paddle 1.x with lines `token<TAB>id`.

_NAME = "vocab.txt"


def tokenizer_from(path: Path, family: Family) -> Any:
    """The family's tokenizer with the vocabulary in `path`, a model folder or a vocab.txt.

    UserError: it cannot be read, or its ids are not the numbers of its lines.
    """
    if path.is_dir():
        return load_tokenizer(path, family)
    if family.name in OWN:
        raise UserError("a network of nlpctl needs a tokenizer folder", "--vocabulary", "give the old model's folder")
    tokens = _tokens(path)
    with tempfile.TemporaryDirectory(prefix="nlpctl-vocabulary-") as name:
        folder = Path(name)
        (folder / _NAME).write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
        return load_tokenizer(folder, family)


def _tokens(path: Path) -> list[str]:
    tokens = []
    for number, (where, line) in enumerate(read_lines(path, "vocabulary")):
        token, tab, index = line.partition("\t")
        # vocab.txt has no ids: the line number is the id, so unsorted entries would change meaning.
        if tab and index.strip() != str(number):
            raise UserError(f"the id {index.strip()!r} stands where {number} is expected", where, "sort it by id")
        tokens.append(token)
    return tokens
