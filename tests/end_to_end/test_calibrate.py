"""Probabilities that hold: fitted at the end of training or by `nlpctl calibrate`, kept with the model, and used."""

from __future__ import annotations

import json
import random
import shutil
import signal
from pathlib import Path

import pytest

from tests.helpers.service import listening, post

LABELLED = "many.tsv"  # 400 rows: enough to fit to


def sentences(count, seed):
    """Texts like those of conftest.py; every tenth has the wrong label."""
    chance = random.Random(seed)
    for row in range(count):
        label = chance.choice(("neg", "pos"))
        words = chance.choices("the room bed was staff view food very a and".split(), k=chance.randint(1, 8))
        words.insert(0, chance.choice({"neg": ("bad", "dirty"), "pos": ("good", "clean")}[label]))
        yield " ".join(words), label if row % 10 else {"neg": "pos", "pos": "neg"}[label]


@pytest.fixture(scope="session")
def sure(work):
    """A run with a calibrated model. Read only."""
    rows = "".join(f"{text}\t{label}\n" for text, label in sentences(400, 9))
    (work / LABELLED).write_text("text\tlabel\n" + rows)
    return work.train("sure", "--set", f"data.dev={LABELLED}", "--num_train_epochs", "10")


@pytest.fixture(scope="session")
def raw(work, sure):
    """A run whose model was never calibrated, with as many dev rows. Read only."""
    return work.train("raw", "--set", f"data.dev={LABELLED}", "--calibrate", "false", "--max_steps", "2")


@pytest.fixture(scope="session")
def sure_export(work, sure):
    """The export of `sure`. Read only."""
    done = work.nlpctl("export", "sure", "--format", "paddle,onnx", "-o", "sure-export")
    assert done.returncode == 0, done.stderr
    return work / "sure-export"


@pytest.fixture(scope="session")
def bare(work, sure):
    """The same model without its calibration. Read only."""
    shutil.copytree(sure / "model", work / "bare")
    (work / "bare" / "calibration.json").unlink()
    (work / "bare" / "manifest.json").unlink()
    return work / "bare"


def metrics_of(run):
    return json.loads((run / "metrics.json").read_text())


def answers(work, *words):
    done = work.nlpctl("predict", *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_training_calibrates_the_model(work, sure, bare):
    kept = json.loads((sure / "model" / "calibration.json").read_text())
    assert kept["split"] == "dev" and kept["rows"] == 400 and kept["ece"][1] < kept["ece"][0]
    assert "calibration.json" in json.loads((sure / "model" / "manifest.json").read_text())["sha256"]
    dev = metrics_of(sure)["dev"]
    assert dev["ece"] == pytest.approx(kept["ece"][1], abs=1e-5)
    assert dev["confidence"]["before"]["ece"] == pytest.approx(kept["ece"][0], abs=1e-5)
    page = (sure / "report.html").read_text()
    assert "Confidence" in page and "share right over confidence" in page
    before, after = (answers(work, model, LABELLED) for model in ("bare", "sure"))
    assert [each["label"] for each in before] == [each["label"] for each in after]
    assert [each["probabilities"] for each in before] != [each["probabilities"] for each in after]


def test_a_small_dev_set_and_the_key_leave_the_model_alone(work, base, raw):
    assert not (base / "model" / "calibration.json").exists()  # 40 rows
    assert not (raw / "model" / "calibration.json").exists()
    assert "before" not in metrics_of(raw)["dev"]["confidence"]
    told = {model: work.nlpctl("eval", model).stderr for model in ("base", "raw", "sure")}
    said = "probabilities are not calibrated: the model has no calibration"
    assert said in told["base"] and "`nlpctl calibrate base" in told["base"]
    assert "not calibrated" not in told["raw"] + told["sure"]  # one did not ask for it, one is


def test_a_run_tells_how_it_was_calibrated_later(work, raw):
    run = shutil.copytree(raw, work / "later")
    done = work.nlpctl("calibrate", "later")
    assert done.returncode == 0, done.stderr
    kept = json.loads((run / "model" / "calibration.json").read_text())
    old, new = metrics_of(raw), metrics_of(run)
    assert [old["dev"]["ece"], new["dev"]["ece"]] == pytest.approx(kept["ece"], abs=1e-5)
    for split in ("dev", "test"):
        assert new[split]["confidence"]["before"]["ece"] == old[split]["ece"] != new[split]["ece"]
        assert {**new[split], "ece": 0, "confidence": 0} == {**old[split], "ece": 0, "confidence": 0}
    told = f"ECE {new['test']['ece']:.4f}, {old['test']['ece']:.4f} uncalibrated"
    assert told in (run / "report.html").read_text() and told not in (raw / "report.html").read_text()
    shown, card = work.nlpctl("runs", "show", "later"), work.nlpctl("card", "later", "-o", "later.md")
    assert told in shown.stdout and card.returncode == 0
    text = (work / "later.md").read_text()
    assert f"| test | ece | {new['test']['ece']:.4f}" in text and f"test {old['test']['ece']:.4f}." in text


def test_what_training_told_is_told_again(work, sure):
    run = shutil.copytree(sure, work / "told-again")
    done = work.nlpctl("calibrate", "told-again/model", LABELLED)
    assert done.returncode == 0, done.stderr
    assert metrics_of(run) == metrics_of(sure)


def test_a_run_tells_nothing_of_rows_that_changed(work, raw):
    run = shutil.copytree(raw, work / "moved")
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["data"] = {file: "0" if "test" in Path(file).name else sha for file, sha in manifest["data"].items()}
    (run / "manifest.json").write_text(json.dumps(manifest))
    done = work.nlpctl("calibrate", "moved")
    assert done.returncode == 0 and "tells no confidence on test any more" in done.stderr, done.stderr
    new = metrics_of(run)
    assert "before" in new["dev"]["confidence"] and not {"ece", "confidence"} & new["test"].keys()
    assert new["test"]["accuracy"] == metrics_of(raw)["test"]["accuracy"]


def test_the_command_fits_what_training_fits(work, sure, bare):
    shutil.copytree(bare, work / "calibrated-again")
    grouped = (LABELLED, "--set", "data.columns.group=label", "--json")  # rows of a label are drawn together
    done, scored = (work.nlpctl(command, "calibrated-again", *grouped) for command in ("calibrate", "eval"))
    assert done.returncode == scored.returncode == 0, done.stderr + scored.stderr
    result = json.loads(done.stdout)["result"]
    assert result["metrics"] == json.loads(scored.stdout)["result"]["metrics"]
    folders = (work / "calibrated-again", work / "sure" / "model")
    own, trained = (json.loads((folder / "calibration.json").read_text()) for folder in folders)
    assert {**own, "split": "dev"} == trained
    assert {"format": 1, **result["calibration"]} == own
    assert result["metrics"]["test"]["ece"] == pytest.approx(own["ece"][1], abs=1e-5)
    told = work.nlpctl("calibrate", "calibrated-again", LABELLED)
    assert told.returncode == 0 and "ECE" in told.stdout and "confidence from" in told.stdout


def test_an_export_is_calibrated(work, sure, sure_export, bare):
    shutil.copytree(sure_export, work / "export-again")
    shutil.copytree(bare, work / "of-network")
    rows = "".join(f"{text}\t{label}\n" for text, label in sentences(120, 4))
    (work / "other.tsv").write_text("text\tlabel\n" + rows)
    done = work.nlpctl("calibrate", "export-again", "other.tsv", "--json")
    assert done.returncode == 0, done.stderr
    own = json.loads((work / "export-again" / "calibration.json").read_text())
    assert own == {"format": 1, **json.loads(done.stdout)["result"]["calibration"]}
    assert (own["split"], own["rows"]) == ("test", 120)
    assert work.nlpctl("calibrate", "of-network", "other.tsv").returncode == 0
    network = json.loads((work / "of-network" / "calibration.json").read_text())
    assert own["scales"] == pytest.approx(network["scales"], rel=1e-3)
    before, after = (answers(work, export, "other.tsv") for export in ("sure-export", "export-again"))
    assert [each["label"] for each in before] == [each["label"] for each in after]
    assert [each["probabilities"] for each in before] != [each["probabilities"] for each in after]


def test_a_service_withholds_unsure_answers(work, sure):
    rows = [{"text": text} for text, _ in sentences(20, 6)]
    (work / "served.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    whole, expected = (
        answers(work, "sure", "served.jsonl", *words) for words in ((), ("--min-confidence", "0.9"))
    )
    process = work.start(
        "serve", "sure", "--port", "0", "--drain", "0", "--min-confidence", "0.9", "--set", "data.on_bad_row=skip"
    )
    url, _ = listening(process)
    status, (blank, *listed) = post(url, [{"text": " "}, *rows])
    singles = [post(url, row) for row in rows]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert status == 200 and "blank text" in blank["error"]
    assert singles == [(200, each) for each in listed]
    assert [each["text"] for each in listed] == [row["text"] for row in rows]
    assert [each["label"] for each in listed] == [each["label"] for each in expected]
    for each, other in zip(listed, whole, strict=True):
        assert each["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
    assert 0 < sum(each["label"] is None for each in listed) < len(listed)


def test_rows_that_the_model_was_trained_on_are_warned_of(work, sure):
    shutil.copytree(sure, work / "sure-of-train")
    done = work.nlpctl("calibrate", "sure-of-train", "--split", "train", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["result"]["split"] == "train", done.stderr
    assert "trained on" in done.stderr


def test_unsure_answers_are_withheld_in_every_engine(work, sure, sure_export, bare):
    texts = work / "some.txt"
    texts.write_text("".join(f"{text}\n" for text, _ in sentences(30, 5)) + "\nvery the a\n")
    whole = answers(work, "sure", "some.txt")
    engines = ((), ("--engine", "onnxruntime", "--precision", "fp32"), ("--engine", "paddle", "--precision", "fp32"))
    for engine in engines:
        found = answers(work, "sure-export" if engine else "sure", "some.txt", "--min-confidence", "0.9", *engine)
        assert [each["text"] for each in found] == [each["text"] for each in whole]
        for each, other in zip(found, whole, strict=True):
            shares = other["probabilities"]
            unsure = shares is not None and shares[other["label"]] < 0.9
            assert each["label"] == (None if unsure else other["label"])
            if shares is not None:
                assert each["probabilities"] == pytest.approx(shares, abs=1e-4)
        assert 0 < sum(each["label"] is None for each in found) < len(found)
    told = work.nlpctl("predict", "bare", "some.txt", "--min-confidence", "0.9")
    assert told.returncode == 0 and "never compared with data" in told.stderr


def test_a_precision_is_looked_for_on_dev(work, sure):
    done = work.nlpctl("eval", "sure", "--target-precision", "0.9", "--json")
    assert done.returncode == 0, done.stderr
    target = json.loads(done.stdout)["result"]["target"]
    assert target["precision"] == 0.9 and 0.5 < target["min_confidence"] < 1
    assert target["kept"]["dev"]["precision"] >= 0.9
    low, high = target["kept"]["test"]["coverage_interval"]
    assert 0 <= low <= target["kept"]["test"]["coverage"] <= high <= 1
    table = work.nlpctl("eval", "sure", LABELLED, "--target-precision", "0.9")
    assert table.returncode == 0 and "--min-confidence" in table.stdout and "confidence from" in table.stdout
    assert "\ndev" not in table.stdout  # the table of scores has the file alone


def test_other_parameters_lose_the_calibration(work, sure):
    done = work.nlpctl("params", "set", "sure", "--value", "classifier.bias=0", "-o", "other")
    assert done.returncode == 0, done.stderr
    assert not (work / "other" / "calibration.json").exists()


def test_what_cannot_be_calibrated(work, sure, base):
    for words, told in (
        (("calibrate", "base"), "fewer than 50"),
        (("calibrate", "sure", "--split", "nonesuch"), "no split"),
        (("calibrate", "sure/model"), "no dev data"),
        (("calibrate", "sure", LABELLED, "--split", "dev"), "--split"),
        (("calibrate", "nowhere"), "nowhere"),
        (("predict", "sure", LABELLED, "--min-confidence", "2"), "--min-confidence"),
        (("eval", "sure", "--target-precision", "7"), "--target-precision"),
        (("eval", "sure/model", LABELLED, "--target-precision", "0.9"), "no dev data"),
    ):
        done = work.nlpctl(*words)
        assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr, (words, done.stderr)


def test_every_command_tells_the_same_probabilities(work, sure, bare):
    texts = [text for text, _ in sentences(12, 7)]
    (work / "doubted.txt").write_text("".join(f"{text}\n" for text in texts))
    told = answers(work, "sure", "doubted.txt")
    sureness = {each["text"]: each["probabilities"][each["label"]] for each in told}
    explained = work.nlpctl("explain", "sure", "doubted.txt")
    assert explained.returncode == 0, explained.stderr
    assert [line for line in explained.stdout.splitlines() if line.startswith(("neg  ", "pos  "))] == [
        f"{each['label']}  {sureness[each['text']]:.3f}" for each in told
    ]
    found = work.nlpctl("data", "next", "sure", "doubted.txt", "-n", "4", "--json")
    assert found.returncode == 0, found.stderr
    chosen = json.loads(found.stdout)["result"]["chosen"]
    assert [each["chosen"]["confidence"] for each in chosen] == [sureness[each["text"]] for each in chosen]
    before = {each["text"]: each["probabilities"] for each in answers(work, "bare", "doubted.txt")}
    assert any(abs(max(before[text].values()) - sureness[text]) > 0.01 for text in sureness)


def test_rows_of_the_training_in_a_file_of_ones_own_are_warned_of(work, sure):
    shutil.copytree(sure, work / "sure-of-own")
    rows = (work / "train.tsv").read_text() + "".join(f"{text}\t{label}\n" for text, label in sentences(100, 8))
    (work / "mixed.tsv").write_text(rows)
    done = work.nlpctl("calibrate", "sure-of-own", "mixed.tsv")
    assert done.returncode == 0 and "the model was trained on 6" in done.stderr, done.stderr  # 61, and a repetition


def test_rows_of_the_training_are_warned_of_where_an_export_is_calibrated(work, sure_export):
    shutil.copytree(sure_export, work / "export-of-own")  # it knows the run that it was made from
    done = work.nlpctl("calibrate", "export-of-own", "train.tsv")
    assert done.returncode == 0 and "the model was trained on 6" in done.stderr, done.stderr


def test_an_older_export_in_the_run_is_told_of(work, sure, sure_export):
    shutil.copytree(sure, work / "sure-exported")
    shutil.copytree(sure_export, work / "sure-exported" / "export")
    done = work.nlpctl("calibrate", "sure-exported", LABELLED)
    assert done.returncode == 0 and "nlpctl calibrate sure-exported/export, or export again" in done.stderr


def test_a_file_without_what_is_needed_is_told_before_a_model_is_loaded(work, sure):
    (work / "empty.tsv").write_text("")
    (work / "others.tsv").write_text("words\tmark\na b\tpos\n")
    for file, told in (("empty.tsv", "it is empty"), ("others.tsv", "no column 'text' in others.tsv")):
        for command in ("eval", "calibrate"):
            done = work.nlpctl(command, "sure", file)
            assert done.returncode == 2 and told in done.stderr and "model sure" not in done.stderr, done.stderr
