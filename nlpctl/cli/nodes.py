"""The options of commands that run on several nodes at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Annotated

import typer

from nlpctl.launch.launch import forget_launchers
from nlpctl.launch.nodes import Nodes, meeting
from nlpctl.launch.schedulers import NodeRank, place_of
from nlpctl.runtime.device import restart_if_needed

NnodesOption = Annotated[
    str | None,
    typer.Option("--nnodes", metavar="N", help="Nodes, each with the same command; auto: as the scheduler says."),
]
MasterOption = Annotated[
    str | None, typer.Option("--master", metavar="HOST:PORT", help="Where the nodes meet: an address of node 0.")
]
NodeRankOption = Annotated[
    int | None, typer.Option("--node_rank", metavar="R", help="Which node this is, from 0; schedulers say it.")
]
WaitOption = Annotated[float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for the other nodes.")]


def place_here(nnodes: str | None, master: str | None, node_rank: int | None) -> NodeRank | None:
    """This node among those of the command; None: it is alone. UserError."""
    place = place_of(nnodes, master, node_rank, os.environ)
    if nnodes is not None:
        # Now: later the other nodes would take it for the end of this one, and the variables of the scheduler are gone.
        restart_if_needed()
        forget_launchers()
    return place


@contextlib.contextmanager
def nodes_of(nnodes: str | None, master: str | None, node_rank: int | None, wait: float) -> Iterator[Nodes | None]:
    """The nodes of this command, which have met; None: this one is alone. UserError."""
    place = place_here(nnodes, master, node_rank)
    if place is None:
        yield None
        return
    with meeting(place, wait) as nodes:
        yield nodes
