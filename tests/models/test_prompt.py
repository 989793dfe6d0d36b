"""Labels scored by their words: one token, several pieces, gaps of several tokens, every family."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from nlpctl.config.prompt_template import parse_template
from nlpctl.errors import UserError
from nlpctl.models.families import Head
from nlpctl.models.load import load_trained
from nlpctl.models.masked_lm import mixed
from nlpctl.models.prompt import LabelWords, PromptClassifier, PromptEncoder

HUGGINGFACE = Path(__file__).parent / "huggingface"
MASKED = ["bert-masked-lm", "roberta-masked-lm", "electra-masked-lm", "ernie-masked-lm"]
HEAD = Head("MaskedLM", adapt=functools.partial(mixed, PromptClassifier), labelled=False, predicts_words=True)
ONE, TWO = "a {'text': 'text'} b {'mask'}", "a {'mask': None, 'length': 2} {'text': 'text'}"


def model_of(name):
    model = load_trained(HUGGINGFACE / name, HEAD)
    model.network.eval()
    return model


def scores(model, template, words, texts):
    parts = parse_template(template)
    labels = [f"label{9 - i}" for i in range(len(words))]  # not in the order of their names
    model.network.use_words(LabelWords(dict(zip(labels, words, strict=True)), labels, parts, model.tokenizer))
    encoder = PromptEncoder(parts, model.tokenizer, 12)
    rows = [encoder.encode(text, None)[0] for text in texts]
    width = max(map(len, rows))
    ids = np.array([row + [0] * (width - len(row)) for row in rows])
    return ids, model.network(paddle.to_tensor(ids)).numpy()


def logits_at(model, ids, positions):
    return model.network.scores_at(paddle.to_tensor(positions), paddle.to_tensor(ids), None)


@pytest.mark.parametrize("name", MASKED)
def test_a_label_scores_as_its_word_does(name):
    model = model_of(name)
    ids, found = scores(model, ONE, ["e", "c d", "f"], ["c d e f", "k"])
    masks = np.argwhere(ids == model.tokenizer.mask_token_id)
    assert masks[:, 0].tolist() == [0, 1]
    expected = logits_at(model, ids, masks[:, 1:]).numpy()[:, 0]
    c, d, e, f = model.tokenizer.convert_tokens_to_ids(["c", "d", "e", "f"])
    np.testing.assert_allclose(found[:, 0], expected[:, e], atol=1e-5)
    np.testing.assert_allclose(found[:, 1], (expected[:, c] + expected[:, d]) / 2, atol=1e-5)
    np.testing.assert_allclose(found[:, 2], expected[:, f], atol=1e-5)


@pytest.mark.parametrize("name", MASKED)
def test_a_gap_of_two_adds_log_probabilities(name):
    model = model_of(name)
    ids, found = scores(model, TWO, ["c d", "d c"], ["c d e [MASK]", "k"])  # that mask is none
    masks = np.argwhere(ids == model.tokenizer.mask_token_id)[:, 1].reshape(2, 2)
    expected = F.log_softmax(logits_at(model, ids, masks), axis=-1).numpy()
    c, d = model.tokenizer.convert_tokens_to_ids(["c", "d"])
    np.testing.assert_allclose(found[:, 0], expected[:, 0, c] + expected[:, 1, d], atol=1e-5)
    np.testing.assert_allclose(found[:, 1], expected[:, 0, d] + expected[:, 1, c], atol=1e-5)


def test_words_that_cannot_stand_for_a_label_are_told_together():
    tokenizer = model_of("bert-masked-lm").tokenizer
    for template, verbalizer, expected in (
        (ONE, {"x": "a"}, {"prompt.verbalizer": "no word for the label 'y'"}),
        (ONE, {"x": "a", "y": "b", "z": "c"}, {"prompt.verbalizer.z": "there is no such label"}),
        (ONE, {"x": "zzz", "y": ""}, {"prompt.verbalizer.x": "no word 'zzz'", "prompt.verbalizer.y": "no word ''"}),
        (ONE, {"x": "a", "y": "a"}, {"prompt.verbalizer.y": "is also the word of 'x'"}),
        (TWO, {"x": "a b", "y": "a b c"}, {"prompt.verbalizer.y": "is 3 tokens, but the mask of the template is 2"}),
    ):
        with pytest.raises(UserError) as caught:
            LabelWords(verbalizer, ["x", "y"], parse_template(template), tokenizer)
        told = {problem.where: problem.message for problem in caught.value.problems}
        assert told.keys() == expected.keys()
        assert all(words in told[where] for where, words in expected.items())


def test_prompts_travel_to_other_processes_and_need_room():
    tokenizer = model_of("bert-masked-lm").tokenizer
    encoder = PromptEncoder(parse_template(ONE), tokenizer, 8)
    again = pickle.loads(pickle.dumps(encoder))
    assert again.encode("c d e f g h", None) == encoder.encode("c d e f g h", None)
    assert len(encoder.encode("c d e f g h", None)[0]) == 8
    assert [encoder.encode(text, None)[2] for text in ("c d e", "c d e f")] == [False, True]  # the template takes 5
    with pytest.raises(UserError, match="takes 5 tokens"):
        PromptEncoder(parse_template(ONE), tokenizer, 5)
