"""Out of memory: what it looks like, and how the work of a step is divided into smaller parts."""

from __future__ import annotations

from dataclasses import dataclass

from nlpctl.runtime.event_log import EventLog

EVENT = "out_of_memory"

# Paddle 2.6.2 turns its ResourceExhausted into MemoryError, on CPU ("Fail to alloc memory of N size") and on GPU
# ("Out of memory error on GPU 0"). What CUDA's own libraries cannot allocate comes as OSError, "(External) ...".
_EXTERNAL_SIGNS = ("out of memory", "ALLOC_FAILED")


class OutOfMemory(Exception):
    """A step did not fit into memory. The weights are those after the last completed step."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was lacking, of the device or of the machine."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, OSError) and "(External)" in str(error) and any(s in str(error) for s in _EXTERNAL_SIGNS)


@dataclass(frozen=True)
class Division:
    """How an update's examples are cut, per process: `batch_size` at a time, `parts` times."""

    batch_size: int
    parts: int

    def smaller(self) -> Division | None:
        """Half the batch in twice the parts. Of an odd batch the largest smaller divisor; None: there is none.

        The product stays, and with it the effective batch, the learning rate that suits it, and the updates of
        an epoch.
        """
        divisors = (size for size in range(self.batch_size // 2, 0, -1) if self.batch_size % size == 0)
        size = next(divisors, None)
        return None if size is None else Division(size, self.parts * (self.batch_size // size))

    def __str__(self) -> str:
        return f"{self.batch_size} x {self.parts}"


def record_division(log: EventLog, step: int, division: Division) -> None:
    """Note that from `step` completed steps on, updates are cut like this: a resumed run goes on so."""
    log.append(
        EVENT,
        step,
        per_device_train_batch_size=division.batch_size,
        gradient_accumulation_steps=division.parts,
    )


def recorded_division(log: EventLog, step: int) -> Division | None:
    """How the run that `log` tells of cut its updates after `step` steps; None: as the recipe says."""
    found = None
    for event in log.read():
        if event["event"] == EVENT and event["step"] <= step:
            found = Division(event["per_device_train_batch_size"], event["gradient_accumulation_steps"])
    return found
