"""Who answers divided input: processes of this machine, each with its cores or its card, or nodes of a Ray cluster."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from nlpctl.runners.shard_worker import Order, open_desk, open_desk_elsewhere
from nlpctl.runners.side_by_side import Division
from nlpctl.runtime.crew import Crew, ProcessHand
from nlpctl.runtime.ray_cluster import Ground, ray_cluster
from nlpctl.runtime.shares import shares


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
        place = nodes.place(order.recipe.runtime, workers)
        own, ground = order.on(place.runtime), Ground(os.getcwd())
        with Crew(lambda _: nodes.hire(place, ground, open_desk_elsewhere, own), workers or place.room) as crew:
            yield crew
