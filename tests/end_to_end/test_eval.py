"""`nlpctl eval` scores whatever names a trained model, and nothing else."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.fixture(scope="session")
def encoder(work):
    """A folder with an encoder that was never trained for any task."""
    from paddlenlp.transformers import ErnieConfig, ErnieModel, ErnieTokenizer

    folder = work / "encoder"
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    ErnieModel(ErnieConfig(vocab_size=50, **sizes)).save_pretrained(str(folder))
    ErnieTokenizer(str(work / "base" / "model" / "vocab.txt")).save_pretrained(str(folder))
    return folder


def test_recipe_run_and_model_folder_score_alike(work, base):
    expected = json.loads((base / "metrics.json").read_text())
    data = ("--set", f"data.dev={work / 'dev.tsv'}", "--set", f"data.test={work / 'test.tsv'}")
    started = [
        work.start("eval", "recipe.yaml", "--json"),
        work.start("eval", "base", "--json"),
        work.start("eval", "base/model", "--json", "--device", "cpu", *data),
        work.start("eval", "base", "--split", "test", "--split", "train"),
        work.start("eval", "base/model", "dev.tsv", "--json"),
    ]
    done = [(process.communicate(), process.returncode) for process in started]
    assert [code for _, code in done] == [0, 0, 0, 0, 0], done
    for (out, _), _ in done[:3]:
        result = json.loads(out)["result"]
        assert result["metrics"] == expected and work / result["model"] == base / "model"
    of_file = json.loads(done[4][0][0])["result"]["metrics"]
    assert of_file == {"test": expected["dev"]}  # a file is scored as a test split
    table = done[3][0][0]
    assert "test" in table and "train" in table and "dev" not in table
    assert f"{expected['test']['accuracy']:.4f}" in table


def test_an_untrained_encoder_is_refused(work, base, encoder):
    (work / "untrained.yaml").write_text(
        "task: sequence_classification\nmodel: {name_or_path: encoder}\ndata: {test: test.tsv, labels: [neg, pos]}\n"
        "training: {output_dir: never-run}\nruntime: {device: cpu}\n"
    )
    for source in ("untrained.yaml", "encoder"):
        done = work.nlpctl("eval", source)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr and "->" in done.stderr and done.stdout == ""
    assert not (work / "never-run").exists()


def test_a_recipe_that_was_never_run(work):
    done = work.nlpctl("eval", "recipe.yaml", "--set", "training.output_dir=nowhere")
    assert done.returncode == 2 and "not been trained" in done.stderr
    assert not (work / "nowhere").exists()


def test_data_that_are_missing(work, base):
    done = work.nlpctl("eval", "base/model")
    assert done.returncode == 2 and "--set data.test=FILE" in done.stderr


def test_another_model_on_the_same_rows(work, base):
    """Against a copy of the model whose answers are turned around."""
    other = work / "turned"
    shutil.copytree(base / "model", other)
    labels = json.loads((other / "labels.json").read_text())
    turned = labels["labels"][::-1]
    (other / "labels.json").write_text(json.dumps(labels | {"labels": turned}))
    config = json.loads((other / "config.json").read_text())
    names = {"id2label": dict(enumerate(turned)), "label2id": {name: i for i, name in enumerate(turned)}}
    (other / "config.json").write_text(json.dumps(config | names))
    words = ("eval", "base", "--against", "turned", "--split", "test", "--trust-edits")
    done = work.nlpctl(*words, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    paired, metrics = result["against"]["paired"]["test"], result["metrics"]["test"]
    assert paired["scores"]["accuracy"]["first"] == result["against"]["metrics"]["test"]["accuracy"]
    assert paired["scores"]["accuracy"]["second"] == metrics["accuracy"]
    assert paired["gained"] + paired["lost"] == metrics["rows"]  # where one is right, the other is wrong
    changed = result["against"]["changed"]["test"]
    assert len(changed) == min(20, metrics["rows"]) and changed[0]["where"] == f"{work / 'test.tsv'}:2"
    assert {changed[0]["other"], changed[0]["given"]} & {"right"}
    table = work.nlpctl(*words).stdout
    assert "95 % interval" in table and "McNemar" in table and "\ntest.tsv:2 " in table
    heads = [line.split() for line in table.splitlines()]
    assert ["row", "text", "expected", "turned", "base/model"] in heads and str(work) not in table
    others = [f"{name}-ish" for name in turned]
    (other / "labels.json").write_text(json.dumps(labels | {"labels": others}))
    names = {"id2label": dict(enumerate(others)), "label2id": {name: i for i, name in enumerate(others)}}
    (other / "config.json").write_text(json.dumps(config | names))
    done = work.nlpctl(*words)
    told = "only MODEL has neg, pos; only --against has neg-ish, pos-ish"
    assert done.returncode == 2 and done.stderr.count("error:") == 1 and told in done.stderr, done.stderr


def test_runs_are_compared_row_by_row(work, base):
    done = work.nlpctl("runs", "diff", "base", "base", "--json")
    assert done.returncode == 0, done.stderr
    paired = json.loads(done.stdout)["result"]["paired"]
    assert paired.keys() == {"dev", "test"} and paired["test"]["scores"]["accuracy"]["p"] == 1
    assert "McNemar" in work.nlpctl("runs", "diff", "base", "base").stdout
    shutil.copytree(base, work / "older")
    shutil.rmtree(work / "older" / "tallies")
    done = work.nlpctl("runs", "diff", "base", "older")
    assert done.returncode == 0 and "an older run holds no rows" in done.stdout


def test_slices_and_groups(work, base):
    head, *lines = (work / "test.tsv").read_text().splitlines()
    rows = [f"{line}\t{'web' if i % 3 else 'phone'}" for i, line in enumerate(lines)]
    (work / "sources.tsv").write_text("\n".join([f"{head}\tsource", *rows]) + "\n")
    done = work.nlpctl("eval", "base", "sources.tsv", "--by", "source", "--set", "data.columns.group=source", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["result"]
    slices = found["slices"]["test"]
    assert {(each["name"], each["rows"]) for each in slices} == {("web", 20), ("phone", 10)}
    assert [each["above"] for each in slices] == sorted(each["above"] for each in slices)
    whole = sum(each["score"] * each["rows"] for each in slices) / 30
    assert whole == pytest.approx(found["metrics"]["test"]["accuracy"])
    ends = {tuple(each["score"] for each in slices)}  # two groups: a drawn split has the one, the other, or both
    assert set(found["metrics"]["test"]["intervals"]["accuracy"]) <= {score for pair in ends for score in pair}
    assert "above the rest" in work.nlpctl("eval", "base", "sources.tsv", "--by", "label").stdout
    done = work.nlpctl("eval", "base", "sources.tsv", "--by", "length")
    assert "no slice of ten rows" in done.stderr and "Slices not in the table" not in done.stdout  # there is none
    assert found["slices_left_out"] == {"test": 0}
    one_label = [line for line in (work / "test.tsv").read_text().splitlines() if not line.endswith("neg")]
    (work / "positive.tsv").write_text("\n".join(one_label) + "\n")
    done = work.nlpctl("eval", "base", "positive.tsv")
    assert done.stderr.count("test has no row of the label 'neg': macro_f1 counts it as 0") == 1, done.stderr
    words = ("train", "recipe.yaml", "--set", "data.columns.group=origin", "--output_dir", "never-run-either")
    done = work.nlpctl(*words)
    assert done.returncode == 2 and "has no column 'origin'" in done.stderr and not (work / words[-1]).exists()
    done = work.nlpctl("eval", "base", "sources.tsv", "--by", "origin")
    assert done.returncode == 2 and "sources.tsv:2 has no column 'origin'" in done.stderr
