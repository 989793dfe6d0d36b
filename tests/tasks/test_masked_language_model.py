"""Masks that depend on what they may depend on, figures over tokens, answers that index their text."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.load import load_recipe
from nlpctl.config.tasks import task_info
from nlpctl.data.batches.collate import raise_failure
from nlpctl.data.rows.corpus_rows import CorpusExample, CorpusRows
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.text.vocabulary import build_vocabulary, make_tokenizer
from nlpctl.errors import UserError
from nlpctl.models.masked_lm import NO_TARGET
from nlpctl.tasks.base import make_task
from nlpctl.tasks.intervals import comparable
from nlpctl.tasks.masked_language_model import Filled, Guessed

TEXTS = [
    "the room was clean and the staff were great",
    "这家酒店的房间很干净，服务态度也非常好。",
    "a very very very long sentence about the view , the food and the bed " * 2,
    "good",
]
RECIPE = """
task: masked_language_model
model: {name_or_path: nowhere}
data: {train: train.txt, max_seq_length: 24}
masking: {probability: 0.3}
decode: {n_best: 2}
training: {output_dir: run}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlm")
    (folder / "recipe.yaml").write_text(RECIPE)
    return folder


@pytest.fixture(scope="module")
def encoder(folder):
    return build_encoder(make_tokenizer(build_vocabulary(TEXTS, 120, 1, True), "bert", True))


@pytest.fixture
def task(folder):
    return make_task(load_recipe(folder / "recipe.yaml", purpose="apply"), LabelSet(()))


def batch_of(task, encoder, texts, fill=False):
    windows = [window for text in texts for window in task.features(CorpusExample(text, fill), encoder)]
    batch = task.collator(encoder, labelled=not fill)(windows)
    raise_failure(batch)
    return batch


def rows_of(batch):
    """Per row what is hidden: {position: (shown id, right id)}, and the row without padding."""
    hidden = []
    for ids, positions, targets in zip(batch["input_ids"], batch["masked_positions"], batch["targets"], strict=True):
        real = targets != NO_TARGET
        pairs = zip(positions[real].tolist(), ids[positions[real]].tolist(), targets[real].tolist(), strict=True)
        hidden.append({position: (shown, right) for position, shown, right in pairs})
    return hidden


def test_evaluation_masks_depend_on_the_row_alone(task, encoder):
    together = rows_of(task.apply_mask(batch_of(task, encoder, TEXTS), None))
    alone = [row for text in TEXTS for row in rows_of(task.apply_mask(batch_of(task, encoder, [text]), None))]
    again = rows_of(task.apply_mask(batch_of(task, encoder, TEXTS[::-1]), None))
    assert together == alone
    assert sorted(map(str, again)) == sorted(map(str, together))
    assert all(together)  # something is hidden in every row


def test_training_masks_depend_on_the_generator(task, encoder):
    batch = batch_of(task, encoder, TEXTS)
    seeds = ([1, 5, 0, 0], [1, 5, 0, 0], [1, 6, 0, 0])
    first, same, other = (rows_of(task.apply_mask(batch, np.random.default_rng(seed))) for seed in seeds)
    assert first == same != other


def test_what_is_hidden_can_be_put_back(task, encoder):
    batch = batch_of(task, encoder, TEXTS)
    shown = task.apply_mask(batch, np.random.default_rng(0))
    assert set(shown) == {"input_ids", "token_type_ids", "masked_positions", "targets"}
    restored = shown["input_ids"].copy()
    for row, hidden in enumerate(rows_of(shown)):
        for position, (_, right) in hidden.items():
            restored[row, position] = right
    assert (restored == batch["input_ids"]).all() and (shown["input_ids"] != batch["input_ids"]).any()
    special = np.isin(batch["input_ids"], encoder.tokenizer.all_special_ids)
    assert (special == (batch["word_ids"] == -1)).all()
    assert all(not special[row, position] for row, hidden in enumerate(rows_of(shown)) for position in hidden)


def test_figures_are_means_over_tokens(task, encoder):
    losses, right, counted = [[1.0, 3.0], [5.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]], [[1.0, 1.0], [1.0, 0.0]]
    outputs = tuple(np.array(values, "float32") for values in (losses, right, counted))
    windows = [window for text in TEXTS[2:] for window in task.features(CorpusExample(text, False), encoder)][-2:]
    one, two = task.predictions(outputs, windows)
    assert (one[:3], two[:3]) == ((4.0, 1, 2), (5.0, 1, 1))
    report = task.report([None, None], [[one], [two]])
    assert report["rows"] == 2 and report["masked_tokens"] == 3
    assert report["loss"] == 3.0 and report["perplexity"] == pytest.approx(math.exp(3.0))
    assert report["masked_accuracy"] == pytest.approx(2 / 3)
    assert set(task_info(task.name).metrics) <= set(report)
    assert task.report([None], [[]])["loss"] == 0.0
    assert math.isfinite(task.report([None], [[Guessed(9e9, 0, 1, 7)]])["perplexity"])


def test_models_that_predict_other_tokens_are_not_compared(folder, encoder):
    """The same texts in other pieces, or with more of them hidden."""

    def tallies(encoder, probability=0.3, room=24):
        recipe = load_recipe(folder / "recipe.yaml", purpose="apply")
        masking = dataclasses.replace(recipe.masking, probability=probability)
        data = dataclasses.replace(recipe.data, max_seq_length=room)
        task = make_task(dataclasses.replace(recipe, masking=masking, data=data), LabelSet(()))
        examples = [CorpusExample(text, False) for text in TEXTS]
        predictions = []
        for example in examples:
            windows = task.features(example, encoder)
            counted = task.apply_mask(task.collator(encoder, labelled=True)(windows), None)["targets"] != NO_TARGET
            predictions.append(task.predictions((counted * 1.0, counted * 1.0, counted * 1.0), windows))
        return task.tallies(examples, predictions)

    smaller = build_encoder(make_tokenizer(build_vocabulary(TEXTS, 60, 1, True), "bert", True))
    assert comparable(tallies(encoder), tallies(encoder))
    assert not comparable(tallies(encoder), tallies(smaller))
    assert not comparable(tallies(encoder), tallies(encoder, probability=0.6))
    assert not comparable(tallies(encoder), tallies(encoder, room=16))


def test_answers_index_the_text(task, encoder):
    text = "the\u3000[MASK] 👍🏽 é was [mask][MASK]，很[MASK]"
    batch = batch_of(task, encoder, [text], fill=True)
    assert batch["masked_positions"].shape == (1, 3)
    (window,) = task.features(CorpusExample(text, True), encoder)
    masks = batch["input_ids"][0, batch["masked_positions"][0]]
    assert (masks == encoder.tokenizer.mask_token_id).all()
    word = encoder.tokenizer.convert_tokens_to_ids("room")
    ids = np.tile([word, word + 1], (1, 4, 1))  # one mask more than there is: padding
    probabilities = np.tile(np.array([0.75, 0.125], "float32"), (1, 4, 1))
    (filled,) = task.predictions((probabilities, ids), [window])
    assert isinstance(filled, Filled) and filled.ids.shape == (3, 2)
    answer = task.answer(CorpusExample(text, True), [filled])
    assert [text[mask["start"] : mask["end"]] for mask in answer["masks"]] == ["[MASK]"] * 3
    assert answer["masks"][0]["words"][0] == {"word": "room", "probability": 0.75}
    assert task.decision(CorpusExample(text, True), [filled]) == [word] * 3  # the second best does not count
    assert task.features(CorpusExample("nothing to fill", True), encoder) == []
    assert task.answer(CorpusExample("nothing to fill", True), []) == {"masks": []}


def test_text_that_no_window_has_is_told(task, encoder):
    """As of every row that is cut."""
    collate = task.collator(encoder, labelled=False)
    for text, truncated in (("[MASK]" + " the" * 100, True), ("[MASK] the", False)):
        features = task.features(CorpusExample(text, True), encoder)
        assert [each.truncated for each in collate.encodings(features)] == [truncated]


def test_rows_to_fill_and_rows_to_hide_words_of(task):
    rows = CorpusRows(task.data)
    assert rows.read({"text": "a"}, LabelSet(())) == CorpusExample("a", fill=False)
    assert rows.read({"text": "a"}, None) == CorpusExample("a", fill=True)
    with pytest.raises(ValueError, match="blank text"):
        rows.read({"text": " "}, None)


def test_a_window_too_small_is_told(folder, encoder, task):
    task.data = dataclasses.replace(task.data, max_seq_length=2)
    with pytest.raises(UserError, match="no room for text"):
        task.features(CorpusExample("good", False), encoder)
