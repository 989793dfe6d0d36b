import json

import pytest

from nlpctl.config.load import Override, load_recipe
from nlpctl.errors import UserError
from nlpctl.models.folder import make_description, read_description, read_labels, save_model_folder, write_labels

CHANGED = {"data.columns.text": "a", "data.columns.text_pair": "b", "data.max_seq_length": "64", "data.header": "false"}


def description(labels=("负", "正"), **changed):
    overrides = [Override(key, text, key) for key, text in (CHANGED | changed).items()]
    return make_description(load_recipe("quickstart", overrides, purpose="apply"), labels)


DESCRIPTION = description()


class Saves:
    """Stands for a network and a tokenizer."""

    def save_pretrained(self, folder):
        with open(f"{folder}/saved", "a") as file:
            file.write("x")


@pytest.fixture
def folder(tmp_path):
    save_model_folder(tmp_path / "model", Saves(), Saves(), DESCRIPTION)
    return tmp_path / "model"


def test_round_trip(folder):
    assert read_description(folder) == DESCRIPTION
    assert (folder / "saved").read_text() == "xx"


def test_format_on_disk_is_a_contract(folder):
    assert json.loads((folder / "labels.json").read_text(encoding="utf-8")) == {"labels": ["负", "正"]}
    task = json.loads((folder / "task.json").read_text())
    assert (task["format"], task["task"], task["trained"]) == (1, "sequence_classification", True)
    assert task["data"]["columns"] | {"text": "a", "text_pair": "b", "label": "label"} == task["data"]["columns"]
    kept = {"max_seq_length": 64, "doc_stride": 64, "header": False, "label_separator": ","}
    assert kept.items() <= task["data"].items() and task["model"] == {"head": "linear"}
    assert {"decode", "prompt", "retrieval"} < task.keys()


def test_the_folder_is_a_recipe(folder):
    """Everything that decides an answer comes back from the folder alone."""
    recipe = load_recipe(folder, purpose="apply")
    assert make_description(recipe, DESCRIPTION.labels) == DESCRIPTION


def test_thresholds_are_kept(folder):
    assert read_description(folder).thresholds is None
    write_labels(folder, DESCRIPTION.labels, (0.25, 0.75))
    assert read_description(folder).thresholds == (0.25, 0.75)
    (folder / "labels.json").write_text('{"labels": ["a", "b"], "thresholds": [0.5]}')
    with pytest.raises(UserError, match="labels.json: must hold one threshold per label"):
        read_labels(folder)


def test_terms_travel_with_the_model(tmp_path):
    (tmp_path / "my.tsv").write_text("北京\tLOC\n", encoding="utf-8")
    save_model_folder(tmp_path / "model", Saves(), Saves(), description(**{"decode.terms": str(tmp_path / "my.tsv")}))
    (tmp_path / "my.tsv").unlink()
    assert (tmp_path / "model" / "terms.tsv").read_text(encoding="utf-8") == "北京\tLOC\n"
    recipe = load_recipe(tmp_path / "model", purpose="apply")
    assert recipe.decode.terms == str(tmp_path / "model" / "terms.tsv")
    save_model_folder(tmp_path / "copy", Saves(), Saves(), read_description(tmp_path / "model"))  # as an ensemble does
    assert (tmp_path / "copy" / "terms.tsv").read_text(encoding="utf-8") == "北京\tLOC\n"


def test_missing_files(folder):
    (folder / "labels.json").unlink()
    with pytest.raises(UserError, match="no labels.json in this folder"):
        read_description(folder)
    (folder / "task.json").unlink()
    with pytest.raises(UserError, match="no task.json in this folder"):
        read_description(folder)


@pytest.mark.parametrize(
    "labels",
    ['{"labels": ["a",1]}', '{"labels": "ab"}', "{}", '{"labels": ["a"', '{"labels": ["a","a"]}'],
)
def test_bad_labels(folder, labels):
    (folder / "labels.json").write_text(labels)
    told = '(is incomplete or damaged|is not valid JSON|names the label "a" twice)'
    with pytest.raises(UserError, match=f"labels.json: {told}"):
        read_labels(folder)


def test_labels_that_no_file_can_hold(folder):
    (folder / "labels.json").write_text('{"labels": ["a", "\\ud800"]}')
    with pytest.raises(UserError, match="labels.json: is incomplete or damaged .labels.1. holds half a character"):
        read_labels(folder)


def test_many_labels_are_read_at_once(folder):
    """Looking for each among all others would take a minute."""
    names = [f"label {i}" for i in range(100_000)]
    (folder / "labels.json").write_text(json.dumps({"labels": names}))
    assert read_labels(folder)[0] == tuple(names)


@pytest.mark.parametrize("version", [2, "1", None])
def test_other_format(folder, version):
    task = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps(task | {"format": version}))
    with pytest.raises(UserError, match="(?s)task.json: has format .*update nlpctl"):
        read_description(folder)


def test_a_folder_from_before_the_few_shot_methods(folder):
    """It was trained with a prompt, if it is of that task."""
    task = json.loads((folder / "task.json").read_text())
    assert task.pop("few_shot") == {"method": "prompt", "pooling": "mean", "layers": 1}
    (folder / "task.json").write_text(json.dumps(task))
    kept = {name: value for name, value in DESCRIPTION.recipe.items() if name != "few_shot"}
    assert read_description(folder).recipe == kept
    assert load_recipe(folder, purpose="apply").few_shot.method == "prompt"


@pytest.mark.parametrize(
    "change", [{"data": {}}, {"data": None}, {"trained": "yes"}, {"task": 3}, {"data": {"columns": None}}]
)
def test_damaged_task(folder, change):
    task = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps(task | change))
    with pytest.raises(UserError, match="task.json: is incomplete or damaged"):
        read_description(folder)
