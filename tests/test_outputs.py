"""What a user names as output: devices and pipes are written into and stay, whatever is written aside otherwise."""

from __future__ import annotations

import os
import socket
import stat
import threading

import pytest

from nlpctl.errors import UserError
from nlpctl.files import staged_dir, staged_file, write_text_atomic, writing
from nlpctl.outputs import (
    inputs_noted,
    is_stream,
    note_inputs,
    refuse_below_file,
    refuse_foreign,
    refuse_inputs,
    refuse_output,
    refuse_stream,
    signed,
)
from nlpctl.runtime.lock import sole_writer
from nlpctl.runtime.run_directory import RunDirectory


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_no_input_of_a_command_is_replaced(tmp_path):
    """Whatever its name is, and whatever folder it lies in."""
    (tmp_path / "rows").mkdir()
    rows = tmp_path / "rows" / "train.tsv"
    rows.write_text("text\n")
    (tmp_path / "link.tsv").symlink_to(rows)
    (tmp_path / "hard.tsv").hardlink_to(rows)
    (tmp_path / "folder").symlink_to("rows")
    (tmp_path / "other.tsv").touch()
    with inputs_noted():
        note_inputs([rows, tmp_path / "missing"], "data.train")
        for name in ("rows/train.tsv", "link.tsv", "hard.tsv", "folder/train.tsv", "rows/../rows/train.tsv"):
            with pytest.raises(UserError, match="is an input .data.train., and is not replaced"):
                refuse_output(tmp_path / name, overwrite=True)
        for name in ("rows", "folder", "."):
            with pytest.raises(UserError, match="holds an input, .*train.tsv"):
                refuse_inputs(tmp_path / name)
        refuse_output(tmp_path / "other.tsv", overwrite=True)
        refuse_inputs(tmp_path / "missing", tmp_path / "none")
        with inputs_noted():
            note_inputs([tmp_path / "other.tsv"], "--data")
            with pytest.raises(UserError, match="--data"):
                refuse_output(tmp_path / "other.tsv", overwrite=True)
        refuse_output(tmp_path / "other.tsv", overwrite=True)
    refuse_output(rows, overwrite=True)  # the next command


def test_a_link_in_a_folder_is_an_input_that_would_be_lost(tmp_path):
    (tmp_path / "rows.tsv").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "rows.tsv").symlink_to(tmp_path / "rows.tsv")
    with inputs_noted():
        note_inputs([tmp_path / "folder" / "rows.tsv"], "INPUT")
        with pytest.raises(UserError, match="holds an input"):
            refuse_inputs(tmp_path / "folder")


def test_a_device_stays_one(tmp_path, device):
    null = device("null")
    (tmp_path / "link").symlink_to("null")
    for path in (null, tmp_path / "link"):
        refuse_output(path, overwrite=False)
        write_text_atomic(path, "gone")
    assert stat.S_ISCHR(null.stat().st_mode) and (tmp_path / "link").is_symlink()
    assert names(tmp_path) == ["link", "null"]


def test_a_full_device_says_so_and_stays(tmp_path, device):
    full = device("full")
    with pytest.raises(UserError, match="No space left on device") as caught, writing(full, "make room"):
        write_text_atomic(full, "too much")
    assert "--overwrite" not in str(caught.value)
    assert stat.S_ISCHR(full.stat().st_mode) and names(tmp_path) == ["full"]


def test_a_pipe_is_written_through(tmp_path):
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    refuse_output(pipe, overwrite=False)
    write_text_atomic(pipe, "好")
    reader.join(60)
    assert found == ["好".encode()] and stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_reader_that_leaves_is_no_error_of_the_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(BrokenPipeError), writing(pipe, "name another file"), staged_file(pipe) as stream:
        os.close(reader)
        stream.write(b"nobody reads this")


def test_what_the_shell_opened_is_appended_to(tmp_path):
    """`-o /dev/stdout > FILE`: a link in /proc to a regular file, which holds what was printed before."""
    file, link = tmp_path / "file", tmp_path / "stdout"
    file.write_text("printed before\n")
    with file.open("a") as opened:
        link.symlink_to(f"/proc/self/fd/{opened.fileno()}")
        assert is_stream(link) and not is_stream(file)
        refuse_output(link, overwrite=False)
        write_text_atomic(link, "answers\n")
    assert file.read_text() == "printed before\nanswers\n" and link.is_symlink()


def test_a_link_to_a_regular_file_is_replaced_as_ever(tmp_path):
    (tmp_path / "old").write_text("old")
    (tmp_path / "link").symlink_to("old")
    with pytest.raises(UserError, match="use --overwrite"):
        refuse_output(tmp_path / "link", overwrite=False)
    write_text_atomic(tmp_path / "link", "new")
    assert (tmp_path / "old").read_text() == "old" and not (tmp_path / "link").is_symlink()


@pytest.mark.parametrize(("target", "told"), [("link", "a link in a circle"), ("no/such", "which is not there")])
@pytest.mark.parametrize("below", ["", "below"])
def test_lost_links_are_neither_replaced_nor_followed(tmp_path, target, told, below):
    (tmp_path / "link").symlink_to(target)
    place = tmp_path / "link" / below
    for call in (
        lambda: refuse_output(place, overwrite=True),
        lambda: refuse_output(place, overwrite=False),
        lambda: refuse_below_file(place, "-o"),
        lambda: sole_writer(place).__enter__(),
        lambda: RunDirectory(place).check(resume=False, overwrite=True),
    ):
        with pytest.raises(UserError, match=told) as caught:
            call()
        assert "delete the link" in str(caught.value)
    assert names(tmp_path) == ["link"] and os.readlink(tmp_path / "link") == target


def test_sockets_and_disks_are_refused(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for call in (lambda path: refuse_output(path, overwrite=True), lambda path: write_text_atomic(path, "")):
            with pytest.raises(UserError, match="this is a socket: output cannot be written to it"):
                call(tmp_path / "socket")
    assert stat.S_ISSOCK((tmp_path / "socket").stat().st_mode)
    try:
        os.mknod(tmp_path / "disk", stat.S_IFBLK | 0o600, os.makedev(7, 255))  # never opened
    except PermissionError:
        pytest.skip("devices can be made by root alone")
    with pytest.raises(UserError, match="this is a disk"):
        refuse_output(tmp_path / "disk", overwrite=True)
    with pytest.raises(UserError, match="this is a disk"):
        write_text_atomic(tmp_path / "disk", "")


def test_neither_arrays_nor_folders_are_streams(tmp_path):
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(UserError, match="a device or a pipe, and why") as caught:
        refuse_stream(tmp_path / "a.npz", "why", "name a file")
    assert "--overwrite" not in str(caught.value)
    refuse_stream(tmp_path / "new.npz", "why", "name a file")
    with pytest.raises(NotADirectoryError), staged_dir(tmp_path / "a.npz"):
        pass
    assert names(tmp_path) == ["a.npz"] and stat.S_ISFIFO((tmp_path / "a.npz").stat().st_mode)


def test_a_card_as_nlpctl_wrote_it_is_no_foreign_file(tmp_path):
    (tmp_path / "README.md").write_text(signed("# a card\n"))
    refuse_foreign(tmp_path, ())
    with (tmp_path / "README.md").open("a") as card:
        card.write("a line of my own\n")
    with pytest.raises(UserError, match="README.md"):
        refuse_foreign(tmp_path, ())


def test_a_mounted_folder_is_refused_as_an_output_folder(tmp_path, monkeypatch):
    from nlpctl.inference.index import _refuse_folder
    from nlpctl.inference.shard_folder import refuse_parts

    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path)
    for refuse in (refuse_parts, _refuse_folder):
        with pytest.raises(UserError, match="a file system is mounted here"):
            refuse(tmp_path, False)
        refuse(tmp_path / "within", False)
