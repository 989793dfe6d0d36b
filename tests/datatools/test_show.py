"""`nlpctl data show`: tokens, ids, types, labels and padding, for every task."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from made_runs import CASES, make_run

from nlpctl.console import display_width
from nlpctl.datatools.show import format_rows, show_rows
from nlpctl.errors import UserError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    made = {}

    def of(task: str):
        if task not in made:
            made[task] = make_run(tmp_path_factory.mktemp(task), task)
        return made[task]

    return of


@pytest.mark.parametrize("task", sorted(CASES))
def test_every_task(run, task):
    found = show_rows(run(task), None, 3)
    assert json.loads(json.dumps(found)) == found and len(found["rows"]) == 3 and found["split"] == "train"
    for row in found["rows"]:
        assert Path(row["where"].rpartition(":")[0]).is_file() and all(row["texts"].values())
        for window in row["windows"]:
            for each in window["inputs"]:
                assert len(each["tokens"]) == len(each["ids"]) == len(each.get("types", each["ids"])) > 1
                assert each["tokens"][0] == "[CLS]"
    batch = found["batch"]
    assert batch["shape"]["input_ids"][0] == batch["rows"] == len(batch["tokens"])
    assert 0 <= batch["padding"] < 1 and 0 <= batch["padding_of_all"] < 1
    for width in (40, 200):
        lines = list(format_rows(found, width))
        narrow = [line for line in lines if not line.startswith("/")]  # a path is not cut: it is to be copied
        assert max(map(display_width, narrow)) <= width, max(narrow, key=display_width)


def test_labels_stand_under_their_tokens(run):
    window = show_rows(run("token_classification"), None, 1)["rows"][0]["windows"][0]
    (labels,) = window["labels"].values()
    tokens = window["inputs"][0]["tokens"]
    assert len(labels) == len(tokens) and labels[0] is None and labels[-1] is None and all(labels[1:-1])
    text = "\n".join(format_rows(show_rows(run("token_classification"), None, 1), 400)).splitlines()
    shown = next(line for line in text if line.strip().startswith("labels"))
    above = next(line for line in text if line.strip().startswith("tokens"))
    assert all(above.index(f" {token} ") for token in tokens[1:3]) and "." in shown


def test_labels_stand_under_tokens_without_special_ones(run, tmp_path):
    """Networks that begin with no [CLS] have a label for every token; lines are continued together, wide ones too."""
    recipe = make_run(tmp_path, "token_classification", "bigru", "crf")
    train = Path(recipe.data.train[0])
    words, tags = "我 住 在 北 京 的 a b c d".split(), "O O O B-LOC I-LOC O B-PER I-PER O O".split()
    train.write_text(json.dumps({"tokens": words, "tags": tags}) + "\n" + train.read_text())
    found = show_rows(recipe, None, 1)
    (window,) = found["rows"][0]["windows"]
    window["inputs"][0]["tokens"] = words  # in place of [UNK], which the vocabulary has for them
    assert window["labels"]["labels"] == tags and window["per_token"] == ["labels"]
    lines = [line for line in format_rows(found, 40) if line.strip()]
    pairs = [(above, lines[i + 2]) for i, above in enumerate(lines[:-2])
             if above.startswith("  tokens  ") and lines[i + 2].startswith("  labels")]  # fmt: skip
    assert len(pairs) > 1
    assert [tag for _, labels in pairs for tag in labels.split()[1:]] == tags
    for tokens, labels in pairs:
        assert starts_of_cells(tokens) == starts_of_cells(labels)


def starts_of_cells(line: str) -> list[int]:
    """The columns of a terminal in which the words of a line begin."""
    return [display_width(line[: match.start()]) for match in re.finditer(r"\S+", line)]


def test_labels_have_their_names(run):
    assert show_rows(run("sequence_classification"), None, 1)["rows"][0]["windows"][0]["labels"]["labels"] in "xyz"
    rows = show_rows(run("multi_label_classification"), None, 9)["rows"]
    several = [row["windows"][0]["labels"]["labels"] for row in rows]
    assert all(set(each) <= set("xyz") for each in several) and any(several)
    reading = show_rows(run("question_answering"), None, 1)["rows"][0]["windows"][0]["labels"]
    assert "(" in reading["start_positions"][0]
    pair = show_rows(run("semantic_indexing"), None, 1)["rows"][0]["windows"][0]["inputs"]
    assert [each["name"] for each in pair] == ["input_ids", "pair_ids"]


def test_batches_are_those_of_training(run):
    recipe = run("sequence_classification")
    data = dataclasses.replace(recipe.data, batch_tokens=64)
    found = show_rows(dataclasses.replace(recipe, data=data), None, 1)["batch"]
    rows, length = found["shape"]["input_ids"]
    assert rows * length <= 64 and found["padding_of_all"] < 0.5


def test_other_rows_than_those_of_a_training_do_not_stand_for_it(run):
    recipe = run("sequence_classification")
    assert show_rows(recipe, "train", 1)["batch"]["exact"]
    drawn = dataclasses.replace(recipe.data, balance=dataclasses.replace(recipe.data.balance, method="undersample"))
    training = dataclasses.replace(recipe.training, per_device_train_batch_size=4000, dataloader_drop_last=True)
    found = show_rows(dataclasses.replace(recipe, data=drawn, training=training), "train", 1)
    assert not found["batch"]["exact"]
    assert "a batch of training, as these rows would make it" in list(format_rows(found, 99))


def test_bad_rows_are_counted(run, tmp_path):
    recipe = run("sequence_classification")
    train = Path(recipe.data.train[0])
    worse = tmp_path / train.name
    worse.write_bytes(train.read_bytes() + b'{"other": 1}\n')
    found = show_rows(dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, train=(str(worse),))), None, 1)
    assert show_rows(recipe, None, 1)["bad_rows"] == 0 and found["bad_rows"] == 1


def test_a_split_that_is_not_there(run):
    with pytest.raises(UserError, match="names no test data"):
        show_rows(run("sequence_classification"), "test", 1)
