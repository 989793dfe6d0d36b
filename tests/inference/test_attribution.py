"""Contributions add up, on networks of every family; what is replaced is what the method says."""

from __future__ import annotations

import json

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
import paddle
from paddlenlp import transformers

from nlpctl.data.text.units import UnitSettings, UnitTokenizer
from nlpctl.errors import UserError
from nlpctl.inference.attribution import TOLERANCE, Explained, Explainer, Explanation, Token
from nlpctl.inference.explain import SlowTexts, _incomplete, check_output, write_explanations
from nlpctl.models.networks import bag_of_embeddings, bilstm, textcnn
from nlpctl.spelling import FLAGS, VARIABLE
from nlpctl.tasks.base import as_tuple

SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
SIZES |= {"max_position_embeddings": 24, "pad_token_id": 0, "num_labels": 3, "initializer_range": 0.3}
LETTERS = [*"abcdefghij", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = ["[PAD]", "[UNK]", *LETTERS]
CLS, SEP, MASK, UNK, PAD = (VOCABULARY.index(f"[{name}]") for name in ("CLS", "SEP", "MASK", "UNK", "PAD"))
OWN = {"BiLSTM": bilstm, "TextCNN": textcnn, "BagOfEmbeddings": bag_of_embeddings}
FAMILIES = ("Bert", "Ernie", "Roberta", "Electra", *OWN)


def log_odds(logits, label=1):
    """Of one of three labels, from its definition."""
    p = paddle.nn.functional.softmax(logits, axis=-1)[:, label]
    return paddle.log(p / (1 - p))


class Tokenizer:
    """What explanations ask of PaddleNLP's tokenizers."""

    pad_token_id, unk_token_id, mask_token_id = PAD, UNK, MASK
    all_special_ids = (PAD, UNK, CLS, SEP, MASK)


def network_of(family):
    """A network with weights large enough to bend, and its tokenizer."""
    paddle.seed(7)
    if family in OWN:
        module = vars(OWN[family])
        config = module[f"{family}Config"](vocab_size=len(VOCABULARY), embedding_size=8, hidden_size=8, num_labels=3)
        network = module[f"{family}ForSequenceClassification"](config)
        tokenizer = UnitTokenizer(VOCABULARY, UnitSettings())
    else:
        more = {"embedding_size": 8} if family == "Electra" else {}
        config = vars(transformers)[f"{family}Config"](vocab_size=len(VOCABULARY), **SIZES, **more)
        network, tokenizer = vars(transformers)[f"{family}ForSequenceClassification"](config), Tokenizer()
    for parameter in network.parameters():
        if parameter.ndim > 1:
            parameter.set_value(paddle.randn(parameter.shape) * 0.5)
        elif float(parameter.min()) == 1:  # of a LayerNorm
            parameter.set_value(paddle.rand(parameter.shape) * 2 + 0.2)
    network.eval()
    return network, tokenizer


def row(family, text="abcadefg"):
    ids = [VOCABULARY.index(letter) for letter in text]
    if family in OWN:
        return {"input_ids": np.array([ids])}
    ids = np.array([[CLS, *ids, SEP]])
    return {"input_ids": ids, "token_type_ids": np.zeros_like(ids)}


def score(network, batch):
    with paddle.no_grad():
        inputs = {name: paddle.to_tensor(array) for name, array in batch.items()}
        return float(log_odds(as_tuple(network(**inputs))[0])[0])


@pytest.mark.parametrize("baseline", ["unk", "pad"])
@pytest.mark.parametrize("family", FAMILIES)
def test_contributions_add_up_to_the_difference_of_the_outputs(family, baseline):
    network, tokenizer = network_of(family)
    batch = row(family)
    found = Explainer(network, tokenizer, "integrated_gradients", baseline).explain(batch, log_odds)
    text = score(network, batch)
    assert found.log_odds == pytest.approx(text, abs=1e-4)
    if baseline == "unk":  # a text of nothing but unknown tokens: the network says the same of it by itself
        ids = np.where(np.isin(batch["input_ids"], (CLS, SEP)), batch["input_ids"], UNK)
        assert found.baseline == pytest.approx(score(network, {**batch, "input_ids": ids}), abs=1e-4)
    difference = text - found.baseline
    assert abs(difference) > 0.05  # else nothing is shown
    assert abs(found.contributions.sum() - difference) <= TOLERANCE * abs(difference)
    assert found.complete and np.count_nonzero(found.contributions) > 4
    assert score(network, batch) == pytest.approx(text, abs=1e-6)  # no hook is left


def test_special_tokens_contribute_nothing_and_unknown_ones_are_text():
    network, tokenizer = network_of("Bert")
    batch = row("Bert", ["a", "[UNK]", "[SEP]", "b"])
    for method in ("integrated_gradients", "occlusion"):
        found = Explainer(network, tokenizer, method, "pad").explain(batch, log_odds).contributions
        assert np.flatnonzero(found).tolist() == [1, 2, 4]


class Linear(paddle.nn.Layer):
    """Logits are the sum of a number per token: every token contributes its own, whatever the others are."""

    def __init__(self):
        super().__init__()
        self.embeddings = paddle.nn.Embedding(len(VOCABULARY), 2, padding_idx=PAD)
        numbers = np.stack([np.zeros(len(VOCABULARY)), np.arange(len(VOCABULARY))], 1).astype("float32")
        self.embeddings.weight.set_value(numbers)

    @property
    def base_model(self):
        return self

    def get_input_embeddings(self):
        return self.embeddings

    def forward(self, input_ids):
        return self.embeddings(input_ids).sum(1)


@pytest.mark.parametrize("method", ["integrated_gradients", "occlusion"])
def test_in_a_linear_network_each_token_contributes_what_it_adds(method):
    batch = {"input_ids": np.array([[2, 5, 3, 5]])}
    found = Explainer(Linear(), Tokenizer(), method, "pad").explain(batch, lambda x: x[:, 1] - x[:, 0])
    assert found.contributions == pytest.approx([2, 5, 3, 5], abs=1e-4)
    found = Explainer(Linear(), Tokenizer(), method, "unk").explain(batch, lambda x: x[:, 1] - x[:, 0])
    assert found.contributions == pytest.approx([1, 4, 2, 4], abs=1e-4)


@pytest.mark.parametrize("baseline", ["mask", "unk", "pad"])
@pytest.mark.parametrize("family", FAMILIES)
def test_occlusion_is_what_the_text_loses_without_a_token(family, baseline):
    network, tokenizer = network_of(family)
    if family in OWN and baseline == "mask":
        with pytest.raises(UserError, match="no mask token"):
            Explainer(network, tokenizer, "occlusion", baseline)
        return
    text = "abcadefg"
    batch = row(family, text)
    found = Explainer(network, tokenizer, "occlusion", baseline).explain(batch, log_odds)
    first = 0 if family in OWN else 1
    for i in range(len(text)):
        put = {"mask": ["[MASK]"], "unk": ["[UNK]"], "pad": []}[baseline]
        other = row(family, [*text[:i], *put, *text[i + 1 :]])
        assert found.contributions[first + i] == pytest.approx(found.log_odds - score(network, other), abs=1e-4)
    assert found.baseline is None and found.steps == len(text)


def test_occlusion_takes_the_mask_unless_the_text_has_one():
    network, tokenizer = network_of("Ernie")
    plain, gap = row("Ernie", "abc"), row("Ernie", [*"ab", "[MASK]", "c"])

    def contributions(batch, baseline):
        return Explainer(network, tokenizer, "occlusion", baseline).explain(batch, log_odds).contributions.tolist()

    assert contributions(plain, None) == contributions(plain, "mask") != contributions(plain, "unk")
    assert contributions(gap, None) == contributions(gap, "unk") != contributions(gap, "pad")
    with pytest.raises(UserError, match="part of the template"):
        Explainer(network, tokenizer, "occlusion", "mask").explain(gap, log_odds)


def test_a_text_without_tokens():
    network, tokenizer = network_of("Bert")
    for method in ("integrated_gradients", "occlusion"):
        found = Explainer(network, tokenizer, method).explain(row("Bert", ""), log_odds)
        assert not found.contributions.any() and found.complete


def test_what_does_not_add_up_is_told_with_its_row_and_a_remedy():
    found = Explanation(np.array([1.0, 0.883]), 1.083, -0.5, 1024)
    assert not found.complete
    told = _incomplete(3, {"text": "the food was cold " * 9, "other": "b"}, found)
    assert told.startswith("row 3 (the food was cold the food was cold t...): the contributions add up to 1.883 in")
    assert "in place of 1.583" in told
    assert "1024 steps" in told and "--method occlusion" in told and told.count("\n") == 1


@pytest.mark.parametrize(
    ("method", "rows", "seconds", "told"),
    [
        ("integrated_gradients", 30, 2.0, 'takes 2.0 s, the 30 of them 1m00s; --method occlusion is about 5 times'),
        ("integrated_gradients", 10, 2.0, ""),  # done soon
        ("integrated_gradients", None, 20.0, 'a text takes 20.0 s; --method occlusion is about 5 times as fast'),
        ("occlusion", 100, 1.0, "a text takes 1.0 s, the 100 of them 1m40s\n"),  # nothing is faster for short texts
    ],
)
def test_how_long_texts_take_is_told_once(method, rows, seconds, told, capsys, monkeypatch):
    monkeypatch.setenv(VARIABLE, FLAGS)
    now = [0.0]
    pace = SlowTexts(method, rows, lambda: now[0])
    none = np.zeros(15)
    explanation = Explanation(none, 0.0, None, 15) if method == "occlusion" else Explanation(none, 0.0, 0.0, 32)
    for taken in (9.0, *[seconds] * 4):  # the first does not count
        pace.begin()
        now[0] += taken
        pace.end(explanation, 14)
    assert told in (found := capsys.readouterr().err) and found.count("a text takes") == bool(told)


def test_the_suffix_says_how_explanations_are_written(tmp_path):
    contributions = Explanation(np.array([1.0, -0.5], "float32"), 0.5, 0.0, 8)
    tokens = (Token("好", 1.0, True), Token("坏", -0.5, True))
    rows = [Explained({"text": text}, {"label": "x"}, "x", 0.7, "occlusion", tokens, contributions) for text in "ab"]
    expected = [row.to_json() for row in rows]
    assert [each["text"] for each in expected] == ["a", "b"] and expected[0]["explained"]["tokens"][0]["token"] == "好"
    for name in ("page.html", "lines.jsonl", "LINES.JSONL", "list.json"):
        write_explanations(rows, "model", tmp_path / name)
    lines = (tmp_path / "lines.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line) for line in lines.splitlines()] == expected and "好" in lines
    assert (tmp_path / "LINES.JSONL").read_text(encoding="utf-8") == lines
    assert json.loads((tmp_path / "list.json").read_text(encoding="utf-8")) == expected
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    for name, told in (("rows.md", "not written as .md"), ("rows", "not written as a file without a suffix")):
        with pytest.raises(UserError, match=told) as refused:
            check_output(tmp_path / name, overwrite=False)
        assert ".html for a page, or in .jsonl or .json" in refused.value.problems[0].hint
