"""Nodes meet, agree and end together; every mistake is one message on all of them. Loopback stands for the network."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from nlpctl.errors import Interrupted, RunFailed, UserError
from nlpctl.launch import node_connection as link_module
from nlpctl.launch import nodes as nodes_module
from nlpctl.launch.node_launch import free_port
from nlpctl.launch.nodes import END, Nodes, meeting
from nlpctl.launch.schedulers import NodeRank

FACTS = {"versions": {"nlpctl": "1"}, "processes": 1}


@dataclass
class Cluster:
    """Starts nodes that meet at one port."""

    threads: ThreadPoolExecutor
    port: int = field(default_factory=free_port)

    def node(self, rank: int, work: Callable[[Nodes], object], nodes: int = 2, wait: float = 10.0) -> Future:
        def run() -> object:
            with meeting(NodeRank(nodes, rank, "127.0.0.1", self.port), wait) as met:
                return work(met)

        return self.threads.submit(run)


@pytest.fixture
def cluster():
    with ThreadPoolExecutor(4) as threads:
        yield Cluster(threads)


def agree(nodes: Nodes) -> list[str]:
    nodes.agree(FACTS, ["versions"])
    # What is equal is not sent to everyone: it may be the sums of thousands of files.
    assert nodes.is_head or all("versions" not in member.facts for member in nodes.members)
    return [member.address for member in nodes.members]


def wait_for_end(nodes: Nodes) -> int:
    agree(nodes)
    return nodes.expect(END).values["code"]


def message(future: Future, kind: type[Exception]) -> str:
    error = future.exception(timeout=30)
    assert type(error) is kind, repr(error)
    return str(error)


def test_nodes_meet_in_any_order_and_end_together(cluster):
    late = cluster.node(2, wait_for_end, nodes=3)
    others = [cluster.node(rank, work, nodes=3) for rank, work in ((0, agree), (1, wait_for_end))]
    assert others[0].result(30) == ["127.0.0.1"] * 3
    assert (others[1].result(30), late.result(30)) == (0, 0)


def test_a_difference_is_told_with_the_node_on_all(cluster):
    head = cluster.node(0, agree)

    def other(nodes: Nodes) -> None:
        nodes.agree({**FACTS, "versions": {"nlpctl": "2"}}, ["versions"])

    second = cluster.node(1, other)
    host = socket.gethostname()
    assert f"node 1 ({host}): differs in its versions: nlpctl is 2, not 1" in message(head, UserError)
    assert message(second, UserError) == message(head, UserError)


def test_an_error_on_one_node_ends_all(cluster):
    def fails(nodes: Nodes) -> None:
        raise UserError("no such file", "data.train", "copy it")

    head, second = cluster.node(0, agree), cluster.node(1, fails)
    assert message(head, UserError).endswith("): data.train: no such file\n  -> copy it")
    assert message(second, UserError) == "data.train: no such file\n  -> copy it"
    head, second = cluster.node(0, fails), cluster.node(1, wait_for_end)
    assert message(second, UserError) == message(head, UserError)


def test_ctrl_c_on_one_node_interrupts_all(cluster):
    def stopped(nodes: Nodes) -> None:
        raise KeyboardInterrupt

    head, second = cluster.node(0, agree), cluster.node(1, stopped)
    assert "interrupted" in message(head, Interrupted)
    assert second.exception(30) is not None


@pytest.mark.parametrize("nodes, ranks", [(3, (0, 1, 1)), (2, (0, 0))])
def test_two_nodes_of_one_number(cluster, nodes, ranks):
    started = [cluster.node(rank, wait_for_end, nodes=nodes) for rank in ranks]
    for future in started:
        assert f"two nodes say that they are node {ranks[-1]}" in message(future, UserError)


def test_a_node_that_is_started_again_is_no_twin(cluster, monkeypatch):
    """The machine of the first one lost its power: its connection stays, but it says nothing any more."""
    monkeypatch.setattr(link_module, "ALIVE_SECONDS", 0.3)
    monkeypatch.setattr(link_module, "BEAT_SECONDS", 0.1)
    head = cluster.node(0, agree, nodes=3)
    place = NodeRank(3, 1, "127.0.0.1", cluster.port)
    while True:
        try:
            _, connection = nodes_module._hello(place, process="lost")
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    with connection.makefile("rb", buffering=0) as stream:
        assert link_module.read_message(stream).kind == link_module.BEAT  # it was taken in
    doubted, goes_on = threading.Event(), link_module.Link.goes_on
    monkeypatch.setattr(link_module.Link, "goes_on", lambda link: doubted.set() or goes_on(link))
    again = cluster.node(1, wait_for_end, nodes=3)
    assert doubted.wait(10)
    other = cluster.node(2, wait_for_end, nodes=3)
    assert len(head.result(30)) == 3 and again.result(30) == other.result(30) == 0
    connection.close()


def test_nothing_is_awaited_for_ever(cluster):
    """The other node is alive, and never says what it has."""
    over = threading.Event()
    head, second = cluster.node(0, agree, wait=1.0), cluster.node(1, lambda nodes: over.wait(20), wait=10.0)
    told = message(head, UserError)
    over.set()
    assert f"did not say within 1 s what is awaited (facts): node 1 ({socket.gethostname()})" in told
    assert "--wait" in told
    second.result(30)


def test_only_node_0_counts_how_long_the_others_take(cluster):
    """Another node waits as long as node 0 lives, which may itself still wait for a third."""

    def slow(nodes: Nodes) -> list[str]:
        time.sleep(1.0)
        return agree(nodes)

    head, second = cluster.node(0, slow), cluster.node(1, wait_for_end, wait=0.2)
    assert head.result(30) and second.result(30) == 0


def test_nothing_is_written_behind_a_part_of_a_message(monkeypatch):
    """Sending timed out; the other node must not read the next sign of life as the rest of the message."""
    monkeypatch.setattr(link_module, "LOST_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = link_module.Link(socket.create_connection(server.getsockname()), 1, "other", queue.Queue())
        other, _ = server.accept()
    assert not link.send("file", bytes(16 << 20))
    other.settimeout(0.5)
    with other, link._socket:
        with contextlib.suppress(TimeoutError):  # there is room for more now
            while other.recv(1 << 20):
                pass
        assert not link.send(link_module.BEAT)


@pytest.mark.parametrize("wait", [float("nan"), float("inf"), 1e24, -1.0])
def test_how_long_to_wait_is_a_number(wait):
    with (
        pytest.raises(UserError, match="is no number of seconds to wait"),
        meeting(NodeRank(2, 1, "127.0.0.1", 1), wait),
    ):
        pass


def test_another_number_of_nodes(cluster):
    started = [cluster.node(0, agree, nodes=3), cluster.node(1, agree, nodes=2)]
    for future in started:
        assert "says 2 nodes, node 0" in message(future, UserError)


def test_nobody_comes(cluster):
    assert "1 node did not come within 0.1 s: 1" in message(cluster.node(0, agree, wait=0.1), UserError)


def test_node_0_is_not_there(cluster):
    told = message(cluster.node(1, agree, wait=0.1), UserError)
    assert f"--master 127.0.0.1:{cluster.port}: node 0 cannot be reached after 0.1 s: nothing listens there" in told
    with pytest.raises(UserError, match="the name no.such.host.invalid is not known here"):
        with meeting(NodeRank(2, 1, "no.such.host.invalid", 1), 0.1):
            pass


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b'{"kind": 1}\n'])
def test_another_program_answers(cluster, says):
    with socket.create_server(("", cluster.port)) as server:
        second = cluster.node(1, agree, wait=0.0)
        connection, _ = server.accept()
        connection.recv(1 << 16)  # unread, it would make the end a reset
        connection.sendall(says)
        connection.close()
        assert "what answers there is not nlpctl" in message(second, UserError)


def test_the_port_is_taken(cluster):
    with socket.create_server(("", cluster.port)):
        assert "the port cannot be taken (Address already in use)" in message(cluster.node(0, agree), UserError)


def test_strangers_at_the_port_disturb_nobody(cluster):
    head = cluster.node(0, agree)
    strangers = []
    while len(strangers) < 2:
        try:
            strangers.append(socket.create_connection(("127.0.0.1", cluster.port)))
        except ConnectionRefusedError:
            continue
    strangers[0].sendall(b"GET / HTTP/1.1\r\n\r\n")  # the other says nothing
    second = cluster.node(1, wait_for_end)
    assert head.result(30) and second.result(30) == 0
    for each in strangers:
        each.close()


def test_a_node_that_is_lost(cluster):
    """Its connection ends without a word, as when it is killed."""

    def vanishes(nodes: Nodes) -> None:
        agree(nodes)
        nodes._ended = True
        nodes.links[0]._socket.shutdown(socket.SHUT_RDWR)

    head = cluster.node(0, wait_for_end)
    cluster.node(1, vanishes)
    assert "is lost: its connection ended" in message(head, RunFailed)


def test_a_node_that_is_silent(cluster, monkeypatch):
    """Its machine stopped, so that no connection ends."""
    monkeypatch.setattr(link_module, "LOST_SECONDS", 1.0)
    monkeypatch.setattr(link_module, "BEAT_SECONDS", 60.0)

    def silent(nodes: Nodes) -> None:
        nodes.links[0]._socket.settimeout(60)  # it hears nothing either, and would be the first to say so
        wait_for_end(nodes)

    head, _ = cluster.node(0, wait_for_end), cluster.node(1, silent)
    assert "is lost: no sign of life for 1 s" in message(head, RunFailed)
