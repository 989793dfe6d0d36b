"""SIGTERM ends a command as Ctrl-C does, and only where Python allows handlers."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from nlpctl.runtime.interrupt import sigterm_interrupts


def test_sigterm_is_an_interruption_and_the_handler_is_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal did not arrive")
    assert signal.getsignal(signal.SIGTERM) == before


def test_in_another_thread_nothing_changes():
    found = []

    def look() -> None:
        with sigterm_interrupts():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]
