"""SQuAD's json and flat rows to questions with checked answers; what is wrong is told with its place."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import replace

import pytest

from nlpctl.config.schema import DataSection
from nlpctl.data.readers.readers import parse_rows, read_rows
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.data.rows.examples import ExampleList, ExampleReader
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.question_rows import GoldAnswer, QuestionExample, QuestionRows
from nlpctl.errors import UserError

CONTEXT = "Café Müller  opened in 1985, in Paris. 巴黎很美。"


def rows_of(document, kind="squad", labelled=True):
    text = document if isinstance(document, str) else json.dumps(document)
    required = QuestionRows(DataSection()).required(labelled)
    return list(parse_rows(io.BytesIO(text.encode()), "f.json", kind, True, required))


def squad(*qas, context=CONTEXT):
    return {"data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(qas)}]}]}


def asked(answers, **more):
    return {"id": "q1", "question": "When?", "answers": answers, **more}


def answer(text, start):
    return {"text": text, "answer_start": start}


def read(values, labelled=True, data=None):
    labels = LabelSet(()) if labelled else None
    return QuestionRows(data or DataSection()).read({"question": "When?", "context": CONTEXT, **values}, labels)


def test_squad_rows_in_file_order_share_their_context():
    two, one = squad(asked([answer("1985", 23)]), asked([], is_impossible=True)), squad(asked([]))
    rows = rows_of({"data": [*two["data"], *one["data"]]})
    assert [row.line for row in rows] == [
        "data[0].paragraphs[0].qas[0]", "data[0].paragraphs[0].qas[1]", "data[1].paragraphs[0].qas[0]"
    ]  # fmt: skip
    assert rows[0].values["context"] is rows[1].values["context"]
    examples = [ExampleReader(QuestionRows(DataSection()), LabelSet(())).read(row) for row in rows]
    assert examples[0] == QuestionExample("q1", "When?", CONTEXT, (GoldAnswer("1985", 23),))
    assert [example.answers for example in examples[1:]] == [(), ()]


def test_the_first_layout_of_cmrc():
    """Its answers have no places; the first one counts, and an answer that stands nowhere is told."""
    qas = [
        {"query_id": "Q1", "query_text": "何时", "answers": ["1985", "1985", "1985"]},
        {"query_id": "Q2", "query_text": "何地", "answers": ["in Paris", "in", "elsewhere"]},
        {"query_id": "Q3", "query_text": "何人", "answers": ["nobody"]},
    ]
    document = [{"context_id": "C1", "context_text": CONTEXT, "title": "t", "qas": qas}, {"title": "no context"}]
    *rows, last = rows_of(document)
    assert [row.line for row in rows] == ["[0].qas[0]", "[0].qas[1]", "[0].qas[2]"] and last.where == "f.json[1]"
    reader = ExampleReader(QuestionRows(DataSection()), LabelSet(()))
    first, second, bad = map(reader.read, rows)
    assert first == QuestionExample("Q1", "何时", CONTEXT, (GoldAnswer("1985", CONTEXT.index("1985")),) * 3)
    assert [answer.start for answer in second.answers] == [CONTEXT.index("in Paris"), CONTEXT.index("in"), None]
    assert bad.where == "f.json[0].qas[2]" and "no answer in the context" in bad.reason


def test_both_layouts_of_cmrc2018_are_the_same_questions(shared_data):
    document = json.loads((shared_data / "cmrc2018" / "dev.json").read_text(encoding="utf-8"))
    first = [
        {"context_id": "C", "context_text": paragraph["context"], "title": article.get("title"), "qas": [
            {"query_id": asked["id"], "query_text": asked["question"], "answers": [a["text"] for a in asked["answers"]]}
            for asked in paragraph["qas"]
        ]}
        for article in document["data"] for paragraph in article["paragraphs"]
    ]  # fmt: skip
    reader = ExampleReader(QuestionRows(DataSection()), LabelSet(()))
    ours, theirs = ([reader.read(row) for row in rows_of(each)] for each in (first, document))
    assert len(ours) == len(theirs) == 641
    for one, other in zip(ours, theirs, strict=True):
        assert (one.id, one.question, one.context) == (other.id, other.question, other.context)
        assert [each.text for each in one.answers] == [each.text for each in other.answers]
        for each, known in zip(one.answers, other.answers, strict=True):
            assert known.start is None or each.start is not None and each.start <= known.start


def test_bad_parts_of_a_document_have_their_path():
    good = asked([answer("1985", 23)])
    document = {
        "data": [
            {"title": "no paragraphs"},
            {"paragraphs": [{"context": CONTEXT, "qas": "none"}, {"qas": [good]}, ["x"]]},
            {"paragraphs": [{"context": CONTEXT, "qas": [7, {"question": "no answers"}, good]}]},
        ]
    }
    rows = rows_of(document)
    bad = {row.where: row.reason for row in rows if isinstance(row, BadRow)}
    assert [where.removeprefix("f.json:") for where in bad] == [
        "data[0]", "data[1].paragraphs[0]", "data[1].paragraphs[1]", "data[1].paragraphs[2]",
        "data[2].paragraphs[0].qas[0]", "data[2].paragraphs[0].qas[1]",
    ]  # fmt: skip
    reasons = list(bad.values())
    assert "paragraphs expected; the keys are 'title'" in reasons[0]
    assert "qas, the list of questions" in reasons[1] and "context and qas expected" in reasons[2]
    assert "got a list" in reasons[3] and "got a number" in reasons[4] and "missing key 'answers'" in reasons[5]
    assert isinstance(rows[-1], Row)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data": [', r"not JSON: Expecting value"),
        ('[{"question": "q"}]', r"not in the layout of SQuAD.*got a list.*data.format: json"),
        ('{"version": 1}', r"an object with the keys 'version'"),
        (" ", "the file holds no rows"),
        ('{"data": []}', "the file holds no rows"),
    ],
)
def test_files_that_are_no_squad(text, message):
    with pytest.raises(UserError, match=f"(?s){message}"):
        rows_of(text)


def test_answers_in_both_spellings():
    expected = (GoldAnswer("1985", 23), GoldAnswer("in 1985", 20))
    assert read({"answers": [answer("1985", 23), answer("in 1985", 20)]}).answers == expected
    assert read({"answers": {"text": ["1985", "in 1985"], "answer_start": [23, 20]}}).answers == expected
    assert read({"answers": {"text": [], "answer_start": []}}).answers == ()


def test_white_space_around_an_answer_is_not_learned():
    assert read({"answers": [answer("  opened ", 11)]}).answers == (GoldAnswer("opened", 13),)


def test_an_answer_in_own_words_only_scores():
    """CMRC 2018 marks them with -1. One answer at least has to be in the context."""
    assert read({"answers": [answer("the year 1985", -1), answer("1985", 23)]}).answers == (
        GoldAnswer("the year 1985", None), GoldAnswer("1985", 23)
    )  # fmt: skip
    with pytest.raises(ValueError, match="no answer in the context: 'the year 1985' is not part of it"):
        read({"answers": [answer("the year 1985", -1)]})


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"answers": [answer("1985", 24)]}, r"wrong answer_start: at 24 the context has '985,'; '1985' begins at 23"),
        ({"answers": [answer("1885", 23)]}, r"answer not in the context: '1885'"),
        ({"answers": [answer("cafe", 0)]}, r"answer not in the context: 'cafe'"),
        ({"answers": [answer("1985", "23")]}, r"bad answer_start: expected a number from 0, got '23'"),
        ({"answers": [answer("1985", -2)]}, r"bad answer_start"),
        ({"answers": [answer("1985", True)]}, r"bad answer_start"),
        ({"answers": [answer(" ", 4)]}, r"blank answer"),
        ({"answers": [answer(1985, 23)]}, r"answer is not a string: got int"),
        ({"answers": ["1985"]}, r'bad answers: each needs "text" and "answer_start"; got str'),
        ({"answers": [{"text": "1985"}]}, r"bad answers: each needs .*; got the keys 'text'"),
        ({"answers": "1985"}, r"bad answers: expected a list of objects, got str"),
        ({"answers": None}, r"bad answers: expected a list of objects, got NoneType"),
        ({"answers": {"text": ["a"], "answer_start": []}}, r"bad answers: expected .* both equally long"),
        ({"answers": [], "is_impossible": False}, r"no answers: the list is empty"),
        ({"answers": [answer("1985", 23)], "is_impossible": True}, r"contradiction"),
        ({"answers": [], "question": "  "}, r"blank question"),
        ({"answers": [], "context": ""}, r"blank context"),
        ({"answers": [], "context": ["x"]}, r"context is not a string: got list"),
        ({"answers": [], "context": "a\ud83d"}, r"context is not Unicode: half a surrogate pair"),
    ],
)
def test_bad_rows_have_a_reason(values, reason):
    with pytest.raises(ValueError, match=reason):
        read(values)


def test_a_question_that_fills_any_window_is_a_bad_row():
    data = replace(DataSection(), max_seq_length=16)
    assert read({"question": "w " * 12, "answers": []}, data=data).question
    with pytest.raises(ValueError, match=r"question too long: 13 tokens or more, .*\(16\) has room for 12"):
        read({"question": "w " * 13, "answers": []}, data=data)


def test_without_answers_for_predict():
    """Answers that are there are not looked at, so a wrong one does not stop a prediction."""
    example = read({"answers": "anything"}, labelled=False)
    assert example.answers is None
    assert QuestionRows(DataSection()).input_columns(example) == {"question": "When?", "context": CONTEXT}
    assert QuestionRows(DataSection()).input_columns(read({"id": 7}, labelled=False))["id"] == "7"
    assert rows_of(squad({"question": "When?"}), labelled=False)[0].values["context"] == CONTEXT


def test_flat_rows_with_other_column_names():
    data = DataSection()
    data = replace(data, columns=replace(data.columns, question="q", context="c", answers="a"))
    line = json.dumps({"q": "When?", "c": CONTEXT, "a": [answer("1985", 23)]})
    rows = QuestionRows(data)
    (row,) = parse_rows(io.BytesIO(line.encode()), "f.jsonl", "jsonl", True, rows.required(True))
    example = ExampleReader(rows, LabelSet(())).read(row)
    assert example.answers == (GoldAnswer("1985", 23),)
    assert list(rows.texts(example)) == ["When?", CONTEXT]
    assert rows.input_columns(example) == {"q": "When?", "c": CONTEXT}


def test_training_needs_an_answer():
    rows = QuestionRows(DataSection())
    nothing = ExampleList([read({"answers": []})] * 3)
    with pytest.raises(UserError, match="none of the 3 training questions has an answer"):
        rows.check_training(nothing, LabelSet(()), "f.json")
    rows.check_training(ExampleList([*nothing, read({"answers": [answer("1985", 23)]})]), LabelSet(()), "f.json")


def test_cmrc2018(shared_data):
    """Every question but the three whose offsets are wrong in the data; no answer is changed on the way."""
    reader = ExampleReader(QuestionRows(DataSection()), LabelSet(()))
    counts = Counter()
    for split in ("train", "dev"):
        for row in read_rows(shared_data / "cmrc2018" / f"{split}.json", "squad", True, reader.rows.required(True)):
            example = reader.read(row)
            if isinstance(example, BadRow):
                counts[f"{split} {example.kind}"] += 1
                continue
            counts[split] += 1
            for gold in example.answers:
                if gold.start is not None:
                    assert example.context[gold.start : gold.start + len(gold.text)] == gold.text
    assert counts == {"train": 2575, "train wrong answer_start": 3, "dev": 641}
