"""`nlpctl data curve`: runs on growing shares of the rows."""

from __future__ import annotations

import json

QUICK = ("--max_steps", "2", "--evaluation_strategy", "no", "--save_strategy", "no", "--no-load_best_model_at_end")
WORDS = ("data", "curve", "recipe.yaml", "--repeats", "1", "--shares", "0.3,0.5,0.8,1", "-o", "curve", *QUICK)


def test_a_curve(work):
    done = work.nlpctl(*WORDS, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["result"]
    assert [point["rows"] for point in found["points"]] == [18, 30, 49, 61] and found["split"] == "dev"
    rows = (work / "curve" / "data" / "train-rows-30-seed-42.tsv").read_text().splitlines()
    assert len(rows) == 31 and set(rows) <= set((work / "train.tsv").read_text().splitlines())
    scored = json.loads((work / "curve" / "rows-30-seed-42" / "metrics.json").read_text())["dev"]["accuracy"]
    assert found["points"][1]["scores"] == [scored] and found["metric"] == "accuracy"
    assert "svg" in (work / found["report"]).read_text() and found["told"]
    again = work.nlpctl(*WORDS, "--resume")
    assert again.returncode == 2 and "nothing to resume" in again.stderr


def test_what_is_refused(work):
    def refused(*words):
        done = work.nlpctl("data", "curve", "recipe.yaml", "-o", "never", *words)
        assert done.returncode == 2 and "->" in done.stderr and not (work / "never").exists(), done.stderr
        return done.stderr

    assert "'x' is not a number" in refused("--shares", "0.1,x")
    assert "2 is no share" in refused("--shares", "0.5,2")
    assert "do not make a curve" in refused("--shares", "0.5,1")
    assert "has 4" in refused()
    (work / "bad_dev.tsv").write_text("text\tlabel\ngood\tneutral\n")  # not found by the first run, in a folder
    told = refused("--shares", "0.3,0.5,0.75,1", "--set", "data.dev=bad_dev.tsv")
    assert "bad_dev.tsv:2: unknown label: 'neutral'" in told and "run 1 of" not in told
    assert "no dev or test data" in refused("--set", "data.dev=null", "--set", "data.test=null", *QUICK)
