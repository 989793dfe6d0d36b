"""SIGTERM ends a command as Ctrl-C does, and only where Python allows handlers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from nlpctl.runtime import interrupt
from nlpctl.runtime.interrupt import StopRequest, sigterm_interrupts, stops_later

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


def test_sigterm_is_an_interruption_and_the_handler_is_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal did not arrive")
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_only_asks_and_the_second_ends(number, capfd):
    before = [signal.getsignal(each) for each in HANDLED]
    reached = []
    with pytest.raises(KeyboardInterrupt), stops_later() as stop:
        assert not stop.asked and not stop.due()
        os.kill(os.getpid(), number)
        reached.append((stop.asked, stop.due()))
        os.kill(os.getpid(), number)
        raise AssertionError("the second signal did not end it")
    assert reached == [(True, True)]
    assert [signal.getsignal(each) for each in HANDLED] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert capfd.readouterr().err.count("a checkpoint is saved after this step") == 1


class Processes:
    """Stand-ins for the processes of a run, in threads. `seconds`: of each, how long a step takes, by its number."""

    def __init__(self, *seconds: Callable[[int], float]):
        self.seconds, self.given = seconds, {}
        self.exchanged: list[int] = []  # the steps after which they told each other
        self.together = threading.Barrier(len(seconds), timeout=60)

    def run(self, steps: int, asked: tuple[int, int] | None = None) -> list[tuple[int, bool]]:
        """After which step each process ended, of `steps`, and whether because of a request. `asked`: process, step."""
        ended: dict[int, tuple[int, bool]] = {}

        def process(number: int) -> None:
            now, step = 0.0, 0

            def maxima(numbers: Sequence[int]) -> list[int]:
                self.given[number] = numbers
                if self.together.wait() == 0:
                    self.exchanged.append(step)
                found = [max(values) for values in zip(*self.given.values(), strict=True)]
                self.together.wait()
                return found

            stop = StopRequest(maxima, clock=lambda: now)
            for step in range(1, steps + 1):
                now += self.seconds[number](step)
                stop.asked |= asked == (number, step)
                if stop.due(last=step == steps):
                    break
            ended[number] = step, stop.asked

        threads = [threading.Thread(target=process, args=(number,)) for number in range(len(self.seconds))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [ended[number] for number in range(len(self.seconds))]


@pytest.fixture
def several(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")


def test_processes_tell_each_other_about_every_second(several):
    """The slowest one counts; at first not so rarely, and never more rarely than after 32 steps."""
    quick = Processes(lambda _: 0.002, lambda _: 0.001, lambda _: 0.003)
    assert quick.run(100) == [(100, False)] * 3 and quick.exchanged == [1, 3, 7, 15, 31, 63, 95, 100]
    usual = Processes(lambda _: 0.1, lambda _: 0.125, lambda _: 0.05)
    usual.run(40)
    assert usual.exchanged == [1, 3, 7, 15, 23, 31, 39, 40]
    slow = Processes(lambda _: 0.6, lambda _: 0.2, lambda _: 0.2)
    slow.run(5)
    assert slow.exchanged == [1, 2, 3, 4, 5]
    slower = Processes(*[lambda step: 0.01 if step <= 31 else 2.0] * 3)  # heard after a while, then at every step
    slower.run(66)
    assert slower.exchanged == [1, 3, 7, 15, 31, 63, 64, 65, 66]


@pytest.mark.parametrize(("step", "ends"), [(1, 1), (2, 3), (16, 23), (38, 39), (40, 40)])
def test_processes_stop_after_the_same_step(several, step, ends):
    """Whichever was asked. One that is asked after the last but one exchange stops after the last step."""
    for number in range(3):
        processes = Processes(lambda _: 0.1, lambda _: 0.125, lambda _: 0.05)
        ended = processes.run(40, asked=(number, step))
        assert [each[0] for each in ended] == [ends] * 3 and ended[number][1]


def test_one_process_tells_nobody(monkeypatch):
    monkeypatch.delenv("PADDLE_TRAINERS_NUM", raising=False)
    stop = StopRequest(maxima=lambda _: pytest.fail("there is nobody to tell"))
    assert not stop.due()
    stop.asked = True
    assert stop.due()


def test_several_processes_do_not_promise_to_stop_after_this_step(several, capfd):
    with pytest.raises(KeyboardInterrupt), stops_later():
        os.kill(os.getpid(), signal.SIGINT)
    assert "a checkpoint is saved after a common step: this one, or one within about a second" in capfd.readouterr().err


@pytest.mark.parametrize("kinds", [(signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)])
def test_two_signals_of_one_request(kinds, monkeypatch):
    """systemd asks a rank and nlpctl, which asks the rank. Without nlpctl above it they are two requests."""
    reached = []
    monkeypatch.setattr(interrupt, "_SAME_SECONDS", 600.0)
    monkeypatch.setenv("NLPCTL_EXCHANGE", "/nowhere")
    with pytest.raises(KeyboardInterrupt), stops_later():
        for number in kinds:
            os.kill(os.getpid(), number)
        reached.append("the checkpoint")
        os.kill(os.getpid(), kinds[0])
        reached.append("too far")
    monkeypatch.delenv("NLPCTL_EXCHANGE")
    with pytest.raises(KeyboardInterrupt), stops_later():
        for number in kinds:
            os.kill(os.getpid(), number)
        reached.append("too far")
    assert reached == ["the checkpoint"]


def test_a_rank_that_is_ended_by_force(monkeypatch):
    """nlpctl sends SIGTERM after the SIGINT by which it asked."""
    monkeypatch.setattr(interrupt, "_SAME_SECONDS", 0.0)
    monkeypatch.setenv("NLPCTL_EXCHANGE", "/nowhere")
    with pytest.raises(KeyboardInterrupt), stops_later():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("it was not ended")


@pytest.mark.parametrize("kind", ["alone", "rank", "worker"])
def test_whoever_does_not_stop_in_time_is_stopped(kind, monkeypatch, capfd):
    if kind == "rank":
        monkeypatch.setenv("NLPCTL_EXCHANGE", "/nowhere")
    if kind == "worker":  # of a sweep, which nlpctl ends by force after 30 seconds
        monkeypatch.setattr(interrupt.multiprocessing, "parent_process", lambda: object())
    with pytest.raises(KeyboardInterrupt), stops_later(seconds=0.1):
        os.kill(os.getpid(), signal.SIGTERM if kind == "alone" else signal.SIGINT)
        time.sleep(100)
        raise AssertionError("nothing ended it")
    assert "stopped after 0.1 seconds: the step and its checkpoint take longer" in capfd.readouterr().err


def test_ctrl_c_waits_for_a_slow_step():
    saved = []
    with pytest.raises(KeyboardInterrupt), stops_later(seconds=0.01):
        os.kill(os.getpid(), signal.SIGINT)
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        time.sleep(0.05)
        saved.append("the checkpoint")
    assert saved


def test_a_body_that_ends_without_having_stopped():
    with pytest.raises(KeyboardInterrupt), stops_later():
        os.kill(os.getpid(), signal.SIGINT)
    with stops_later():
        pass


def test_data_workers_go_on_at_ctrl_c_and_end_at_sigterm(capfd):
    with stops_later() as stop:
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGINT)
            os.write(1, b"went on\n")
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 128 + signal.SIGTERM
        assert not stop.asked
    captured = capfd.readouterr()
    assert captured.out == "went on\n" and captured.err == ""


@pytest.mark.parametrize("context", [sigterm_interrupts, stops_later])
def test_in_another_thread_nothing_changes(context):
    found = []

    def look() -> None:
        with context():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]
