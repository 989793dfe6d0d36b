"""Named data sets, against local stand-ins of the real layout; nothing is downloaded."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.schema import ColumnsSection, DataSection, SplitsSection
from nlpctl.data.hub import builtin_names
from nlpctl.data.open_split import open_split
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.data.rows.tagged_rows import TaggedRows
from nlpctl.data.rows.text_rows import TextRows
from nlpctl.data.training_data import resolve_labels
from nlpctl.errors import UserError


@pytest.fixture
def ppnlp_home(tmp_path: Path, monkeypatch) -> Path:
    """An empty PPNLP_HOME for data sets; PaddleNLP reads the variable once, when it is imported."""
    import paddlenlp.datasets  # noqa: F401

    monkeypatch.setenv("PPNLP_HOME", str(tmp_path))
    home = tmp_path / "datasets"
    home.mkdir()
    for module in ("chnsenticorp", "dataset", "glue"):
        monkeypatch.setattr(f"paddlenlp.datasets.{module}.DATA_HOME", str(home))
    return home


def place(home: Path, name: str, content: str) -> str:
    """Write a data file where PaddleNLP looks for it; the MD5 it has to be told."""
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.fixture
def chnsenticorp(ppnlp_home: Path, monkeypatch) -> None:
    """The files of ChnSentiCorp where PaddleNLP unpacks them, with the MD5 of the stand-ins."""
    from paddlenlp.datasets import ChnSentiCorp

    contents = {
        "train": "label\ttext_a\n1\t很好\n0\t很差\n",
        "dev": "qid\tlabel\ttext_a\n0\t0\t不行\n",
        "test": "qid\ttext_a\n0\t可以\n",
    }
    splits = {}
    for split, (name, _) in ChnSentiCorp.SPLITS.items():
        splits[split] = ChnSentiCorp.META_INFO(name, place(ppnlp_home / "ChnSentiCorp", name, contents[split]))
    monkeypatch.setattr(ChnSentiCorp, "SPLITS", splits)


def test_builtin(chnsenticorp):
    data = DataSection(dataset="chnsenticorp")
    source = open_split(TextRows(data), "train")
    rows = [Row("chnsenticorp[train]", 1, {"text": "很好", "label": "1", "qid": ""}),
            Row("chnsenticorp[train]", 2, {"text": "很差", "label": "0", "qid": ""})]  # fmt: skip
    assert list(source) == rows and list(source) == rows
    assert source.label_names == ("0", "1") and source.files == ()
    assert resolve_labels(TextRows(data), source).names == ("0", "1")
    assert [row.values["text"] for row in open_split(TextRows(data), "test", labelled=False)] == ["可以"]


def test_builtin_with_subset(ppnlp_home, monkeypatch):
    from paddlenlp.datasets import Glue

    name, _, fields, skipped = Glue.BUILDER_CONFIGS["qnli"]["splits"]["dev"]
    digest = place(ppnlp_home / "Glue", name, "index\tquestion\tsentence\tlabel\n0\tWhy?\tSo.\tnot_entailment\n")
    splits = {**Glue.BUILDER_CONFIGS["qnli"]["splits"], "dev": [name, digest, fields, skipped]}
    monkeypatch.setitem(Glue.BUILDER_CONFIGS, "qnli", {**Glue.BUILDER_CONFIGS["qnli"], "splits": splits})
    columns = ColumnsSection(text="sentence1", text_pair="sentence2", label="labels")
    source = open_split(TextRows(DataSection(dataset="glue/qnli", columns=columns)), "dev")
    expected = {"sentence1": "Why?", "sentence2": "So.", "labels": "not_entailment"}
    assert list(source) == [Row("glue/qnli[dev]", 1, expected)]
    with pytest.raises(UserError) as caught:
        open_split(TextRows(DataSection(dataset="glue/qnli")), "dev")
    assert "no column 'text'" in str(caught.value) and "'sentence1', 'sentence2', 'labels'" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "splits", "says"),
    [
        ("chnsenticorpus", {}, ["no data set 'chnsenticorpus'", "did you mean 'chnsenticorp'", "hf:chnsenticorpus"]),
        ("ChnSentiCorp", {}, ["did you mean 'chnsenticorp'"]),
        ("glue", {}, ["'glue' consists of subsets", "cola", "qnli"]),
        ("glue/qnly", {}, ["has no subset 'qnly'", "did you mean 'qnli'"]),
        ("chnsenticorp/x", {}, ["has no subsets"]),
        ("chnsenticorp", {"train": "trian"}, ["no split 'trian'", "did you mean 'train'", "data.splits"]),
        ("./no/such/folder", {}, ["there is no folder"]),
        ("/no/such/folder", {}, ["there is no folder"]),
    ],
)
def test_wrong_names(name, splits, says):
    with pytest.raises(UserError) as caught:
        open_split(TextRows(DataSection(dataset=name, splits=SplitsSection(**splits))), "train")
    for part in says:
        assert part in str(caught.value), str(caught.value)


def test_wrong_name_is_told_without_importing_paddle():
    script = (
        "import sys\nfrom nlpctl.config.schema import DataSection\nfrom nlpctl.data.open_split import open_split\n"
        "from nlpctl.data.rows.text_rows import TextRows\nfrom nlpctl.errors import UserError\n"
        "try:\n    open_split(TextRows(DataSection(dataset='chnsenticorpus')), 'train')\n"
        "except UserError:\n    print([m for m in ('paddle', 'paddlenlp', 'datasets') if m in sys.modules])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_builtin_names():
    names = builtin_names()
    assert {"chnsenticorp", "glue", "lcqmc", "paws-x"} <= set(names) and "dataset" not in names


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_builtin_that_cannot_be_downloaded(ppnlp_home, no_network, monkeypatch):
    monkeypatch.setattr("paddle.utils.download.DOWNLOAD_RETRY_LIMIT", 1)
    monkeypatch.setattr("paddle.utils.download.time.sleep", lambda seconds: None)
    with pytest.raises(UserError) as caught:
        open_split(TextRows(DataSection(dataset="chnsenticorp")), "train")
    message = str(caught.value)
    assert "cannot load 'chnsenticorp'" in message and "runtime.cache_dir" in message and "data.train" in message


def test_hugging_face_name_that_cannot_be_downloaded(tmp_path, no_network, monkeypatch):
    monkeypatch.setattr("datasets.load.load_dataset", _offline)
    with pytest.raises(UserError) as caught:
        open_split(TextRows(DataSection(dataset="hf:someone/something/subset")), "train")
    assert "cannot load 'someone/something/subset': ConnectionError" in str(caught.value)
    assert "OWNER/NAME/SUBSET" in str(caught.value) and "data.train" in str(caught.value)


def _offline(path, name, cache_dir):
    assert (path, name) == ("someone/something", "subset")
    raise ConnectionError("Couldn't reach the Hub")


@pytest.fixture
def hf_cache(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("PPNLP_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "hf_datasets"


def test_folder_of_jsonl(tmp_path: Path, hf_cache):
    folder = tmp_path / "set"
    folder.mkdir()
    for split, label in (("train", "pos"), ("validation", "neg")):
        line = json.dumps({"sentence": f"{split} 好", "label": label}, ensure_ascii=False)
        (folder / f"{split}.jsonl").write_text(line + "\n", encoding="utf-8")
    columns = ColumnsSection(text="sentence")
    for name in (str(folder), f"hf:{folder}"):
        data = DataSection(dataset=name, columns=columns, splits=SplitsSection(dev="validation", test=None))
        source = open_split(TextRows(data), "dev")
        assert [row.values for row in source] == [{"sentence": "validation 好", "label": "neg"}]
        assert source.label_names is None and source.description == f"{folder}[validation]"
    assert hf_cache.is_dir()
    with pytest.raises(UserError, match="no split 'dev'.*'train', 'validation'"):
        open_split(TextRows(DataSection(dataset=str(folder), columns=columns)), "dev")
    with pytest.raises(UserError, match=r"no column 'text'.*'sentence', 'label'"):
        open_split(TextRows(DataSection(dataset=str(folder))), "train")


def test_saved_folder_with_class_labels(tmp_path: Path, hf_cache):
    import datasets

    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    split = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, -1]}, features=features)
    datasets.DatasetDict({"train": split}).save_to_disk(str(tmp_path / "dict"))
    split.save_to_disk(str(tmp_path / "one"))
    for name in ("dict", "one"):
        data = DataSection(dataset=str(tmp_path / name))
        source = open_split(TextRows(data), "train")
        first, second, third = source
        assert (first.values, second.values) == ({"text": "a", "label": "pos"}, {"text": "b", "label": "neg"})
        assert isinstance(third, BadRow) and third.reason.startswith("bad label: -1 is outside 0 to 1")
        assert resolve_labels(TextRows(data), source).names == ("neg", "pos")
        unlabelled = open_split(TextRows(data), "train", labelled=False)
        assert [row.values["text"] for row in unlabelled] == ["a", "b", "c"]


def test_folder_of_parquet_while_paddlenlp_is_imported(tmp_path: Path, hf_cache):
    """Importing paddlenlp replaces datasets.load_dataset by its own; the name of the folder is one of its scripts."""
    import datasets
    import paddlenlp.datasets  # noqa: F401

    folder = tmp_path / "glue"
    folder.mkdir()
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["n", "p"])})
    split = datasets.Dataset.from_dict({"text": ["a"], "label": [1]}, features=features)
    split.to_parquet(str(folder / "train.parquet"))
    source = open_split(TextRows(DataSection(dataset=str(folder))), "train")
    assert [row.values for row in source] == [{"text": "a", "label": "p"}] and source.label_names == ("n", "p")


def test_folder_that_holds_no_data(tmp_path: Path, hf_cache):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="cannot load .*empty"):
        open_split(TextRows(DataSection(dataset=str(tmp_path / "empty"))), "train")


def test_ids_of_tags_become_names(tmp_path: Path, hf_cache):
    import datasets

    kinds = {"tokens": datasets.Value("string"), "ner_tags": datasets.ClassLabel(names=["O", "B-LOC", "I-LOC"])}
    features = datasets.Features({name: datasets.Sequence(kind) for name, kind in kinds.items()})
    rows = {"tokens": [["in", "New", "York"], ["x"]], "ner_tags": [[0, 1, 2], [-1]]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "set"))
    data = DataSection(dataset=str(tmp_path / "set"), columns=ColumnsSection(tags="ner_tags"))
    source = open_split(TaggedRows(data), "train")
    assert source.label_names == ("O", "B-LOC", "I-LOC")
    first, second = source
    assert first.values == {"tokens": ["in", "New", "York"], "ner_tags": ["O", "B-LOC", "I-LOC"]}
    assert isinstance(second, BadRow) and "-1 is outside 0 to 2" in second.reason
