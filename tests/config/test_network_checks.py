"""Recipes of networks built from scratch that are right, though they look odd."""

from __future__ import annotations

import pytest

from nlpctl.config.load import Override, load_recipe


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.txt").write_text("x O\n", encoding="utf-8")
    (tmp_path / "dictionaries").mkdir()
    (tmp_path / "recipe.yaml").write_text(
        "task: lexical_analysis\nmodel:\n  from_scratch: {architecture: bigru, hidden_size: 33}\n"
        "data: {train: train.txt}\n",
        encoding="utf-8",
    )
    return tmp_path / "recipe.yaml"


def test_recurrent_networks_have_no_attention_heads(recipe):
    assert load_recipe(recipe).model.from_scratch.hidden_size == 33


def test_the_tags_of_the_dictionaries_are_the_labels(recipe):
    folder = Override("model.from_scratch.dictionaries", "dictionaries", "--dictionaries")
    assert load_recipe(recipe, [folder]).data.labels is None
    tags = recipe.parent / "dictionaries" / "tag.dic"
    tags.write_text("0\tO\n", encoding="utf-8")
    assert load_recipe(recipe, [folder]).data.labels == str(tags)
    given = Override("data.labels", "[a, b]", "--labels")
    assert load_recipe(recipe, [folder, given]).data.labels == ("a", "b")
