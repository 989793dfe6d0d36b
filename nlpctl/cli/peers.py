"""The options of commands that run as several processes, each of them started by a scheduler or by hand."""

from __future__ import annotations

import contextlib
import os
from contextlib import AbstractContextManager
from typing import Annotated

import typer

from nlpctl.errors import UserError
from nlpctl.launch.peers import Peers
from nlpctl.launch.schedulers import MOST_PROCESSES, rank_of
from nlpctl.names import whole_number
from nlpctl.runtime.device import restart_if_needed
from nlpctl.runtime.ranks import forget_launchers

NnodesOption = Annotated[
    str | None,
    typer.Option("--nnodes", metavar="N", help="Machines of --cluster; else processes that are started one by one."),
]
MasterOption = Annotated[
    str | None, typer.Option("--master", metavar="HOST:PORT", help="Where the processes meet: an address of process 0.")
]
NodeRankOption = Annotated[
    int | None, typer.Option("--node_rank", metavar="R", help="Which process this is, from 0; schedulers say it.")
]
WaitOption = Annotated[float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for the other ones.")]


def peers_of(
    nnodes: str | None, master: str | None, node_rank: int | None, wait: float
) -> AbstractContextManager[Peers | None]:
    """This process among those of the command; it gives None if this one is alone. UserError."""
    place = rank_of(nnodes, master, node_rank, os.environ)
    if nnodes is not None:
        # Now: later the others would take it for the end of this one, and the variables of the scheduler are gone.
        restart_if_needed()
        forget_launchers()
    return contextlib.nullcontext() if place is None else Peers(place, wait)


def machines_of(nnodes: str) -> int:
    """The number of machines of a cluster. UserError."""
    if not (number := whole_number(nnodes, MOST_PROCESSES)):
        raise UserError(f"{nnodes[:40]!r} is not a number of machines", "--nnodes", "write a number from 1")
    return number


def refuse_meeting(master: str | None, node_rank: int | None) -> None:
    """UserError for what only processes need that are started one by one."""
    for flag, value in (("--master", master), ("--node_rank", node_rank)):
        if value is not None:
            raise UserError(f"{flag} and --cluster cannot be combined", flag, "leave it out: Ray starts the processes")
