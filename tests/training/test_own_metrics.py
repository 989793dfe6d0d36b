"""What compute_metrics gets, in every task: an entry for each feature of the dev rows, in their order."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
from made_runs import CASES, make_run

from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import read_labelled_split
from nlpctl.errors import UserError

CODE = """
SEEN = []

def keep(eval_prediction):
    SEEN.append(eval_prediction)
    return {"seen": 1, "eval_too": 2.0}

def fails(eval_prediction):
    return eval_prediction.nothing
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    (tmp_path / "metric_code.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "metric_code", raising=False)


def scored(recipe, function: str):
    """The scores, what the function saw, and the dev examples."""
    from nlpctl.data.text.tokenizers import build_encoder
    from nlpctl.tasks.base import make_task, task_class
    from nlpctl.training.dev_scores import DevScores, UserMetrics

    training = dataclasses.replace(recipe.training, compute_metrics=f"metric_code:{function}")
    recipe = dataclasses.replace(recipe, training=training)
    model = task_class(recipe.task).load_trained(recipe, str(recipe.run_dir))
    task = make_task(recipe, LabelSet(model.labels))
    encoder = build_encoder(model.tokenizer)
    examples, _, _ = read_labelled_split(task_rows(recipe.task, recipe.data), "dev", task.labels)
    scorer = DevScores(task, model.network, encoder, task.loss, UserMetrics(recipe, task))
    features = sum(len(task.features(example, encoder)) for example in examples)
    *_, scores = scorer.score(examples, 7)
    return scores, sys.modules["metric_code"].SEEN, features, examples


@pytest.mark.parametrize("task", sorted(CASES))
def test_rows_of_every_task(task, tmp_path, code):
    (tmp_path / "made").mkdir()
    scores, (seen,), features, examples = scored(make_run(tmp_path / "made", task), "keep")
    assert scores == {"seen": 1.0, "too": 2.0}
    for side in seen:
        for array in side if isinstance(side, tuple) else (side,):
            assert isinstance(array, np.ndarray) and len(array) == features
    if task == "sequence_classification":
        assert seen.label_ids.tolist() == [example.label for example in examples] and seen.predictions.shape[1] == 3
    if task == "question_answering":
        assert len(seen.predictions) == len(seen.label_ids) == 2
    if task == "token_classification":
        assert seen.predictions.shape[:2] == seen.label_ids.shape and (seen.label_ids[:, 0] == -100).all()


def test_a_failure_names_key_and_line(tmp_path, code):
    (tmp_path / "made").mkdir()
    with pytest.raises(UserError, match=r"metric_code:fails failed: AttributeError.*metric_code.py:9") as caught:
        scored(make_run(tmp_path / "made", "sequence_classification"), "fails")
    assert caught.value.problems[0].where == "training.compute_metrics"


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int64", "float32"])
def test_padding_is_the_same_number_in_every_type(dtype):
    from nlpctl.training.dev_scores import PADDING, _stacked

    assert _stacked([np.ones(3, dtype), np.ones(2, dtype)]).tolist() == [[1, 1, 1], [1, 1, PADDING]]
    assert _stacked([np.ones(2, dtype), np.ones(2, dtype)]).dtype == dtype
