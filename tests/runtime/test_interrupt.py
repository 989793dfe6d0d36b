"""SIGTERM ends a command as Ctrl-C does, and only where Python allows handlers."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from nlpctl.runtime.interrupt import sigterm_interrupts, stops_later

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


def test_whoever_does_not_stop_in_time_is_stopped():
    with pytest.raises(KeyboardInterrupt), stops_later(seconds=0.1):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(100)
        raise AssertionError("nothing ended it")


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
