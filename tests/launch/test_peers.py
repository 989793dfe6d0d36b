"""Processes that somebody else has started meet, compare themselves, and end together. Here they are threads."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from nlpctl.errors import NlpctlError, RunFailed, UserError
from nlpctl.launch import peers as peers_module
from nlpctl.launch.peers import Peers
from nlpctl.launch.schedulers import ProcessRank
from nlpctl.runtime.ranks import free_port

ALIKE = {"versions": {"nlpctl": "1"}, "recipe": {"training.seed": 7}}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process sets for itself is forgotten afterwards."""
    monkeypatch.setattr(os, "environ", os.environ.copy())


@pytest.fixture(scope="module", autouse=True)
def paddle_of_the_main_thread() -> None:
    """A thread that imported Paddle first, and ended, would leave the process in static mode for other tests."""
    import paddle  # noqa: F401


def run(*works: Callable[[Peers], Any], worlds: tuple[int, ...] = (), ranks: tuple[int, ...] = (), wait: float = 60.0):
    """What each of the works returns or raises, given the Peers of its rank."""
    port, found = free_port(), [None] * len(works)

    def process(number: int) -> None:
        world = worlds[number] if worlds else len(works)
        rank = ranks[number] if ranks else number
        try:
            with Peers(ProcessRank(world, rank, "127.0.0.1", port), wait) as peers:
                found[number] = works[number](peers)
        except NlpctlError as error:
            found[number] = error

    threads = [threading.Thread(target=process, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return found


def agrees(peers: Peers, **changed: Any) -> list[str]:
    peers.agree({**ALIKE, **changed}, tuple(ALIKE))
    return [str(member) for member in peers.members]


def test_all_are_there_and_alike():
    host = socket.gethostname()
    expected = [f"process {rank} ({host})" for rank in range(3)]
    assert run(agrees, agrees, agrees) == [expected] * 3
    assert os.environ["PADDLE_TRAINERS_NUM"] == "3" and os.environ["PADDLE_MASTER"].startswith("127.0.0.1:")
    assert len(os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")) == 3 and os.environ["PADDLE_LOCAL_SIZE"] == "3"


def test_a_difference_is_told_to_all():
    found = run(agrees, agrees, lambda peers: agrees(peers, recipe={"training.seed": 8}))
    told = f"process 2 ({socket.gethostname()}): differs in its recipe: training.seed is 8, not 7"
    for error in found:
        assert type(error) is UserError and str(error).startswith(told)


@pytest.mark.parametrize("who", [0, 1])
def test_an_error_of_one_before_they_meet_ends_all(who):
    def fails(peers: Peers) -> None:
        raise UserError("is no row", "train.tsv:3", "mend it")

    works = [agrees, agrees]
    works[who] = fails
    found = run(*works)
    assert str(found[who]).startswith("train.tsv:3: is no row")
    told = f"process {who} ({socket.gethostname()}): train.tsv:3: is no row"
    assert type(found[1 - who]) is UserError and str(found[1 - who]).startswith(told)


def test_two_of_one_number():
    found = run(agrees, agrees, agrees, worlds=(3, 3, 3), ranks=(0, 1, 1))
    assert all("two processes say that they are process 1" in str(error) for error in found)


def test_another_number_of_processes():
    found = run(agrees, agrees, worlds=(2, 3))
    assert all("process 1 was told of 3 processes, process 0 of 2" in str(error) for error in found)


def test_those_who_do_not_come():
    (error,) = run(agrees, worlds=(3,), wait=0.0)
    assert type(error) is UserError and "2 processes did not come within 0 s: 1, 2" in str(error)
    (error,) = run(agrees, worlds=(2,), ranks=(1,), wait=0.0)
    assert "process 0 cannot be reached after 0 s: nothing listens there" in str(error)
    with pytest.raises(UserError, match="is no number of seconds"):
        Peers(ProcessRank(2, 0, "127.0.0.1", 1), float("inf"))


def test_what_answers_is_no_store(monkeypatch):
    monkeypatch.setattr(peers_module, "_ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = ProcessRank(2, 1, "127.0.0.1", other.getsockname()[1])
        with pytest.raises(RunFailed, match="process 0 is lost: no answer"), Peers(place, 1.0) as peers:
            agrees(peers)
        with pytest.raises(UserError, match="something answers there already"):
            with Peers(ProcessRank(2, 0, "127.0.0.1", place.port), 1.0) as peers:
                agrees(peers)


def test_the_first_takes_the_run_before_the_others_go_on(monkeypatch):
    monkeypatch.setattr(peers_module, "_LAST_SECONDS", 1.0)
    run_directory = {"identity": ""}

    @contextlib.contextmanager
    def taken():
        run_directory["identity"] = "new"
        yield True

    def leads(peers: Peers, identity: Callable[[], str] = lambda: run_directory["identity"]) -> bool:
        agrees(peers)
        try:
            with peers.following_rank_0(taken(), identity) as value:
                assert not peers.first or read.wait(20)  # in a training, they wait for each other in Paddle
                return value
        finally:
            read.set()

    read = threading.Event()
    assert run(leads, leads) == [True, True]
    read = threading.Event()
    other = run(leads, lambda peers: leads(peers, lambda: "old"))[1]
    assert "process 1 sees another run directory there" in str(other)


def test_the_card_of_a_process(monkeypatch):
    def visible(devices: tuple[int, ...], local: int | None) -> str:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
        Peers(ProcessRank(4, 3, "h", 1, local, 2)).take_card(devices, "auto")
        return os.environ["CUDA_VISIBLE_DEVICES"]

    assert visible((0, 2), 1) == "6" and visible((1,), None) == "5" and visible((1,), 1) == "5"
    with pytest.raises(UserError, match="nobody says which of these cards"):
        visible((0, 1), None)
    with pytest.raises(UserError, match="this is process 2 of its machine, and 2 cards are listed"):
        visible((0, 1), 2)
    Peers(ProcessRank(2, 1, "h", 1)).take_card((), "cpu")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "" and os.environ["PADDLE_DISTRI_BACKEND"] == "gloo"
