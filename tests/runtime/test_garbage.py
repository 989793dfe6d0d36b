"""The collector leaves alone what was there, and only while it is told to."""

from __future__ import annotations

import gc
import weakref

from nlpctl.runtime.garbage import what_is_there_is_kept


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
