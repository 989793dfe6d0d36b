"""Words with parts of speech on a line, as in the People's Daily corpus."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.config.schema import DataSection
from nlpctl.data.open_split import open_split
from nlpctl.data.predict_input import open_input
from nlpctl.data.readers.readers import parse_rows
from nlpctl.data.readers.segmented import is_segmented
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import read_training_data
from nlpctl.errors import UserError

LINES = [
    "19980101-01-001-001/m  迈向/v  充满/v  希望/n  的/u  新/a  世纪/n",
    "",
    "[中央/n  人民/n  广播/vn  电台/n]nt  为{wei4}/p  [/w  1/2/m  //w",
]


def rows_of(text: str) -> list:
    return list(parse_rows(io.BytesIO(text.encode()), "f", "segmented", True, ("tokens", "tags")))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_each_character_has_the_part_of_speech_of_its_word(end: str) -> None:
    first, second = rows_of(end.join(LINES) + end)
    assert first.values["tokens"] == list("迈向充满希望的新世纪") and first.line == 1
    assert first.values["tags"] == "B-v I-v B-v I-v B-n I-n B-u B-a B-n I-n".split()
    assert second.values["tokens"] == list("中央人民广播电台为[1/2/") and second.line == 3
    assert second.values["tags"][4:] == "B-vn I-vn B-n I-n B-p B-w B-m I-m I-m B-w".split()


def test_a_word_without_its_part_of_speech_is_told() -> None:
    _, bad = rows_of("好/a\n迈向/v 充满\n")
    assert bad.where == "f:2" and bad.reason == "no tag: '充满' is not WORD/TAG"


def test_many_brackets_are_no_work() -> None:
    """The square of their number would be minutes."""
    _, bad = rows_of("好/a\n" + "[" * 200_000 + "\n")
    assert bad.kind == "no tag"
    (row,) = rows_of("[" * 200_000 + "好/a\n")
    assert row.values["tokens"] == ["好"]
    _, bad = rows_of("好/a\n好" + "/a]" * 50_000 + "！\n")
    assert bad.kind == "no tag"


def test_it_is_known_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\n".join(LINES) + "\n")
    (tmp_path / "r.yaml").write_text("task: lexical_analysis\ndata: {train: train.txt}\n")
    recipe = load_recipe(tmp_path / "r.yaml", purpose="apply")
    data = read_training_data(task_rows(recipe.task, recipe.data))
    assert [example.text for example in data.train] == ["迈向充满希望的新世纪", "中央人民广播电台为[1/2/"]
    (tmp_path / "train.txt").write_text("迈向\tB-v\n他/她\tB-r\n\n")
    assert [row.line for row in open_split(task_rows(recipe.task, recipe.data), "train")] == [1]  # CoNLL
    assert is_segmented(LINES) and not is_segmented(["he and/or she"]) and not is_segmented(["and/or"])
    assert not is_segmented([]) and not is_segmented(["迈向\tB-v", "他/她\tB-r"])


def test_predict_does_not_take_it_for_sentences(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(["  ".join(LINES[0].split() * 20), *LINES]))
    rows = task_rows("lexical_analysis", DataSection())
    with pytest.raises(UserError, match="--format segmented"):
        open_input(rows, str(tmp_path / "a.txt"), "auto")
    first, *_ = open_input(rows, str(tmp_path / "a.txt"), "segmented").rows()
    assert first.text.startswith("迈向充满希望的新世纪")
