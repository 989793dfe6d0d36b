"""Processes that train side by side, here or on the nodes of a cluster, each led by a thread of this one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from nlpctl.config.schema import RuntimeSection
from nlpctl.errors import EXIT_INTERRUPTED, Interrupted
from nlpctl.experiments.series import AGAIN
from nlpctl.runtime.device import visible_devices
from nlpctl.runtime.interrupt import STOP_SECONDS, sigterm_interrupts
from nlpctl.runtime.worker import RemoteProcess, listen_for_interrupts
from nlpctl.runtime.worker_pool import WorkerPool
from nlpctl.runtime.worker_slots import WorkerSlots

LOGS = "logs"
GRACE = STOP_SECONDS + 5.0  # a training saves a checkpoint when it is asked to stop
HINT = "out of memory? use fewer --workers"


class TrialWorker:
    """A worker of a crew: a process that can be interrupted. `make`: a new one, not started yet."""

    def __init__(self, log: Path, make: Callable[[], RemoteProcess]):
        self.log, self._make = log, make
        self.worker: RemoteProcess | None = None
        self.ended = False

    def start(self) -> RemoteProcess:
        """Its process, started. NoRoom; UnfitNode."""
        self.worker = worker = self._make()
        worker.start()
        if self.ended:  # meanwhile
            worker.end(interrupt=True)
        return worker

    def ask(self, job: Any) -> Any:
        return (self.worker or self.start()).ask(job, str(self.log), HINT)

    def end(self, interrupt: bool) -> None:
        self.ended = self.ended or interrupt
        if self.worker is not None:
            self.worker.end(interrupt)


@contextlib.contextmanager
def trial_workers(
    posts: WorkerSlots, folder: Path, files: tuple[str, ...], employ: Callable[[RuntimeSection, Path, Any], TrialWorker]
) -> Iterator[WorkerPool]:
    """A worker at each of `posts`, which sees `folder` and `files`.

    `employ(its runtime, its log, make)`: worker, not started yet; `make` takes what `Worker` takes.
    Interrupted: Ctrl-C, once all have ended.
    """
    count, logs = len(posts.runtimes), folder / LOGS
    logs.mkdir(exist_ok=True)

    def hire(number: int) -> TrialWorker:
        trainer = employ(posts.runtimes[number], logs / f"{number}.log", make)
        trainer.start()
        return trainer

    try:
        with sigterm_interrupts(), posts.seeing(folder, *files) as make, WorkerPool(hire, count) as crew:
            yield crew
    except KeyboardInterrupt:
        raise Interrupted("interrupted", str(folder), AGAIN) from None


def begin(log: Path, cards: tuple[int, ...]) -> None:
    """Called first in the process: it sees `cards` alone, writes to `log`, and ends when it is interrupted."""
    visible = visible_devices(cards, os.environ)
    if visible is not None:  # once: for a second training the card would have another number
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    os.setsid()  # a terminal's Ctrl-C must reach only the parent, which passes it on once
    listen_for_interrupts(_leave)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), 2)


def _leave(number: int, frame: FrameType | None) -> None:
    """Ctrl-C outside a training loop; inside, a checkpoint is saved. An exception would be one in C++."""
    os._exit(EXIT_INTERRUPTED)
