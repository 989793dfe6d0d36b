"""An iterator in a thread: in order, bounded, stopped with its `with`."""

from __future__ import annotations

import threading
import time

import pytest

from nlpctl.runtime.threads import Ahead


def counted(made: list[int], stop: int = 1000):
    try:
        for i in range(stop):
            made.append(i)
            yield i
    finally:
        made.append(-1)


def grows_to(values: list[int], length: int) -> bool:
    """Whether `values` comes to have that length, and keeps it."""
    until = time.monotonic() + 60
    while len(values) < length and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.05)
    return len(values) == length


def test_items_come_in_order_and_end():
    made: list[int] = []
    with Ahead(counted(made, 5), 2) as items:
        assert list(items) == [0, 1, 2, 3, 4]
        assert items.ready is False and list(items) == []
    assert made == [0, 1, 2, 3, 4, -1]


def test_it_runs_so_far_ahead_and_no_further():
    made: list[int] = []
    with Ahead(counted(made), 3) as items:
        assert grows_to(made, 3) and items.ready
        assert next(items) == 0
        assert grows_to(made, 4)
    until = time.monotonic() + 60
    while "ahead" in [thread.name for thread in threading.enumerate()]:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert len(made) <= 6 and made[-1] == -1  # leaving stops it and closes the generator


def test_an_error_comes_behind_the_items_before_it():
    def broken():
        yield 1
        yield 2
        raise ValueError("third")

    with Ahead(broken(), 10) as items:
        assert next(items) == 1
        assert next(items) == 2
        with pytest.raises(ValueError, match="third"):
            next(items)
        assert list(items) == []


def test_leaving_does_not_wait_for_what_never_comes():
    never = threading.Event()

    def waiting():
        yield 1
        never.wait()
        yield 2

    started = time.monotonic()
    with Ahead(waiting(), 4) as items:
        assert next(items) == 1
    assert time.monotonic() - started < 60
    never.set()


def test_an_exception_in_the_body_is_the_one_that_is_raised():
    with pytest.raises(KeyboardInterrupt), Ahead(counted([]), 2) as items:
        next(items)
        raise KeyboardInterrupt
