"""The scores of an export's precisions on dev."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nlpctl.export import scores_and_speeds


@pytest.mark.parametrize(("failing", "expected"), [("bf16", {"int8": 0.8}), ("fp32", None)])
def test_an_engine_that_fails_is_left_out(failing, expected, monkeypatch, tmp_path, capsys):
    def opened(folder, manifest, choice, *_):
        if choice.precision == failing:
            raise RuntimeError("no kernel")
        return choice

    ways = [SimpleNamespace(name=each, precision=each) for each in ("fp32", "bf16", "int8")]
    report = lambda rows, found: {"accuracy": 0.8}  # noqa: E731
    task = SimpleNamespace(name="sequence_classification", data=None, labels=(), report=report)
    task.graph_scores, task.calibration = True, None
    task.confidences = lambda *_: None
    for name, value in {
        "runnable_here": lambda *_: ways,
        "has_split": lambda *_: True,
        "task_rows": lambda *_: None,
        "read_labelled_split": lambda *_: ([1, 2], None, None),
        "open_choice": opened,
        "TrainedModel": lambda *_: SimpleNamespace(predictions=lambda *_: []),
    }.items():
        monkeypatch.setattr(scores_and_speeds, name, value)
    found, _ = scores_and_speeds.dev_scores(tmp_path, None, None, task, None)
    assert (found and found.scores) == expected
    assert f"{failing} has no score on dev: no kernel" in capsys.readouterr().err
