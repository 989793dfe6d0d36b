"""`nlpctl sweep`: trainings with other values, each an ordinary run."""

from __future__ import annotations

import json
import os
import shutil
import signal

import pytest

from nlpctl.config.load import load_recipe

pytest.importorskip("optuna", reason="the extra sweep is not installed")

RATES = "0.01, 0.011, 0.012, 0.013, 0.014, 1e-9"
SWEEP = f"""\
# Six rates, of which the last one learns nothing.
extends: recipe.yaml
# for nlpctl sweep
search:
  sampler: grid
  space: {{training.learning_rate: [{RATES}]}}
training:
  evaluation_strategy: steps  # early
  save_strategy: steps
  eval_steps: 24
  save_steps: 24
  max_steps: 30
"""
NO_DEV = ("--evaluation_strategy", "no", "--save_strategy", "no", "--no-load_best_model_at_end")
DRAWN = """\
extends: recipe.yaml
search:
  trials: 3
  space:
    training.learning_rate: {log: [1e-4, 1e-2]}
    model.freeze: [[], ['*.bias']]
    training.weight_decay: {uniform: [0, 0.1], when: {model.freeze: []}}
training: {max_steps: 4, evaluation_strategy: steps, save_strategy: steps, eval_steps: 2, save_steps: 2}
"""


def result(work, *words: str) -> dict:
    done = work.nlpctl("sweep", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]


def tried(found: dict) -> list:
    return [(each["trial"], each["state"], each["score"], each["values"]) for each in found["trials"]]


@pytest.fixture(scope="session")
def swept(work) -> dict:
    (work / "sweep.yaml").write_text(SWEEP)
    return result(work, "sweep.yaml", "-o", "swept", "--set", "data.max_seq_length=15")


def test_a_grid_of_ordinary_runs(work, swept):
    rates = [each["values"]["training.learning_rate"] for each in swept["trials"]]
    assert rates == [float(rate) for rate in RATES.split(",")]
    scored = [each for each in swept["trials"] if each["state"] == "finished"]
    for each in scored:
        metrics = json.loads((work / each["run"] / "metrics.json").read_text())
        assert list(metrics) == ["dev"] and metrics["dev"]["accuracy"] == each["score"]  # test is read for the best
    assert swept["best"] == max(scored, key=lambda each: each["score"])["trial"] and swept["second"] != swept["best"]
    assert load_recipe(work / scored[1]["run"]).training.learning_rate == scored[1]["values"]["training.learning_rate"]
    again = work.nlpctl("eval", work / "swept" / "trials" / swept["best"], "test.tsv", "--json").stdout
    assert json.loads(again)["result"]["metrics"]["test"]["accuracy"] == swept["test"]["accuracy"]


def test_the_worst_is_stopped_early(work, swept):
    last = swept["trials"][-1]
    assert last["state"] == "pruned" and "at step 24 is worse than the median" in last["reason"]
    manifest = json.loads((work / last["run"] / "manifest.json").read_text())
    assert manifest["state"] == "pruned" and not (work / last["run"] / "model").exists()
    listed = work.nlpctl("runs", "ls", "swept", "--sort", "name").stdout.splitlines()
    assert [line.split()[1] for line in listed[2:]] == ["finished"] * 5 + ["pruned"]


def test_the_best_recipe(work, swept):
    text = (work / swept["recipe"]).read_text()
    assert "search" not in text and "# Six rates" in text and "evaluation_strategy: steps  # early" in text
    assert f"# sweep: best of 6 trials, trial {swept['best']}; tried one of 0.01, 0.011" in text
    assert "# from the command line: --set data.max_seq_length" in text
    best = load_recipe(work / swept["recipe"])
    run = load_recipe(work / "swept" / "trials" / swept["best"])
    assert best.training.learning_rate == run.training.learning_rate and best.data.max_seq_length == 15
    assert best.data.test and not run.data.test and best.run_dir == work / "swept-best"


def test_the_page(work, swept):
    page = (work / swept["report"]).read_text()
    for told in ("trials/000/report.html", "pruned", "Importance", "with 95 %", "Best recipe", "best so far"):
        assert told in page, told
    assert "<script" not in page


@pytest.mark.slow
def test_more_trials_of_a_finished_sweep(work):
    (work / "drawn.yaml").write_text(DRAWN)
    first = result(work, "drawn.yaml", "-o", "drawn")
    assert len(first["trials"]) == 3
    assert all(("training.weight_decay" in each["values"]) == (not each["values"]["model.freeze"])
               for each in first["trials"])  # fmt: skip
    refused = work.nlpctl("sweep", "drawn.yaml", "-o", "drawn", "--resume")
    assert refused.returncode == 2 and "all 3 trials are done" in refused.stderr and "--trials 6" in refused.stderr
    assert work.nlpctl("runs", "clean", "drawn", "--yes").returncode == 0  # scores are what is compared
    assert [path.parent.name for path in (work / "drawn" / "trials").glob("*/model")] == [first["best"]]
    more = result(work, "drawn.yaml", "-o", "drawn", "--resume", "--trials", "4")
    assert tried(more)[:3] == tried(first) and len(more["trials"]) == 4
    changed = work.nlpctl("sweep", "drawn.yaml", "-o", "drawn", "--resume", "--trials", "5", "--max_steps", "6")
    assert changed.returncode == 2 and "training.max_steps" in changed.stderr


def test_a_trial_that_cannot_work_and_a_budget(work):
    """32 units are no multiple of 5 heads; after the first trial that finished, there is no time for another one."""
    heads = "sampler: grid\n  budget: 1s\n  space: {model.from_scratch.num_attention_heads: [5, 4, 2, 1, 8]}\n"
    (work / "drawn.yaml").write_text(DRAWN[: DRAWN.index("trials: 3")] + heads + DRAWN[DRAWN.index("training: {") :])
    found = result(work, "drawn.yaml", "-o", "sweep-short")
    states = [each["state"] for each in found["trials"]]
    assert states[:2] == ["failed", "finished"] and len(states) < 5
    assert "heads" in found["trials"][0]["reason"] and not (work / "sweep-short" / "trials" / "000").exists()


CALLBACKS = """
import pathlib

from paddlenlp.trainer import TrainerCallback


class FullDisk(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3 and not pathlib.Path("has_space").exists():
            raise OSError(28, "No space left on device")
"""


def test_a_full_disk_ends_the_sweep_and_is_no_trial(work):
    """What the owner writes in the recipe meanwhile is not in best.yaml, and data must stay as they were."""
    (work / "disks.py").write_text(CALLBACKS)
    shutil.copy(work / "train.tsv", work / "more.tsv")
    space = "training.learning_rate: {log: [1e-4, 1e-2]}, data.train: [more.tsv, train.tsv]"
    search = f"search: {{trials: 1, space: {{{space}}}}}"
    own = DRAWN[DRAWN.index("training: {") :].replace("max_steps: 4", "max_steps: 4, callbacks: [disks:FullDisk]")
    text = f"# the first\nextends: recipe.yaml\n{search}\n{own}data: {{labels: [neg, pos]}}\n"
    (work / "disk.yaml").write_text(text)
    ended = work.nlpctl("sweep", "disk.yaml", "-o", "disk")
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert "No space left on device" in ended.stderr and "free space on this disk; the same command" in ended.stderr
    (work / "has_space").touch()
    (work / "disk.yaml").write_text(text.replace("# the first", "# the second"))
    more = ("disk.yaml", "-o", "disk", "--resume", "--trials", "2")
    rows = (work / "more.tsv").read_text()
    (work / "more.tsv").write_text(f"{rows}a clean room\tpos\n")
    changed = work.nlpctl("sweep", *more)
    assert changed.returncode == 2 and "the data changed" in changed.stderr and "more.tsv" in changed.stderr
    (work / "more.tsv").write_text(rows)
    found = result(work, *more)
    assert [each["state"] for each in found["trials"]] == ["finished"] * 2
    best = (work / found["recipe"]).read_text()
    assert best.startswith("# the first\n") and "# sweep: best of 2 trials" in best
    assert load_recipe(work / "disk" / "recipe.yaml").search.trials == 2
    (work / "has_space").unlink()
    assert work.nlpctl("sweep", *more[:-1], "3").returncode == 1
    assert json.loads((work / "disk" / "series.json").read_text())["state"] == "running"  # for runs clean


@pytest.mark.slow
def test_killed_and_resumed(work):
    (work / "drawn.yaml").write_text(DRAWN.replace("trials: 3", "trials: 6"))
    whole = result(work, "drawn.yaml", "-o", "whole")
    words = ("sweep", "drawn.yaml", "-o", "sweep-killed")
    for number in (0, 2, 5):
        begun = work / "sweep-killed" / "trials" / f"{number:03d}" / "events.jsonl"
        ended = work.end(work.start(*words), begun.exists, signal.SIGKILL)
        assert ended.returncode != 0
        words = ("sweep", "drawn.yaml", "-o", "sweep-killed", "--resume")
    first = work / "sweep-killed" / "trials" / "001" / "model" / "model_state.pdparams"
    written = first.stat().st_mtime_ns
    killed = result(work, *words[1:])
    assert tried(killed) == tried(whole) and first.stat().st_mtime_ns == written
    for each in whole["trials"]:
        if each["state"] == "finished":
            weights = f"trials/{each['trial']}/model/model_state.pdparams"
            assert (work / "whole" / weights).read_bytes() == (work / "sweep-killed" / weights).read_bytes()


@pytest.mark.slow
def test_trials_side_by_side(work, swept):
    found = result(work, "sweep.yaml", "-o", "two", "--set", "data.max_seq_length=15", "--workers", "2")
    assert [each["values"] for each in found["trials"]] == [each["values"] for each in swept["trials"]]
    assert [each["score"] for each in found["trials"]][:5] == [each["score"] for each in swept["trials"]][:5]
    assert len(list((work / "two" / "logs").iterdir())) == 2


@pytest.mark.slow
def test_stopped_side_by_side(work):
    (work / "drawn.yaml").write_text(DRAWN.replace("trials: 3", "trials: 4").replace("max_steps: 4", "max_steps: 400"))
    words = ("sweep", "drawn.yaml", "-o", "stopped", "--workers", "2")
    begun = [work / "stopped" / "trials" / name / "events.jsonl" for name in ("000", "001")]
    ended = work.end(work.start(*words), lambda: all(each.exists() for each in begun), signal.SIGINT)
    assert ended.returncode == 130 and "--resume goes on" in ended.stderr and "Traceback" not in ended.stderr
    states = {json.loads((each.parent / "manifest.json").read_text())["state"] for each in begun}
    assert states == {"interrupted"}


def test_damage_and_other_folders(work, swept):
    shutil.copytree(work / "swept", work / "sweep-other")
    refused = work.nlpctl("train", "recipe.yaml", "--folds", "2", "--set", "training.output_dir=sweep-other")
    assert refused.returncode == 2 and "another command (sweep)" in refused.stderr
    inside = work.nlpctl("sweep", "sweep.yaml", "-o", "swept/trials/000/model/sub", "--overwrite")
    assert inside.returncode == 2 and "this would be a part of the model" in inside.stderr
    unfinished = work.nlpctl("sweep", "sweep.yaml", "-o", "sweep-other")
    assert unfinished.returncode == 2 and "--overwrite" in unfinished.stderr
    (work / "sweep-other" / "study.journal").write_text("x\n")
    damaged = work.nlpctl("sweep", "sweep.yaml", "-o", "sweep-other", "--resume", "--set", "data.max_seq_length=15")
    assert damaged.returncode == 2 and "study.journal" in damaged.stderr and "Traceback" not in damaged.stderr


@pytest.mark.parametrize(
    ("recipe", "words", "told"),
    [
        ("recipe.yaml", (), "the recipe says nothing to try"),
        ("drawn.yaml", (*NO_DEV, "--set", "data.dev="), "there is no dev data to compare trials by"),
        ("drawn.yaml", ("--trials", "0"), "search.trials"),
        ("drawn.yaml", ("--budget", "soon"), "--budget: search.budget: 'soon' is not a time"),
        ("drawn.yaml", ("--nproc", "2"), "trained in one process"),
        ("drawn.yaml", ("--set", "search.metric=f3"), "have no score named f3"),
        ("drawn.yaml", ("-o", "base.tsv"), "is a file, not a folder"),
        ("drawn.yaml", ("--set", "search.space={training.learning_rat: [1, 2]}"), "did you mean"),
        ("drawn.yaml", ("--set", "data.train=nowhere.tsv"), "nowhere.tsv"),
        ("drawn.yaml", ("--labels", "a,b"), "unknown label"),
    ],
)
def test_refused(work, recipe, words, told):
    (work / "drawn.yaml").write_text(DRAWN)
    (work / "base.tsv").write_text("")
    before = sorted(os.listdir(work.folder))
    refused = work.nlpctl("sweep", recipe, "--set", "training.output_dir=never", *words)
    assert refused.returncode == 2 and told in refused.stderr, refused.stderr
    assert sorted(os.listdir(work.folder)) == before
