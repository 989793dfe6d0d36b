"""The lock is one holder's, and gone with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nlpctl.runtime.lock import take_lock

HOLDER = """
import sys
from pathlib import Path
from nlpctl.runtime.lock import take_lock
handle = take_lock(Path(sys.argv[1]))
print("held", flush=True)
input()
"""


@pytest.fixture(params=["folder", "file"])
def target(request, tmp_path: Path) -> Path:
    if request.param == "folder":
        return tmp_path
    (tmp_path / "file").touch()
    return tmp_path / "file"


def test_a_killed_holder_holds_nothing(target: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(target)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    assert take_lock(target) is None
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    handle = take_lock(target)
    assert handle is not None
    os.close(handle)


def test_closing_gives_it_back(target: Path) -> None:
    handle = take_lock(target)
    assert handle is not None and take_lock(target) is None
    os.close(handle)
    os.close(take_lock(target))
