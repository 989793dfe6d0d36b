"""What each task calls a mistake, and which is the worst."""

from __future__ import annotations

from array import array

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.tasks import KNOWN_TASKS
from nlpctl.data.rows.multi_label_rows import MultiLabelExample
from nlpctl.data.rows.question_rows import GoldAnswer, QuestionExample
from nlpctl.data.rows.retrieval_rows import RetrievalExample
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.tasks.base import Mistake, worst
from nlpctl.tasks.masked_language_model import Guessed


def logits(*probabilities):
    return [[np.log(np.array(row))] for row in probabilities]


def test_the_worst_come_first_equal_ones_in_order():
    made = [Mistake(row, size, "", "") for row, size in ((0, 0.5), (1, 0.9), (2, 0.5), (3, 0.1))]
    assert [mistake.row for mistake in worst(made, 3)] == [1, 0, 2]


@pytest.mark.parametrize("name", ["sequence_classification", "few_shot_classification", "text_matching"])
def test_classification(make_task_of, name):
    task = make_task_of(name, ("0", "1")) if name != "few_shot_classification" else None
    if task is None:
        task = make_task_of(name, ("0", "1"), prompt={"template": "{text} [MASK]", "verbalizer": {"0": "a", "1": "b"}})
    examples = [TextExample("x", "y", label) for label in (0, 1, 0)]
    found = task.mistakes(examples, logits([0.8, 0.2], [0.9, 0.1], [0.4, 0.6]))
    assert found == [Mistake(1, pytest.approx(0.9), "1 (0.100)", "0 (0.900)"),
                     Mistake(2, pytest.approx(0.6), "0 (0.400)", "1 (0.600)")]  # fmt: skip


def test_classification_goes_by_the_thresholds(make_task_of):
    task = make_task_of("sequence_classification", ("a", "b"), (0.9, 0.1))
    (found,) = task.mistakes([TextExample("x", None, 0)], logits([0.8, 0.2]))
    assert (found.expected, found.given) == ("a (0.800)", "b (0.200)")


def test_several_labels(make_task_of):
    task = make_task_of("multi_label_classification", ("a", "b", "c"))
    rows = [MultiLabelExample("x", None, (0,)), MultiLabelExample("y", None, (1, 2)), MultiLabelExample("z", None, ())]
    odds = np.log(np.array([[9, 1 / 9, 1 / 9], [3, 9, 1 / 4], [1 / 9, 1 / 9, 1 / 9]]))
    (found,) = task.mistakes(rows, [[row] for row in odds])
    assert found == Mistake(1, pytest.approx(0.75 + 0.8), "b (0.900), c (0.200)", "a (0.750), b (0.900)")
    (found,) = task.mistakes(rows[2:], [[odds[0]]])
    assert (found.expected, found.given) == ("(no label)", "a (0.900)")


def test_entities(make_task_of):
    from nlpctl.data.rows.tagged_rows import TaggedExample

    tags = ("O", "B-PER", "I-PER", "B-LOC")
    task = make_task_of("token_classification", tags)
    example = TaggedExample("Anna is in Rome", array("i", (0, 4, 5, 7, 8, 10, 11, 15)), array("i", (1, 0, 0, 3)), True)
    right, wrong = np.array([1, 0, 0, 3]), [np.array([1, 2]), np.array([0, 3])]  # in two windows
    found = task.mistakes([example, example], [[right], wrong])
    assert found == [Mistake(1, 2.0, "PER Anna", "PER Anna is")]
    assert task.mistakes([example], [[np.zeros(4, int)]]) == [Mistake(0, 2.0, "PER Anna, LOC Rome", "(none)")]


def test_answers(make_task_of, monkeypatch):
    task = make_task_of("question_answering")
    context = "Rome was not built in one day"
    texts = (("one day", "one day"), ("one day", "day"), ("Rome", None), (None, "Rome"))

    def example(text):
        answers = () if text is None else (GoldAnswer(text, context.index(text)),)
        return QuestionExample(None, "when?", context, answers)

    given = [text for _, text in texts]
    monkeypatch.setattr(type(task), "_best", lambda self, windows: windows)
    monkeypatch.setattr("nlpctl.tasks.question_answering._text", lambda example, candidate: candidate)
    found = task.mistakes([example(gold) for gold, _ in texts], [[text] for text in given])
    assert [(each.row, each.expected, each.given) for each in found] == [
        (1, "one day", "day"), (2, "Rome", "(no answer)"), (3, "(no answer)", "Rome")
    ]  # fmt: skip
    assert [each.size for each in found] == pytest.approx([1 - 2 / 3, 1, 1])


def test_hidden_words(make_task_of):
    task = make_task_of("masked_language_model")
    found = task.mistakes([None] * 3, [[Guessed(4.0, 1, 2, 7), Guessed(5.0, 1, 1, 8)], [Guessed(0.1, 2, 2, 9)], []])
    assert found == [Mistake(0, 3.0, "3 hidden", "2 right, loss 3.00")]


def test_searches(make_task_of):
    task = make_task_of("semantic_indexing")
    texts = {"q": (1, 0), "t": (0.6, 0.8), "u": (0.9, 0.1), "r": (0, 1), "v": (0.2, 0.9)}
    pairs = [("q", "t", True), ("q", "u", False), ("r", "v", True), ("u", "u", True)]
    rows = [RetrievalExample(text, pair, None, matches) for text, pair, matches in pairs]
    vectors = {text: (np.array(each) / np.linalg.norm(each)).astype(np.float32) for text, each in texts.items()}
    found = task.mistakes(rows, [[(vectors[row.text], vectors[row.text_pair])] for row in rows])
    assert Mistake(0, 2.0, "t (rank 2)", "u") in found
    assert 2 not in {mistake.row for mistake in found}


def test_every_task_knows_its_mistakes(make_task_of):
    from nlpctl.tasks.base import task_class

    assert all(not vars(task_class(task.name).mistakes).get("__isabstractmethod__") for task in KNOWN_TASKS)
