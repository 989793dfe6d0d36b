import json

import pytest

from nlpctl.config.schema import ColumnsSection, DataSection
from nlpctl.errors import UserError
from nlpctl.models.folder import ModelCard, make_card, read_card, read_labels, save_model_folder

CARD = ModelCard("sequence_classification", ("负", "正"), ColumnsSection(text="a", text_pair="b"), 64, "fast", False)


class Saves:
    """Stands for a network and a tokenizer."""

    def save_pretrained(self, folder):
        with open(f"{folder}/saved", "a") as file:
            file.write("x")


@pytest.fixture
def folder(tmp_path):
    save_model_folder(tmp_path / "model", Saves(), Saves(), CARD)
    return tmp_path / "model"


def test_round_trip(folder):
    assert read_card(folder) == CARD
    assert (folder / "saved").read_text() == "xx"


def test_format_on_disk_is_a_contract(folder):
    assert json.loads((folder / "labels.json").read_text(encoding="utf-8")) == {"labels": ["负", "正"]}
    assert json.loads((folder / "task.json").read_text()) == {
        "format": 1,
        "task": "sequence_classification",
        "trained": True,
        "data": {
            "columns": {"text": "a", "text_pair": "b", "label": "label"},
            "max_seq_length": 64,
            "tokenizer": "fast",
            "header": False,
        },
    }


def test_card_of_a_recipe():
    card = make_card("sequence_classification", ("a", "b"), DataSection(max_seq_length=32))
    assert (card.labels, card.max_seq_length, card.tokenizer, card.trained) == (("a", "b"), 32, "auto", True)


def test_missing_files(folder):
    (folder / "labels.json").unlink()
    with pytest.raises(UserError, match="no labels.json in this folder"):
        read_card(folder)
    (folder / "task.json").unlink()
    with pytest.raises(UserError, match="no task.json in this folder"):
        read_card(folder)


@pytest.mark.parametrize(
    "labels",
    ['{"labels": []}', '{"labels": ["a",1]}', '{"labels": "ab"}', "{}", '{"labels": ["a"', '{"labels": ["a","a"]}'],
)
def test_bad_labels(folder, labels):
    (folder / "labels.json").write_text(labels)
    with pytest.raises(UserError, match="labels.json: (must hold|is not valid JSON|names the label \"a\" twice)"):
        read_labels(folder)


@pytest.mark.parametrize("version", [2, "1", None])
def test_other_format(folder, version):
    task = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps(task | {"format": version}))
    with pytest.raises(UserError, match="(?s)task.json: has format .*update nlpctl"):
        read_card(folder)


@pytest.mark.parametrize(
    "change", [{"data": {}}, {"data": None}, {"trained": "yes"}, {"task": 3}, {"data": {"columns": None}}]
)
def test_damaged_task(folder, change):
    task = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps(task | change))
    with pytest.raises(UserError, match="task.json: is incomplete or damaged"):
        read_card(folder)
