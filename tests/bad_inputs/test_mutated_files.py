"""Files of strangers, changed at random: each is read or refused in one message, with little memory and time.

A few of each format are read always, the same ones each time. NLPCTL_SLOW=1 reads thousands.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("mutated_files.py")
HELPERS = Path(__file__).parent.parent / "helpers"


def read_all(seed: int, count: int) -> None:
    words = [sys.executable, str(PROGRAM), str(seed), str(count)]
    environment = {**os.environ, "PYTHONPATH": f"{HELPERS}:{HELPERS.parent.parent}"}
    ended = subprocess.run(words, env=environment, capture_output=True, text=True)
    # A process that crashed tells by its last line which file it was reading.
    assert ended.returncode == 0, f"{ended.stdout[-4000:]}\n{ended.stderr[-1000:]}"


def test_a_few_files_of_each_format() -> None:
    read_all(1, 60)


@pytest.mark.slow
def test_thousands_of_each_format() -> None:
    read_all(7, 4000)
