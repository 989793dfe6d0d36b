"""EM and F1 are those of the published scripts: SQuAD's evaluate-v2.0.py, CMRC 2018's cmrc2018_evaluate.py."""

from __future__ import annotations

import pytest

from nlpctl.tasks.question_answering import (
    Judgement,
    cmrc_segments,
    is_chinese,
    squad_report,
    squad_score,
    treebank_words,
)

# gold answers, prediction, EM, F1: what evaluate-v2.0.py gives
ENGLISH = [
    (("Denver Broncos",), "the Denver Broncos!", 1, 1),
    (("U.S.",), "us", 1, 1),
    (("the a an",), "", 1, 1),  # nothing is left of the gold answer, so it is no answer
    (("the", "Paris"), "Paris", 1, 1),
    (("in Paris, France",), "Paris", 0, 0.5),
    (("Santa Clara, California", "Levi's Stadium"), "stadium Levis in Santa", 0, 2 / 3),
    (("one one two",), "one one one", 0, 2 / 3),
    (("theory",), "the ory", 0, 0),
    (("1,000",), "1000", 1, 1),
    (("co-op",), "coop", 1, 1),
    (("“quoted”",), "quoted", 0, 0),  # only ASCII punctuation is taken off
    (("Paris",), "", 0, 0),
    (("道",), "道。", 0, 0),
    (("a  b\tc",), "B c", 1, 1),
]

# the same from cmrc2018_evaluate.py, words cut by NLTK
CHINESE = [
    (("光荣和ω-force",), "光荣和ω-force", 1, 1),
    (("光荣和ω-force",), "光荣和ω－Force。", 1, 1),
    (("光荣和ω-force", "光荣"), "光荣", 1, 1),
    (("《村雨城》",), "村雨城", 1, 1),
    (("村雨城",), "任天堂游戏谜之村雨城", 0, 2 * (3 / 10) / (3 / 10 + 1)),
    (("甲乙丙丁",), "甲乙戊丙丁", 0, 2 * (2 / 5) * (2 / 4) / (2 / 5 + 2 / 4)),  # the longest run only
    (("1990年的Windows 95",), "windows 95", 0, 2 * 1 * (2 / 5) / (1 + 2 / 5)),
    (("don't",), "do", 0, 2 / 3),
    (("cannot",), "can", 0, 2 / 3),
    (("3.5%",), "3.5", 0, 2 / 3),
    (("(甲)",), "甲", 0, 0.5),  # ASCII brackets are not in the script's list
    (("a-b c",), "ab c", 1, 1),
    (("，。",), "甲", 0, 0),
    (("甲",), "乙", 0, 0),
]


@pytest.mark.parametrize(("gold", "predicted", "em", "f1"), ENGLISH)
def test_english(gold, predicted, em, f1):
    assert squad_score(Judgement("What is it?", gold, predicted)) == (em, pytest.approx(f1))


@pytest.mark.parametrize(("gold", "predicted", "em", "f1"), CHINESE)
def test_chinese(gold, predicted, em, f1):
    assert squad_score(Judgement("这是什么？", gold, predicted)) == (em, pytest.approx(f1))


@pytest.mark.parametrize("question", ["What is it?", "这是什么？"])
def test_no_answer(question):
    assert squad_score(Judgement(question, (), None)) == (1, 1)
    assert squad_score(Judgement(question, (), "something")) == (0, 0)
    assert squad_score(Judgement(question, ("something",), None)) == (0, 0)


def test_language_by_the_question():
    assert is_chinese("ω-force是谁？") and is_chinese("NBA总冠军是谁") and is_chinese("1984年？")
    assert not is_chinese("What does 道 mean?") and not is_chinese("1984?") and not is_chinese("これはどれ")
    # The rule tells which script's F1: a run of characters, or words.
    assert squad_score(Judgement("第几年？", ("1957年",), "1957"))[1] == pytest.approx(2 / 3)
    assert squad_score(Judgement("Which year?", ("1957年",), "1957"))[1] == 0


def test_report_is_the_mean():
    judged = [
        Judgement("What?", ("x y",), "x"),
        Judgement("What?", ("x",), "x"),
        Judgement("什么？", ("甲",), "乙"),
        Judgement("What?", (), None),
    ]
    assert squad_report(judged) == {"rows": 4, "em": 0.5, "f1": pytest.approx((2 / 3 + 1 + 0 + 1) / 4)}


# What NLTK's word_tokenize gives for one sentence.
WORDS = [
    ("good muffins cost $3.88 in new york.", "good muffins cost $ 3.88 in new york .".split()),
    ("they'll save and invest more; don't!", "they 'll save and invest more ; do n't !".split()),
    ('he said "hi" (twice), ok?', ["he", "said", "``", "hi", "''", "(", "twice", ")", ",", "ok", "?"]),
    ("it's 3,36 euros: 5:30 a.m.", ["it", "'s", "3,36", "euros", ":", "5:30", "a.m", "."]),
    ("wait...what--no", ["wait", "...", "what", "--", "no"]),
    ("i'm gonna wanna cannot d'ye gimme", ["i", "'m", "gon", "na", "wan", "na", "can", "not", "d", "'ye", "gim", "me"]),
    ("'tis the boys' dog", ["'", "tis", "the", "boys", "'", "dog"]),
    ("u.s. and u.k", ["u.s.", "and", "u.k"]),
    ("a\nb", ["a", "b"]),
    ("", []),
]


@pytest.mark.parametrize(("text", "words"), WORDS)
def test_treebank_words(text, words):
    assert treebank_words(text) == words


def test_segments():
    assert cmrc_segments("ABC公司的co-op，It's 3.5%") == ["abc", "公", "司", "的", "coopit", "'s", "3.5", "%"]
