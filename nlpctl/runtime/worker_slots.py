"""Where work is done side by side: processes of this machine, or nodes of a Ray cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nlpctl.config.schema import RuntimeSection
from nlpctl.files import staging_prefix
from nlpctl.runtime.device import choose_device, gpu_for_exports, usable_gpu
from nlpctl.runtime.machine import physical_cores, refuse_processes
from nlpctl.runtime.process import one_process
from nlpctl.runtime.ray_cluster import NodeRequirements, ray_cluster
from nlpctl.runtime.worker import RemoteProcess, Worker


def shares(runtime: RuntimeSection, workers: int, *, needs_paddle: bool) -> list[RuntimeSection]:
    """The runtime section of each of `workers` processes: its share of the cores, or its card, in turns.

    `needs_paddle`: as of `choose_device`.
    """
    if choose_device(runtime.device, runtime.devices, needs_paddle=needs_paddle) == "gpu":
        report = usable_gpu() if needs_paddle else gpu_for_exports()
        cards = runtime.devices or tuple(range(report.count))
        own_cards = [cards[number % len(cards)] for number in range(workers)]
        return [dataclasses.replace(runtime, device="gpu", devices=(card,), nproc=1) for card in own_cards]
    threads = runtime.threads
    if threads is None and "OMP_NUM_THREADS" not in os.environ:
        threads = max(1, physical_cores() // workers)
    return [dataclasses.replace(runtime, device="cpu", threads=threads, nproc=1)] * workers


HERE: Callable[..., RemoteProcess] = partial(Worker, daemon=False)


@dataclass(frozen=True)
class ParallelConfig:
    """Who does the work: `workers` processes, or the nodes of a `cluster`. `resume`: what was begun goes on.

    UserError if this machine cannot hold so many processes.
    """

    workers: int | None
    cluster: str | None
    resume: bool = False

    def __post_init__(self) -> None:
        if self.cluster is None:
            refuse_processes(self.workers or 1, "@[workers]")

    @property
    def divides(self) -> bool:
        """Whether this process does not do all of it itself, one after the other."""
        return self.cluster is not None or (self.workers or 1) > 1


@dataclass(frozen=True)
class WorkerSlots:
    """Where processes work side by side. `runtimes`: what each may use; `elsewhere`: on a cluster.

    `slowdown`: how many times as long something takes as alone, since processes share cores, or a card.
    """

    runtimes: tuple[RuntimeSection, ...]
    elsewhere: bool
    slowdown: float
    _worker: Callable[..., RemoteProcess]
    _needs_paddle: bool = True

    @contextlib.contextmanager
    def process_factory(self, folder: Path | None = None, *paths: str) -> Iterator[Callable[..., RemoteProcess]]:
        """Makes a worker, not started yet, from what `Worker` takes, but for `daemon`.

        Its `start` raises UnfitNode where `folder` is another one than here, or `paths` are missing.
        """
        if not self.elsewhere:
            yield self._worker
            return
        if folder is None:
            yield partial(self._worker, NodeRequirements(os.getcwd(), needs_paddle=self._needs_paddle))
            return
        with tempfile.NamedTemporaryFile(prefix=staging_prefix("seen"), dir=folder) as mark:
            seen = (os.path.abspath(mark.name), *paths)
            requirements = NodeRequirements(os.getcwd(), seen, needs_paddle=self._needs_paddle)
            yield partial(self._worker, requirements)


@contextlib.contextmanager
def worker_slots(
    runtime: RuntimeSection, parallel: ParallelConfig, most: int | None, *, needs_paddle: bool = True
) -> Iterator[WorkerSlots]:
    """Those of `parallel`; on a cluster by default as many as it has room for, but at most `most`. UserError.

    `needs_paddle`: as of `choose_device`.
    """
    if parallel.cluster is None:
        workers = parallel.workers or 1
        runtimes = shares(runtime, workers, needs_paddle=needs_paddle) if workers > 1 else [one_process(runtime)]
        yield WorkerSlots(tuple(runtimes), False, _slowdown(runtimes), HERE)
        return
    with ray_cluster(parallel.cluster) as nodes:
        request = nodes.request(runtime, parallel.workers)
        count = parallel.workers or min(request.room, most or request.room)
        yield WorkerSlots((request.runtime,) * count, True, 1.0, partial(nodes.worker, request), needs_paddle)


def _slowdown(runtimes: Sequence[RuntimeSection]) -> float:
    if runtimes[0].device == "gpu":
        return float(max(Counter(each.devices for each in runtimes).values()))
    return float(len(runtimes))
