"""`nlpctl train --folds` and `--seeds`: several runs of one recipe, and a prediction for every row."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from nlpctl.experiments.held_out import read_probabilities

QUICK = ("--max_steps", "3", "--evaluation_strategy", "no", "--save_strategy", "no", "--no-load_best_model_at_end")
WORDS = ("train", "recipe.yaml", "--folds", "2", "--set", "data.train=noisy.tsv", "--output_dir", "folds")


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_every_row_is_predicted_by_a_run_that_did_not_see_it(work, folds):
    assert folds["runs"] == ["fold-1", "fold-2"]
    found = lines(work / folds["predictions"])
    rows = [line.split("\t") for line in (work / "noisy.tsv").read_text().splitlines()[1:]]
    assert [line["where"] for line in found] == [f"{work / 'noisy.tsv'}:{i + 2}" for i in range(len(rows))]
    assert [[line["texts"]["text"], line["given"]] for line in found] == rows
    for line in found:
        seen = (work / "folds" / "data" / f"train-fold-{line['fold']}.tsv").read_text()
        assert f"\n{line['texts']['text']}\t" not in seen
        assert max(line["probabilities"], key=line["probabilities"].get) == line["label"]
    shares, labels = read_probabilities(work / "folds" / "probabilities.npz")
    assert labels == ("neg", "pos") and len(shares.values) == len(rows)
    told = [[line["probabilities"][name] for name in labels] for line in found]
    assert np.allclose(shares.values, told, atol=1e-5)


def test_a_fold_is_an_ordinary_run(work, folds):
    """Its model gives the predictions and scores of its fold."""
    held = [line for line in lines(work / folds["predictions"]) if line["fold"] == 2]
    rows = "".join(f"{line['texts']['text']}\t{line['given']}\n" for line in held)
    (work / "held.tsv").write_text(f"text\tlabel\n{rows}")
    scored = json.loads(work.nlpctl("eval", "folds/fold-2", "held.tsv", "--json").stdout)["result"]["metrics"]["test"]
    kept = json.loads((work / "folds" / "held" / "fold-2" / "scores.json").read_text())
    assert scored["accuracy"] == kept["accuracy"] and scored["rows"] == kept["rows"] == len(held)


def test_folds_of_a_new_transformer_can_be_joined(work, folds):
    entries = {(work / "folds" / name / "model" / "vocab.txt").read_text() for name in folds["runs"]}
    assert len(entries) == 1
    done = work.nlpctl("ensemble", "folds", "-o", "joined", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["metrics"]["dev"]["rows"] == 40


@pytest.mark.slow
def test_its_recipe_repeats_it(work, folds):
    again = work.train("alone", recipe="folds/fold-2/recipe.yaml")
    weights = "model/model_state.pdparams"
    assert (again / weights).read_bytes() == (work / "folds" / "fold-2" / weights).read_bytes()


def test_the_spread_of_the_scores(work, folds):
    found = folds["scores"]["test"]["accuracy"]
    reports = [json.loads((work / "folds" / name / "metrics.json").read_text()) for name in folds["runs"]]
    each = [report["test"]["accuracy"] for report in reports]
    assert found["runs"] == 2 and found["mean"] == pytest.approx(np.mean(each))
    assert found["deviation"] == pytest.approx(np.std(each, ddof=1))
    assert (found["least"], found["most"]) == (min(each), max(each))
    page = (work / folds["report"]).read_text()
    assert "fold-2/report.html" in page and "standard deviation" in page


def test_seeds_that_are_joined_decide_by_their_mean_thresholds(work):
    """As each run of several labels decides by those that it tuned on dev."""
    rows = [{"text": f"{a} {b} {i}", "label": [a, b][: i % 3]} for i, (a, b) in enumerate([("one", "two")] * 24)]
    (work / "sets.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (work / "sets.yaml").write_text(
        "task: multi_label_classification\nmodel: {from_scratch: {architecture: textcnn}}\n"
        "data: {train: sets.jsonl, dev: sets.jsonl}\ntraining: {output_dir: sets}\n"
    )
    done = work.nlpctl("train", "sets.yaml", "--folds", "2", "--seeds", "1,2", *QUICK)
    assert done.returncode == 0, done.stderr
    tuned = [
        np.mean(
            [
                json.loads((work / f"sets/seed-{seed}-fold-{fold}/model/labels.json").read_text())["thresholds"]
                for seed in (1, 2)
            ],
            0,
        )
        for fold in (1, 2)
    ]
    shares, names = read_probabilities(work / "sets" / "probabilities.npz")
    found = lines(work / "sets" / "predictions.jsonl")
    given = [[name in line["labels"] for name in names] for line in found]
    assert given == [
        (share >= tuned[line["fold"] - 1]).tolist() for share, line in zip(shares.values, found, strict=True)
    ]
    assert given != (shares.values >= 0.5).tolist()


def test_finished_folds_are_kept(work, folds):
    again = work.nlpctl(*WORDS)
    assert again.returncode == 2 and "--overwrite" in again.stderr
    again = work.nlpctl(*WORDS, "--resume")
    assert again.returncode == 2 and "nothing to resume" in again.stderr


@pytest.mark.slow
def test_killed_and_resumed(work, folds):
    """Killed while the second fold begins, it goes on there; the first one is kept."""
    words = (*WORDS[:-1], "killed-folds", *QUICK)
    ended = work.end(work.start(*words), (work / "killed-folds" / "fold-2" / "manifest.json").exists, signal.SIGKILL)
    assert ended.returncode != 0 and not (work / "killed-folds" / "predictions.jsonl").exists()
    weights = work / "killed-folds" / "fold-1" / "model" / "model_state.pdparams"
    written = weights.stat().st_mtime_ns
    changed = work.nlpctl(*words, "--resume", "--learning_rate", "1e-3")
    assert changed.returncode == 2 and "learning_rate" in changed.stderr
    other = work.nlpctl(*(word if word != "2" else "4" for word in words), "--resume")
    assert other.returncode == 2 and "folds 2" in other.stderr
    done = work.nlpctl(*words, "--resume")
    assert done.returncode == 0 and weights.stat().st_mtime_ns == written, done.stderr
    assert len(lines(work / "killed-folds" / "predictions.jsonl")) == len(lines(work / "folds" / "predictions.jsonl"))


def test_what_is_done_is_not_given_out(work, folds):
    """No worker is started; the command puts together what is there."""
    shutil.copytree(work / "folds", work / "all-done")
    series = work / "all-done" / "series.json"
    series.write_text(series.read_text().replace('"state": "finished"', '"state": "running"'))
    (work / "all-done" / "predictions.jsonl").unlink()
    done = work.nlpctl(*WORDS[:-1], "all-done", "--resume", "--workers", "3")
    assert done.returncode == 0 and "2 workers, 0 runs" in done.stderr, done.stderr
    assert (work / "all-done/predictions.jsonl").read_bytes() == (work / "folds/predictions.jsonl").read_bytes()


@pytest.mark.slow
def test_runs_side_by_side(work, folds):
    """The models and predictions of one process, bit by bit."""
    words = (*WORDS[:-1], "beside", "--threads", "1", "--workers", "2")
    done = work.fresh(*words)
    assert done.returncode == 0 and "2 workers, 2 runs" in done.stderr and "run 2 of 2 is finished" in done.stderr
    made = ["predictions.jsonl", "scores.json", "data/train-fold-1.tsv", "held/fold-2/probabilities.npz"]
    for name in (*made, *(f"fold-{fold}/model/model_state.pdparams" for fold in (1, 2))):
        assert (work / "beside" / name).read_bytes() == (work / "folds" / name).read_bytes(), name
    assert len(list((work / "beside" / "logs").iterdir())) == 2


def in_its_steps(events: Path) -> bool:
    """Whether a training has begun with its steps, after which it saves a checkpoint when it is stopped."""
    return events.exists() and '"event": "log"' in events.read_text()


@pytest.mark.slow
def test_stopped_side_by_side(work, folds):
    """Each run saves a checkpoint; what is resumed, with another number of workers, ends as if nothing had been."""
    words = (*WORDS[:-1], "stopped-beside", "--threads", "1")
    begun = [work / "stopped-beside" / name / "events.jsonl" for name in folds["runs"]]
    started = work.start_fresh(*words, "--workers", "2")
    ended = work.end(started, lambda: all(map(in_its_steps, begun)), signal.SIGINT)
    assert ended.returncode == 130 and "--resume goes on" in ended.stderr and "Traceback" not in ended.stderr
    states = {json.loads((each.parent / "manifest.json").read_text())["state"] for each in begun}
    assert states == {"interrupted"}
    done = work.fresh(*words, "--resume")
    assert done.returncode == 0, done.stderr
    for name in ("predictions.jsonl", *(f"{run}/model/model_state.pdparams" for run in folds["runs"])):
        assert (work / "stopped-beside" / name).read_bytes() == (work / "folds" / name).read_bytes(), name


def test_a_damaged_list_of_runs(work, folds):
    """With --overwrite no run of before is kept, whatever series.json says."""
    shutil.copytree(work / "folds", work / "damaged")
    words = (*WORDS[:-1], "damaged", *QUICK)
    (work / "damaged" / "series.json").write_text("{")
    refused = work.nlpctl(*words, "--resume")
    assert refused.returncode == 2 and "series.json" in refused.stderr
    assert work.nlpctl("data", "audit", "damaged").returncode == 2
    kept = work / "damaged" / "fold-1" / "mine"
    kept.touch()
    done = work.nlpctl(*words, "--overwrite")
    assert done.returncode == 0 and not kept.exists(), done.stderr


def test_seeds(work, folds):
    words = ("train", "recipe.yaml", "--seeds", "1,2", "--set", "training.output_dir=seeds", *QUICK)
    done = work.nlpctl(*words, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert result["runs"] == ["seed-1", "seed-2"] and result["predictions"] is None
    assert result["scores"]["dev"]["accuracy"]["runs"] == 2
    recipes = [(work / "seeds" / name / "recipe.yaml").read_text() for name in result["runs"]]
    assert "seed: 1\n" in recipes[0] and "seed: 2\n" in recipes[1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--folds", "1"), "2 or more"),
        (("--folds", "100", "--output_dir", "never"), "61 rows cannot be cut into 100 folds"),
        (("--seeds", "1,x"), "'x' is not a seed"),
        (("--seeds", "1,1"), "the seed 1 is there twice"),
        (("--folds", "2", "--overfit-batch"), "cannot be combined"),
        (("--seeds", "1", "--continue", "2"), "cannot be combined"),
        (("--seeds", "1", "--master", "\udcff"), "not UTF-8"),
        (("--seeds", "1", "--master", "node0:1"), "--seeds and --master cannot be combined"),
        (("--folds", "2", "--resume", "--overwrite"), "cannot be combined"),
        (("--folds", "2", "--set", "data.columns.group=nonesuch", "--output_dir", "never"), "no column 'nonesuch'"),
        (("--folds", "2"), "--output_dir base-folds"),
        (("--workers", "2"), "--workers is for the runs of --folds and --seeds"),
        (("--overfit-batch", "--cluster", "auto"), "cannot be combined"),
        (("--seeds", "1,2", "--cluster", "here"), "'here' is not the address of a Ray cluster"),
    ],
)
def test_what_is_refused(work, base, words, told):
    done = work.nlpctl("train", "recipe.yaml", *words)
    assert done.returncode == 2 and told in done.stderr and "->" in done.stderr, done.stderr
