"""`nlpctl eval` scores whatever names a trained model, and nothing else."""

from __future__ import annotations

import json

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
