"""What a training run leaves on disk, and that it can be repeated."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.paddle_version import installed_paddle
from nlpctl.runtime.machine import cpu_info

MODEL_FILES = {
    "config.json", "labels.json", "manifest.json", "model_state.pdparams", "task.json",
    "tokenizer.json", "tokenizer_config.json", "vocab.txt",
}  # fmt: skip
TRAINING_STATE = {"optimizer.pdopt", "scheduler.pdparams", "trainer_state.json", "checksums.json"}
TRAINING_STATE |= {"reached_parameters.json"}
REPORT = {"rows", "accuracy", "macro_f1", "micro_f1", "weighted_f1", "labels", "confusion"}
REPORT |= {"intervals", "ece", "confidence"}


def test_files_of_a_run(base):
    files = {str(path.relative_to(base)) for path in base.rglob("*") if path.is_file()}
    files = {name for name in files if not name.startswith("logs/visualdl/")}
    checkpoints = {f"checkpoints/checkpoint-{8 * epoch}/" for epoch in range(1, 7)}
    assert files == (
        {"recipe.yaml", "manifest.json", "events.jsonl", "metrics.json", "mistakes.json", "report.html"}
        | {"tallies/dev.npz", "tallies/test.npz", "tallies/slices.json"}
        | {f"model/{name}" for name in MODEL_FILES}
        | {checkpoint + name for checkpoint in checkpoints for name in MODEL_FILES | TRAINING_STATE}
    )
    kinds = sorted(path.name.partition(".")[0] for path in (base / "logs" / "visualdl").iterdir())
    assert kinds == ["vdlgraph", "vdlrecords"]


def test_visualdl_reads_the_curves_and_the_graph(work, base):
    from visualdl import LogReader

    folder = base / "logs" / "visualdl"
    (records,) = folder.glob("vdlrecords.*")
    reader = LogReader(file_path=str(records))
    logged = [event for event in work.events("base") if event["event"] == "log"]
    read = {tag: reader.get_data("scalar", tag) for tag in ("train/loss", "train/learning_rate")}
    assert [point.id for point in read["train/loss"]] == [event["step"] for event in logged]
    assert [point.value for point in read["train/loss"]] == pytest.approx([event["loss"] for event in logged])
    assert len({point.value for point in read["train/learning_rate"]}) > 3
    scored = [event["eval_accuracy"] for event in work.events("base") if event["event"] == "evaluate"]
    assert [point.value for point in reader.get_data("scalar", "eval/accuracy")] == pytest.approx(scored)
    (graph,) = folder.glob("vdlgraph.*")
    layers = {node["name"].rpartition("/")[2] for node in json.loads(graph.read_text())["nodes"]}
    assert {"Embedding[word_embeddings]", "Linear[classifier]"} <= layers


def test_the_slices_of_a_run_are_rows_of_dev(base):
    found = json.loads((base / "tallies" / "slices.json").read_text(encoding="utf-8"))
    report = json.loads((base / "metrics.json").read_text())["dev"]
    assert (found["split"], found["score"]) == ("dev", "accuracy")
    labels = {each["name"]: each for each in found["by"]["label"]}
    assert {name: each["rows"] for name, each in labels.items()} == {
        name: figures["support"] for name, figures in report["labels"].items()
    }
    for name, each in labels.items():
        assert each["score"] == pytest.approx(report["labels"][name]["recall"])
    above = [each["above"] for each in found["by"]["label"]]
    assert above == sorted(above) and "<h2>Slices</h2>" in (base / "report.html").read_text(encoding="utf-8")


def test_the_mistakes_of_a_run_are_rows_of_dev(base):
    found = json.loads((base / "mistakes.json").read_text(encoding="utf-8"))
    accuracy = json.loads((base / "metrics.json").read_text())["dev"]["accuracy"]
    assert (found["split"], found["rows"]) == ("dev", 40)
    assert found["wrong"] == len(found["worst"]) == round((1 - accuracy) * 40) > 0
    sizes = [each["size"] for each in found["worst"]]
    assert sizes == sorted(sizes, reverse=True)
    for each in found["worst"]:
        file, _, line = each["where"].rpartition(":")
        text, label = Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1].split("\t")
        assert each["texts"] == {"text": text}
        assert each["expected"].startswith(f"{label} (") and not each["given"].startswith(f"{label} (")
    page = (base / "report.html").read_text(encoding="utf-8")
    assert f">dev.tsv:{line}<" in page and 'aria-label="loss over step"' in page


def test_manifest(work, base):
    manifest = work.manifest("base")
    assert set(manifest) == {
        "format", "state", "pid", "host", "started", "ended", "error", "resumed", "command", "versions", "git_commit",
        "seed", "data", "further_files", "device", "processes", "skipped_rows", "parameters", "functions",
        "environment", "steps", "time", "planned_processes", "seconds_before", "truncated_rows",
    }  # fmt: skip
    assert (manifest["format"], manifest["state"], manifest["error"], manifest["resumed"]) == (1, "finished", None, [])
    assert (manifest["seed"], manifest["device"], manifest["processes"]) == (42, "cpu", 1)
    assert manifest["command"][1:3] == ["train", "recipe.yaml"]
    assert manifest["started"] <= manifest["ended"]
    assert {"paddlenlp": "2.8.1", "paddlepaddle": installed_paddle()}.items() <= manifest["versions"].items()
    files = [work / f"{split}.tsv" for split in ("train", "dev", "test")]
    assert manifest["data"] == {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    skipped = {split: rows["total"] for split, rows in manifest["skipped_rows"].items()}
    assert skipped == {"train": 0, "dev": 0, "test": 0}
    assert manifest["truncated_rows"] == {"rows": 61, "truncated": 0, "unread": 0.0}


def test_labels_task_and_metrics(base):
    assert json.loads((base / "model" / "labels.json").read_text()) == {"labels": ["neg", "pos"]}
    task = json.loads((base / "model" / "task.json").read_text())
    assert (task["format"], task["task"], task["trained"]) == (1, "sequence_classification", True)
    assert task["data"]["max_seq_length"] == 16 and task["data"]["columns"]["text"] == "text"
    metrics = json.loads((base / "metrics.json").read_text())
    assert list(metrics) == ["dev", "test"]
    for split, rows in (("dev", 40), ("test", 30)):
        report = metrics[split]
        assert set(report) == REPORT and report["rows"] == rows
        assert set(report["labels"]) == {"neg", "pos"}
        low, high = report["intervals"]["accuracy"]
        assert low < report["accuracy"] < high
        assert all(set(figures) == {"precision", "recall", "f1", "support"} for figures in report["labels"].values())
        assert sum(map(sum, report["confusion"])) == rows
        assert 0.7 < report["accuracy"] < 1.0  # it has learnt; a tenth of the rows are mislabelled


def test_events(work, base):
    events = work.events("base")
    kinds = [(event["event"], event["step"]) for event in events]
    expected = []
    for epoch in range(1, 7):
        expected += [("log", 8 * epoch - 4), ("log", 8 * epoch), ("evaluate", 8 * epoch), ("save", 8 * epoch)]
    assert kinds == expected
    logs, evaluations, saves = ([e for e in events if e["event"] == kind] for kind in ("log", "evaluate", "save"))
    assert {"time", "event", "step", "epoch", "loss", "learning_rate"} <= set(logs[0])
    assert {"eval_loss", "eval_accuracy", "eval_macro_f1", "epoch"} <= set(evaluations[0])
    assert set(saves[0]) == {"time", "event", "step", "checkpoint", "best"}
    assert logs[-1]["loss"] < logs[0]["loss"]
    # The model that was kept is the first of the best by the figures of the events, and scores as it did then.
    best = max(evaluations, key=lambda event: event["eval_accuracy"])
    assert saves[-1]["best"] == f"checkpoint-{best['step']}"
    kept = (base / "checkpoints" / saves[-1]["best"] / "model_state.pdparams").read_bytes()
    assert (base / "model" / "model_state.pdparams").read_bytes() == kept
    scores = json.loads((base / "metrics.json").read_text())["dev"]
    assert {name: best[f"eval_{name}"] for name in ("accuracy", "macro_f1")} == pytest.approx(
        {name: scores[name] for name in ("accuracy", "macro_f1")}, abs=1e-12
    )


def test_the_recipe_of_a_run_repeats_it(work, base, same_bits):
    """Also from elsewhere, and with data loader workers: batches and dropout do not depend on them."""
    assert load_recipe(base / "recipe.yaml").training.output_dir == str(base)
    again = work.train("again", "--dataloader_num_workers", "2", recipe="base/recipe.yaml")
    assert same_bits(base, again)
    assert json.loads((again / "metrics.json").read_text()) == json.loads((base / "metrics.json").read_text())

    # Overwritten by another run, nothing of it is left.
    work.train("again", "--seed", "43", "--num_train_epochs", "1", "--overwrite", recipe="base/recipe.yaml")
    assert not same_bits(base, again)
    assert [path.name for path in (again / "checkpoints").iterdir()] == ["checkpoint-8"]
    assert {event["step"] for event in work.events("again")} == {4, 8}
    assert work.manifest("again")["seed"] == 43 and work.manifest("again")["resumed"] == []


def test_nothing_overwrites_a_finished_run(work, base):
    before = {path: path.stat().st_mtime_ns for path in base.rglob("*")}
    for words, told in (((), "--overwrite"), (("--resume",), "nothing to resume")):
        done = work.nlpctl("train", "recipe.yaml", *words)
        assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr
        assert done.stdout == ""
    assert {path: path.stat().st_mtime_ns for path in base.rglob("*")} == before


@pytest.mark.parametrize("flag", ["--fp16", "--bf16"])
@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_half_precision_needs_a_gpu(work, flag, device):
    if flag == "--bf16" and cpu_info().computes("bf16"):
        pytest.skip("this processor computes in bf16")
    from nlpctl.runtime.device import usable_gpu

    if device == "auto" and usable_gpu().usable:
        pytest.skip("this machine has a card, and auto takes it")
    done = work.nlpctl("train", "recipe.yaml", flag, "--device", device, "--set", "training.output_dir=half")
    assert done.returncode == 2 and "needs a GPU" in done.stderr and flag in done.stderr
    assert not (work / "half").exists()


@pytest.mark.skipif(not cpu_info().computes("bf16"), reason="this processor does not compute in bf16")
def test_bf16_on_a_cpu_trains_other_weights_that_resume_to_the_same_bits(work, same_bits):
    steps = "--save_strategy", "steps", "--save_steps", "2", "--evaluation_strategy", "steps", "--eval_steps", "2"
    words = "--device", "cpu", "--max_steps", "4", *steps
    done = work.nlpctl("train", "recipe.yaml", "--set", "training.output_dir=in-bf16", *words, "--bf16")
    assert done.returncode == 0 and "scored in 32 bits (during the training in bf16)" in done.stderr
    whole = work.folder / "in-bf16"
    assert not same_bits(whole, work.train("in-fp32", *words))
    again = work.train("in-parts", *words, "--bf16")
    manifest = {**work.manifest(again.name), "state": "running", "ended": None, "pid": 2**30}
    (again / "manifest.json").write_text(json.dumps(manifest))
    shutil.rmtree(again / "model")
    shutil.rmtree(again / "checkpoints" / "checkpoint-4")
    assert same_bits(work.train("in-parts", "--resume", recipe="in-parts"), whole)
