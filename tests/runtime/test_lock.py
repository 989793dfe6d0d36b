"""The lock is one holder's, and gone with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nlpctl.errors import UserError
from nlpctl.files import staged_dir
from nlpctl.runtime.lock import sole_writer, take_lock, wait_until_free

HOLDER = """
import sys
from pathlib import Path
from nlpctl.runtime.lock import take_lock
lock = take_lock(Path(sys.argv[1]))
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
    started = time.monotonic()
    assert not wait_until_free(target, 0.3)
    assert 0.3 <= time.monotonic() - started < 60
    holder.send_signal(signal.SIGKILL)
    assert wait_until_free(target, 60.0)
    holder.communicate()
    assert wait_until_free(target / "nowhere", 60.0)
    lock = take_lock(target)
    assert lock is not None
    lock.release()


def test_closing_gives_it_back(target: Path) -> None:
    lock = take_lock(target)
    assert lock is not None and take_lock(target) is None
    lock.release()
    take_lock(target).release()


def test_a_forked_process_does_not_hold_it(target: Path) -> None:
    """Like the worker of a data loader, it goes on when the lock is given back, or its holder killed."""
    lock = take_lock(target)
    assert lock is not None
    forked = multiprocessing.get_context("fork").Event()
    child = os.fork()
    if child == 0:
        forked.set()
        signal.pause()
    try:
        assert forked.wait(60)
        assert take_lock(target) is None  # its end of the copy is none of the lock
        lock.release()
        again = take_lock(target)
        assert again is not None
        again.release()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_two_builds_of_one_folder(tmp_path: Path) -> None:
    """The second one is told who holds it, and nothing but the output stays."""
    output = tmp_path / "new" / "index"
    with sole_writer(output), pytest.raises(UserError, match=f"process {os.getpid()} is writing this"):
        with sole_writer(output):
            pass
    assert list(tmp_path.iterdir()) == []
    with sole_writer(output), staged_dir(output) as staged:
        (staged / "texts").touch()
    assert [path.name for path in output.parent.iterdir()] == ["index"] and (output / "texts").is_file()


def test_two_paths_to_one_folder(tmp_path: Path) -> None:
    """The message names the path as it was given."""
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to("target")
    with sole_writer(tmp_path / "target" / "x"), pytest.raises(UserError, match="is writing this") as raised:
        with sole_writer(tmp_path / "link" / "x"):
            pass
    assert str(tmp_path / "link" / "x") in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]


def test_what_a_killed_build_left_is_removed_or_put_back(tmp_path: Path) -> None:
    """The unfinished folder is gone, that of a sister stays, and the older folder that was moved aside is back."""
    for name in (".staging-index-abcd_123", ".staging-index-2-abcd_123", ".staging-old-x/index", ".staging-lock-index"):
        (tmp_path / name).mkdir(parents=True) if "lock" not in name else (tmp_path / name).touch()
    with sole_writer(tmp_path / "index"):
        assert (tmp_path / "index").is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".staging-index-2-abcd_123", "index"]
