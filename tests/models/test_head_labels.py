"""The labels of a head that another program saved, as a recipe calls and orders them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.errors import UserError
from nlpctl.models.head_labels import (
    are_names,
    check_given_labels,
    config_labels,
    counted_labels,
    numbered,
    serves_another_task,
    tell_unnamed,
    wanted_labels,
)

PAIRS = {"columns": {"text_pair": "other"}}


def wanted(own: tuple[str, ...], task: str = "sequence_classification", **data: Any) -> tuple[str, ...]:
    return wanted_labels(load_recipe({"task": task, "data": data}, purpose="apply"), own, "folder")


@pytest.mark.parametrize(
    ("config", "labels"),
    [
        ({"id2label": {str(id): "abcdefghijk"[id] for id in (10, *range(10))}}, tuple("abcdefghijk")),
        ({"num_labels": 3}, numbered(3)),
        ({"num_classes": 4, "init_class": "ErnieForSequenceClassification"}, numbered(4)),
        ({"architectures": ["BertForTokenClassification"]}, numbered(2)),
        ({"init_class": "ErnieForSequenceClassification"}, numbered(2)),
        ({"architectures": ["BertModel"]}, None),
        ({"architectures": ["BertForQuestionAnswering"]}, None),
        ({}, None),
    ],
)
def test_what_a_config_says(config: dict, labels: tuple[str, ...] | None) -> None:
    assert config_labels(config) == labels


@pytest.mark.parametrize("count", [10**12, -1, "3", 1.5, [3]])
def test_a_count_that_is_none(count: object) -> None:
    with pytest.raises(UserError, match="num_labels is .* which is no number of labels"):
        config_labels({"num_labels": count})


@pytest.mark.parametrize("ids", [("1", "2"), ("0", "2"), ("-1", "0")])
def test_ids_that_no_output_has(ids: tuple[str, str]) -> None:
    with pytest.raises(UserError, match=f"id2label in config.json: its ids are '{ids[0]}', '{ids[1]}', and those of"):
        config_labels({"id2label": dict(zip(ids, "ab", strict=True))})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ({"a": 1}, 'the label 1 is {"a": 1}, and must be a text'),
        (None, "the label 1 is null, and must be a text"),
        (["a"], "the label 1 is"),
        ("\ud800x", r"the label 1 is not Unicode: half a surrogate pair, U\+D800, at character 1"),
    ],
)
def test_names_that_are_none(name: object, told: str) -> None:
    for read in (config_labels, counted_labels):  # of the head that answers, and of one to be trained on
        with pytest.raises(UserError, match=f"id2label in config.json: {told}"):
            read({"id2label": {"0": "a", "1": name}})


def test_numbers_are_names() -> None:
    assert config_labels({"id2label": {"0": 1, "1": 2.5, "2": True}}) == ("1", "2.5", "True")


def test_ids_that_no_output_has_are_counted_where_the_recipe_names_the_labels(tmp_path: Path) -> None:
    names = {"architectures": ["BertForSequenceClassification"], "id2label": {"1": "a", "2": "b"}}
    (tmp_path / "config.json").write_text(json.dumps(names))
    recipe = {"task": "sequence_classification", "model": {"name_or_path": str(tmp_path)}}
    with pytest.raises(UserError, match="id2label in config.json: its ids are '1', '2'"):
        check_given_labels(load_recipe(recipe, purpose="apply"), tmp_path)
    check_given_labels(load_recipe({**recipe, "data": {"labels": ["x", "y"]}}, purpose="apply"), tmp_path)
    with pytest.raises(UserError, match=r"3 labels \('x', 'y', 'z'\) for a head with 2 outputs"):
        check_given_labels(load_recipe({**recipe, "data": {"labels": ["x", "y", "z"]}}, purpose="apply"), tmp_path)


def test_a_count_is_no_name() -> None:
    assert are_names(("neg", "pos")) and are_names(("LABEL_1", "LABEL_0"))
    assert not are_names(numbered(2)) and not are_names(())


def test_a_count_is_named_by_position() -> None:
    assert wanted(numbered(2), labels=["pos", "neg"]) == ("pos", "neg")
    assert wanted(numbered(2)) == numbered(2)
    with pytest.raises(UserError, match=r"3 labels \('a', 'b', 'c'\) for a head with 2 outputs"):
        wanted(numbered(2), labels=["a", "b", "c"])


def test_names_are_found_in_any_order() -> None:
    assert wanted(("neg", "pos")) == ("neg", "pos")
    assert wanted(("neg", "pos"), labels=["pos", "neg"]) == ("pos", "neg")
    with pytest.raises(UserError, match="(?s)'0', '1' are not those of the head: 'neg', 'pos'.*in any order"):
        wanted(("neg", "pos"), labels=["0", "1"])


def test_no_match_comes_before_match() -> None:
    """Whatever the config says, the task takes its second output for a match."""
    assert wanted(("yes", "no"), "text_matching", **PAIRS) == ("no", "yes")
    assert wanted(("same", "different"), "text_matching", labels=["different", "same"], **PAIRS) == (
        "different",
        "same",
    )
    assert wanted(numbered(2), "text_matching", **PAIRS) == numbered(2)
    with pytest.raises(UserError, match="which of the labels 'same' and 'different' means"):
        wanted(("same", "different"), "text_matching", **PAIRS)
    with pytest.raises(UserError, match="text_matching needs two labels, found 3"):
        wanted(numbered(3), "text_matching", **PAIRS)


def test_a_tagger_needs_names() -> None:
    assert wanted(numbered(2), "token_classification", labels=["O", "B-X"]) == ("O", "B-X")
    with pytest.raises(UserError, match="(?s)there are 2 tags, but not which.*--labels O,B-PER,I-PER"):
        wanted(numbered(2), "token_classification")


def test_tags_without_marks() -> None:
    told = "(?s)^id2label in config.json: 'PER', 'LOC': no mark .* config.json of folder: I-PER"
    with pytest.raises(UserError, match=told):
        wanted(("O", "PER", "LOC"), "token_classification")
    assert wanted(("O", "I-PER", "I-LOC"), "token_classification") == ("O", "I-PER", "I-LOC")


def test_the_only_label_may_have_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    tell_unnamed(("toxic",), "folder")
    assert not capsys.readouterr().err
    tell_unnamed(("LABEL_0",), "folder")
    assert "does not name its 1 label, so" in capsys.readouterr().err


def test_every_parent_needs_an_output() -> None:
    assert wanted(("a", "a##b"), "multi_label_classification") == ("a", "a##b")
    with pytest.raises(UserError, match="for a head with 2 outputs"):
        wanted(("c", "a##b"), "multi_label_classification")


def test_classes_with_the_head_of_another_task() -> None:
    assert serves_another_task("BertForTokenClassification", "SequenceClassification")
    for name in ("BertForSequenceClassification", "BertModel", "BertForMaskedLM", ""):
        assert not serves_another_task(name, "SequenceClassification")
