"""What `nlpctl doctor --nnodes` checks: the way between several machines, and whether these are alike."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from nlpctl import console
from nlpctl.config.schema import RuntimeSection
from nlpctl.errors import EXIT_FAILED, Problem
from nlpctl.launch.all_reduce import seconds_of_sums
from nlpctl.launch.peers import FIREWALL, Peers
from nlpctl.launch.schedulers import ProcessRank
from nlpctl.runtime.doctor import Check
from nlpctl.runtime.process import configure_paddle, prepare_process
from nlpctl.runtime.ranks import meeting

FAR = 2.0  # seconds between two clocks
SLOW = 125e6  # bytes per second: a network of 1 Gbit/s
BASE_MODEL = 400e6  # bytes of the gradients of a base model
LIMIT_SECONDS = 180.0  # where connections lead nowhere, libraries wait for a quarter of an hour
_CLOCK, _GO = "clock", "go"


def name_check(place: ProcessRank) -> Check:
    """Whether the name of process 0's machine is known here."""
    try:
        address = socket.getaddrinfo(place.host, place.port, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        remedy = "write it as the address of process 0, or enter it in /etc/hosts or the name server"
        return Check("name", "failure", f"{place.host} is not known here: {error.strerror}", remedy)
    if place.rank != 0 and str(address).startswith("127."):
        return Check("name", "warning", f"{place.host} is {address}, this machine itself", "right only for a trial")
    return Check("name", "ok", f"{place.host} is {address}")


def machines_checks(peers: Peers, facts: Mapping[str, Any], devices: tuple[int, ...]) -> Iterator[Check]:
    """In rank 0: every check as soon as it is done. In another rank: take part; nothing is yielded.

    `facts`: mappings that have to be equal. UserError, RunFailed: they cannot meet.
    """
    peers.take_card(devices, "auto")
    setup = prepare_process(RuntimeSection(), 0)
    configure_paddle(setup, 0)
    peers.agree(facts, equal=())
    if not peers.first:
        peers.wait_for(_CLOCK)
        peers.announce(f"{_CLOCK} {peers.place.rank}", {"time": time.time()})
        if peers.wait_for(_GO)["alike"]:
            _sums()
        return
    met = ", ".join(f"{member.host} ({member.address})" for member in peers.members)
    yield Check("port", "ok", f"{peers.place.world} processes met at {peers.place.master}: {met}")
    alike = True
    for name in facts:
        check = _likeness(peers, name)
        alike &= check.status == "ok"
        yield check
    yield _clocks(peers)
    peers.announce(_GO, {"alike": alike})
    if alike:
        yield from _speeds(_sums(), peers.place.world)
    else:
        yield Check("all-reduce", "failure", "not tried, since the machines differ", "make them equal first")


def _likeness(peers: Peers, name: str) -> Check:
    """Whether all processes have the same values of `name` as process 0."""
    first, *others = peers.members
    problems = [problem for other in others for problem in first.differences(other, (name,))]
    if problems:
        detail = "; ".join(f"{problem.where} {problem.message}" for problem in problems)
        return Check(name, "failure", detail, problems[0].hint)
    values = first.facts[name]
    detail = ", ".join(f"{key} {value}" for key, value in values.items())
    return Check(name, "ok", f"equal: {detail if len(values) < 10 else f'{len(values)} values'}")


def _clocks(peers: Peers) -> Check:
    """How far the clocks of the others are from that of process 0, as far as the way there lets one say."""
    begun = time.time()
    peers.announce(_CLOCK, {})
    worst, most = peers.members[0], 0.0
    for member in peers.members[1:]:
        theirs = peers.wait_for(f"{_CLOCK} {member.rank}")["time"]
        # It was read between two moments of this clock.
        offset = min(theirs - begun, 0.0) or max(theirs - time.time(), 0.0)
        worst, most = (member, offset) if abs(offset) > abs(most) else (worst, most)
    if abs(most) > FAR:
        remedy = "let chrony or ntpd set the clocks; until then times in logs and events do not fit together"
        return Check("clocks", "warning", f"that of {worst} is {most:+.1f} s off", remedy)
    return Check("clocks", "ok", f"less than {FAR:g} s apart")


def _sums() -> dict[int, float]:
    """All processes add up numbers, as they add up gradients. SystemExit if that goes wrong."""
    import paddle

    def give_up() -> None:
        hint = f"{FIREWALL}; with cards, NCCL_DEBUG=INFO shows more"
        console.error(Problem(f"the processes did not compute together within {LIMIT_SECONDS:g} s", hint=hint))
        os._exit(EXIT_FAILED)

    limit = threading.Timer(LIMIT_SECONDS, give_up)
    limit.daemon = True
    limit.start()
    with meeting():
        paddle.distributed.init_parallel_env()
    seconds = seconds_of_sums()
    limit.cancel()
    return seconds


def _speeds(seconds: Mapping[int, float], world: int) -> Iterator[Check]:
    for size, taken in seconds.items():
        name = "all-reduce of 1 kB" if size <= 1 << 10 else f"all-reduce of {size >> 20} MB"
        rate = size / taken
        detail = f"{world} processes, {taken * 1000:.1f} ms"
        if size <= 1 << 10:
            yield Check(name, "ok", detail)
            continue
        detail += f", {rate * 8 / 1e9:.1f} Gbit/s; gradients of a base model: {BASE_MODEL / rate:.1f} s a step"
        remedy = "" if rate >= SLOW else "accumulate more steps (training.gradient_accumulation_steps), or one machine"
        yield Check(name, "ok" if rate >= SLOW else "warning", detail, remedy)
