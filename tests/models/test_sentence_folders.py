"""Folders that sentence-transformers wrote against what it computed from them (scripts/make_sentence_folders.py)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from nlpctl.config.load import load_recipe
from nlpctl.config.schema import ModelSection, Recipe, with_value
from nlpctl.data.rows.retrieval_rows import RetrievalExample
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.engines.trained import load_network
from nlpctl.errors import UserError
from nlpctl.models.families import Head, family_of_config
from nlpctl.models.find import find_trained_model
from nlpctl.models.folder import make_description, save_model_folder
from nlpctl.models.load import load_to_train, load_trained
from nlpctl.models.source import read_config
from nlpctl.models.tokenizer import export_tokenizer, load_tokenizer
from nlpctl.tasks.semantic_indexing import (
    PASSAGE_PROMPTS,
    QUERY_PROMPT,
    SemanticIndexing,
    compared,
    with_default_prompt,
)

FOLDERS = Path(__file__).parent / "sentence_folders"
VECTORS = ("mean", "cls-dense", "max-dot", "weightedmean-dense")


def expected(name: str) -> dict:
    return json.loads((FOLDERS / name / "expected.json").read_text())


def vectors(recipe: Recipe, texts: list[str]) -> np.ndarray:
    model = load_network(recipe, find_trained_model(recipe))
    examples = [RetrievalExample(text, None, None, True) for text in texts]
    batch = model.task.collator(model.encoder, labelled=False)(examples)
    return model.predictor.outputs(batch)[0]


@pytest.mark.parametrize("name", VECTORS)
def test_the_same_vectors(name: str):
    recipe, told = load_recipe(FOLDERS / name, purpose="embed"), expected(name)
    queries, passages = (with_default_prompt(recipe, names) for names in ((QUERY_PROMPT,), PASSAGE_PROMPTS))
    found = {way: vectors(each, told["texts"]) for way, each in (("encode", recipe), ("query", queries))}
    found["document"] = vectors(passages, told["texts"])
    for way, array in found.items():
        np.testing.assert_allclose(array, told[way], atol=1e-5)
    similarity = compared(found["query"], recipe) @ compared(found["document"], recipe).T
    np.testing.assert_allclose(similarity, told["similarity"], atol=1e-4)


def test_prompts_change_vectors():
    told = expected("mean")
    assert not np.allclose(told["encode"], told["query"], atol=1e-2)
    assert not np.allclose(told["document"], told["query"], atol=1e-2)


@pytest.mark.parametrize("name", ["reranker", "three-labels"])
def test_the_same_scores(name: str):
    recipe, told = load_recipe(FOLDERS / name, purpose="apply"), expected(name)
    model = load_network(recipe, find_trained_model(recipe))
    examples = [TextExample(*pair, None) for pair in told["pairs"]]
    logits = model.predictor.outputs(model.task.collator(model.encoder, labelled=False)(examples))[0]
    if name == "reranker":
        assert (recipe.task, model.task.labels.names) == ("text_matching", ("0", "1"))
        answers = model.task.answers(examples, [[row] for row in logits])
        np.testing.assert_allclose([answer["score"] for answer in answers], told["scores"], atol=1e-5)
    else:
        np.testing.assert_allclose(logits, told["scores"], atol=1e-5)


@pytest.mark.parametrize("name", ["reranker", "three-labels"])
def test_a_recipe_that_names_a_cross_encoder_that_reads_otherwise(name: str, tmp_path: Path):
    """Its network is the first that asks the folder: to answer with it, and to train from it."""
    folder = Path(shutil.copytree(FOLDERS / name, tmp_path / "made"))
    settings = folder / "config_sentence_transformers.json"
    prompts = {"prompts": {"query": "q: "}, "default_prompt_name": "query"}
    settings.write_text(json.dumps({**json.loads(settings.read_text()), **prompts}))
    head = Head("SequenceClassification", matches=name == "reranker")
    for load in (
        lambda: load_trained(folder, head),
        lambda: load_to_train(ModelSection(str(folder)), head, ["0", "1"], vocabulary_texts=None),
    ):
        with pytest.raises(UserError, match="default_prompt_name: it scores pairs behind the prompt 'q: '"):
            load()
    load_to_train(ModelSection(str(folder)), Head("TokenClassification"), ["O", "B-A"], vocabulary_texts=None)


def test_what_only_the_weights_show(tmp_path: Path):
    folder = Path(shutil.copytree(FOLDERS / "cls-dense", tmp_path / "made"))
    file = folder / "2_Dense" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "out_features": 10}))
    with pytest.raises(UserError, match=r"linear.weight is \[12, 16\], and must be \[10, 16\]"):
        vectors(load_recipe(folder, purpose="embed"), ["a"])


@pytest.mark.parametrize("name", ["cls-dense", "reranker"])
@pytest.mark.parametrize("normalizer", [{"type": "BertNormalizer", "lowercase": False}, None])
def test_texts_that_are_lower_cased_before_a_tokenizer_that_does_not(name, normalizer, tmp_path: Path):
    folder = Path(shutil.copytree(FOLDERS / name, tmp_path / "made"))
    usual = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    changes = {
        "tokenizer.json": {"normalizer": normalizer and {**usual, **normalizer}},
        "tokenizer_config.json": {"do_lower_case": False},
    }
    for lowercase in (False, True):
        changes["sentence_bert_config.json"] = {"do_lower_case": lowercase}
        for file, change in changes.items():
            (folder / file).write_text(json.dumps({**json.loads((folder / file).read_text()), **change}))
        tokenizer = load_tokenizer(folder, family_of_config(read_config(folder), ""))
        letters = "abcdefghijklmnopqrstuvwxyz"
        assert (tokenizer.ids(letters.upper()) == tokenizer.ids(letters)) is lowercase
        tokenizer.save_pretrained(tmp_path)
        assert export_tokenizer(tmp_path).ids("The É") == tokenizer.ids("The É")


def test_the_width_of_vectors_asks_for_no_more_memory_than_the_weights_of_a_model_fill(tmp_path: Path):
    recipe = load_recipe(FOLDERS / "cls-dense", purpose="embed")
    model = load_trained(FOLDERS / "cls-dense", SemanticIndexing.head(recipe))
    wide = with_value(recipe, "retrieval.embedding_size", 60_000_000)
    save_model_folder(tmp_path / "own", model.network, model.tokenizer, make_description(wide, ()))
    opened = load_recipe(tmp_path / "own", purpose="embed")
    with pytest.raises(UserError, match="describes a network of at least 960,0"):
        load_network(opened, find_trained_model(opened))
