"""How fast each way to run an export is: figures by batch size, and the machine that they hold on.

They stand in export.json, from the machine that exported it, or in the cache of another machine. Imports neither Paddle
nor NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from nlpctl.documents import Document, Positive, left_out
from nlpctl.names import counted

BUSY = 0.2  # share of the processors that other programs may take while engines are compared


def batch_size(value: int) -> None:
    """A check of documents. ValueError: it is none."""
    if not 0 < value < 1 << 32:
        raise ValueError("is no batch size")


@dataclass(frozen=True)
class Conditions:
    """What speeds depend on beside the graphs. Figures hold on every machine whose conditions are equal.

    `cores`: of the machine, for people; the threads are what counts.
    """

    processor: str  # maker and model name, and the name of the card
    instruction_sets: tuple[str, ...]
    device: str  # "cpu", "gpu:0"
    threads: int
    versions: Mapping[str, str]  # of the engines
    cores: int = field(default=0, compare=False)

    @property
    def threads_text(self) -> str:
        """"2 threads"; nothing on a card, where they do not count."""
        return counted(self.threads, "threads") if self.device == "cpu" else ""

    def __str__(self) -> str:
        # Makers' names are words of /proc/cpuinfo: AuthenticAMD AMD EPYC.
        name = re.sub(r"^(AuthenticAMD|GenuineIntel|HygonGenuine) (?=.)", "", self.processor)
        return ", ".join(filter(None, (name or "unknown processor", self.threads_text)))


BatchSize = Annotated[int, batch_size]


@dataclass(frozen=True)
class EngineSpeeds(Document):
    """Rows per second by name of the choice (engines/choice.py) and batch size, and the reasons of failed ones.

    `others`: the share of the processors that other programs took meanwhile (runtime/machine.py). They
    are a part of export.json, and in a machine's cache a document that says of which `export` they are.
    """

    FORMAT: ClassVar[int | None] = 2

    conditions: Conditions
    rows_per_second: Mapping[str, Mapping[BatchSize, Positive]]
    failed: Mapping[str, str] = field(default_factory=dict)
    others: float = 0.0  # older versions did not look
    export: str | None = left_out(compare=False)

    @property
    def busy(self) -> str:
        """How busy the machine was, in words, if that may have decided which is the fastest; "" if it was quiet."""
        return f"while other programs took {self.others:.0%} of the processors" if self.others > BUSY else ""

    def speed(self, name: str, batch_size: int) -> float | None:
        """Rows per second at any batch size; None if `name` was not timed.

        Between two timed sizes the time of a batch grows linearly with its rows; beyond them the nearest size's speed
        holds.
        """
        known = sorted(self.rows_per_second.get(name, {}).items())
        if not known:
            return None
        for (small, slow), (large, fast) in zip(known, known[1:], strict=False):
            if small <= batch_size <= large:
                share = (batch_size - small) / (large - small)
                return batch_size / (small / slow * (1 - share) + large / fast * share)
        return known[0][1] if batch_size < known[0][0] else known[-1][1]
