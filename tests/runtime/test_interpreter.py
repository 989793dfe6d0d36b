"""What holds while rows stream, and no longer."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest

from nlpctl.runtime.interpreter import TURN, short_turns, what_is_there_is_kept


class Knot:
    def __init__(self):
        self.itself = self


def test_old_objects_are_not_looked_at_and_new_ones_are():
    gc.collect()
    old = weakref.ref(Knot())
    with what_is_there_is_kept():
        new = weakref.ref(Knot())
        gc.collect()
        assert old() is not None and new() is None
    gc.collect()
    assert old() is None


def test_turns_are_short_until_the_end():
    usual = sys.getswitchinterval()
    with pytest.raises(KeyboardInterrupt), short_turns():
        assert TURN < usual and sys.getswitchinterval() == pytest.approx(TURN)
        raise KeyboardInterrupt
    assert sys.getswitchinterval() == usual
