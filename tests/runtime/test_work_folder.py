"""A folder that a command fills piece by piece: its lock, what is left in it, and what --overwrite removes."""

from __future__ import annotations

import os

import pytest

from nlpctl.errors import UserError
from nlpctl.files import staging_prefix
from nlpctl.outputs import inputs_noted, note_inputs
from nlpctl.runtime.work_folder import WorkFolder

IN_USE = UserError("somebody is writing here", "FOLDER", "wait for it")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work" / "pieces").mkdir(parents=True)
    return tmp_path / "work"


def test_one_at_a_time_works_in_it(folder):
    first, second = WorkFolder(folder), WorkFolder(folder)
    with first.held(IN_USE):
        assert first.is_held and first.take()  # its holder may ask again
        assert not second.take() and not second.is_held
        with pytest.raises(UserError, match="somebody is writing here"), second.held(IN_USE):
            pass
    assert not first.is_held and second.take()
    second.release()


def test_the_lock_is_released_whatever_happens(folder):
    with pytest.raises(KeyboardInterrupt), WorkFolder(folder).held(IN_USE):
        raise KeyboardInterrupt
    with WorkFolder(folder).held(IN_USE):
        pass


def test_what_a_kill_leaves_does_not_count_and_is_removed(folder):
    work, left = WorkFolder(folder, ("pieces", "none")), f"{staging_prefix('part')}abcd1234"
    (folder / left).mkdir()
    (folder / "pieces" / left).write_text("half")
    (folder / "series.json").write_text("{}")
    assert work.holds_more() and work.holds_more("series.json") and not work.holds_more("series.json", "pieces")
    work.remove_leftovers()
    assert sorted(os.listdir(folder)) == ["pieces", "series.json"] and not os.listdir(folder / "pieces")


def test_nothing_is_removed_where_one_is_an_input(folder):
    (folder / "rows.tsv").write_text("a\n")
    with inputs_noted(), pytest.raises(UserError, match="this is an input"):
        note_inputs([folder / "rows.tsv"], "data.train")
        WorkFolder(folder).remove([folder / "pieces", folder / "rows.tsv"])
    assert (folder / "pieces").is_dir()
    WorkFolder(folder).remove([folder / "pieces", folder / "rows.tsv", folder / "never there"])
    assert not os.listdir(folder)


def test_of_a_link_the_link_is_removed(folder, tmp_path):
    (folder / "model").symlink_to(tmp_path)
    WorkFolder(folder).remove([folder / "model"])
    assert tmp_path.is_dir() and not (folder / "model").is_symlink()
