"""bf16: makes nothing. Every fp32 graph is also scored in bf16 if the machine supports it."""

from __future__ import annotations

from collections.abc import Sequence

from nlpctl.compression.strategies.base import KEY, GraphStrategy, Kind, Strategy
from nlpctl.errors import UserError


class Bf16(Strategy):
    name = "bf16"
    kind = Kind.PRECISION
    help = "nothing to make: fp32 graphs are also scored in bf16 if the processor supports it"
    runs_on = ("paddle", "bf16")

    def check_sum(self, text: str, parts: Sequence[Strategy]) -> None:
        if any(isinstance(part, GraphStrategy) for part in parts):
            message = (
                f"{text!r}: {self.name} is a way to compute an fp32 graph and does not apply to an 8-bit graph"
            )
            apart = text.replace(f"+{self.name}", "")
            raise UserError(message, KEY, f"leave out +{self.name}, or separate it: {apart},{self.name}")
