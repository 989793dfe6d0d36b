"""Matches static variables to parameters, with the reason for each match.

The methods are applied in order, each to the parameters left open: an explicit map, built-in maps, recorded names,
names of Paddle's counter, the place in the graph. Two candidates of one method for a parameter are an ambiguity, which
is reported and never resolved by a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nlpctl.convert.maps import NameMap, Rule, RuleMatch, Step, match_rule, run_steps
from nlpctl.convert.variables import StaticVariable
from nlpctl.errors import UserError
from nlpctl.models.parameters import named
from nlpctl.names import did_you_mean, listed
from nlpctl.report.language import later

BFLOAT16 = "bfloat16"


class Matcher:
    """Which parameters have no value yet and which variables are unused, while the methods are applied in turn."""

    def __init__(self, parameters: Sequence[TargetParameter], variables: Mapping[str, StaticVariable], encoder: str):
        """`encoder`: the prefix of the network's encoder, such as ernie."""
        self.parameters = tuple(parameters)
        self.variables = variables
        self.encoder = encoder
        self.by_name = by_name(parameters)
        self.notes: list[str] = []
        self._used: set[str] = set()
        self._matches: dict[str, Match] = {}
        self._mismatches: dict[str, Mismatch] = {}
        self._ambiguities: dict[str, Ambiguity] = {}

    # -- what is open ------------------------------------------------------------------------

    def is_open(self, parameter: TargetParameter) -> bool:
        name = parameter.name
        return not (name in self._matches or name in self._mismatches or name in self._ambiguities)

    @property
    def open_parameters(self) -> list[TargetParameter]:
        return [parameter for parameter in self.parameters if self.is_open(parameter)]

    @property
    def free_variables(self) -> dict[str, StaticVariable]:
        return {name: variable for name, variable in self.variables.items() if name not in self._used}

    # -- the methods ----------------------------------------------------------------------------

    def use_map(self, name_map: NameMap) -> None:
        """Match by the rules of a map. UserError: a rule of the user's own map names what does not exist."""
        # A user's rule may name any variable, also one in use; a built-in rule takes free ones only.
        names = self.variables if not name_map.built_in else self.free_variables
        how = later("built-in map {}", name_map.name) if name_map.built_in else later("map")
        candidates = []
        for rule in name_map.rules:
            matches = match_rule(rule, name_map.prefixes, names, self.encoder)
            known = [each for each in matches if all(name in self.by_name for name in each.dygraph)]
            if not name_map.built_in:
                self._check_rule(matches, known, rule)
            where = "" if name_map.built_in else rule.where
            candidates += [Candidate(each.static, each.dygraph, how, rule.steps, where) for each in known]
        self.propose(candidates, strict=not name_map.built_in)

    def _check_rule(self, matches: Sequence[RuleMatch], known: Sequence[RuleMatch], rule: Rule) -> None:
        if not matches:
            near = did_you_mean(rule.static[0], self.variables)
            raise UserError(
                f"the source has no variable {listed(rule.static)}{near}", rule.where, "@[plan] lists all variables"
            )
        if not known:
            name = next(name for name in matches[0].dygraph if name not in self.by_name)
            near = did_you_mean(name, self.by_name)
            raise UserError(f"the network has no parameter {name!r}{near}", rule.where, "@[plan] lists all parameters")

    def propose(self, candidates: Iterable[Candidate], *, strict: bool = False) -> None:
        """Take candidates, all of one method, for the parameters that are open. Two for one parameter are an ambiguity.

        `strict`: steps that do not fit their arrays are a UserError, no mismatch.
        """
        offers: dict[str, list[Candidate]] = {}
        for candidate in candidates:
            for name in candidate.dygraph:
                offers.setdefault(self.by_name[name].name, []).append(candidate)
        taken: dict[int, Candidate] = {}
        for parameter in self.open_parameters:
            offered = offers.get(parameter.name, [])
            if len(offered) > 1:
                how, *others = dict.fromkeys(each.how for each in offered)
                for other in others:
                    how = later("{}, {}", how, other)
                names = tuple(" + ".join(each.static) for each in offered)
                why = later("{} candidates: {}", len(offered), how)
                self._ambiguities[parameter.name] = Ambiguity((parameter,), names, why)
            elif offered:
                # By identity: a candidate that splits one variable is offered to several parameters, and runs once.
                taken[id(offered[0])] = offered[0]
        for candidate in taken.values():
            self._take(candidate, strict)

    def report_ambiguity(self, parameters: Sequence[TargetParameter], candidates: Sequence[str], why: str) -> None:
        """Parameters that share candidates, with nothing to tell which is whose."""
        ambiguity = Ambiguity(tuple(parameters), tuple(candidates), why)
        self._ambiguities.update((parameter.name, ambiguity) for parameter in parameters)

    def _take(self, candidate: Candidate, strict: bool) -> None:
        targets = [self.by_name[name] for name in candidate.dygraph]
        try:
            arrays = self._arrays(candidate, targets)
        except UserError as error:
            if strict:
                raise
            arrays, reason = [], error.problems[0].message
        if len(arrays) != len(targets) and arrays:
            reason = later("the steps give {} arrays for {} parameters", len(arrays), len(targets))
            if strict:
                raise UserError(reason, candidate.where, "name as many parameters as there are arrays in the end")
            arrays = []
        dtype = self.variables[candidate.static[0]].dtype
        for index, parameter in enumerate(targets):
            if not self.is_open(parameter):
                continue
            problem = _problem(arrays[index], dtype, parameter) if arrays else reason
            if problem is not None:
                shape = arrays[index].shape if arrays else None
                self._mismatches[parameter.name] = Mismatch(parameter, candidate, problem, shape)
            else:
                self._matches[parameter.name] = Match(parameter, arrays[index], dtype, candidate)
        # Also after a mismatch: the variable is accounted for, and must not be offered to another parameter.
        self._used.update(candidate.static)

    def _arrays(self, candidate: Candidate, targets: Sequence[TargetParameter]) -> list[np.ndarray]:
        variables = [self.variables[name] for name in candidate.static]
        # NumPy would widen silently, and bits of bfloat16 (uint16) would be joined with numbers.
        if len({variable.dtype for variable in variables}) > 1:
            types = listed(variable.dtype for variable in variables)
            raise UserError(f"the variables are of different types: {types}", candidate.where, "map them one by one")
        # The array holds bits, which can be moved but not added.
        if candidate.steps and variables[0].dtype == BFLOAT16 and any(step.name == "add" for step in candidate.steps):
            raise UserError("bfloat16 cannot be added", candidate.where, "convert the source to float32 first")
        shapes = [parameter.shape for parameter in targets]
        return run_steps(candidate.steps, [variable.array for variable in variables], shapes)

    # -- the result --------------------------------------------------------------------------

    def result(self) -> Matching:
        """What became of every parameter and every variable, in the order of the network and of the source."""
        unused = [variable for name, variable in self.variables.items() if name not in self._used]
        return Matching(
            self.parameters,
            tuple(self._matches[each.name] for each in self.parameters if each.name in self._matches),
            tuple(self._mismatches.values()),
            # One ambiguity may stand for several parameters; it is reported once.
            tuple({id(each): each for each in self._ambiguities.values()}.values()),
            tuple(self.open_parameters),
            tuple(unused),
            tuple(self.notes),
        )


def _problem(array: np.ndarray, dtype: str, parameter: TargetParameter) -> str | None:
    """Why `array` cannot be the value of `parameter`; None if it can."""
    if array.shape != parameter.shape:
        return later("shape {} where the network has {}", list(array.shape), list(parameter.shape))
    is_integer = dtype != BFLOAT16 and array.dtype.kind in "iub"
    if is_integer != parameter.is_integer:
        return later("type {} where the network has {}", dtype, parameter.dtype)
    return None


# -- what is matched, and what comes of it ----------------------------------------------------------------------------


@dataclass(frozen=True)
class TargetParameter:
    """A parameter, or a buffer that is saved with them.

    `names`: all of them, as in the state dict; recurrent layers and tied ones have several. `aliases`: the same with
    the encoder's prefix put before them or taken away, as a network with another head has them. `internal`: the name
    that Paddle's counter gave it, such as linear_3.w_0.
    """

    names: tuple[str, ...]
    aliases: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    internal: str

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def is_integer(self) -> bool:
        """Whether it holds indices, such as position ids."""
        return "int" in self.dtype

    def is_needed(self, encoder: str) -> bool:
        """Whether every graph of the network has it: all of the encoder but a pooler, which taggers do not use.

        `encoder`: the encoder's prefix.
        """
        names = {*self.names, *self.aliases}
        return any(name.startswith(f"{encoder}.") and not name.startswith(f"{encoder}.pooler.") for name in names)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for length in self.shape:
            count *= length
        return count


def target_parameters(network: Any, prefix: str) -> list[TargetParameter]:
    """The parameters of `network` in its order. `prefix`: of its encoder, without the dot."""
    # named() leaves buffers out, which files hold too.
    state = {**named(network), **network.state_dict()}
    names: dict[int, list[str]] = {}
    for name, value in state.items():
        names.setdefault(id(value), []).append(name)
    bare = not any(name.startswith(f"{prefix}.") for name in state)
    return [
        TargetParameter(
            tuple(each),
            tuple(f"{prefix}.{name}" if bare else name.removeprefix(f"{prefix}.") for name in each),
            tuple(state[each[0]].shape),
            str(state[each[0]].dtype).rpartition(".")[2],
            state[each[0]].name,
        )
        for each in names.values()
    ]


def by_name(parameters: Iterable[TargetParameter]) -> Mapping[str, TargetParameter]:
    """Every name and alias; where they clash, a real name wins."""
    parameters_by_name: dict[str, TargetParameter] = {}
    for parameter in parameters:
        parameters_by_name.update(dict.fromkeys(parameter.names, parameter))
    for parameter in parameters:
        for alias in parameter.aliases:
            parameters_by_name.setdefault(alias, parameter)
    return parameters_by_name


@dataclass(frozen=True)
class Candidate:
    """Variables `static` may become the parameters `dygraph`. `how`: in words; `where`: line of a map, or ""."""

    static: tuple[str, ...]
    dygraph: tuple[str, ...]
    how: str
    steps: tuple[Step, ...] = ()
    where: str = ""


@dataclass(frozen=True)
class Match:
    """One parameter and its value. `array`: in its shape, still of the variable's type; `dtype`: that type."""

    parameter: TargetParameter
    array: np.ndarray
    dtype: str
    candidate: Candidate


@dataclass(frozen=True)
class Mismatch:
    """A variable that would be this parameter's, but is of another shape or type.

    `shape`: the variable's after the steps; None where those did not fit.
    """

    parameter: TargetParameter
    candidate: Candidate
    reason: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Ambiguity:
    """Candidates of one method for one parameter, or for one group of parameters that nothing tells apart."""

    parameters: tuple[TargetParameter, ...]
    candidates: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Matching:
    """The result for each parameter and each variable. `missing` are in neither of the others."""

    parameters: tuple[TargetParameter, ...]
    matches: tuple[Match, ...]
    mismatches: tuple[Mismatch, ...]
    ambiguities: tuple[Ambiguity, ...]
    missing: tuple[TargetParameter, ...]
    unused: tuple[StaticVariable, ...]
    notes: tuple[str, ...]
