"""A loss and a score of the user's own."""

from __future__ import annotations

import dataclasses
import textwrap

import paddle
import pytest
from made_runs import make_run

from nlpctl.compress.user_code import check_user_code, label_loss, user_scores
from nlpctl.config.schema import Recipe
from nlpctl.data.rows.labels import LabelSet
from nlpctl.errors import UserError
from nlpctl.tasks.base import make_task

CODE = """
    import paddle.nn.functional as F

    def twice(outputs, labels):
        assert outputs.shape == [3, 2] and labels.shape == [3]
        return 2 * F.cross_entropy(outputs, labels)

    def spans(outputs, labels):
        (starts, ends), (first, last) = outputs, labels
        return F.cross_entropy(starts, first) + F.cross_entropy(ends, last)

    def none(outputs, labels):
        return None

    def rows_of_losses(outputs, labels):
        return F.cross_entropy(outputs, labels, reduction="none")

    def broken(outputs, labels):
        return outputs.no_such_thing

    def share(predict, rows):
        return sum(answer["label"] == row["label"] for answer, row in zip(predict(rows), rows)) / len(rows)

    def several(predict, rows):
        return {"first": len(rows), "second": 0.5}

    def text(predict, rows):
        return "good"

    def missing(predict, rows):
        return {"first": None}

    def lonely(predict):
        return 1.0

    def fails(predict, rows):
        return rows[7]
"""


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    return make_run(tmp_path_factory.mktemp("functions"), "sequence_classification")


@pytest.fixture
def given(recipe, tmp_path, monkeypatch):
    """The recipe with a function of CODE as criterion or evaluate."""
    (tmp_path / "user_code.py").write_text(textwrap.dedent(CODE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "user_code", raising=False)

    def make(task: str = "sequence_classification", **names: str) -> Recipe:
        section = dataclasses.replace(
            recipe.compression, **{key: f"user_code:{name}" for key, name in names.items()}
        )
        return dataclasses.replace(recipe, task=task, compression=section)

    return make


def batch() -> tuple[tuple[paddle.Tensor, ...], dict[str, paddle.Tensor]]:
    logits = paddle.to_tensor([[1.0, 0.0], [0.5, 0.2], [0.1, 2.0]], stop_gradient=False)
    return (logits,), {"labels": paddle.to_tensor([0, 1, 1])}


def test_without_one_the_task_decides(recipe):
    task = make_task(recipe, LabelSet(("x", "y")))
    outputs, labels = batch()
    loss = label_loss(recipe, task)
    assert float(loss(None, outputs, labels)) == float(task.loss(None, outputs, labels))
    assert user_scores(recipe, lambda rows: [], []) == {}


def test_a_criterion_takes_the_place_of_the_loss(recipe, given):
    task = make_task(recipe, LabelSet(("x", "y")))
    outputs, labels = batch()
    found = label_loss(given(criterion="twice"), task)(None, outputs, labels)
    assert float(found) == pytest.approx(2 * float(task.loss(None, outputs, labels)), rel=1e-6)
    assert found.ndim == 0
    found.backward()
    assert float(paddle.abs(outputs[0].grad).sum()) > 0


def test_several_outputs_and_labels_are_tuples(given):
    task = make_task(given("question_answering"), LabelSet(()))
    starts, ends = (paddle.to_tensor([[0.0, 3.0], [1.0, 0.0]]) for _ in range(2))
    places = paddle.ones([2, 2])
    labels = dict(zip(task.label_names, (paddle.to_tensor([1, 0]), paddle.to_tensor([1, 0]), places), strict=True))
    loss = label_loss(given("question_answering", criterion="spans"), task)
    expected = 2 * paddle.nn.functional.cross_entropy(starts, labels[task.label_names[0]])
    assert float(loss(None, (starts, ends), labels)) == pytest.approx(float(expected))


@pytest.mark.parametrize(
    ("name", "told"),
    [("none", "returned no scalar"), ("rows_of_losses", "returned no scalar"), ("broken", r"user_code.py:\d+")],
)
def test_what_is_wrong_with_a_criterion_is_told(recipe, given, name, told):
    task = make_task(recipe, LabelSet(("x", "y")))
    with pytest.raises(UserError, match=told) as caught:
        label_loss(given(criterion=name), task)(None, *batch())
    assert caught.value.problems[0].where == "compression.criterion"


def test_scores_are_named(given):
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]

    def predict(asked):
        return [{"label": "x"} for _ in asked]

    assert user_scores(given(evaluate="share"), predict, rows) == {"score": 0.5}
    assert user_scores(given(evaluate="several"), predict, rows) == {"first": 2.0, "second": 0.5}


@pytest.mark.parametrize(
    ("name", "told"),
    [("text", "returned 'good'"), ("missing", "returned"), ("fails", r"IndexError.*user_code.py:\d+")],
)
def test_what_is_wrong_with_a_score_is_told(given, name, told):
    with pytest.raises(UserError, match=told) as caught:
        user_scores(given(evaluate=name), lambda rows: [], [{"text": "a"}])
    assert caught.value.problems[0].hint


def test_functions_are_looked_for_before_any_work(given):
    check_user_code(given(evaluate="share", criterion="twice"))
    with pytest.raises(UserError, match="has no 'shape' .did you mean 'share'"):
        check_user_code(given(evaluate="shape"))
    with pytest.raises(UserError, match="is called as .*predict, rows"):
        check_user_code(given(evaluate="lonely"))
