"""The folders of a strategy and their dependencies.

    networks/NAME     a network made from the source: width-0.75, student, original+qat, fewer-words
    exports/NAME      a network's fp32 graphs: original, width-0.75, student, fewer-words
    candidates/NAME   an export with one graph in 8 bits or with smaller embeddings

Names identify how a folder was made, so that existing folders can be reused. Imports no Paddle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nlpctl.compression.plan.strategy import Chain
from nlpctl.compression.strategies.base import ORIGINAL, GraphStrategy, Step
from nlpctl.compression.strategies.registry import FEWER_WORDS, FP32_EXPORT


def plan_steps(chains: Sequence[Chain], section: Any) -> tuple[Step, ...]:
    """Every step of the alternatives, each once, after the steps that it needs; `section`: the recipe's compression."""
    steps: dict[str, Step] = {}
    for step in _steps(chains, section):
        steps.setdefault(step.folder, step)
    return tuple(steps.values())


def _steps(chains: Sequence[Chain], section: Any) -> Iterator[Step]:
    yield FP32_EXPORT.export(ORIGINAL, ())
    base = next(FEWER_WORDS.networks(section, None), None)
    if base is not None:
        yield base
    for chain in chains:
        # None stands for the source itself
        for network in [base] if chain.network is None else chain.network.networks(section, base):
            needs: tuple[str, ...] = ()
            if network is not None:
                yield network
                needs = (network.folder,)
            export = FP32_EXPORT.export(ORIGINAL if network is None else network.name, needs)
            yield export
            yield from _graphs(chain.graphs, export, needs, section)


def _graphs(
    strategies: Sequence[GraphStrategy], before: Step, network: tuple[str, ...], section: Any
) -> Iterator[Step]:
    """The steps of strategies applied to a graph, one after the other."""
    if strategies:
        for made in strategies[0].graphs(before, network, section):
            yield from made
            yield from _graphs(strategies[1:], made[-1], network, section)
