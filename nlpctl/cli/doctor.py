"""`nlpctl doctor`."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Iterator
from json import loads as parse_json  # `json` is the flag
from pathlib import Path
from typing import Annotated

import typer

from nlpctl import console
from nlpctl.cli.output import Json, give
from nlpctl.cli.peers import (
    MasterOption,
    NnodesOption,
    NodeRankOption,
    WaitOption,
    machines_of,
    peers_of,
    refuse_meeting,
)
from nlpctl.config.schema import RuntimeSection
from nlpctl.errors import EXIT_FAILED, EXIT_OK, UserError
from nlpctl.launch.peers import WAIT_SECONDS, Peers
from nlpctl.names import counted, whole_number
from nlpctl.runtime.device import choose_device
from nlpctl.runtime.doctor import Check, run_checks


def doctor(
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="ADDRESS", help="Machines of a Ray cluster: auto, or ray://HOST:PORT."),
    ] = None,
    nnodes: NnodesOption = None,
    master: MasterOption = None,
    node_rank: NodeRankOption = None,
    wait: WaitOption = WAIT_SECONDS,
    recipe: Annotated[
        str | None, typer.Option("--recipe", metavar="RECIPE", help="Compare this recipe between the machines, too.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option("--devices", metavar="0,1,...", help="The cards of this machine that compute.")
    ] = None,
    json: Json = False,
) -> int:
    """Check this machine: versions, device, threads, disk. Each line is ok, warning or failure, with the remedy.

    With --nnodes, the way between several machines instead, and whether they are alike: on a Ray cluster, or with the
    same command as every process, of which process 0 tells.

    Exit code 1 when anything fails.

    Examples:

      nlpctl doctor

      nlpctl doctor --json

      nlpctl doctor --cluster auto --nnodes 2

      nlpctl doctor --nnodes 2 --master node0:29417 --node_rank 0
    """
    for flag, value in (("--recipe", recipe), ("--devices", devices), ("--cluster", cluster)):
        if nnodes is None and value is not None:
            raise UserError("this is for several machines", flag, "add --nnodes N, or leave it out")
    if cluster is not None:
        refuse_meeting(master, node_rank)
        return _on_cluster(cluster, machines_of(nnodes or ""), recipe, devices, json)
    numbers = [] if devices is None else [whole_number(each, 10**9) for each in devices.split(",")]
    cards = tuple(number for number in numbers if number is not None)
    if len(cards) < len(numbers):
        raise UserError(f"{devices!r:.60} is not a list of cards", "--devices", "write their numbers: 0,1")
    if cards:
        choose_device("auto", cards)  # refuses what is not there or cannot be used, before the others wait for this one
    with peers_of(nnodes, master, node_rank, wait) as peers:
        checks = _show_each(run_checks() if peers is None else _checks_between(peers, recipe, cards), json)
        if peers is not None and not peers.first:
            return EXIT_OK
    counts = {status: sum(check.status == status for check in checks) for status in ("ok", "warning", "failure")}
    if json:
        give({"counts": counts, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        bad = f"{counted(counts['warning'], 'warnings')}, {counted(counts['failure'], 'failures')}"
        console.note(f"{counts['ok']} ok, {bad}")
    return EXIT_FAILED if counts["failure"] else EXIT_OK


def _show_each(done: Iterator[Check], json: bool) -> list[Check]:
    """All checks, each of which is shown as soon as it is done; with --json none is."""
    checks = []
    for check in done:
        checks.append(check)
        if not json:
            console.result(f"{check.status:7}  {check.name}: {check.detail}")
            if check.remedy:
                console.result(f"         -> {check.remedy}")
    return checks


def _checks_between(peers: Peers, recipe: str | None, cards: tuple[int, ...]) -> Iterator[Check]:
    """The checks between this process, which computes on one of `cards` if there are any, and its peers."""
    from nlpctl.launch.machines_doctor import machines_checks, name_check
    from nlpctl.training.several_machines import doctor_facts

    if peers.first:
        yield name_check(peers.place)
    yield from machines_checks(peers, doctor_facts(recipe), cards)


def _on_cluster(cluster: str, machines: int, recipe: str | None, devices: str | None, json: bool) -> int:
    """The same checks by a process on each of the machines, of which process 0 tells."""
    from nlpctl.launch.ray_launch import ray_ranks

    if devices is not None:
        raise UserError("Ray gives every process its card", "--devices", "leave it out")
    arguments = ["doctor", "--nnodes", "auto"]
    if recipe is not None:
        arguments += ["--recipe", str(Path(recipe).absolute()) if Path(recipe).exists() else recipe]
    with ray_ranks(cluster, machines, 1, RuntimeSection()) as ranks:
        if not json:
            return ranks.launch(arguments, None)
        document = io.StringIO()  # of that process; this one writes the same result
        code = ranks.launch([*arguments, "--json"], None, output=document)
    with contextlib.suppress(ValueError):  # it said on standard error why there is none
        give(parse_json(document.getvalue())["result"])
    return code
