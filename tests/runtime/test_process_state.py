"""What is changed for a while is put back: random numbers, the garbage collector, the turns of threads."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import weakref

import pytest

from nlpctl.runtime.process_state import TURN, gc_frozen, process_kept, short_turns


def drawn() -> tuple[float, float, float]:
    import numpy as np
    import paddle

    return random.random(), float(np.random.rand()), float(paddle.rand([1]))


def seeded() -> None:
    import numpy as np
    import paddle

    random.seed(3)
    np.random.seed(3)
    paddle.seed(3)


def test_random_numbers_go_on_as_if_nothing_had_been():
    seeded()
    expected = drawn()
    seeded()
    with pytest.raises(ValueError), process_kept():
        assert drawn() == expected
        drawn()
        raise ValueError
    assert drawn() == expected


def test_nothing_is_imported_for_it():
    code = "import sys, nlpctl.runtime.process_state as s\nwith s.process_kept(): pass\n"
    code += "assert 'numpy' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


class Knot:
    def __init__(self):
        self.itself = self


def test_old_objects_are_not_looked_at_and_new_ones_are():
    gc.collect()
    old = weakref.ref(Knot())
    with gc_frozen():
        new = weakref.ref(Knot())
        gc.collect()
        assert old() is not None and new() is None
    gc.collect()
    assert old() is None


def test_a_generator_may_be_open_when_the_interpreter_ends():
    code = """
from nlpctl.runtime.process_state import gc_frozen
def numbers():
    with gc_frozen():
        yield 1
found = numbers()
next(found)
import nlpctl.runtime.process as state
state.gc = None  # as at the end of the interpreter
del found
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_turns_are_short_until_the_end():
    usual = sys.getswitchinterval()
    with pytest.raises(KeyboardInterrupt), short_turns:
        assert TURN < usual and sys.getswitchinterval() == pytest.approx(TURN)
        raise KeyboardInterrupt
    assert sys.getswitchinterval() == usual
