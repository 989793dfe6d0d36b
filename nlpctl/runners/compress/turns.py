"""Two engines timed in alternating rounds: a speed-up that other load on the machine distorts little."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from nlpctl.compression.plan.scores import Speed
from nlpctl.runners.timed_process import TimedProcess

SETTLED = 1.02  # a smaller relative gain counts as none


@dataclass(frozen=True)
class Timing:
    """How candidates are timed: `rows` of dev at each batch size, in rounds that alternate with the reference, after
    one warm-up round. Timing ends when two rounds brought no faster time, or after `rounds` rounds; no round starts
    after `seconds`."""

    batch_sizes: tuple[int, ...] = (1, 32)
    rows: int = 128
    rounds: int = 12
    seconds: float = 30.0


def timed_in_turns(process: TimedProcess, reference: TimedProcess, timing: Timing) -> tuple[Speed, ...]:
    """The speed of an open candidate relative to the open reference. The reference alone is timed once."""
    both = (reference,) if process is reference else (reference, process)
    rounds: dict[int, list[tuple[list[float], list[float]]]] = {size: [] for size in timing.batch_sizes}
    history: list[list[float]] = []
    started = time.monotonic()
    for round in range(timing.rounds + 1):
        for size in timing.batch_sizes:
            seconds = [each.seconds(size) for each in both]
            if round:
                rounds[size].append((seconds[0], seconds[-1]))
        if round:
            history.append([sum(batches) for turns in rounds.values() for batches in fastest(turns)])
            if is_settled(history) or time.monotonic() - started > timing.seconds:
                break
    return tuple(speed_of(size, turns, process.opened.features) for size, turns in rounds.items())


def fastest(turns: Sequence[tuple[list[float], list[float]]]) -> tuple[list[float], list[float]]:
    """The fastest time of every batch, for the reference and the candidate. `turns`: the times of each round."""
    theirs, mine = ([min(seconds) for seconds in zip(*rounds, strict=True)] for rounds in zip(*turns, strict=True))
    return theirs, mine


def is_settled(history: Sequence[Sequence[float]]) -> bool:
    """Whether the last two rounds brought no notably faster time. `history`: the fastest times after each round."""
    return len(history) > 2 and all(
        before <= now * SETTLED for before, now in zip(history[-3], history[-1], strict=True)
    )


def speed_of(size: int, turns: Sequence[tuple[list[float], list[float]]], features: int) -> Speed:
    """`turns`: per round the seconds of each batch of the reference, and of the candidate."""
    theirs, mine = fastest(turns)
    p50 = median(mine)
    return Speed(size, features / sum(mine), 1000 * p50, sum(theirs) / sum(mine), median(theirs) / p50)
