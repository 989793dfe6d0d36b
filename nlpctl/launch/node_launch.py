"""One launch on several nodes: what node 0 orders, and what it hears while the processes run.

Node 0 sends the files that processes need, then the order to launch. The other nodes keep these in a folder of their
own, so they need no access to the run directory, and send back what their processes write to their logs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from nlpctl.errors import NlpctlError, RunFailed
from nlpctl.files import remove_dir
from nlpctl.launch.node_connection import CHUNK, LOST, Message
from nlpctl.launch.nodes import END, FAILED, Member, Nodes
from nlpctl.launch.rank_monitor import Ended, NoPeers
from nlpctl.layout import CHECKPOINTS, EVENTS
from nlpctl.runtime.interrupt import STOP_KNOWN, StopNote
from nlpctl.runtime.ranks import WORLD

FILE, LAUNCH, LOG, EVENT, RANK_FAILED, DONE, INTERRUPT, STOP_AFTER, STOP_NOTED = (
    "file", "launch", "log", "event", "rank_failed", "done", "interrupt", "stop_after", "stop_noted",
)  # fmt: skip
PROCESSES = "processes"  # a fact of every node: how many it starts
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
_FIRST_PORT, _LAST_PORT = 20_000, 32_000  # below those of outgoing connections
_GET_ADDRESS = 0x8915  # SIOCGIFADDR


def ranks_of(members: Sequence[Member], node: int) -> range:
    """The numbers of the processes of `node` among those of all nodes."""
    counts = [int(member.facts[PROCESSES]) for member in members]
    first = sum(counts[:node])
    return range(first, first + counts[node])


def world_of(members: Sequence[Member]) -> int:
    """The number of processes on all nodes."""
    return sum(int(member.facts[PROCESSES]) for member in members)


class Team(NoPeers):
    """The processes on the other nodes, for the launch on this one."""

    def __init__(self, nodes: Nodes):
        self.nodes = nodes
        self.world = world_of(nodes.members)
        self.ranks = ranks_of(nodes.members, nodes.place.rank)
        self.port = 0
        self.exchange = Path()  # the folder of this launch

    def environment(self) -> dict[str, str]:
        """What Paddle's launcher would set for processes on several nodes; rank_main puts it in place."""
        members = self.nodes.members
        endpoints = [
            f"{member.address}:{self.port + 1 + rank}"  # nothing listens there; Paddle downloads once per address
            for member in members for rank in ranks_of(members, member.rank)
        ]  # fmt: skip
        world = {
            "PADDLE_TRAINERS_NUM": str(self.world),
            "PADDLE_GLOBAL_SIZE": str(self.world),
            "PADDLE_NNODES": str(self.nodes.place.nodes),
            "PADDLE_MASTER": f"{members[0].address}:{self.port}",
            "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        }
        added = {WORLD: json.dumps(world), "NLPCTL_FIRST_RANK": str(self.ranks.start)}
        # gloo takes the address of the host's name, which is often 127.0.1.1 and leads nowhere else.
        interface = interface_of(members[self.nodes.place.rank].address)
        if interface and GLOO_INTERFACE not in os.environ:
            added[GLOO_INTERFACE] = interface
        return added

    def interrupt(self) -> None:
        self.nodes.send(INTERRUPT)

    def where(self, rank: int) -> str:
        members = self.nodes.members
        return next(f" on {member}" for member in members if rank in ranks_of(members, member.rank))


class Coordinator(Team):
    """The side of node 0."""

    def __init__(self, nodes: Nodes, log_dir: Path, events: Path, files: Callable[[], Mapping[str, Path]]):
        """`events`: the file that gets the events of processes elsewhere. `files`: those that every launch needs, by
        their names in the folder of a run."""
        super().__init__(nodes)
        self.resume = False
        self._log_dir, self._events, self._files = log_dir, events, files
        self._failures: list[Ended] = []
        self._done: set[int] = set()
        self._noted: set[int] | None = None  # the nodes that know when to stop; None: nobody has been asked
        self._launch = 0

    def begin(self) -> None:
        """Order a launch; every other node gets the files first."""
        self._launch += 1
        self._failures, self._done, self._noted = [], set(), None
        self.port = free_port()
        for rank in range(self.world):
            self._log(rank).touch()
        for name, path in self._files().items():
            _send_file(self.nodes, name, path)
        self.nodes.send(LAUNCH, port=self.port, resume=self.resume, number=self._launch)

    def poll(self, ended: Callable[[], list[Ended]]) -> None:
        step = None if self._noted is not None else StopNote(self.exchange).read()
        if step is not None:
            self._noted = set()
            self.nodes.send(STOP_AFTER, step=step, number=self._launch)
        while (message := self.nodes.receive()) is not None:
            if message.kind in (LOST, FAILED):
                self.nodes.raise_if_over(message)
            elif message.kind == INTERRUPT:
                self.interrupted = True
            elif message.values.get("number") == self._launch:  # else of an earlier one, which is over
                self._heed(message)

    def _heed(self, message: Message) -> None:
        theirs = ranks_of(self.nodes.members, message.sender)
        if message.kind == DONE:
            self._done.add(message.sender)
        elif message.kind == STOP_NOTED and self._noted is not None:
            self._noted.add(message.sender)
            if len(self._noted) == self.nodes.place.nodes - 1:
                (self.exchange / STOP_KNOWN).touch()
        elif message.kind == EVENT:
            with self._events.open("ab") as stream:
                stream.write(message.payload)
        elif message.values.get("rank") in theirs and message.kind == LOG:
            with self._log(message.values["rank"]).open("ab") as stream:
                stream.write(message.payload)
        elif message.values.get("rank") in theirs and message.kind == RANK_FAILED:
            self._failures.append(Ended(message.values["rank"], message.values["code"], time.time()))

    def _log(self, rank: int) -> Path:
        return self._log_dir / f"rank-{rank}.log"

    @property
    def failures(self) -> list[Ended]:
        return self._failures

    @property
    def done(self) -> bool:
        return len(self._done) == self.nodes.place.nodes - 1

    @property
    def settled(self) -> bool:
        failed = {each.rank for each in self._failures}
        others = range(1, self.nodes.place.nodes)
        return all(node in self._done or failed & {*ranks_of(self.nodes.members, node)} for node in others)


class Participant(Team):
    """The side of any other node. `folder` stands for the run directory."""

    def __init__(self, nodes: Nodes, folder: Path):
        super().__init__(nodes)
        self.folder, self.resume, self.over = folder, False, False
        self.failed: NlpctlError | None = None  # how the run ended elsewhere
        self._launch = 0
        self._told: set[int] = set()
        self._read: dict[Path, int] = {}
        self._next: Message | None = None

    def begin(self) -> bool:
        """Wait for the order to launch; False: the run is over. Raises the error that ended it."""
        remove_dir(self.folder / CHECKPOINTS)
        while True:
            message, self._next = self._next or self.nodes.receive(0.5), None
            if message is None:
                continue
            if message.kind == FILE:
                _keep_file(self.folder, message)
            elif message.kind == END and not message.values["code"]:
                return False
            elif message.kind == LAUNCH:
                break
            else:
                self.nodes.raise_if_over(message)
        self._launch, self.port, self.resume = (message.values[name] for name in ("number", "port", "resume"))
        self.over, self.interrupted, self._told = False, False, set()
        self._read = {path: path.stat().st_size for path in self._written().values() if path.exists()}
        return True

    def _written(self) -> dict[int, Path]:
        """The files whose growth node 0 gets: the log of each process, and events under -1."""
        logs = {rank: self.folder / "logs" / f"rank-{rank}.log" for rank in self.ranks}
        return {**logs, -1: self.folder / EVENTS}

    def poll(self, ended: Callable[[], list[Ended]]) -> None:
        self._send_written()
        for each in ended():
            if each.code != 0 and each.rank not in self._told:
                self._told.add(each.rank)
                self.nodes.send(RANK_FAILED, rank=each.rank, code=each.code, number=self._launch)
        while not self.over and (message := self.nodes.receive()) is not None:
            if message.kind == INTERRUPT:
                self.interrupted = True
            elif message.kind == STOP_AFTER:
                StopNote(self.exchange).write(int(message.values["step"]))
                self.nodes.send(STOP_NOTED, number=self._launch)
            else:  # the next launch, or the end
                self.over, self._next = True, message

    def _send_written(self) -> None:
        for rank, path in self._written().items():
            while block := self._grown(path, whole_lines=rank < 0):
                self.nodes.send(EVENT if rank < 0 else LOG, block, rank=rank, number=self._launch)

    def _grown(self, path: Path, whole_lines: bool) -> bytes:
        """What was written to `path` since the last time, CHUNK at most."""
        read = self._read.get(path, 0)
        if not path.exists() or path.stat().st_size == read:
            return b""
        with path.open("rb") as stream:
            stream.seek(read)
            block = stream.read(CHUNK)
        if whole_lines:
            block = block[: block.rfind(b"\n") + 1]
        self._read[path] = read + len(block)
        return block

    def finished(self, code: int) -> None:
        """Tell node 0 that the processes of this node ended with `code`; its order comes next."""
        self._send_written()
        if code == 0:
            self.nodes.send(DONE, number=self._launch)
        elif not (self._told or self.over or self.interrupted):  # none of them came to a start
            self.nodes.send(RANK_FAILED, rank=self.ranks.start, code=code, number=self._launch)


def _send_file(nodes: Nodes, name: str, path: Path) -> None:
    with path.open("rb") as stream:
        first = True
        while (block := stream.read(CHUNK)) or first:
            nodes.send(FILE, block, name=name, first=first)
            first = False


def _keep_file(folder: Path, message: Message) -> None:
    """Write or append to a file of `folder`. RunFailed for a name that leads out of it."""
    name = PurePosixPath(str(message.values["name"]))
    if name.is_absolute() or ".." in name.parts or not name.parts:
        raise RunFailed(f"node {message.sender} sends a file with the name {str(name)!r}")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb" if message.values["first"] else "ab") as stream:
        stream.write(message.payload)


def free_port() -> int:
    """A port of this machine that is free now; PORT_RANGE=FIRST:LAST names others, as for Paddle's launcher."""
    first, _, last = os.environ.get("PORT_RANGE", f"{_FIRST_PORT}:{_LAST_PORT}").partition(":")
    for _ in range(100):
        port = random.randint(int(first), int(last))
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise RunFailed("no port is free", "PORT_RANGE", "name other ports: PORT_RANGE=20000:30000")


def interface_of(address: str) -> str | None:
    """The network interface that has `address`, such as eth0; None if none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # one without an address
                told = fcntl.ioctl(asking.fileno(), _GET_ADDRESS, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(told[20:24]) == address:
                    return name
    return None
