"""The list of strategies. To add one, write a module (see base.py) and add an instance here."""

from __future__ import annotations

from collections.abc import Iterable

from nlpctl.compression.strategies.base import FP16, FP32, INT8, ORIGINAL, Int8Strategy, NetworkStrategy, Strategy
from nlpctl.compression.strategies.bf16 import Bf16
from nlpctl.compression.strategies.distill import Distill
from nlpctl.compression.strategies.dynabert import DynaBert
from nlpctl.compression.strategies.embeddings import Embeddings
from nlpctl.compression.strategies.fewer_words import FewerWords
from nlpctl.compression.strategies.fp32_export import Fp32Export
from nlpctl.compression.strategies.ort_dynamic import OrtDynamic
from nlpctl.compression.strategies.ort_static import OrtStatic
from nlpctl.compression.strategies.ptq import Ptq
from nlpctl.compression.strategies.qat import Qat

# Names for --strategy.
STRATEGIES: tuple[Strategy, ...] = (
    DynaBert(),
    Distill(),
    Ptq(),
    Qat(),
    OrtDynamic(),
    OrtStatic(),
    Embeddings(),
    Bf16(),
)
# Not selectable by name: the start of every chain.
FP32_EXPORT, FEWER_WORDS = Fp32Export(), FewerWords()


def strategies() -> dict[str, Strategy]:
    """The strategies that --strategy may name, by name."""
    return {strategy.name: strategy for strategy in STRATEGIES}


def every_strategy() -> tuple[Strategy, ...]:
    """All strategies, including those that --strategy cannot name."""
    return (*STRATEGIES, FP32_EXPORT, FEWER_WORDS)


def int8_of_graphs() -> tuple[Int8Strategy, ...]:
    """The 8-bit strategies that need only a graph, as `nlpctl export` offers."""
    return tuple(each for each in STRATEGIES if isinstance(each, Int8Strategy) and each.on_network is None)


def export_precisions() -> tuple[str, ...]:
    """The values of `nlpctl export --precision`: int8 is every 8-bit method; what follows it, one of them."""
    return tuple(dict.fromkeys([FP32, FP16, INT8, *(strategy.precision for strategy in int8_of_graphs())]))


def simplicity(candidate: str) -> tuple[int, int]:
    """How simple a candidate is, by the name of its folder, to choose among equals; less is simpler.

    First how it was made: 0 the uncompressed network, 1 without training, 2 with a training. Then the number of parts.
    """
    parts = parts_of(candidate)
    trained = any(part is None or part.trains for part in parts)
    return (2 if trained else min(1, len(parts))), len(parts)


def parts_of(candidate: str) -> tuple[Strategy | None, ...]:
    """The strategies that a candidate was made by, from the name of its folder; None for one that is not known here."""
    network, *made = candidate.split("+")
    known = every_strategy()
    parts: list[Strategy | None] = []
    while network not in ("", ORIGINAL):
        stems = {each.stem or each.name: each for each in known if isinstance(each, NetworkStrategy)}
        stem = _begun(network, stems)
        parts.append(stems.get(stem))
        rest = network.removeprefix(stem).removeprefix("-")
        network = rest if stem and _begun(rest, stems) else ""
    names = {each.name: each for each in known}
    return (*parts, *(names.get(_begun(part, names)) for part in made))


def _begun(text: str, names: Iterable[str]) -> str:
    """The longest of the names that a text is, or begins with before a hyphen; "" if there is none."""
    return max((name for name in names if f"{text}-".startswith(f"{name}-")), key=len, default="")
