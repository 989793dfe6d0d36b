"""Gold tags come back through windows and pieces, answers index the text, losses count the right tokens."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace
from pathlib import Path

import numpy as np
import paddle
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.load import load_recipe
from nlpctl.config.tasks import task_info
from nlpctl.data.batches.collate import raise_failure
from nlpctl.data.batches.tagged_features import IGNORED
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.tagged_rows import TaggedRows
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.training_data import read_training_data
from nlpctl.errors import UserError
from nlpctl.tasks.base import make_task
from nlpctl.tasks.token_classification import TokenClassification

EMOJI = "\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f44d\U0001f3fd\U0001f1e8\U0001f1f3"  # family, thumb, flag
MIXED = (
    f"去 Caf\u00e9 Cafe\u0301\u3000北京！{EMOJI}  ＷｉＦｉ \u200bunbelievable\u00a0don't 3.14年 カﾞ नमस्ते\n"
    "𠀀〇 中\U000e0100文 1\ufe0f\u20e3 a\u0301\u0302b \u0301x ½ ﬁ ㎏"
)
RECIPE = """
task: token_classification
model:
  from_scratch: {{vocab_size: 60, min_frequency: 1, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2,
                 intermediate_size: 32}}
  head: {head}
data: {{train: train.conll, max_seq_length: {length}, doc_stride: 4}}
training: {{output_dir: run, learning_rate: 1e-3}}
"""
SENTENCES = [
    (["unbelievable", "Playfulness", "in", "New", "York"], ["O", "B-X", "O", "B-LOC", "I-LOC"]),
    (["去", "北", "京", "！"], ["O", "B-LOC", "I-LOC", "O"]),
    ([*"the view of the river from the room was good but the staff was not in"], None),
    (["to", " ", "be", "\u0301", "or", "\u200b", "not"], ["O", "O", "B-X", "I-X", "O", "B-X", "O"]),
]


def tags_of(words, tags):
    draw = random.Random(3)
    return tags if tags is not None else [draw.choice(["O", "B-X", "I-X", "B-LOC", "I-LOC"]) for _ in words]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagging")
    tagged = [zip(words, tags_of(words, tags), strict=True) for words, tags in SENTENCES]
    lines = ["".join(f"{word}\t{tag}\n" for word, tag in sentence) for sentence in tagged]
    (folder / "train.conll").write_text("\n".join(lines), encoding="utf-8")
    return folder


def built(folder: Path, head="linear", length=12, *more):
    """(task, network, encoder, examples) of the recipe."""
    (folder / "recipe.yaml").write_text(RECIPE.format(head=head, length=length) + "".join(more))
    recipe = load_recipe(folder / "recipe.yaml")
    data = read_training_data(TaggedRows(recipe.data))
    task = make_task(recipe, data.labels)
    paddle.seed(0)
    model = task.build_model(data.texts)
    return task, model.network, build_encoder(model.tokenizer), data.train


def gold_logits(task, example, windows, batch):
    """Logits that say the right tag at every first piece and nonsense elsewhere."""
    logits = np.full((*batch["input_ids"].shape, len(task.labels)), 0.0, np.float32)
    logits[..., 0] = 9.0
    for row, window in zip(logits, windows, strict=True):
        for i, place in enumerate(window.places):
            row[place] = 0.0
            row[place, example.tags[window.first + i]] = 9.0
    return logits


@pytest.mark.parametrize("head", ["linear", "crf"])
@pytest.mark.parametrize("length", [8, 12, 64])
def test_gold_tags_come_back(folder, head, length):
    task, network, encoder, examples = built(folder, head, length)
    predictions = []
    for example in examples:
        windows = task.features(example, encoder)
        batch = task.collator(encoder, labelled=True)(windows)
        raise_failure(batch)
        outputs = [gold_logits(task, example, windows, batch)]
        if head == "crf":
            outputs.append(np.zeros((len(task.labels) + 2,) * 2, np.float32))
        predictions.append(task.predictions(tuple(outputs), windows))
        assert np.concatenate(predictions[-1]).tolist() == list(example.tags)
        assert [label for label in batch["labels"].ravel() if label != IGNORED] == list(example.tags)
    if length == 8:
        assert max(map(len, predictions)) > 2  # some were read in windows
    report = task.report(examples, predictions)
    assert report["f1"] == report["accuracy"] == report["macro_f1"] == 1.0
    assert report["rows"] == len(SENTENCES) and report["words"] == sum(len(words) for words, _ in SENTENCES)
    assert set(task_info(task.name).metrics) - {"loss"} < set(report)


def test_pieces_after_the_first_have_no_label(folder):
    task, _, encoder, examples = built(folder, length=64)
    (window,) = task.features(examples[0], encoder)
    batch = task.collator(encoder, labelled=True)([window])
    sizes = [len(pieces) for pieces in encoder.pieces(examples[0].words())]
    assert sizes[0] > 1 and sizes[1] > 1
    expected = [IGNORED]
    for size, tag in zip(sizes, examples[0].tags, strict=True):
        expected += [tag] + [IGNORED] * (size - 1)
    assert batch["labels"].tolist() == [[*expected, IGNORED]]


def test_loss_counts_first_pieces_only(folder):
    task, network, encoder, examples = built(folder, length=64)
    network.eval()
    windows = [window for example in examples for window in task.features(example, encoder)]
    batch = {k: paddle.to_tensor(v) for k, v in task.collator(encoder, labelled=True)(windows).items()}
    labels = {"labels": batch.pop("labels")}
    outputs = (network(**batch),)
    expected = []
    for logits, window in zip(outputs[0].numpy(), windows, strict=True):
        chosen = logits[window.places].astype(np.float64)
        chosen -= np.log(np.exp(chosen).sum(-1, keepdims=True))
        gold = window.example.tags[window.first : window.first + len(window.places)]
        expected.append(-chosen[np.arange(len(gold)), gold].mean())
    assert float(task.loss(network, outputs, labels)) == pytest.approx(np.mean(expected), abs=1e-5)
    other = outputs[0].numpy().copy()
    other[labels["labels"].numpy() == IGNORED] += 7.0
    assert float(task.loss(network, (paddle.to_tensor(other),), labels)) == pytest.approx(np.mean(expected), abs=1e-5)


@pytest.mark.parametrize("head", ["linear", "crf"])
def test_a_tiny_network_learns_its_training_data(folder, head):
    task, network, encoder, examples = built(folder, head)
    windows = [window for example in examples for window in task.features(example, encoder)]
    arrays = task.collator(encoder, labelled=True)(windows)
    batch = {name: paddle.to_tensor(array) for name, array in arrays.items()}
    labels = {"labels": batch.pop("labels")}
    network.eval()  # without dropout
    optimizer = paddle.optimizer.AdamW(3e-3, parameters=network.parameters())
    for _ in range(150):
        outputs = network(**batch)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        task.loss(network, outputs, labels).backward()
        optimizer.step()
        optimizer.clear_grad()
    found = iter(task.predictions(tuple(output.numpy() for output in outputs), windows))
    predictions = [[next(found) for _ in task.features(example, encoder)] for example in examples]
    assert task.report(examples, predictions)["f1"] > 0.95


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_answers_index_the_text(folder, unit):
    task, _, encoder, _ = built(folder, "linear", 10)
    rows = TaggedRows(replace(task.data, unit=unit))
    draw = np.random.default_rng(1)
    for text in (MIXED, MIXED[::-1], "a", "中", " x ", MIXED * 3):
        example = rows.read({"text": text}, None)
        windows = task.features(example, encoder)
        batch = task.collator(encoder, labelled=False)(windows)
        raise_failure(batch)
        logits = draw.normal(size=(*batch["input_ids"].shape, len(task.labels))).astype(np.float32)
        answer = task.answer(example, task.predictions((logits,), windows))
        entities = answer["entities"]
        assert all(text[e["start"] : e["end"]] == e["text"] != "" for e in entities)
        assert all(a["end"] <= b["start"] for a, b in zip(entities, entities[1:], strict=False))
        assert all(e["text"] == e["text"].strip() for e in entities)
    assert len(entities) > 10


def test_terms_decide_in_answers_and_scores(folder):
    (folder / "terms.tsv").write_text("York\tX\nin\tLOC\n")
    task, _, encoder, examples = built(folder, "linear", 64, "decode: {terms: terms.tsv}\n")
    gold = [[np.array(example.tags)] for example in examples]
    assert task.answer(examples[0], gold[0])["entities"] == [
        {"type": "X", "start": 13, "end": 24, "text": "Playfulness"},
        {"type": "LOC", "start": 25, "end": 27, "text": "in"},
        {"type": "LOC", "start": 28, "end": 31, "text": "New"},
        {"type": "X", "start": 32, "end": 36, "text": "York"},
    ]
    report = task.report(examples, gold)
    assert report["accuracy"] == 1.0 and report["f1"] < 1.0
    (folder / "terms.tsv").write_text("term\ttype\tlink\nYork\tX\thttps://a.example/york\n")
    linked = built(folder, "linear", 64, "decode: {terms: terms.tsv}\n")[0].answer(examples[0], gold[0])["entities"]
    assert linked[-1] == {"type": "X", "start": 32, "end": 36, "text": "York", "link": "https://a.example/york"}
    assert all("link" not in entity for entity in linked[:-1])
    (folder / "terms.tsv").write_text("York\n")
    with pytest.raises(UserError, match="terms.tsv:1: expected TERM<TAB>TYPE"):
        built(folder, "linear", 64, "decode: {terms: terms.tsv}\n")


def test_the_label_set_must_have_one_scheme():
    with pytest.raises(UserError, match="mixed"):
        TokenClassification(load_recipe("quickstart"), LabelSet(["B-X", "X-B", "O"]))


def test_suffix_tags():
    task = TokenClassification(load_recipe("quickstart"), LabelSet(["O", "P-B", "P-I"]))
    example = TaggedRows(task.data).read({"tokens": ["a", "b", "c"], "tags": ["P-B", "P-I", "O"]}, task.labels)
    assert example.tags == array("i", [1, 2, 0])
    assert task.answer(example, [np.array([1, 2]), np.array([1])])["entities"] == [
        {"type": "P", "start": 0, "end": 2, "text": "ab"},
        {"type": "P", "start": 2, "end": 3, "text": "c"},
    ]
