"""The port of node 0, at which the others knock. nodes.py tells what happens with those who are let in."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from nlpctl.errors import EXIT_USER, Problem, UserError
from nlpctl.launch.node_connection import BadMessage, Link, Message, read_message, write_message
from nlpctl.launch.schedulers import NodeRank

HELLO, WELCOME, REFUSED = "hello", "welcome", "refused"
ANSWER_SECONDS = 10.0


class Door:
    """The port of node 0. Answers whoever comes, to the end of the run; those who belong here go to `arrived`."""

    def __init__(self, place: NodeRank):
        """UserError if the port is taken."""
        self.place = place
        self.token = uuid.uuid4().hex
        self.arrived: queue.Queue[tuple[socket.socket, Message]] = queue.Queue()
        self.present: dict[int, tuple[Link, str]] = {}  # by number: its link, and which process it is
        self.gathering = True
        self.doubts, self._lock = 0, threading.Lock()  # nodes of whom it is not known yet whether they are gone
        self.problem: Problem | None = None  # why somebody was refused: with it, the nodes never are complete
        hint = "another run has it, or another node 0 on this machine: name another port, the same on every node"
        try:
            self._server = socket.create_server(("", place.port))
        except OSError as error:
            why = f"the port cannot be taken ({os.strerror(error.errno or 0)})"
            raise UserError(why, f"--master {place.master}", hint) from None
        threading.Thread(target=self._answer_all, daemon=True, name="door").start()

    def _answer_all(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # closed
                return
            # One that connects and says nothing, such as a scanner of ports, keeps nobody waiting.
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, BadMessage, KeyError, ValueError, TypeError):
            connection.settimeout(ANSWER_SECONDS)
            with connection.makefile("rb", buffering=0) as stream:
                message = read_message(stream)
            if message is not None and message.kind == HELLO:
                if problem := self._objection(message.values):
                    self.problem = problem
                    told = {"message": problem.message, "where": problem.where, "hint": problem.hint}
                    write_message(connection, Message(REFUSED, {"problems": [told], "code": EXIT_USER}))
                elif self.gathering or message.values["rank"] == 0:  # else this run ends; it comes to the next one
                    write_message(connection, Message(WELCOME, {"host": socket.gethostname()}))
                    if message.values["rank"] != 0:
                        self.arrived.put((connection, message))
                        return
        connection.close()

    def _objection(self, values: Mapping[str, Any]) -> Problem | None:
        """Why the node that says hello cannot take part."""
        rank, nodes, host = int(values["rank"]), int(values["nodes"]), str(values["host"])
        if rank == 0:
            if values["token"] == self.token:  # this node, which tries its own address
                return None
            return twice(0, socket.gethostname(), host)
        if nodes != self.place.nodes:
            message = f"node {rank} ({host}) says {nodes} nodes, node 0 ({socket.gethostname()}) {self.place.nodes}"
            return Problem(message, "--nnodes", "run the same command on every node")
        if not 0 < rank < nodes:
            return Problem(f"{rank} is not one of {nodes} nodes", "--node_rank", f"nodes count from 0 to {nodes - 1}")
        if rank in self.present:
            link, process = self.present[rank]
            # A machine that lost its power never ended its connection, and may be here again before that is noticed.
            with self._doubted():
                if process != values["process"] and link.goes_on():
                    return twice(rank, link.host, host)
                link.drop()
        return None

    @contextlib.contextmanager
    def _doubted(self) -> Iterator[None]:
        with self._lock:
            self.doubts += 1
        try:
            yield
        finally:
            with self._lock:
                self.doubts -= 1

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread, without which the port would stay taken
        self._server.close()


def twice(rank: int, first: str, second: str) -> Problem:
    hint = "give every node a number of its own, from 0 on"
    return Problem(f"two nodes say that they are node {rank}: {first} and {second}", "--node_rank", hint)
