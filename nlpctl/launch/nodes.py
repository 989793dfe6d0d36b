"""The nodes of a run: how they meet, agree before anything starts, and end together.

    with meeting(place, wait) as nodes:      # node 0 listens at --master, the others connect to it
        nodes.agree({...})                   # equal on all of them, or UserError that names the one that differs
        ...                                  # launch, which exchanges messages while processes run

Paddle's own launcher offers no such meeting: it waits for ever for a node that is missing, lets two nodes of one number
overwrite each other, and notices no node that is lost (docs/upstream.md). An error on one node ends all of them, with
the same message.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from nlpctl import console
from nlpctl.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USER,
    Interrupted,
    NlpctlError,
    Problem,
    RunFailed,
    UserError,
)
from nlpctl.launch.node_connection import LOST, BadMessage, Link, Message, read_message, write_message
from nlpctl.launch.rendezvous_server import ANSWER_SECONDS, HELLO, REFUSED, WELCOME, Door, twice
from nlpctl.launch.schedulers import NodeRank
from nlpctl.names import counted, differing

_MOST_WAIT = 31_536_000  # seconds; the system's clock ends somewhere
WAIT_SECONDS = 600.0  # for the other nodes: a cluster may start them one after the other
TOLD_SECONDS = 30.0  # between two notes on who is missing
FIREWALL = "let TCP through from every node to every other, at all ports: Paddle takes free ones for its gradients"
_TRY_SECONDS = 2.0  # for what may never answer
_AGAIN_SECONDS = 0.5
_SHOWN = 5  # differences per node
_CODES: Mapping[int, type[NlpctlError]] = {EXIT_USER: UserError, EXIT_INTERRUPTED: Interrupted}

FACTS, AGREED, FAILED, END = "facts", "agreed", "failed", "end"


@dataclass(frozen=True)
class Member:
    """A node as the others see it: its name, its address, and what it told of itself."""

    rank: int
    host: str
    address: str
    facts: Mapping[str, Any]

    def others(self, left_out: Sequence[str]) -> dict[str, Any]:
        """The facts but those called like that."""
        return {name: fact for name, fact in self.facts.items() if name not in left_out}

    def __str__(self) -> str:
        return f"node {self.rank} ({self.host})"


class Nodes:
    """The other nodes, as this one reaches them: node 0 all of them, the others node 0 alone."""

    def __init__(
        self,
        place: NodeRank,
        links: Mapping[int, Link],
        inbox: queue.Queue[Message],
        door: Door | None = None,
        wait: float = WAIT_SECONDS,
    ):
        """`wait`: seconds in which the other nodes have to say what node 0 is waiting for."""
        self.place, self.links, self.wait = place, dict(links), wait
        self.members: list[Member] = []  # all nodes in their order, once they agree
        self._inbox, self._door = inbox, door
        self._ended = False  # the others know how this one ends

    @property
    def is_head(self) -> bool:
        """Whether this is node 0."""
        return self.place.rank == 0

    def name(self, rank: int) -> str:
        """A node in words."""
        return f"node {rank} ({self.links[rank].host})"

    def send(self, kind: str, payload: bytes = b"", **values: Any) -> None:
        """Send a message to every node that this one is connected with."""
        for link in self.links.values():
            link.send(kind, payload, **values)

    def receive(self, seconds: float = 0.0) -> Message | None:
        """The next message; None if none comes within `seconds`."""
        try:
            return self._inbox.get(timeout=seconds) if seconds > 0 else self._inbox.get_nowait()
        except queue.Empty:
            return None

    def expect(self, kind: str) -> Message:
        """Wait for a message of `kind` as long as the others live. Raises what ends the run meanwhile.

        Node 0 alone knows how long to wait for whom (`collect`), and tells the others when it gives up.
        """
        while True:
            message = self.receive(_AGAIN_SECONDS)
            if message is not None and message.kind == kind:
                return message
            if message is not None:
                self.raise_if_over(message)

    def collect(self, kind: str, ranks: Sequence[int]) -> dict[int, Message]:
        """A message of `kind` from each of `ranks`. UserError that names those who sent none within `wait` seconds."""
        found: dict[int, Message] = {}
        until = time.monotonic() + self.wait
        while missing := [rank for rank in ranks if rank not in found]:
            left = until - time.monotonic()
            message = self.receive(left)
            if message is not None and message.kind == kind:
                found[message.sender] = message
            elif message is not None:
                self.raise_if_over(message)
            elif left <= 0:
                raise self._silent(kind, missing)
        return found

    def _silent(self, kind: str, ranks: Sequence[int]) -> UserError:
        who = ", ".join(map(self.name, ranks))
        message = f"did not say within {self.wait:g} s what is awaited ({kind}): {who}"
        return UserError(message, "--wait", "see what is done there; give more seconds where nodes read slowly")

    def raise_if_over(self, message: Message) -> None:
        """Raise the error that `message` brings, if it ends the run: a node failed, is lost, or ended it."""
        if message.kind == LOST:
            raise self.lost(message)
        if message.kind in (FAILED, END):
            self._ended = not self.is_head
            raise _error_of(message, "" if message.kind == END else f"{self.name(message.sender)}: ")

    def lost(self, message: Message) -> RunFailed:
        """The error for a node that is lost."""
        hint = "see whether the machine, its network and its memory are well; --resume goes on from the last checkpoint"
        return RunFailed(f"{self.name(message.sender)} is lost: {message.values['reason']}", self.place.master, hint)

    # -- agreeing ------------------------------------------------------------------------------

    def agree(self, facts: Mapping[str, Any], equal: Sequence[str]) -> None:
        """Exchange what every node tells of itself. UserError if one of `equal`, mappings in `facts`, differs.

        Then `members` holds all of them.
        """
        own = {**facts, "host": socket.gethostname()}
        if not self.is_head:
            self.send(FACTS, **own)
            told = self.expect(AGREED).values
            self.members = [Member(**entry) for entry in told["members"]]
            return
        told_facts = self.collect(FACTS, sorted(self.links))
        found = {0: own, **{rank: dict(message.values) for rank, message in told_facts.items()}}
        addresses = {rank: link.addresses[1] for rank, link in self.links.items()}
        addresses[0] = next(iter(self.links.values())).addresses[0]
        self.members = [Member(rank, each["host"], addresses[rank], each) for rank, each in sorted(found.items())]
        problems = [problem for member in self.members[1:] for problem in differences(self.members[0], member, equal)]
        if problems:
            raise UserError(problems=problems)
        # Without what is equal, which all of them have: of thousands of files, it would be megabytes for each node.
        self.send(AGREED, members=[{**vars(member), "facts": member.others(equal)} for member in self.members])

    # -- ending --------------------------------------------------------------------------------

    def tell_end(self, code: int, problems: Sequence[Problem] = ()) -> None:
        """Tell the others how this node ended; node 0 ends the run for all of them."""
        if not self._ended:
            self._ended = True
            told = [{"message": each.message, "where": each.where, "hint": each.hint} for each in problems]
            self.send(END if self.is_head else FAILED, code=code, problems=told)

    def close(self) -> None:
        for link in self.links.values():
            link.close()
        if self._door is not None:
            self._door.close()


def differences(first: Member, other: Member, equal: Sequence[str]) -> list[Problem]:
    """A problem for each of the mappings `equal` in which `other` differs from `first`, with the first few keys."""
    problems = []
    for name in equal:
        one, two = first.facts[name], other.facts[name]
        keys = differing(one, two)
        if not keys:
            continue
        told = [f"{key} is {_told(two.get(key))}, not {_told(one.get(key))}" for key in keys[:_SHOWN]]
        more = f", and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
        hint = f"make them equal on all nodes; {first} has the values named last"
        problems.append(Problem(f"differs in its {name}: {', '.join(told)}{more}", str(other), hint))
    return problems


def _told(value: Any) -> str:
    return "absent" if value is None else str(value)


def _error_of(message: Message, before: str) -> NlpctlError:
    """The error that `message` tells of; `before`: which node it comes from."""
    told = [
        Problem(f"{before}{each['where']}: {each['message']}" if each["where"] and before else each["message"],
                "" if before else each["where"], each["hint"])
        for each in message.values["problems"]
    ]  # fmt: skip
    kind = _CODES.get(message.values["code"], RunFailed)
    return kind(problems=told or [Problem(f"{before}ended with exit code {message.values['code']}")])


@contextlib.contextmanager
def meeting(place: NodeRank, wait: float = WAIT_SECONDS) -> Iterator[Nodes]:
    """The nodes, once all of them are here; an error inside the context ends all.

    UserError if they cannot meet within `wait` seconds, or contradict each other.
    """
    if not 0 <= wait <= _MOST_WAIT:
        raise UserError(f"{wait:g} is no number of seconds to wait", "--wait", f"give 0 to {_MOST_WAIT:,}, a year")
    nodes = _gather(place, wait) if place.rank == 0 else _join(place, wait)
    try:
        yield nodes
    except NlpctlError as error:
        nodes.tell_end(error.exit_code, error.problems)
        raise
    except KeyboardInterrupt:
        nodes.tell_end(EXIT_INTERRUPTED, [Problem("interrupted", f"node {place.rank} ({socket.gethostname()})")])
        raise
    except BaseException as error:
        nodes.tell_end(EXIT_FAILED, [Problem(f"{type(error).__name__}: {error}")])
        raise
    else:
        nodes.tell_end(EXIT_OK)
    finally:
        nodes.close()


# -- node 0 --------------------------------------------------------------------------------------


def _gather(place: NodeRank, wait: float) -> Nodes:
    """Node 0: wait until all others are here."""
    inbox: queue.Queue[Message] = queue.Queue()
    try:
        door = Door(place)
    except UserError:
        _refuse_rival(place, "")  # if another node 0 has the port, both of them are told
        raise
    links: dict[int, Link] = {}
    begun = told = time.monotonic()
    console.note(f"node 0 of {place.nodes}: waiting for the others at {place.master}")
    try:
        _refuse_rival(place, door.token)
        doubts = 1
        while len(links) < place.nodes - 1 or doubts or door.doubts:
            if door.problem is not None:
                raise UserError(problems=[door.problem])
            doubts = door.doubts  # before those who were found to be gone are dropped
            with contextlib.suppress(queue.Empty):
                connection, hello = door.arrived.get(timeout=_AGAIN_SECONDS)
                _take_in(connection, hello, links, door, inbox)
            _drop_lost(links, door, inbox)
            missing = [str(rank) for rank in range(1, place.nodes) if rank not in links]
            if missing and time.monotonic() - begun > wait:
                raise _missing(place, missing, wait)
            if missing and time.monotonic() - told > TOLD_SECONDS:
                told = time.monotonic()
                console.note(f"still waiting for nodes {', '.join(missing)}")
    except BaseException as error:
        nodes = Nodes(place, links, inbox, door)
        if isinstance(error, NlpctlError):
            nodes.tell_end(error.exit_code, error.problems)
        nodes.close()
        raise
    door.gathering = False
    return Nodes(place, links, inbox, door, wait)


def _missing(place: NodeRank, missing: Sequence[str], wait: float) -> UserError:
    message = f"{counted(len(missing), 'nodes')} did not come within {wait:g} s: {', '.join(missing)}"
    hint = f"start the same command there; else {FIREWALL}"
    return UserError(message, f"--master {place.master}", hint)


def _take_in(
    connection: socket.socket, hello: Message, links: dict[int, Link], door: Door, inbox: queue.Queue[Message]
) -> None:
    rank, host = int(hello.values["rank"]), str(hello.values["host"])
    link = Link(connection, rank, host, inbox)
    if rank in links and links[rank].dropped:  # this one was started in its place
        _drop_lost(links, door, inbox)
    if rank in links:  # it knocked before the other was taken in
        problem = twice(rank, links[rank].host, host)
        link.send(END, code=EXIT_USER, problems=[vars(problem)])
        link.close()
        raise UserError(problems=[problem])
    links[rank], door.present[rank] = link, (link, str(hello.values["process"]))
    link.start()


def _drop_lost(links: dict[int, Link], door: Door, inbox: queue.Queue[Message]) -> None:
    """Forget nodes that left before the meeting was over: they may come again. Others' messages stay."""
    kept: list[Message] = []
    while True:
        try:
            message = inbox.get_nowait()
        except queue.Empty:
            break
        if message.kind == FAILED:
            raise _error_of(message, f"node {message.sender} ({links[message.sender].host}): ")
        if message.kind == LOST:
            link = links.pop(message.sender)
            del door.present[message.sender]
            console.note(f"node {message.sender} ({link.host}) left again: {message.values['reason']}")
        else:
            kept.append(message)
    for message in kept:
        inbox.put(message)


def _refuse_rival(place: NodeRank, token: str) -> None:
    """UserError if another node 0 answers at the address of --master. Without an answer, the others may have a way."""
    with contextlib.suppress(OSError, BadMessage):
        answer, connection = _hello(place, token, seconds=_TRY_SECONDS)
        connection.close()
        if answer.kind == REFUSED:
            raise _error_of(answer, "")


# -- the other nodes -------------------------------------------------------------------------------


def _join(place: NodeRank, wait: float) -> Nodes:
    """Any other node: connect to node 0. UserError if it is not there within `wait` seconds."""
    begun = told = time.monotonic()
    process = uuid.uuid4().hex
    while True:
        try:
            answer, connection = _hello(place, process=process)
        except OSError as error:
            why = _why_not(place, error)
        except BadMessage as error:
            why = f"what answers there is not nlpctl: {error}"
        else:
            if answer.kind == REFUSED:
                raise _error_of(answer, "")
            break
        if time.monotonic() - begun > wait:
            _give_up(place, wait, why)
        if time.monotonic() - told > TOLD_SECONDS or told == begun:
            told = time.monotonic()
            console.note(f"node {place.rank} of {place.nodes}: node 0 is not at {place.master} yet ({why})")
        time.sleep(_AGAIN_SECONDS)
    inbox: queue.Queue[Message] = queue.Queue()
    link = Link(connection, 0, str(answer.values["host"]), inbox)
    link.start()
    return Nodes(place, {0: link}, inbox, wait=wait)


def _hello(
    place: NodeRank, token: str = "", process: str = "", seconds: float = ANSWER_SECONDS
) -> tuple[Message, socket.socket]:
    """The answer of node 0, and the connection. `process` tells this one from another of its number. OSError,
    BadMessage."""
    # IPv4 alone, since Paddle splits addresses at their colon.
    address = socket.getaddrinfo(place.host, place.port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
    connection = socket.create_connection(address, timeout=seconds)
    try:
        values = {"rank": place.rank, "nodes": place.nodes, "host": socket.gethostname(), "token": token}
        values["process"] = process
        write_message(connection, Message(HELLO, values))
        with connection.makefile("rb", buffering=0) as stream:
            answer = read_message(stream)
        if answer is None or answer.kind not in (WELCOME, REFUSED):
            raise BadMessage("it ends the connection")
        return answer, connection
    except BaseException:
        connection.close()
        raise


def _why_not(place: NodeRank, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"the name {place.host} is not known here"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, TimeoutError):
        return "no answer, as behind a firewall"
    return error.strerror or str(error)


def _give_up(place: NodeRank, wait: float, why: str) -> NoReturn:
    hint = f"start node 0 first, check the address, and {FIREWALL}"
    raise UserError(f"node 0 cannot be reached after {wait:g} s: {why}", f"--master {place.master}", hint)
