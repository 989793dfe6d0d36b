"""What a row says, what it is chosen by, and how it is kept."""

from __future__ import annotations

import pytest
from scored import scored

from nlpctl.compress.scores import (
    USER_SCORE,
    Metric,
    StoredRow,
    StoredTestScore,
    TestScore,
    agreement,
    metric_of,
    score_file,
    stored_under,
)
from nlpctl.config.load import Override, load_recipe


def metric(tmp_path, task: str, *overrides: tuple[str, str]) -> Metric:
    (tmp_path / "recipe.yaml").write_text(f"task: {task}\ntraining: {{output_dir: run}}\n")
    return metric_of(load_recipe(tmp_path / "recipe.yaml", [Override(*each, "--set") for each in overrides], "apply"))


def test_what_candidates_are_compared_by(tmp_path):
    assert metric(tmp_path, "question_answering") == Metric("em")
    watched = ("training.metric_for_best_model", "eval_f1")
    assert metric(tmp_path, "token_classification", watched) == Metric("f1")
    loss = ("training.metric_for_best_model", "loss")  # no report holds it
    assert metric(tmp_path, "sequence_classification", loss) == Metric("accuracy")
    own = metric(tmp_path, "sequence_classification", ("compression.evaluate", "my.scores:kappa"))
    assert own == Metric("kappa", own=True)


def test_a_figure_of_a_report():
    report = {"rows": 3, "accuracy": 0.5, USER_SCORE: {"kappa": 0.25, "other": 1.0}}
    assert Metric("accuracy").value(report) == 0.5
    assert Metric("kappa", own=True).value(report) == 0.25


@pytest.mark.parametrize(("greater", "drop"), [(True, 2.0), (False, -2.0)])
def test_points(greater, drop):
    assert Metric("x", greater).drop(0.86, 0.88) == pytest.approx(drop)


def test_a_row_is_kept_as_it_is(tmp_path):
    row = scored("original+ptq", 0.88, 2.0, method="ptq", precision="int8", difference=None)
    file = score_file(tmp_path, row.candidate, row.choice_name)
    StoredRow("key", row).save(file)
    assert stored_under("key", StoredRow, file) == StoredRow("key", row)
    assert stored_under("another", StoredRow, file) is None
    file.write_text(file.read_text()[:-20])
    assert stored_under("key", StoredRow, file) is None
    assert stored_under("key", StoredRow, tmp_path / "none.json") is None
    file.write_text('{"format": 1, "key": "key", "found": {"candidate": "a"}}')
    assert stored_under("key", StoredRow, file) is None


def test_a_score_on_test_is_kept_apart(tmp_path):
    score = TestScore(100, 0.9, 0.88, 0.97)
    file = score_file(tmp_path, "original", "paddle bf16", "test")
    assert file != score_file(tmp_path, "original", "paddle bf16")
    StoredTestScore("key", score).save(file)
    assert stored_under("key", StoredTestScore, file) == StoredTestScore("key", score)
    assert stored_under("another", StoredTestScore, file) is None


def test_no_two_rows_share_a_file(tmp_path):
    of_onnxruntime = ("onnxruntime int8 (dynamic)", "onnxruntime int8 (static)")
    ways = ("paddle fp32", "paddle bf16", "paddle int8 (ptq)", *of_onnxruntime)
    names = {score_file(tmp_path, candidate, way).name for candidate in ("a", "a+ptq") for way in ways}
    assert len(names) == 10 and not any(set(name) & set(" ()/") for name in names)


def test_decisions_alike():
    assert agreement(["a", "b", "c", "d"], ["a", "b", "x", "d"]) == 0.75
