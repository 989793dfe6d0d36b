"""What `nlpctl doctor --nnodes` checks: the way between nodes, and whether these are alike."""

from __future__ import annotations

import json
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nlpctl.errors import EXIT_OK
from nlpctl.launch.launch import follow, launch
from nlpctl.launch.node_launch import PROCESSES, Coordinator, Participant, world_of
from nlpctl.launch.nodes import FIREWALL, Nodes, differences
from nlpctl.launch.schedulers import NodeRank
from nlpctl.runtime.doctor import Check

CLOCK = "clock"
FAR = 2.0  # seconds between two clocks
SLOW = 125e6  # bytes per second: a network of 1 Gbit/s
BASE_MODEL = 400e6  # bytes of the gradients of a base model
_PROGRAM = ("-m", "nlpctl.launch.all_reduce")


def name_check(place: NodeRank) -> Check:
    """Whether the name of node 0 is known here."""
    try:
        address = socket.getaddrinfo(place.host, place.port, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        remedy = "write it as the address of node 0, or enter it in /etc/hosts or the name server"
        return Check("name", "failure", f"{place.host} is not known here: {error.strerror}", remedy)
    if place.rank != 0 and str(address).startswith("127."):
        return Check("name", "warning", f"{place.host} is {address}, this machine itself", "right only for a trial")
    return Check("name", "ok", f"{place.host} is {address}")


def nodes_checks(
    nodes: Nodes, facts: Mapping[str, Any], equal: Sequence[str], devices: tuple[int, ...]
) -> Iterator[Check]:
    """On node 0: every check as soon as it is done. On another node: take part; nothing is yielded.

    `facts`: of this node; `equal`: those that have to be equal.
    """
    nodes.agree({**facts, PROCESSES: max(1, len(devices))}, equal=())
    if not nodes.is_head:
        _answer_clock(nodes)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            follow([folder], max(1, len(devices)), devices, path / "logs", Participant(nodes, path), _PROGRAM)
        return
    met = ", ".join(f"{member.host} ({member.address})" for member in nodes.members)
    yield Check("port", "ok", f"{nodes.place.nodes} nodes met at {nodes.place.master}: {met}")
    unlike = False
    for name in equal:
        found = _likeness(nodes, name)
        unlike |= found.status == "failure"
        yield found
    yield _clocks(nodes)
    if unlike:
        yield Check("all-reduce", "failure", "not tried, since the nodes differ", "make them equal first")
    else:
        yield from _sums(nodes, devices)


def _likeness(nodes: Nodes, name: str) -> Check:
    """Whether all nodes have the same values of `name` as node 0."""
    first, *others = nodes.members
    problems = [problem for other in others for problem in differences(first, other, (name,))]
    if problems:
        told = "; ".join(f"{problem.where} {problem.message}" for problem in problems)
        return Check(name, "failure", told, problems[0].hint)
    values = first.facts[name]
    told = ", ".join(f"{key} {value}" for key, value in values.items()) if len(values) < 10 else f"{len(values)} values"
    return Check(name, "ok", f"equal: {told}")


def _clocks(nodes: Nodes) -> Check:
    """How far the clocks of the nodes are from that of node 0."""
    offsets = {}
    for rank, link in sorted(nodes.links.items()):
        begun = time.time()
        link.send(CLOCK)
        theirs = nodes.collect(CLOCK, [rank])[rank].values["time"]
        offsets[rank] = theirs - (begun + time.time()) / 2
    worst = max(offsets, key=lambda rank: abs(offsets[rank]))
    if abs(offsets[worst]) > FAR:
        remedy = "let chrony or ntpd set the clocks; until then times in logs and events do not fit together"
        return Check("clocks", "warning", f"that of {nodes.name(worst)} is {offsets[worst]:+.1f} s off", remedy)
    return Check("clocks", "ok", f"at most {abs(offsets[worst]) * 1000:.0f} ms apart")


def _answer_clock(nodes: Nodes) -> None:
    nodes.expect(CLOCK)
    nodes.send(CLOCK, time=time.time())


def _sums(nodes: Nodes, devices: tuple[int, ...]) -> Iterator[Check]:
    """All processes of all nodes add up numbers, as they add up gradients."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        head = Coordinator(nodes, path / "logs", path / "events.jsonl", dict)
        code = launch([str(path / "seconds.json")], max(1, len(devices)), devices, path / "logs", _PROGRAM, head)
        if code != EXIT_OK:
            remedy = f"{FIREWALL}; with cards, NCCL_DEBUG=INFO shows more"
            yield Check("all-reduce", "failure", "the processes cannot compute together; see above", remedy)
            return
        seconds = json.loads((path / "seconds.json").read_text(encoding="utf-8"))
    world = world_of(nodes.members)
    for text, taken in seconds.items():
        size = int(text)
        name = "all-reduce of 1 kB" if size <= 1 << 10 else f"all-reduce of {size >> 20} MB"
        rate = size / taken
        detail = f"{world} processes, {taken * 1000:.1f} ms"
        if size <= 1 << 10:
            yield Check(name, "ok", detail)
            continue
        detail += f", {rate * 8 / 1e9:.1f} Gbit/s; gradients of a base model: {BASE_MODEL / rate:.1f} s a step"
        remedy = "" if rate >= SLOW else "accumulate more steps (training.gradient_accumulation_steps), or one node"
        yield Check(name, "ok" if rate >= SLOW else "warning", detail, remedy)
