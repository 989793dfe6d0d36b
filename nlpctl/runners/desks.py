"""Who does divided work: processes of this machine, each with its cores or its card, or nodes of a Ray cluster."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nlpctl.errors import UserError
from nlpctl.names import counted
from nlpctl.runners.shard_worker import Order, open_desk, open_desk_elsewhere
from nlpctl.runtime.crew import Crew, Hand, ProcessHand
from nlpctl.runtime.memory import refuse_processes
from nlpctl.runtime.ray_cluster import RayCluster, ray_cluster
from nlpctl.runtime.shares import shares


@dataclass(frozen=True)
class Division:
    """Who does the work: `workers` processes, or the nodes of a `cluster`. `resume`: what was begun goes on.

    UserError if this machine cannot hold so many processes.
    """

    workers: int | None
    cluster: str | None
    resume: bool = False

    def __post_init__(self) -> None:
        if self.cluster is None:
            refuse_processes(self.workers or 1, "--workers")


@contextlib.contextmanager
def desks(order: Order, division: Division, log: Callable[[int], Path]) -> Iterator[Crew]:
    """Workers with a Desk each. `log`: the file that worker i of this machine writes to once it opens the model."""
    workers = division.workers
    if division.cluster is None:
        count = workers or 1
        runtimes = shares(order.recipe.runtime, count)
        with Crew(lambda number: ProcessHand(open_desk, order.on(runtimes[number]), log(number)), count) as crew:
            yield crew
        return
    with ray_cluster(division.cluster) as nodes:
        hire, room = _on_nodes(order, nodes)
        if not room or (workers or 1) > room:
            hint = "ask for fewer, or for fewer --threads of each"
            message = f"the cluster has {counted(nodes.cores, 'cores')} and {counted(nodes.cards, 'cards')}, "
            raise UserError(f"{message}room for {counted(room, 'workers')}", where="--workers", hint=hint)
        with Crew(hire, workers or room) as crew:
            yield crew


def _on_nodes(order: Order, nodes: RayCluster) -> tuple[Callable[[int], Hand], int]:
    """Starts a worker anywhere in a cluster; and how many of them it has room for. A worker has a card, or a core."""
    runtime = order.recipe.runtime
    if runtime.device == "gpu" or (runtime.device == "auto" and nodes.cards):
        own = order.on(dataclasses.replace(runtime, devices=()))
        return lambda _: nodes.hire(open_desk_elsewhere, own, cores=1, cards=1), min(nodes.cores, nodes.cards)
    threads = runtime.threads or 1
    own = order.on(dataclasses.replace(runtime, device="cpu", threads=threads))
    return lambda _: nodes.hire(open_desk_elsewhere, own, cores=threads, cards=0), nodes.cores // threads
