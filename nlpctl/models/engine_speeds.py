"""How fast each way to run an export is: figures by batch size, and the machine that they hold on.

They stand in export.json, from the machine that exported it, or in the cache of another machine. Imports neither Paddle
nor NumPy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from nlpctl.names import counted

BUSY = 0.2  # share of the processors that other programs may take while engines are compared


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
    def threads_told(self) -> str:
        """"2 threads"; nothing on a card, where they do not count."""
        return counted(self.threads, "threads") if self.device == "cpu" else ""

    def __str__(self) -> str:
        # Makers' names are words of /proc/cpuinfo: AuthenticAMD AMD EPYC.
        name = re.sub(r"^(AuthenticAMD|GenuineIntel|HygonGenuine) (?=.)", "", self.processor)
        return ", ".join(filter(None, (name or "unknown processor", self.threads_told)))


@dataclass(frozen=True)
class EngineSpeeds:
    """Rows per second by name of the choice (engines/choice.py) and batch size, and the reasons of failed ones.

    `others`: the share of the processors that other programs took meanwhile (runtime/contention.py).
    """

    conditions: Conditions
    rows_per_second: Mapping[str, Mapping[int, float]]
    failed: Mapping[str, str] = field(default_factory=dict)
    others: float = 0.0

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

    def content(self) -> dict[str, Any]:
        """As export.json and the cache hold it."""
        return asdict(self)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> EngineSpeeds:
        """What `content` gave. KeyError, TypeError, ValueError or AttributeError if it is damaged."""
        given = content["conditions"]
        conditions = Conditions(
            str(given["processor"]),
            tuple(map(str, given["instruction_sets"])),
            str(given["device"]),
            int(given["threads"]),
            {str(name): str(version) for name, version in given["versions"].items()},
            int(given["cores"]),
        )
        speeds = {
            str(name): {_size(size): _speed(speed) for size, speed in by_size.items()}
            for name, by_size in content["rows_per_second"].items()
        }
        failed = {str(name): str(reason) for name, reason in content["failed"].items()}
        return cls(conditions, speeds, failed, float(content.get("others", 0.0)))  # older versions did not look


def _size(value: Any) -> int:
    if not 0 < int(value) < 1 << 32:
        raise ValueError(f"{str(value)[:40]!r} is no batch size")
    return int(value)


def _speed(value: Any) -> float:
    if not 0 < float(value) < math.inf:
        raise ValueError(f"{str(value)[:40]!r} is no speed")
    return float(value)
