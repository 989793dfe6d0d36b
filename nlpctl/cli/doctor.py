"""`nlpctl doctor`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated

import typer

from nlpctl import console
from nlpctl.cli.nodes import MasterOption, NnodesOption, NodeRankOption, WaitOption, place_here
from nlpctl.cli.output import Json, give
from nlpctl.errors import EXIT_FAILED, EXIT_OK, UserError
from nlpctl.launch.nodes import WAIT_SECONDS, meeting
from nlpctl.launch.schedulers import NodeRank
from nlpctl.names import counted
from nlpctl.runtime.doctor import Check, run_checks


def doctor(
    nnodes: NnodesOption = None,
    master: MasterOption = None,
    node_rank: NodeRankOption = None,
    wait: WaitOption = WAIT_SECONDS,
    recipe: Annotated[
        str | None, typer.Option("--recipe", metavar="RECIPE", help="Compare this recipe between the nodes, too.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option("--devices", metavar="0,1,...", help="The cards of this node that compute.")
    ] = None,
    json: Json = False,
) -> int:
    """Check this machine: versions, device, threads, disk. Each line is ok, warning or failure, with the remedy.

    With --nnodes, run on every node: the way between the nodes instead, and whether they are alike. Node 0 tells.

    Exit code 1 when anything fails.

    Examples:

      nlpctl doctor

      nlpctl doctor --json

      nlpctl doctor --nnodes 2 --master node0:29417 --node_rank 0
    """
    place = place_here(nnodes, master, node_rank)
    for flag, value in (("--recipe", recipe), ("--devices", devices)):
        if nnodes is None and value is not None:
            raise UserError("this is for several nodes", flag, "add --nnodes N, or leave it out")
    found = run_checks() if place is None else _between(place, wait, recipe, devices)
    checks = []
    for check in found:
        checks.append(check)
        if not json:
            console.result(f"{check.status:7}  {check.name}: {check.detail}")
            if check.remedy:
                console.result(f"         -> {check.remedy}")
    counts = {status: sum(check.status == status for check in checks) for status in ("ok", "warning", "failure")}
    if json:
        give({"counts": counts, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        bad = f"{counted(counts['warning'], 'warnings')}, {counted(counts['failure'], 'failures')}"
        console.note(f"{counts['ok']} ok, {bad}")
    return EXIT_FAILED if counts["failure"] else EXIT_OK


def _between(place: NodeRank, wait: float, recipe: str | None, devices: str | None) -> Iterator[Check]:
    """The checks between nodes, of which this one is at `place`."""
    from nlpctl.launch.nodes_doctor import name_check, nodes_checks
    from nlpctl.runtime.device import choose_device
    from nlpctl.training.several_nodes import doctor_facts

    yield name_check(place)
    cards = _cards(devices)
    if cards:
        choose_device("auto", cards)  # refuses what is not there or cannot be used, before the others wait
    with meeting(place, wait) as nodes:
        facts = doctor_facts(recipe)
        yield from nodes_checks(nodes, facts, tuple(facts), cards)


def _cards(text: str | None) -> tuple[int, ...]:
    numbers = [] if text is None else text.split(",")
    if not all(number.strip().isdecimal() for number in numbers):
        raise UserError(f"{text!r} is not a list of cards", "--devices", "write their numbers: 0,1")
    return tuple(int(number) for number in numbers)
