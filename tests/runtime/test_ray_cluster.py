"""What is refused without the right Ray. tests/end_to_end/ has what runs on a cluster."""

from __future__ import annotations

import platform
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import nlpctl
from nlpctl.config.schema import RuntimeSection
from nlpctl.errors import NeedsRestart, UserError
from nlpctl.runtime.ray_cluster import (
    ActorHandle,
    NodeRequirements,
    RayCluster,
    RayWorker,
    WorkerActor,
    _Ended,
    _open_there,
    ray_cluster,
)
from nlpctl.runtime.worker import (
    ProcessEnded,
    WorkerKilled,
    WorkerLost,
    _Question,
    call_parent,
    listen_for_interrupts,
)
from nlpctl.spelling import PYTHON, VARIABLE, spelled


@pytest.mark.parametrize("address", ["", "nowhere", "http://host:1", "ray://host", "auto "])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(UserError, match="is not the address of a Ray cluster"), ray_cluster(address):
        pass


def test_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"Ray is not installed\n.*nlpctl\[cluster\]"), ray_cluster("auto"):
        pass


@pytest.mark.parametrize("version", ["1.13.0", "2.9.3", "3.0.0"])
def test_another_ray(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(__version__=version))
    with pytest.raises(UserError, match=f"Ray {version} is installed"), ray_cluster("auto"):
        pass


def test_a_node_that_lacks_a_variable_is_named() -> None:
    """The command restarts itself on its own machine; on a node somebody has to."""

    def lacks(*_: object) -> None:
        raise NeedsRestart("no CUDA libraries", "runtime.device", "start Python with A=b", {"A": "b"})

    for opened in (lacks, lambda: lacks):
        with pytest.raises(UserError, match="start it there with A=b") as error:
            _open_there(opened)(None)
        assert type(error.value) is UserError
        assert str(error.value).startswith(f"node {platform.node()}: no CUDA libraries")


def test_a_node_must_see_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")  # restored afterwards
    (tmp_path / "seen").touch()
    assert WorkerActor().meet(NodeRequirements(str(tmp_path), ("seen",))) == (nlpctl.__version__, None)
    for requirements, missing in (
        (NodeRequirements(str(tmp_path), ("seen", "/not/seen")), "/not/seen"),
        (NodeRequirements("/not"), "/not"),
    ):
        _, error = WorkerActor().meet(requirements)
        assert type(error) is UserError
        assert str(error).startswith(f"{missing}: node {platform.node()} does not see it: No such file or directory")
        assert "storage that every node has under the same path" in str(error)


def test_the_process_of_a_worker_elsewhere() -> None:
    """What an actor does: each thing that is sent gets one back, questions too, and the process can be signalled."""
    keeper = WorkerActor()
    keeper.open(5.0, opened_there)
    assert keeper.converse("question") == _Question("how?") and keeper.converse("so") == "told so"
    threading.Timer(0.2, lambda: keeper.send_signal(signal.SIGINT)).start()
    assert keeper.converse("wait") == _Ended(0, platform.node())
    keeper.end(interrupt=True)
    killed = WorkerActor()
    killed.open(5.0, opened_there)
    killed.send_signal(signal.SIGKILL)
    assert killed.converse("question") == _Ended(-signal.SIGKILL, platform.node())
    killed.end(interrupt=False)


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGKILL, WorkerKilled), (signal.SIGSEGV, ProcessEnded)])
def test_a_process_that_is_killed_where_its_keeper_answers(number: int, kind: type[ProcessEnded]) -> None:
    """That is told apart from a node that is gone."""
    answer = _Ended(-number, "a-node")
    actor = SimpleNamespace(meet=lambda _: None, begin=lambda *_: None, ended=lambda *_: True, given=lambda _: answer)
    worker = RayWorker(lambda: actor, NodeRequirements("."), opened_there, grace=5.0)
    worker.start()
    with pytest.raises(ProcessEnded, match="on node a-node ended") as told:
        worker.ask("question", "0.log")
    assert type(told.value) is kind


def test_a_worker_that_ray_ends_for_lack_of_memory_was_killed() -> None:
    exceptions = SimpleNamespace(RayError=OSError, OutOfMemoryError=TimeoutError)  # the second is one of the first
    actor = ActorHandle(SimpleNamespace(exceptions=exceptions), None)
    for error, kind in ((TimeoutError("short of memory"), WorkerKilled), (OSError("its node is gone"), WorkerLost)):
        with pytest.raises(kind, match=str(error)), actor.losses():
            raise error


def opened_there() -> Callable[[str], str]:
    listen_for_interrupts()

    def answer(asked: str) -> str:
        if asked == "wait":
            time.sleep(100)
        return f"told {call_parent('how?')}"

    return answer


def test_room_is_on_single_nodes() -> None:
    """A worker of two cores fits on no two nodes of one; a node that is gone, and one without cores, have no room."""

    def cluster(*nodes: dict[str, float]) -> RayCluster:
        found = [{"Alive": True, "Resources": node} for node in nodes]
        return RayCluster(SimpleNamespace(nodes=lambda: [*found, {"Alive": False, "Resources": {"CPU": 64.0}}]))

    two = cluster({}, {"CPU": 1.0}, {"CPU": 1.0})
    assert two.request(RuntimeSection(), None).room == 2
    told = "--workers: the cluster has 2 cores and 0 cards on 3 nodes: room for 0 workers with 2 cores of one node"
    with pytest.raises(UserError, match=told):
        two.request(RuntimeSection(threads=2), None)
    assert cluster({"CPU": 3.0}, {"CPU": 3.0}).request(RuntimeSection(threads=2), 2).room == 2
    cards = cluster({"CPU": 8.0, "GPU": 2.0}, {"CPU": 64.0}, {"GPU": 4.0})
    assert cards.request(RuntimeSection(), None).room == 2
    assert cards.request(RuntimeSection(device="cpu"), None).room == 72
    with pytest.raises(UserError, match="room for 2 workers with a card and a core of one node"):
        cards.request(RuntimeSection(device="gpu"), 3)


def test_no_cluster() -> None:
    with pytest.raises(UserError, match="no Ray cluster can be used there"), ray_cluster("127.0.0.1:9"):
        pass


def test_a_node_spells_options_as_the_command_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's processes do not inherit the environment of the command."""
    ground = NodeRequirements(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, PYTHON)
    ground.enter()
    assert spelled("use @[overwrite=true]") == "use --overwrite"
