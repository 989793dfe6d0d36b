"""A worker pool that trains: the trials of a sweep, or the runs of a series, here or on the nodes of a cluster.

    FOLDER/logs/0.log, ...    what each worker writes
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nlpctl.config.schema import RuntimeSection
from nlpctl.errors import Interrupted
from nlpctl.experiments.series import AGAIN
from nlpctl.layout import LOGS
from nlpctl.runtime.device import visible_devices
from nlpctl.runtime.interrupt import STOP_SECONDS, sigterm_interrupts
from nlpctl.runtime.worker import RemoteProcess, child_main
from nlpctl.runtime.worker_pool import ANOTHER_WORKER, WorkerPool, answering
from nlpctl.runtime.worker_slots import WorkerSlots

_GRACE = STOP_SECONDS + 5.0  # a training saves a checkpoint when it is asked to stop


@contextlib.contextmanager
def training_pool(
    slots: WorkerSlots,
    folder: Path,
    files: Sequence[str],
    opened: Callable[..., Any],
    *arguments: Any,
    again: str = ANOTHER_WORKER,
) -> Iterator[WorkerPool]:
    """A pool with a worker at each of `slots`, which sees `folder` and `files`.

    A worker holds `opened(its runtime section, *arguments)`. `again`: as of `WorkerPool`.
    Interrupted: Ctrl-C, once all have ended.
    """
    logs = folder / LOGS
    logs.mkdir(exist_ok=True)
    try:
        with sigterm_interrupts(), slots.process_factory(folder, *files) as new_process:

            def make(number: int) -> RemoteProcess:
                log = logs / f"{number}.log"
                told = (log, slots.runtimes[number], opened, *arguments)
                return new_process(open_trainer, *told, grace=_GRACE, name=str(log))

            with WorkerPool(make, len(slots.runtimes), again=again) as pool:
                yield pool
    except KeyboardInterrupt:
        raise Interrupted("interrupted", str(folder), AGAIN) from None


def open_trainer(
    log: Path, runtime: RuntimeSection, opened: Callable[..., Any], *arguments: Any
) -> Callable[[Any], Any]:
    """Runs in the process of a worker: how it does its jobs."""
    visible = visible_devices(runtime.devices, os.environ)
    if visible is not None:  # once: for a second training the card would have another number
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    child_main(log)
    # The process sees its cards alone, so to each training they are all there are.
    return answering(opened(replace(runtime, devices=()), *arguments))
