"""A task that nlpctl does not know is added by one module and one name: new_task.py, through every stage of a model."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

from nlpctl.cli.app import main
from nlpctl.compress.networks.distill import train_student
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.recipe_of import with_student
from nlpctl.config.tasks import task_info
from nlpctl.runtime.process import set_up_process
from nlpctl.runtime.run_directory import RunDirectory

GRADES = ("bad", "fair", "good")
RECIPE = """\
task: grading
model:
  from_scratch: {architecture: bag_of_embeddings, unit: words, min_frequency: 1, hidden_size: 16, embedding_size: 16}
data: {train: train.jsonl, dev: dev.jsonl, labels: [bad, fair, good], max_seq_length: 12}
training: {learning_rate: 2e-1, max_steps: 20, per_device_train_batch_size: 8, evaluation_strategy: steps,
  eval_steps: 2, save_strategy: steps, save_steps: 2, load_best_model_at_end: true}
runtime: {device: cpu}
"""


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory):
    """A folder with data and a recipe, in which the task is known, to the processes that are started too."""
    folder = tmp_path_factory.mktemp("grading")
    for split, count in (("train", 40), ("dev", 12)):
        chance = random.Random(split)
        rows = [{"text": f"a {label} {chance.choice(('room', 'bed'))}", "label": label} for label in
                chance.choices(GRADES, k=count)]  # fmt: skip
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "recipe.yaml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("NLPCTL_TASKS", "new_task:GRADING")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
        patch.syspath_prepend(str(Path(__file__).parent))
        yield folder


@pytest.fixture(scope="module")
def run(place: Path) -> Path:
    assert main(["train", "recipe.yaml", "--set", "training.output_dir=run"]) == 0
    return place / "run"


def test_it_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert not task_info("grading").greater_is_better("distance")
    assert main(["recipe", "schema"]) == 0
    assert "grading" in json.loads(capsys.readouterr().out)["properties"]["task"]["enum"]
    assert main(["train", "recipe.yaml", "--set", "retrieval.scale=2"]) == 2  # it does not read every key
    assert "retrieval.scale has no effect for grading" in capsys.readouterr().err


def test_its_loss_trains_and_its_score_chooses(run: Path) -> None:
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    distances = {event["step"]: event["eval_distance"] for event in events if event["event"] == "evaluate"}
    (*_, last) = [event["best"] for event in events if event["event"] == "save"]
    assert last == f"checkpoint-{min(distances, key=distances.get)}"
    assert min(distances.values()) < 0.3 < max(distances.values())  # a grade drawn at random is some 0.9 off


def test_it_is_scored_and_answers(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "run", "--json"]) == 0
    scored = json.loads(capsys.readouterr().out)["result"]["metrics"]["dev"]
    assert scored["distance"] == json.loads((run / "metrics.json").read_text())["dev"]["distance"]
    assert main(["predict", "run", "dev.jsonl", "-o", "answers.jsonl"]) == 0
    answers = [json.loads(line) for line in Path("answers.jsonl").read_text().splitlines()]
    rows = [json.loads(line) for line in Path("dev.jsonl").read_text().splitlines()]
    assert [GRADES[answer["grade"]] for answer in answers] == [answer["label"] for answer in answers]
    off = [abs(answer["grade"] - GRADES.index(row["label"])) for answer, row in zip(answers, rows, strict=True)]
    assert np.mean(off) == pytest.approx(scored["distance"])


def test_its_exports_answer_alike(run: Path) -> None:
    assert main(["export", "run", "--format", "onnx", "-o", "exported"]) == 0
    assert main(["predict", "exported", "dev.jsonl", "-o", "exported.jsonl"]) == 0
    assert main(["predict", "run", "dev.jsonl", "-o", "network.jsonl"]) == 0
    of_graph, of_network = (Path(name).read_text().splitlines() for name in ("exported.jsonl", "network.jsonl"))
    assert [json.loads(a)["grade"] for a in of_graph] == [json.loads(b)["grade"] for b in of_network]


@pytest.mark.slow
def test_it_is_compressed_in_processes_that_know_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compress", "run", "--strategy", "ort-dynamic", "--batch_sizes", "4", "--max-drop", "100"]) == 0
    report = json.loads((run / "compress" / "report.json").read_text())
    assert report["metric"]["name"] == "distance"
    assert any("ort-dynamic" in row["name"] for row in report["rows"])


def test_a_student_learns_from_it(run: Path, tmp_path: Path) -> None:
    """Also from varied texts, which are examples of its own class."""
    own = {f"model.from_scratch.{key}": value for key, value in
           {"architecture": "bag_of_embeddings", "unit": "words", "min_frequency": 1, "embedding_size": 8}.items()}
    given = {f"distillation.{key}": value for key, value in {"generate.copies": 1, **own}.items()}
    changes = {"training.max_steps": 2, "training.report_to": "none", **given}
    recipe = with_student(load_recipe(run, [Override(key, str(value), "--set") for key, value in changes.items()]))
    train_student(recipe, str(run / "model"), RunDirectory(tmp_path / "student"), set_up_process(recipe))
    assert "distance" in json.loads((tmp_path / "student" / "metrics.json").read_text())["dev"]


def test_it_can_be_explained_as_what_it_is_made_of(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "run", "dev.jsonl", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["result"]["texts"]
    assert {row["explained"]["label"] for row in told} <= set(GRADES) and len(told) == 12
