"""What of PaddleNLP's prompt API nlpctl does otherwise, and that the rest is right; see upstream/prompt.py."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddlenlp.prompt import ManualTemplate, ManualVerbalizer, MaskedLMVerbalizer, Template

from nlpctl.config.prompt_template import parse_template
from nlpctl.data.text.spelled_tokens import SpelledTokens
from nlpctl.data.text.vocabulary import make_tokenizer
from nlpctl.upstream.prompt import encode, make_template, make_verbalizer
from tests.helpers.paddle_tokenizer import paddle_tokenizer

WORDS = "the room was good bad great it . nice dark very".split()
TEMPLATE = "{'text': 'text'} it was {'mask'}."


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    return paddle_tokenizer(make_tokenizer(vocabulary, "bert", True), tmp_path_factory.mktemp("bert"))


@pytest.mark.parametrize(
    "template",
    [
        TEMPLATE,
        "{'text': 'text'}{'sep'}{'text': 'text_pair', 'token_type': 1} very{'mask': None, 'length': 2}.",
        " It {'hard': 'was'} {'mask'} : {'text': 'text', 'truncate': True} ",
    ],
)
def test_templates_are_read_as_paddlenlp_reads_them(tokenizer, template):
    """But for the blank between words and a block, which it loses, and the length that it fills in later."""
    ours = [{k: v for k, v in part.items() if k not in ("add_space", "length")} for part in parse_template(template)]
    theirs = Template.parse_template_string(template)
    assert ours == [{k: v for k, v in part.items() if k not in ("add_space", "length")} for part in theirs]
    example = {"text": "the room", "text_pair": "very nice"}
    stock = ManualTemplate(template, tokenizer, 20).encode(example)
    assert encode(make_template(parse_template(template), tokenizer, 20), example) == (
        stock["input_ids"], stock["token_type_ids"], False
    )  # fmt: skip


def test_a_template_runs_code(tmp_path):
    """template.py:336. When this fails, the parser of our own can go."""
    Template.parse_template_string(f"{{'text': open({str(tmp_path / 'ran')!r}, 'w').name}}{{'mask'}}")
    assert (tmp_path / "ran").exists()
    with pytest.raises(ValueError, match="is not a mapping"):
        parse_template(f"{{'text': open({str(tmp_path / 'again')!r}, 'w').name}}{{'mask'}}")
    assert not (tmp_path / "again").exists()


def test_a_misspelt_template_ends_the_process():
    with pytest.raises(SystemExit) as ended:
        Template.parse_template_string("{'text' 'text': }{'mask'}")
    assert ended.value.code is None  # exit code 0


def test_a_mask_in_the_text_counts_as_the_templates(tokenizer):
    example = {"text": "the [MASK] was nice"}
    stock = ManualTemplate(TEMPLATE, tokenizer, 20).encode(example)
    assert len(stock["masked_positions"]) == 2
    as_text = SpelledTokens(tokenizer).as_text
    for guise in ("[MASK]", "[ MASK ]", "[mask]", "[MA\u200bSK]", "[MASK][MASK]", "x[MASK]y", "[MASK"):
        example = {"text": as_text(f"the {guise} was")}
        ids, _, _ = encode(make_template(parse_template(TEMPLATE), tokenizer, 40), example)
        assert ids.count(tokenizer.mask_token_id) == 1, guise


def test_the_template_is_never_cut(tokenizer):
    ids, types, _ = encode(make_template(parse_template(TEMPLATE), tokenizer, 9), {"text": "the room was very dark"})
    tokens = tokenizer.convert_ids_to_tokens(ids)
    assert tokens == ["[CLS]", "the", "room", "was", "it", "was", "[MASK]", ".", "[SEP]"] and len(types) == 9


def test_labels_are_sorted_by_name(tokenizer):
    """verbalizer.py:83. When this fails, the words need no names by position."""
    scores = paddle.arange(len(tokenizer), dtype="float32").reshape([1, 1, -1])
    words = ["good", "bad", "great"]
    ids = tokenizer.convert_tokens_to_ids(words)
    stock = ManualVerbalizer(dict(zip(("pos", "neg", "very"), words, strict=True)), tokenizer, post_log_softmax=False)
    assert stock.process_outputs(scores)[0].tolist() == [ids[1], ids[0], ids[2]]
    assert make_verbalizer(words, tokenizer).process_outputs(scores)[0].tolist() == ids
    twelve = [WORDS[i % 11] for i in range(12)]
    found = make_verbalizer(twelve, tokenizer).process_outputs(scores)[0].tolist()
    assert found == tokenizer.convert_tokens_to_ids(twelve)


def test_a_word_of_several_pieces_is_their_mean(tokenizer):
    scores = paddle.to_tensor(np.random.default_rng(0).normal(size=(2, 1, len(tokenizer))).astype("float32"))
    found = make_verbalizer(["very nice", "bad"], tokenizer).process_outputs(scores).numpy()
    very, nice, bad = tokenizer.convert_tokens_to_ids(["very", "nice", "bad"])
    expected = scores.numpy()[:, 0]
    np.testing.assert_allclose(found[:, 0], (expected[:, very] + expected[:, nice]) / 2, rtol=1e-6)
    np.testing.assert_allclose(found[:, 1], expected[:, bad], rtol=1e-6)


def test_logarithms_are_multiplied(tokenizer):
    """verbalizer.py:261: at two masks the less likely word wins. When this fails, gaps of two can use it."""
    scores = np.zeros((1, 2, len(tokenizer)), "float32")
    scores[:, :, tokenizer.convert_tokens_to_ids("good")] = 5.0
    stock = ManualVerbalizer({"a": "good", "b": "bad"}, tokenizer)
    assert stock.process_outputs(paddle.to_tensor(scores))[0].numpy().argmax() == 1


def test_words_are_compared_in_characters(tokenizer):
    """verbalizer.py:435. Two tokens both, but refused; two characters both, but taken."""
    with pytest.raises(ValueError, match="Length of all words"):
        MaskedLMVerbalizer({"a": "very good", "b": "very bad"}, tokenizer)


def test_very_unlikely_words_have_no_gradient(tokenizer):
    """verbalizer.py:297."""
    for log_softmax, learns in ((True, False), (False, True)):
        scores = paddle.zeros([1, 1, len(tokenizer)])
        scores[0, 0, tokenizer.convert_tokens_to_ids("good")] = 60.0
        scores.stop_gradient = False
        verbalizer = ManualVerbalizer({"a": "good", "b": "bad"}, tokenizer, post_log_softmax=log_softmax)
        loss = paddle.nn.functional.cross_entropy(verbalizer.process_outputs(scores), paddle.to_tensor([1]))
        loss.backward()
        assert bool(np.abs(scores.grad.numpy()).max() > 0.5) == learns
