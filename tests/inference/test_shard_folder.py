"""The folder of a divided prediction: damage is told, with the file and the remedy."""

import pytest

from nlpctl.data.predict_shards import Shard
from nlpctl.errors import RunFailed
from nlpctl.inference.shard_folder import ShardFolder


def test_a_part_whose_note_is_lost_counts_as_damaged(tmp_path):
    """It was there when an interrupted prediction was resumed, and is gone when the parts become the output."""
    folder = ShardFolder(tmp_path / "answers.jsonl")
    folder.folder.mkdir()
    shard = Shard(0, 0, 2, ())
    folder.write(shard, [(b"{}\n{}\n", 0, 0)])
    assert folder.kept([shard]).keys() == {0}

    (note,) = folder.folder.glob("part-*.json")
    note.write_text("{")
    with pytest.raises(RunFailed, match="the disk has damaged them") as error:
        folder.finish_file(1)
    assert note.name in str(error.value) and "resume" in str(error.value)
    assert not folder.output.exists()
