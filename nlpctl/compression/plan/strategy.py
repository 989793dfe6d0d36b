"""What --strategy says: "A+B,C" is two alternatives, the first of them two steps, one after the other.

The words are PaddleNLP's (dynabert, ptq, qat, embeddings), and ort-dynamic, ort-static, bf16 and distill. Imports
no Paddle.
"""

from __future__ import annotations

from dataclasses import dataclass

from nlpctl.errors import UserError
from nlpctl.names import did_you_mean

KEY = "compression.strategy"
NETWORKS = ("dynabert", "distill")
INT8 = ("ptq", "qat", "ort-dynamic", "ort-static")
EMBEDDINGS, BF16 = "embeddings", "bf16"
PARTS = (*NETWORKS, *INT8, EMBEDDINGS, BF16)
TRAINED = ("dynabert", "distill", "qat")
CALIBRATED = ("ptq", "ort-static")


@dataclass(frozen=True)
class Chain:
    """One alternative: another network, then 8 bits, then smaller embeddings; each may be left out.

    bf16 leaves no trace: every fp32 graph is scored in bf16 too where the machine computes in it.
    """

    network: str | None = None
    int8: str | None = None
    embeddings: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        last = EMBEDDINGS if self.embeddings else None
        return tuple(part for part in (self.network, self.int8, last) if part is not None)


def parse_strategy(text: str | None) -> tuple[Chain, ...]:
    """The alternatives of compression.strategy, each once, in their order. UserError, naming what cannot be."""
    chains = [_chain(words.strip()) for words in (text or "").split(",") if words.strip()]
    if not chains:
        hint = f"name one or several between commas, of {', '.join(PARTS)}; joined by + one follows the other"
        raise UserError("names no strategy", KEY, hint)
    return tuple(dict.fromkeys(chains))


def _chain(text: str) -> Chain:
    parts = [part.strip() for part in text.split("+")]
    for part in parts:
        if part not in PARTS:
            hint = f"one of {', '.join(PARTS)}"
            raise UserError(f"there is no strategy {part!r}{did_you_mean(part, PARTS)}", KEY, hint)
    _check_kinds(text, parts)
    network = next((part for part in parts if part in NETWORKS), None)
    int8 = next((part for part in parts if part in INT8), None)
    if EMBEDDINGS in parts and int8 in ("ort-dynamic", "ort-static"):
        message = f"{int8} stores large embedding tables in 8 bits already: {text!r} says so twice"
        raise UserError(message, KEY, f"leave out +{EMBEDDINGS}")
    if BF16 in parts and (int8 is not None or EMBEDDINGS in parts):
        message = f"{text!r}: bf16 is how an engine computes an fp32 graph; a graph of 8 bits is computed in these"
        raise UserError(message, KEY, f"leave out +{BF16}, or name it apart: {text.replace('+bf16', '')},bf16")
    return Chain(network, int8, EMBEDDINGS in parts)


def _check_kinds(text: str, parts: list[str]) -> None:
    """UserError where a kind of step comes twice, or before one that it has to follow."""
    for kind, told in ((NETWORKS, "another network"), (INT8, "8 bits"), ((EMBEDDINGS,), "embeddings")):
        found = [part for part in parts if part in kind]
        if len(found) > 1:
            hint = f"name them apart: {', '.join(dict.fromkeys(found))}"
            raise UserError(f"{text!r} has two steps that make {told}: {' and '.join(found)}", KEY, hint)
    ordered = sorted(parts, key=_place)
    if parts != ordered:
        message = f"{text!r}: the network comes first, then 8 bits, then embeddings"
        raise UserError(message, KEY, f"write {'+'.join(ordered)}")


def _place(part: str) -> int:
    return next(i for i, kind in enumerate((NETWORKS, INT8, (EMBEDDINGS,), (BF16,))) if part in kind)
