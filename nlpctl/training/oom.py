"""Out of memory: recognising it, and dividing an update into smaller micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

from nlpctl.runtime.event_log import EventLog

EVENT = "out_of_memory"

# Paddle 2.6.2 turns its ResourceExhausted into MemoryError, on CPU ("Fail to alloc memory of N size") and on GPU
# ("Out of memory error on GPU 0"). Failed allocations of CUDA's own libraries come as OSError, "(External) ...", and so
# does whatever is raised in the gradient of a PyLayer.
_EXTERNAL_SIGNS = ("out of memory", "ALLOC_FAILED", "MemoryError")


class OutOfMemory(Exception):
    """A step did not fit into memory. The weights are those after the last completed step."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error means out of memory, on the device or the machine."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, OSError) and "(External)" in str(error) and any(s in str(error) for s in _EXTERNAL_SIGNS)


def is_of_tensors(error: MemoryError) -> bool:
    """Whether Paddle lacked memory for tensors, which are as large as the recipe asks for."""
    return "ResourceExhausted" in str(error)


@dataclass(frozen=True)
class MicroBatching:
    """The division of an update per process: micro-batch size `batch_size`, accumulated `parts` times."""

    batch_size: int
    parts: int

    def smaller(self) -> MicroBatching | None:
        """Half the micro-batch, twice the parts; for an odd size the largest smaller divisor; None if there is none.

        The product stays the same, and so do the effective batch, its learning rate, and the updates per epoch.
        """
        divisors = (size for size in range(self.batch_size // 2, 0, -1) if self.batch_size % size == 0)
        size = next(divisors, None)
        return None if size is None else MicroBatching(size, self.parts * (self.batch_size // size))

    def among(self, planned: int, processes: int, largest: int | None = None) -> MicroBatching | None:
        """The same update, planned for `planned` processes, among another number of them; None: it has a remainder.

        The micro-batch is as large as it was, or `largest`, where that divides the rows of a process.
        """
        rows, rest = divmod(self.batch_size * self.parts * planned, processes)
        if rest:
            return None
        size = next(size for size in range(min(largest or self.batch_size, rows), 0, -1) if rows % size == 0)
        return MicroBatching(size, rows // size)

    def __str__(self) -> str:
        return f"{self.batch_size} x {self.parts}"


def record_division(log: EventLog, step: int, division: MicroBatching) -> None:
    """Log the division used from `step` completed steps on, for resumed runs."""
    log.append(
        EVENT,
        step,
        per_device_train_batch_size=division.batch_size,
        gradient_accumulation_steps=division.parts,
    )


def recorded_division(log: EventLog, step: int) -> MicroBatching | None:
    """The division that the run of `log` used after `step` steps; None: that of the recipe."""
    division = None
    for event in log.read():
        if event["event"] == EVENT and event["step"] <= step:
            division = MicroBatching(event["per_device_train_batch_size"], event["gradient_accumulation_steps"])
    return division
