"""Vocabularies without the words that nobody writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_runs import make_run

from nlpctl.compress.networks.prune_embeddings import _spelling, check, prune_vocabulary, used_ids, with_words
from nlpctl.compress.networks.training import load_source, read_data
from nlpctl.config.load import load_recipe
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.engines.engine import DygraphPredictor
from nlpctl.errors import Interrupted, UserError
from nlpctl.models.folder import read_description
from nlpctl.models.load import load_to_train
from nlpctl.runtime.process import set_up_process
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.base import make_task
from nlpctl.training.train import train
from tests.helpers.library_tokenizers import bytes_bpe, encoder, unigram
from tests.helpers.paddle_tokenizer import paddle_tokenizer

ROWS = [("the room was clean", "x"), ("the bed was dirty", "y"), ("the staff view", "z"), ("very good", "x")]


@pytest.fixture
def few_words(tmp_path):
    """A function that makes a run, whose recipe then names training rows that need few of its words."""

    def made(*words: str):
        recipe = make_run(tmp_path, *words)
        lines = [json.dumps({"text": text, "label": label}) for text, label in ROWS * 4]
        (tmp_path / "few.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return replace(recipe, data=replace(recipe.data, train=(str(tmp_path / "few.jsonl"),)))

    return made


def outputs(model, texts):
    encoder = build_encoder(model.tokenizer)
    encoded = [encoder.encode([text], None, 24)[0].input_ids for text in texts]
    predictor = DygraphPredictor(model.network)
    return [predictor.outputs({"input_ids": np.array([ids])})[0] for ids in encoded]


def test_letters_of_all_alphabets_stay():
    """Of which words that nobody has seen are spelt; but not the thousands of signs that are words or syllables."""
    words = ["a", "##é", "я", "ב", "##ص", "ह", "##ก", "か", "?", "の", "好", "##店", "한", "the", "##ing"]
    assert [words[i] for i in sorted(_spelling(words))] == words[:10]


@pytest.mark.parametrize("architecture", ["ernie", "bert", "roberta", "electra", "bilstm"])
def test_training_rows_are_answered_as_before(few_words, architecture):
    recipe = few_words("sequence_classification", architecture)
    source = str(recipe.run_dir / "model")
    run = RunDirectory(recipe.run_dir / "words")
    assert prune_vocabulary(recipe, source, run, set_up_process(recipe)) == run.model
    before, after = load_source(recipe, source), load_source(recipe, str(run.model))
    assert after.network.config.vocab_size == len(after.tokenizer)
    fewer = len(before.tokenizer) - len(after.tokenizer)
    assert fewer == 0 if architecture == "bilstm" else fewer > 5  # which knows letters and digits only
    assert len((run.model / "vocab.txt").read_text().splitlines()) == len(after.tokenizer)
    texts = [text for text, _ in ROWS]
    for one, other in zip(outputs(before, texts), outputs(after, texts), strict=True):
        assert one.tobytes() == other.tobytes()
    assert read_description(run.model).labels == read_description(Path(source)).labels
    prune_vocabulary(recipe, "gone", run, set_up_process(recipe))  # it is there


def test_interrupted_and_continued(few_words, monkeypatch):
    """By the command that began it: a training with its recipe would make another network."""
    recipe = few_words("sequence_classification", "ernie")
    source, run, setup = str(recipe.run_dir / "model"), RunDirectory(recipe.run_dir / "words"), set_up_process(recipe)

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(Interrupted, match="the same `nlpctl compress` command"):
        patched.setattr("nlpctl.compress.networks.prune_embeddings.save_model_folder", stopped)
        prune_vocabulary(recipe, source, run, setup)
    with pytest.raises(UserError, match="(?s)neither resumes.*the same `nlpctl compress` command to continue"):
        train(load_recipe(run.path), resume=True)
    assert prune_vocabulary(recipe, source, run, setup) == run.model and run.is_finished


def test_other_words_are_read_by_letters(few_words):
    recipe = few_words("sequence_classification", "ernie")
    model = load_source(recipe, str(recipe.run_dir / "model"))
    data = read_data(recipe, model)
    task, encoder = make_task(recipe, data.labels), build_encoder(model.tokenizer)
    small = with_words(model, used_ids(task, encoder, data), task, str(recipe.run_dir / "model"))
    pieces = {name: build_encoder(each.tokenizer) for name, each in (("before", model), ("after", small))}
    read = {name: each.forms(each.pieces(["food"])[0]) for name, each in pieces.items()}
    assert read["before"] == ["food"] and len(read["after"]) > 1
    assert "".join(read["after"]).replace("##", "") == "food"


def test_added_words_stay(few_words):
    recipe = few_words("sequence_classification", "bert")
    source = str(recipe.run_dir / "model")
    from nlpctl.config.schema import ModelSection
    from nlpctl.models.load import load_to_train

    section = ModelSection(name_or_path=source, add_tokens=("spotless", "the room"))
    task = make_task(recipe, read_data(recipe, load_source(recipe, source)).labels)
    model = load_to_train(section, task.head(recipe), task.labels.names, vocabulary_texts=None)
    texts = ["a spotless room", "the room was good"]
    encoded = build_encoder(model.tokenizer).encode(texts, None, 24)
    ids = {index for each in encoded for index in each.input_ids}
    small = with_words(model, ids, task, source)
    assert small.tokenizer.get_added_vocab().keys() == model.tokenizer.get_added_vocab().keys()
    assert len(small.tokenizer) == small.network.config.vocab_size < len(model.tokenizer)
    for one, other in zip(outputs(model, texts), outputs(small, texts), strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("kind", [unigram, bytes_bpe])
def test_pieces_of_a_tokenizer_json(kind, tmp_path):
    """Of a vocabulary of many languages most pieces are of no use: the rows of the others move, also the padding's."""
    folder = encoder(tmp_path / "encoder", kind())
    (tmp_path / "rows.jsonl").write_text('{"text": "the quick fox", "label": "x"}\n{"text": "酒店", "label": "y"}\n')
    values = {
        "task": "sequence_classification",
        "model": {"name_or_path": str(folder)},
        "data": {"train": str(tmp_path / "rows.jsonl"), "max_seq_length": 24},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(values))
    recipe = load_recipe(str(tmp_path / "recipe.yaml"))
    task = make_task(recipe, LabelSet(("x", "y")))
    model = load_to_train(recipe.model, task.head(recipe), task.labels.names, vocabulary_texts=None)
    texts = ["the quick fox", "酒店"]
    read = build_encoder(model.tokenizer)
    ids = {index for each in read.encode(texts, None, 24) for index in each.input_ids}
    small = with_words(model, ids, task, str(folder))
    assert len(small.tokenizer) == small.network.config.vocab_size < len(model.tokenizer)
    assert small.network.config.pad_token_id == small.tokenizer.pad_token_id
    for one, other in zip(outputs(model, texts), outputs(small, texts), strict=True):
        assert one.tobytes() == other.tobytes()


def test_refused(few_words, tmp_path):
    recipe = few_words("sequence_classification")
    check(recipe)
    with pytest.raises(UserError, match="predicts words"):
        check(replace(recipe, task="masked_language_model"))
    model = load_source(recipe, str(recipe.run_dir / "model"))
    paddles = paddle_tokenizer(model.tokenizer, tmp_path)
    paddles.resource_files_names = {"vocab_file": "vocab.json", "merges_file": "merges.txt"}
    with pytest.raises(UserError, match="builds words from pieces"):
        with_words(replace(model, tokenizer=paddles), {1}, make_task(recipe, read_data(recipe, model).labels), "here")
