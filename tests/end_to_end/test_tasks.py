"""Every task through the command line: trained, killed and resumed, scored, asked."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from small_tasks import CASES, write

from nlpctl.config.tasks import KNOWN_TASKS


def test_every_task_is_here():
    assert set(CASES) == {info.name for info in KNOWN_TASKS}


@pytest.fixture(scope="session")
def language_model(work) -> Path:
    """What few-shot classification starts from."""
    return work.train("masked_language_model", recipe=write(work.folder, "masked_language_model").name)


# These differ from sequence_classification by their data and scores alone.
RARELY = ("multi_label_classification", "text_matching")


@pytest.mark.parametrize("task", [pytest.param(each, marks=[pytest.mark.slow] * (each in RARELY)) for each in CASES])
def test_trained_killed_resumed_scored_and_asked(work, language_model, same_bits, task):
    recipe = write(work.folder, task).name
    whole = language_model if task == "masked_language_model" else work.train(task, recipe=recipe)

    killed = f"{task}-killed"
    words = ("train", recipe, "--set", f"training.output_dir={killed}")
    work.end(work.start(*words), (work / killed / "checkpoints" / "checkpoint-2").exists, signal.SIGKILL)
    assert work.manifest(killed)["state"] == "running"
    work.train(killed, "--resume", recipe=recipe)
    assert same_bits(work / killed, whole)
    scores = json.loads((whole / "metrics.json").read_text())
    assert json.loads((work / killed / "metrics.json").read_text()) == scores
    assert scores["dev"]["rows"] == scores["test"]["rows"] == 10  # none is dropped

    mistakes = json.loads((whole / "mistakes.json").read_text(encoding="utf-8"))
    assert mistakes["rows"] == 10 and len(mistakes["worst"]) == mistakes["wrong"] <= 10
    assert all(each["where"].startswith(f"{work / task}-dev.jsonl:") for each in mistakes["worst"])
    assert "<h2>Scores</h2>" in (whole / "report.html").read_text(encoding="utf-8")
    assert len(list((whole / "logs" / "visualdl").glob("vdlgraph.*"))) == 1

    done = work.nlpctl("eval", whole, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["result"]["metrics"] == scores, done.stderr
    evaluated = [event for event in work.events(task) if event["event"] == "evaluate"]
    assert [event["step"] for event in evaluated] == [2, 4, 6, 8, 10]  # also the last, within an epoch
    metric = CASES[task][2]
    best = (min if metric == "perplexity" else max)(event[f"eval_{metric}"] for event in evaluated)
    if task == "multi_label_classification":  # its thresholds are tuned on dev once training has ended
        assert scores["dev"][metric] >= best
    else:
        assert scores["dev"][metric] == pytest.approx(best, rel=1e-4)

    done = work.nlpctl("predict", whole / "model", f"{task}-test.jsonl")
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    asked_for = [json.loads(line) for line in (work / f"{task}-test.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(answers) == len(asked_for)
    for row, answer in zip(asked_for, answers, strict=True):
        assert all(answer.get(key, row[key]) == row[key] for key in ("text", "a", "b", "context") if key in row)
        CASES[task][1](answer)
