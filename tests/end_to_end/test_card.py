"""`nlpctl card` of what training and export leave behind."""

from __future__ import annotations

import json
import shutil

from huggingface_hub import ModelCard


def card_of(work, model, *words: str) -> str:
    done = work.nlpctl("card", str(model), "-o", "card.md", "--overwrite", *words)
    assert done.returncode == 0, done.stderr
    return (work / "card.md").read_text(encoding="utf-8")


def results(text: str) -> dict:
    data = ModelCard(text).data
    return {(each.dataset_split, each.metric_type): each.metric_value for each in data.eval_results or ()}


def test_the_card_of_a_run_has_its_scores(work, base):
    text = card_of(work, "base")
    metrics = json.loads((base / "metrics.json").read_text())
    assert results(text)["test", "accuracy"] == metrics["test"]["accuracy"]
    assert "| train | 61 |" in text and str(work.folder) not in text
    assert card_of(work, "base/model") == text


def test_an_export_knows_its_run_until_it_is_trained_again(work, exported):
    told = card_of(work, exported)
    assert ("test", "accuracy") in results(told) and "## Graphs" in told and "| model.onnx | onnxruntime |" in told
    manifest = exported / "export.json"
    before = manifest.read_text()
    manifest.write_text(json.dumps({**json.loads(before), "weights": "those of another training"}))
    told = card_of(work, exported)
    manifest.write_text(before)
    assert results(told) == {} and "## Graphs" in told and "## Training data" not in told


def test_a_copied_model_knows_no_run(work, base):
    shutil.copytree(base / "model", work / "copied")
    done = work.nlpctl("card", "copied", "--language", "zh", "--json")
    assert done.returncode == 0, done.stderr
    file = work / "copied" / "README.md"
    assert json.loads(done.stdout)["result"] == {"card": str(file.resolve())}
    text = file.read_text(encoding="utf-8")
    assert results(text) == {} and "在它所属的运行中" in text and "neg、pos" in text
    assert work.nlpctl("predict", "copied", "dev.tsv").returncode == 0  # it is still a whole model
    shutil.rmtree(work / "copied")
