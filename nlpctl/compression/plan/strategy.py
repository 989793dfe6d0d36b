"""The value of --strategy: "A+B,C" is two alternatives, of which the first applies A, then B.

The names are those in strategies/registry.py. Imports no Paddle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nlpctl.compression.strategies.base import KEY, GraphStrategy, Kind, NetworkStrategy, Strategy
from nlpctl.compression.strategies.registry import FEWER_WORDS, strategies
from nlpctl.errors import UserError
from nlpctl.names import did_you_mean


@dataclass(frozen=True)
class Chain:
    """One alternative: another network, then 8 bits, then smaller embeddings; each part is optional."""

    strategies: tuple[Strategy, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(strategy.name for strategy in self.strategies)

    @property
    def network(self) -> NetworkStrategy | None:
        return next((each for each in self.strategies if isinstance(each, NetworkStrategy)), None)

    @property
    def graphs(self) -> tuple[GraphStrategy, ...]:
        return tuple(each for each in self.strategies if isinstance(each, GraphStrategy))


def parse_strategy(text: str | None) -> tuple[Chain, ...]:
    """The alternatives of compression.strategy, each once, in their order. UserError for invalid ones."""
    chains = [_chain(words.strip()) for words in (text or "").split(",") if words.strip()]
    if not chains:
        hint = f"name one or more, separated by commas, of {', '.join(strategies())}; A+B applies A, then B"
        raise UserError("names no strategy", KEY, hint)
    return tuple(dict.fromkeys(chains))


def strategies_of(chains: Sequence[Chain], section: Any) -> tuple[Strategy, ...]:
    """All strategies in the alternatives and in the recipe's section compression, each once."""
    found = [strategy for chain in chains for strategy in chain.strategies]
    return tuple(dict.fromkeys([*found, *([FEWER_WORDS] if section.prune_embeddings else [])]))


def trains(chains: Sequence[Chain]) -> bool:
    """Whether training data is needed for more than calibration."""
    return any(strategy.trains for chain in chains for strategy in chain.strategies)


def _chain(text: str) -> Chain:
    known, names = strategies(), [part.strip() for part in text.split("+")]
    for name in names:
        if name not in known:
            hint = f"one of {', '.join(known)}"
            raise UserError(f"there is no strategy {name!r}{did_you_mean(name, known)}", KEY, hint)
    parts = tuple(known[name] for name in names)
    _check_kinds(text, parts)
    for part in parts:
        part.check_sum(text, parts)
    return Chain(parts)


def _check_kinds(text: str, parts: Sequence[Strategy]) -> None:
    """UserError if a kind of step occurs twice or in the wrong order."""
    for kind in Kind:
        found = [part.name for part in parts if part.kind == kind]
        if len(found) > 1:
            hint = f"separate them by commas: {', '.join(dict.fromkeys(found))}"
            raise UserError(f"{text!r} has two steps that make {kind.value}: {' and '.join(found)}", KEY, hint)
    ordered = sorted(parts, key=lambda part: part.kind.place)
    if list(parts) != ordered:
        message = f"{text!r}: the order is network, then 8 bits, then embeddings"
        raise UserError(message, KEY, f"write {'+'.join(part.name for part in ordered)}")
