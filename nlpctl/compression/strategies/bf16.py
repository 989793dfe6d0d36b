"""bf16: nothing is made. Every fp32 graph is scored in bf16 too where the machine computes in it."""

from __future__ import annotations

from collections.abc import Sequence

from nlpctl.compression.strategies.base import KEY, GraphStrategy, Kind, Strategy
from nlpctl.errors import UserError


class Bf16(Strategy):
    name = "bf16"
    kind = Kind.PRECISION
    help = "nothing, as fp32 graphs are scored in bf16 anyway where the processor computes in it"
    runs_on = ("paddle", "bf16")

    def check_sum(self, text: str, parts: Sequence[Strategy]) -> None:
        if any(isinstance(part, GraphStrategy) for part in parts):
            message = (
                f"{text!r}: {self.name} is how an engine computes an fp32 graph; a graph of 8 bits is computed in these"
            )
            apart = text.replace(f"+{self.name}", "")
            raise UserError(message, KEY, f"leave out +{self.name}, or name it apart: {apart},{self.name}")
