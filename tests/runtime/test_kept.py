"""A command that is called from Python leaves no trace in random numbers."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from nlpctl.runtime.kept import process_kept


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
    code = "import sys, nlpctl.runtime.kept as k\nwith k.process_kept(): pass\nassert 'numpy' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
