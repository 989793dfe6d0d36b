"""Files ending in .gz and .zst are read, cut and recognised as what they hold."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow
import pytest

from nlpctl.cli.app import main
from nlpctl.config.load import load_recipe
from nlpctl.config.schema import DataSection
from nlpctl.data.open_split import open_split
from nlpctl.data.predict_input import open_input
from nlpctl.data.readers.readers import read_rows
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.datatools.split import split_data
from nlpctl.errors import UserError

PACK = {".gz": gzip.compress, ".zst": lambda raw: pyarrow.Codec("zstd").compress(raw, asbytes=True)}
SPANS = [{"text": f"他住在北京{i}", "label": [[3, 5, "LOC"]]} for i in range(12)]
SQUAD = {"data": [{"paragraphs": [{"context": "a b", "qas": [{"question": "?", "answers": []}]}]}]}
FILES = {
    ".tsv": ("sequence_classification", "text\tlabel\n" + "".join(f"text {i}\t{i % 2}\n" for i in range(12))),
    ".csv": ("sequence_classification", "text;label\n" + "".join(f'"te\r\nxt {i}";{i % 2}\n' for i in range(12))),
    ".jsonl": ("token_classification", "".join(json.dumps(row) + "\n" for row in SPANS)),  # of doccano
    ".conll": ("token_classification", "".join(f"北{i}\tB-LOC\n京\tI-LOC\n\n" for i in range(12))),
    ".json": ("question_answering", json.dumps(SQUAD)),
}


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("ending", FILES)
def test_the_rows_are_those_of_the_file_unpacked(packing: str, ending: str, tmp_path: Path) -> None:
    task, text = FILES[ending]
    found = []
    for name, raw in ((f"a{ending}", text.encode()), (f"a{ending}{packing}", PACK[packing](text.encode()))):
        (tmp_path / name).write_bytes(raw)
        (tmp_path / "r.yaml").write_text(json.dumps({"task": task, "data": {"train": name}}))
        recipe = load_recipe(tmp_path / "r.yaml", purpose="apply")
        rows = list(open_split(task_rows(task, recipe.data), "train"))
        found.append([(row.line, row.values) for row in rows])
        assert found[-1] and all(row.source == str(tmp_path / name) for row in rows)
    assert found[0] == found[1]
    if len(found[0]) > 1:
        made = split_data(recipe, tmp_path / "parts", {"dev": 0.3, "test": 0})
        assert all(path.suffix == ending for path in made.files.values())
        assert made.rows["train"] + made.rows["dev"] == 12
        for path in made.files.values():
            assert path.read_text().startswith(text[0])


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("task", ["sequence_classification", "token_classification"])
def test_packed_lines_of_text_are_predicted(packing: str, task: str, tmp_path: Path) -> None:
    (tmp_path / f"a.txt{packing}").write_bytes(PACK[packing]("one\n房间\n".encode()))
    source = open_input(task_rows(task, DataSection()), str(tmp_path / f"a.txt{packing}"), "auto")
    assert source.format == "text" and [example.text for example in source.rows()] == ["one", "房间"]
    (tmp_path / f"b.txt{packing}").write_bytes(PACK[packing](b'{"text": "one"}\n'))
    with pytest.raises(UserError, match="JSON object"):
        open_input(task_rows(task, DataSection()), str(tmp_path / f"b.txt{packing}"), "auto")


@pytest.mark.parametrize("packing", PACK)
def test_a_damaged_file_is_told_as_such(packing: str, tmp_path: Path) -> None:
    raw = PACK[packing](b"text\tlabel\n" + bytes(range(97, 123)) * 99)
    for content in (b"plain\n", raw[: len(raw) // 2]):
        (tmp_path / f"a.tsv{packing}").write_bytes(content)
        with pytest.raises(UserError, match=rf"a.tsv{packing}: cannot be unpacked"):
            list(read_rows(tmp_path / f"a.tsv{packing}", "tsv", True, ()))


def test_new_finds_packed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = FILES[".tsv"][1].encode()
    Path("set").mkdir()
    Path("set/my_train.tsv.gz").write_bytes(gzip.compress(text))
    Path("set/my_dev.tsv.zst").write_bytes(PACK[".zst"](text))
    assert main(["new", "set", "--model", "scratch", "-o", "r.yaml", "--yes"]) == 0
    data = load_recipe("r.yaml").data
    assert [Path(name).name for name in (*data.train, *data.dev)] == ["my_train.tsv.gz", "my_dev.tsv.zst"]
