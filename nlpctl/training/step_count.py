"""How the steps of a training are counted, told when it begins and written to its manifest. Imports no Paddle."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nlpctl.names import counted


@dataclass(frozen=True)
class StepCount:
    """A step is one update of the weights, by `global_batch` rows over all processes.

    `rows`: what batches are made of, windows where a task cuts examples; None for a stream, which counts steps only.
    `examples`: the training examples. `drop_last`: the rest of an epoch, which fills no batch, is left out.
    `batch_tokens`: the limit of a batch per process (data.batch_tokens), which has `per_device` rows in the mean;
    `planned`: then the steps of an epoch, and `dropped` the rows that are left out of it.
    `warmup`: steps; None: a schedule of the user's own decides.
    """

    examples: int | None
    rows: int | None
    per_device: int
    accumulation: int
    processes: int
    drop_last: bool
    epochs: float
    total: int
    warmup: int | None
    batch_tokens: int | None = None
    planned: int | None = None
    dropped: int = 0

    @property
    def global_batch(self) -> int:
        """Rows of a step, of batches by tokens about."""
        return self.per_device * self.accumulation * self.processes

    @property
    def per_epoch(self) -> int | None:
        """Steps of an epoch: rounded up, since a smaller batch ends it, and down with `drop_last`."""
        if self.rows is None or self.planned is not None:
            return self.planned
        whole, rest = divmod(self.rows, self.global_batch)
        return whole + (rest > 0 and not self.drop_last)

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {**asdict(self), "global_batch": self.global_batch, "per_epoch": self.per_epoch}

    def describe(self) -> list[str]:
        """For the console, line by line."""
        limit = ""
        if self.batch_tokens is not None:
            tokens = self.batch_tokens * self.accumulation * self.processes
            limit = f"at most {tokens:,} tokens with padding, about "
        batch = (
            f"a step is {limit}{counted(self.global_batch, 'rows')} = {self.per_device:,} per device x "
            f"{self.accumulation:,} accumulated x {counted(self.processes, 'processes')}"
        )
        warmup = f"warm-up in the first {self.warmup:,}" if self.warmup else "no warm-up"
        if self.warmup is None:
            warmup = "a schedule of your own"
        if self.per_epoch is None:
            return [batch, f"{counted(self.total, 'steps')} of a stream, {warmup}"]
        cut = "" if self.rows == self.examples else f"{counted(self.examples, 'examples')}, cut into "
        rows = f"{cut}{counted(self.rows, 'rows')}: {counted(self.per_epoch, 'steps')} an epoch{self._rest()}"
        epochs = f"{self.epochs:.4g} {'epoch' if self.epochs == 1 else 'epochs'}"
        return [batch, f"{rows}; {epochs}: {counted(self.total, 'steps')}, {warmup}"]

    def _rest(self) -> str:
        rest = self.dropped if self.planned is not None else self.rows % self.global_batch
        if not rest:
            return ""
        rows = counted(rest, "rows")
        return f" ({rows} left out: dataloader_drop_last)" if self.drop_last else f" (the last of {rows})"
