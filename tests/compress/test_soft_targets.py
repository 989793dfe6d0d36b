"""How far a student's outputs are from its teacher's."""

from __future__ import annotations

import dataclasses

import numpy as np
import paddle
import pytest

from nlpctl.compress.networks.soft_targets import soft_loss
from nlpctl.config.load import load_recipe
from nlpctl.config.tasks import KNOWN_TASKS
from nlpctl.data.batches.tagged_features import IGNORED
from nlpctl.errors import UserError
from nlpctl.models.crf import crf_loss

draw = np.random.default_rng(7)
TAGS = np.array([[0, 1, IGNORED, 2], [2, IGNORED, IGNORED, IGNORED]])
PLACES = np.array([[1, 1, 0, 1], [1, 0, 0, 0]])


def recipe(task: str, head: str = "linear"):
    plain = load_recipe("quickstart")
    return dataclasses.replace(plain, task=task, model=dataclasses.replace(plain.model, head=head))


def computed(task: str, student, teacher, labels=None, head: str = "linear") -> float:
    tensors = [tuple(paddle.to_tensor(each.astype(np.float32)) for each in outputs) for outputs in (student, teacher)]
    named = {name: paddle.to_tensor(array) for name, array in (labels or {}).items()}
    return float(soft_loss(recipe(task, head))(*tensors, named))


def logits(*shape: int) -> np.ndarray:
    return draw.normal(0, 2, shape)


def softmax(values: np.ndarray) -> np.ndarray:
    return np.exp(values) / np.exp(values).sum(-1, keepdims=True)


def entropy(student: np.ndarray, teacher: np.ndarray) -> np.ndarray:
    return -(softmax(teacher) * np.log(softmax(student))).sum(-1)


@pytest.mark.parametrize("task", ["sequence_classification", "text_matching", "few_shot_classification"])
def test_labels(task) -> None:
    mine, theirs = logits(5, 3), logits(5, 3)
    assert computed(task, (mine,), (theirs,)) == pytest.approx(entropy(mine, theirs).mean(), rel=1e-5)
    assert computed(task, (theirs,), (theirs,)) < computed(task, (mine,), (theirs,))


def test_many_labels_are_as_many_decisions() -> None:
    mine, theirs = logits(5, 3), logits(5, 3)
    wanted, given = 1 / (1 + np.exp(-theirs)), 1 / (1 + np.exp(-mine))
    expected = -(wanted * np.log(given) + (1 - wanted) * np.log(1 - given)).mean()
    assert computed("multi_label_classification", (mine,), (theirs,)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("task", ["token_classification", "lexical_analysis"])
def test_tags_count_where_there_is_a_word(task) -> None:
    mine, theirs = logits(2, 4, 3), logits(2, 4, 3)
    losses = entropy(mine, theirs)
    expected = (losses[0, [0, 1, 3]].mean() + losses[1, 0]) / 2
    assert computed(task, (mine,), (theirs,), {"labels": TAGS}) == pytest.approx(expected, rel=1e-5)
    mine[TAGS == IGNORED] += 9.0 * logits(4, 3)
    assert computed(task, (mine,), (theirs,), {"labels": TAGS}) == pytest.approx(expected, rel=1e-5)


def test_a_crf_learns_emissions_and_its_own_loss() -> None:
    mine, theirs, transitions = logits(2, 4, 3), logits(2, 4, 3), logits(5, 5)
    squares = ((mine - theirs) ** 2).mean(-1)
    tensors = [paddle.to_tensor(each.astype(np.float32)) for each in (mine, transitions)]
    own = float(crf_loss(*tensors, paddle.to_tensor(TAGS)).mean())
    expected = (squares[0, [0, 1, 3]].mean() + squares[1, 0]) / 2 + own
    found = computed("token_classification", (mine, transitions), (theirs, transitions), {"labels": TAGS}, "crf")
    assert found == pytest.approx(expected, rel=1e-5)


def test_spans_count_where_an_answer_can_be() -> None:
    starts, ends, other_starts, other_ends = (logits(2, 4) for _ in range(4))

    def told(mine: np.ndarray, theirs: np.ndarray) -> float:
        return (entropy(mine[0, [0, 1, 3]], theirs[0, [0, 1, 3]]) + 0.0) / 2  # of one place, nothing is left to learn

    expected = (told(starts, other_starts) + told(ends, other_ends)) / 2
    found = computed("question_answering", (starts, ends), (other_starts, other_ends), {"places": PLACES})
    assert found == pytest.approx(expected, rel=1e-5)


def test_vectors() -> None:
    mine, theirs = (np.eye(4)[[0, 1]], np.eye(4)[[2]]), (np.eye(4)[[0, 2]], -np.eye(4)[[2]])
    assert computed("semantic_indexing", mine, theirs) == pytest.approx((np.mean([0, 2]) + 4) / 2)


def test_every_task_has_a_loss_or_is_refused() -> None:
    refused = []
    for info in KNOWN_TASKS:
        try:
            assert callable(soft_loss(recipe(info.name)))
        except UserError as error:
            refused.append((info.name, error.problems[0].hint))
    assert [name for name, _ in refused] == ["masked_language_model"] and "fine-tuned" in refused[0][1]
