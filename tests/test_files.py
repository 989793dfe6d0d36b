"""A reader sees the old or the whole new thing, also when the writer is killed at any moment."""

from __future__ import annotations

import errno
import gc
import io
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from nlpctl.errors import UserError
from nlpctl.files import (
    STAGING_PREFIX,
    read_json,
    remove_leftovers,
    remove_leftovers_of,
    staged_dir,
    staged_file,
    staged_path,
    write_json_atomic,
    write_npz,
    write_text_atomic,
)
from nlpctl.runtime.lock import sole_writer


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_text_is_written_as_it_is_with_the_usual_rights(tmp_path):
    path = tmp_path / "new" / "报告.txt"
    write_text_atomic(path, "好\r\nline\n")
    assert path.read_bytes() == "好\r\nline\n".encode()
    (tmp_path / "usual").touch()
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_failed_write_leaves_the_old_text(tmp_path):
    path = tmp_path / "a.txt"
    write_text_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text_atomic(path, "new \ud800")  # a lone surrogate cannot be encoded
    assert path.read_text() == "old" and names(tmp_path) == ["a.txt"]


KILLED = """
import sys
from pathlib import Path
from nlpctl.files import staged_file
with staged_file(Path(sys.argv[1])) as stream:
    stream.write(b"x" * 100_000)
    stream.flush()
    print("written", flush=True)
    sys.stdin.read()
"""


def test_a_killed_writer_leaves_nothing(tmp_path):
    path = tmp_path / "out" / "a.txt"
    write_text_atomic(path, "old")
    words = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"written\n" and names(path.parent) == ["a.txt"]
        process.kill()
    assert path.read_text() == "old" and names(path.parent) == ["a.txt"]


def test_where_files_need_a_name_they_get_one(tmp_path, monkeypatch):
    """As on file systems without unnamed files, and in containers without /proc."""
    monkeypatch.setattr("nlpctl.files._HANDLES", str(tmp_path / "nowhere"))
    with staged_file(tmp_path / "a.txt") as stream:
        stream.write(b"new")
        assert len(names(tmp_path)) == 1 and names(tmp_path)[0].startswith(STAGING_PREFIX)
    assert (tmp_path / "a.txt").read_bytes() == b"new" and names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("handles", ["/proc/self/fd", "/nowhere"])
def test_whole_content_is_kept_where_it_cannot_have_its_name(tmp_path, monkeypatch, handles):
    """The error, which a command shows, says where; it is no leftover that a later command would remove."""
    monkeypatch.setattr("nlpctl.files._HANDLES", handles)
    final = tmp_path / "out" / "a.txt"
    told = "Is a directory; what was written is kept in "
    with pytest.raises(OSError, match=told) as error, staged_file(final) as stream:
        stream.write(b"hours of work")
        final.mkdir()
    remove_leftovers(final.parent)
    (kept,) = final.parent.glob("a.txt.kept-*")
    assert kept.read_bytes() == b"hours of work" and error.value.strerror.endswith(str(kept))
    assert names(final.parent) == ["a.txt", kept.name]


def test_content_without_a_folder_is_kept_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    final = tmp_path / "out" / "a.txt"
    with pytest.raises(FileNotFoundError, match="what was written is kept in ") as told, staged_file(final) as stream:
        stream.write(b"hours of work")
        final.parent.rmdir()
    kept = told.value.strerror.partition("kept in ")[2]
    assert names(tmp_path) == [os.path.basename(kept)] and open(kept, "rb").read() == b"hours of work"


def test_what_cannot_be_linked_is_copied(tmp_path, monkeypatch):
    def refused(*_, **more):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    write_text_atomic(tmp_path / "a.txt", "new")
    (tmp_path / "usual").touch()
    assert (tmp_path / "a.txt").read_text() == "new" and names(tmp_path) == ["a.txt", "usual"]
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("handles", ["/proc/self/fd", "/nowhere"])
def test_a_name_as_long_as_names_may_be(tmp_path, monkeypatch, handles):
    monkeypatch.setattr("nlpctl.files._HANDLES", handles)
    for name in ("好" * 85, "a" * 240):
        write_text_atomic(tmp_path / name, "new")
        with staged_dir(tmp_path / f"{name[:80]}-folder"):
            pass
    assert len(names(tmp_path)) == 4


@pytest.mark.parametrize("status", ["/proc/self/status", "/nowhere"])
def test_reading_the_umask_lets_no_thread_write_for_all(tmp_path, monkeypatch, status):
    before, masks, real = os.umask(0o027), [], os.umask
    monkeypatch.setattr("nlpctl.files._STATUS", status)
    monkeypatch.setattr(os, "umask", lambda mask: masks.append(mask) or real(mask))
    try:
        write_text_atomic(tmp_path / "a.txt", "new")
    finally:
        real(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o640
    assert masks == ([] if status != "/nowhere" else [0o077, 0o027])


def test_a_name_that_is_too_long_is_told_before_the_work(tmp_path):
    with pytest.raises(OSError, match="too long"), staged_file(tmp_path / ("a" * 300)):
        pytest.fail("work was done")


def test_json_stays_readable(tmp_path):
    write_json_atomic(tmp_path / "a.json", {"text": "好"})
    assert (tmp_path / "a.json").read_text() == '{\n  "text": "好"\n}\n'


def test_folder_appears_whole_and_replaces_an_old_one(tmp_path):
    final = tmp_path / "new" / "model"
    for content in ("one", "two"):
        with staged_dir(final) as staged:
            (staged / f"{content}.txt").write_text(content)
            assert final.exists() == (content == "two")
        assert names(final) == [f"{content}.txt"] and names(final.parent) == ["model"]
    (tmp_path / "usual").mkdir()
    assert final.stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_failure_leaves_the_old_folder_and_nothing_else(tmp_path):
    final = tmp_path / "model"
    with staged_dir(final) as staged:
        (staged / "a").write_text("old")
    with pytest.raises(KeyboardInterrupt), staged_dir(final) as staged:
        (staged / "a").write_text("new")
        raise KeyboardInterrupt
    assert (final / "a").read_text() == "old" and names(tmp_path) == ["model"]


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_failed_rename_brings_the_old_folder_back(tmp_path, monkeypatch, fails_at):
    final = tmp_path / "model"
    with staged_dir(final) as staged:
        (staged / "a").write_text("old")
    calls, rename = [], os.replace

    def failing(source, target):
        calls.append(target)
        if len(calls) == fails_at:
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "replace", failing)
    told = "No space left on device; what was written is kept in "
    with pytest.raises(OSError, match=told) as error, staged_dir(final) as staged:
        (staged / "a").write_text("new")
    monkeypatch.undo()
    remove_leftovers(tmp_path)
    (kept,) = tmp_path.glob("model.kept-*")
    assert (kept / "a").read_text() == "new" and error.value.strerror.endswith(str(kept))
    assert (final / "a").read_text() == "old" and names(tmp_path) == ["model", kept.name]


def test_a_mounted_folder_is_refused_before_the_work(tmp_path, monkeypatch):
    """A container's volume cannot be renamed; that was told when the work was done, and it was lost."""
    volume = tmp_path / "out"
    volume.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: path == volume)
    with pytest.raises(UserError, match="a file system is mounted here") as error, staged_dir(volume):
        pytest.fail("the work began")
    assert error.value.problems[0].hint == f"name a folder in it: {volume / 'NAME'}"
    with staged_dir(volume / "export") as staged:
        (staged / "a").write_text("new")
    assert (volume / "export" / "a").read_text() == "new"


WRITER = """
import sys
from pathlib import Path
from nlpctl.files import staged_dir
final = Path(sys.argv[1])
for number in range(1_000_000):
    with staged_dir(final) as staged:
        for part in range(20):
            (staged / f"part-{part}").write_text(str(number) * 1000)
    if number == 0:
        print("started", flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.003, 0.007, 0.012, 0.018, 0.025])
def test_kill_at_any_moment_leaves_a_whole_folder(tmp_path, delay):
    """Old or new, never mixed; between the two renames of a replacement it may be absent, then the old is aside."""
    final = tmp_path / "model"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(final)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.readline()
    time.sleep(delay)
    writer.kill()
    writer.communicate()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["model"]
    texts = {(final / f"part-{part}").read_text() for part in range(20)}
    assert len(texts) == 1 and len(names(final)) == 20


def test_killed_between_the_two_moves_the_old_folder_comes_back(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from nlpctl.files import staged_dir\n"
        "final, real = Path(sys.argv[1]), os.replace\n"
        "def killing(source, target):\n"
        "    os.kill(os.getpid(), 9) if target == final else real(source, target)\n"
        "final.mkdir(); (final / 'a').write_text('old'); os.replace = killing\n"
        "with staged_dir(final) as staged:\n"
        "    (staged / 'a').write_text('new')\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "model")]).returncode == -9
    assert "model" not in names(tmp_path)
    remove_leftovers(tmp_path)
    assert (tmp_path / "model" / "a").read_text() == "old" and names(tmp_path) == ["model"]


def test_leftovers_are_removed_and_nothing_else(tmp_path):
    (tmp_path / f"{STAGING_PREFIX}model-abcd_123").mkdir()
    (tmp_path / f"{STAGING_PREFIX}model-abcd_123" / "part").write_text("")
    (tmp_path / f"{STAGING_PREFIX}a.txt-abcd_123").write_text("")
    (tmp_path / f"{STAGING_PREFIX}area").mkdir()  # somebody else's
    (tmp_path / "model").mkdir()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [f"{STAGING_PREFIX}area", "model"]


def test_a_folder_that_was_half_deleted_goes_with_the_next_writer(tmp_path):
    """That of the same name; what somebody else deletes beside it stays."""
    code = (
        "import os, shutil, sys; from pathlib import Path; from nlpctl.files import remove_dir\n"
        "shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), 9)\n"
        "remove_dir(Path(sys.argv[1]))\n"
    )
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
        assert subprocess.run([sys.executable, "-c", code, str(tmp_path / name)]).returncode == -9
    with sole_writer(tmp_path / "mine"):
        (left,) = tmp_path.glob(f"{STAGING_PREFIX}deleted-*/*")
    assert left.name == "other" and names(tmp_path) == [left.parent.name]


def test_what_another_process_is_writing_is_no_leftover(tmp_path):
    """Its lock and its staging folder stay, also the old folder that it has moved aside; those of ended ones go."""
    code = (
        "import sys; from pathlib import Path; from nlpctl.files import staged_dir\n"
        "from nlpctl.runtime.lock import sole_writer\n"
        "final = Path(sys.argv[1])\n"
        "with sole_writer(final), staged_dir(final) as staged:\n"
        "    (staged / 'a').write_text('new'); print(flush=True); input()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "export")]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert writer.stdout is not None and writer.stdout.readline() == b"\n"
    (tmp_path / f"{STAGING_PREFIX}old-abcd_123" / "export").mkdir(parents=True)
    staged_path(tmp_path / "export").touch()  # as a file, where these need names
    during = names(tmp_path)
    for name in (f"{STAGING_PREFIX}lock-index", f"{STAGING_PREFIX}manifest.json-abcd_123"):
        (tmp_path / name).touch()
    (tmp_path / f"{STAGING_PREFIX}index-abcd_123").mkdir()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == during and f"{STAGING_PREFIX}lock-export" in during
    writer.communicate(b"\n")
    assert writer.returncode == 0 and (tmp_path / "export" / "a").read_text() == "new"
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["export"]


@pytest.mark.parametrize("name", ["model", "a.txt", "old", "old-a", "lock-a", "deleted-a", "好" * 80])
@pytest.mark.parametrize("clean", [remove_leftovers_of, lambda output: remove_leftovers(output.parent)])
def test_leftovers_of_an_output_are_known_by_its_name(tmp_path, monkeypatch, name, clean):
    """Files and folders of killed commands, in one way, whatever the output is called."""
    monkeypatch.setattr("nlpctl.files._HANDLES", "/nowhere")
    monkeypatch.setattr("nlpctl.files.os.unlink", lambda path: None)  # as if killed
    monkeypatch.setattr("nlpctl.files.shutil.rmtree", lambda *_, **more: None)
    for staged in (staged_file, staged_dir):
        with pytest.raises(KeyboardInterrupt), staged(tmp_path / name):
            raise KeyboardInterrupt
    monkeypatch.undo()
    assert len(names(tmp_path)) == 2
    clean(tmp_path / name)
    assert names(tmp_path) == []


def test_a_json_file_of_gigabytes_is_not_read(tmp_path):
    with (tmp_path / "manifest.json").open("wb") as stream:
        stream.truncate(3 << 30)
    with pytest.raises(UserError, match="manifest.json: is not valid JSON .it has more than 256 MB"):
        read_json(tmp_path / "manifest.json")


def test_an_archive_of_arrays_ends_with_the_disk(tmp_path):
    """The bytes of numpy.savez; and where a write fails, nothing is left to fail later."""
    arrays = {"a": np.arange(5.0), "b": np.array("text"), "file": np.zeros((2, 0), np.int8)}
    for compressed, save in ((False, np.savez), (True, np.savez_compressed)):
        ours, theirs = io.BytesIO(), io.BytesIO()
        write_npz(ours, {name: arrays[name] for name in "ab"}, compressed)
        save(theirs, a=arrays["a"], b=arrays["b"])
        assert ours.getvalue() == theirs.getvalue()
        write_npz(ours, arrays, compressed)

    class Full(io.BytesIO):
        def write(self, content):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"), Full() as stream:
        write_npz(stream, arrays)
    gc.collect()  # pytest would tell what a __del__ raises
