"""A launch on two nodes, both on loopback, of processes that do without Paddle."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from nlpctl.errors import NlpctlError, RunFailed, UserError
from nlpctl.launch.launch import follow, launch
from nlpctl.launch.node_connection import Message
from nlpctl.launch.node_launch import Coordinator, Participant, _keep_file, free_port, interface_of
from nlpctl.launch.nodes import Nodes, meeting
from nlpctl.launch.schedulers import NodeRank
from nlpctl.runtime.interrupt import StopNote

RANK = """
import json, os, pathlib, sys, time
rank, exchange = os.environ["PADDLE_TRAINER_ID"], pathlib.Path(os.environ["NLPCTL_EXCHANGE"])
print("rank", rank, "of", os.environ["PADDLE_TRAINERS_NUM"], file=sys.stderr)
"""


class TwoNodes:
    """Launches a program on two nodes; what node 0 keeps is in `head`, what node 1 has in `other`."""

    def __init__(self, folder: Path):
        self.head, self.other = folder / "head", folder / "other"
        for each in (self.head, self.other):
            each.mkdir()
        self.program = folder / "rank.py"
        self.files: dict[str, Path] = {}

    def run(self, body: str, on_node_0: int = 1) -> tuple[Future, Future]:
        """The exit code on node 0, which starts so many processes, and the end of node 1, which starts one."""
        self.on_node_0 = on_node_0
        self.program.write_text(RANK + body)
        port = free_port()
        with ThreadPoolExecutor(2) as threads:
            head = threads.submit(self._node, NodeRank(2, 0, "127.0.0.1", port), self._lead)
            other = threads.submit(self._node, NodeRank(2, 1, "127.0.0.1", port), self._follow)
        return head, other

    def _node(self, place: NodeRank, work: Callable[[Nodes], object]) -> object:
        with meeting(place, 30) as nodes:
            nodes.agree({"processes": 1 if place.rank else self.on_node_0}, ())
            return work(nodes)

    def _lead(self, nodes: Nodes) -> int:
        head = Coordinator(nodes, self.head / "logs", self.head / "events.jsonl", lambda: self.files)
        code = launch([], self.on_node_0, (), self.head / "logs", (str(self.program),), head)
        if code:
            raise (UserError if code == 2 else RunFailed)("ended", str(self.head))
        return code

    def _follow(self, nodes: Nodes) -> None:
        follow([], 1, (), self.other / "logs", Participant(nodes, self.other), (str(self.program),))


@pytest.fixture
def nodes(tmp_path):
    return TwoNodes(tmp_path)


def test_processes_know_their_numbers_and_node_0_keeps_the_logs(nodes, tmp_path):
    (tmp_path / "state").write_bytes(b"x" * 3_000_000)
    nodes.files = {"checkpoints/checkpoint-3/state": tmp_path / "state"}
    body = f"""
told = {{name: os.environ[name] for name in ("PADDLE_MASTER", "PADDLE_CURRENT_ENDPOINT", "PADDLE_TRAINER_ENDPOINTS")}}
print(json.dumps(told), file=sys.stderr)
if rank == "2":
    folder = pathlib.Path({str(nodes.other)!r})
    assert (folder / "checkpoints/checkpoint-3/state").stat().st_size == 3_000_000
    (folder / "events.jsonl").write_text('{{"event": "out_of_memory", "step": 3}}\\n')
"""
    head, other = nodes.run(body, on_node_0=2)
    assert head.result() == 0 and other.result() is None
    logs = [(nodes.head / "logs" / f"rank-{rank}.log").read_text().splitlines() for rank in range(3)]
    assert [log[0] for log in logs] == ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"]
    told = [json.loads(log[1]) for log in logs]
    (endpoints,) = {each["PADDLE_TRAINER_ENDPOINTS"] for each in told}
    assert [each["PADDLE_CURRENT_ENDPOINT"] for each in told] == endpoints.split(",")
    assert len({each["PADDLE_MASTER"] for each in told}) == 1
    assert (nodes.head / "events.jsonl").read_text() == '{"event": "out_of_memory", "step": 3}\n'


def test_a_failure_elsewhere_is_shown_on_node_0(nodes, capfd):
    body = f"head = pathlib.Path({str(nodes.head / 'logs')!r})" """
if rank == "1":
    for number in range(30):
        print("line", number, file=sys.stderr)
    sys.exit(2)
while not (head / "rank-1.log").exists() or "line 29" not in (head / "rank-1.log").read_text():
    time.sleep(0.001)
raise ConnectionError("lost my peer")
"""
    head, other = nodes.run(body)
    assert isinstance(head.exception(), UserError) and str(other.exception()) == str(head.exception())
    err = capfd.readouterr().err
    host = socket.gethostname()
    assert f"{nodes.head}/logs/rank-1.log: process 1 of 2 on node 1 ({host}) failed (exit code 2)\n" in err
    assert (nodes.head / "logs" / "rank-1.log").read_text().endswith("line 29\n")


def test_all_nodes_have_the_note_before_process_0_goes_on(nodes):
    """Process 0 decides to stop after step 7."""
    body = """
from nlpctl.runtime.interrupt import StopNote
note = StopNote(exchange, several_nodes=True)
if rank == "0":
    note.write(7)
while note.read() is None:
    time.sleep(0.01)
print("stops after", note.read(), file=sys.stderr)
"""
    head, other = nodes.run(body)
    assert head.result() == 0 and other.result() is None
    assert all("stops after 7" in (nodes.head / "logs" / f"rank-{rank}.log").read_text() for rank in range(2))
    assert StopNote(nodes.head).read() is None


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../b", ""])
def test_a_file_stays_in_its_folder(tmp_path, name):
    with pytest.raises(NlpctlError, match="sends a file with the name"):
        _keep_file(tmp_path, Message("file", {"name": name, "first": True}, b"x"))
    assert not list(tmp_path.iterdir())


def test_the_interface_of_an_address():
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("203.0.113.7") is None
