"""Frozen, tied, set and added parameters through real command lines: trained, resumed, listed, compared, used."""

from __future__ import annotations

import json
import re
import signal

import numpy as np
import pytest

CHANGES = """\
extends: recipe.yaml
model:
  from_scratch: {num_hidden_layers: 2}
  add_tokens: [dirty room, "staff#", view]
  tie: [[ernie.encoder.layers.0, ernie.encoder.layers.1]]
  set_parameters: {ernie.embeddings.position_embeddings.weight: positions.npy, "*.pooler.dense.bias": 0.5}
  freeze: [ernie.embeddings.position_embeddings, "*.layers.0-1.norm1"]
optimizer:
  layer_decay: 0.5
  groups: [{match: classifier, learning_rate: 2e-2, weight_decay: 0.1}]
training: {weight_decay: 0.01}
"""
LAST = "training.output_dir=changed-killed"


@pytest.fixture(scope="session")
def changed(work):
    """A finished run with every change at once."""
    (work / "changes.yaml").write_text(CHANGES)
    np.save(work / "positions.npy", np.random.default_rng(1).normal(size=(512, 32)).astype("float32"))
    return work.train("changed", *work.stepwise, recipe="changes.yaml")


def test_the_run_did_what_the_recipe_says(work, changed, weights):
    first, last = weights(changed / "checkpoints" / "checkpoint-3"), weights(changed / "model")
    assert first.keys() == last.keys()
    positions = "ernie.embeddings.position_embeddings.weight"
    assert last[positions].tobytes() == np.load(work / "positions.npy").tobytes()
    frozen = [name for name in last if ".norm1." in name or name == positions]
    still = [name for name in last if last[name].tobytes() == first[name].tobytes()]
    assert len(frozen) == 5 and still == frozen
    for name in (name for name in last if ".layers.1." in name):
        assert last[name].tobytes() == last[name.replace(".layers.1.", ".layers.0.")].tobytes()

    known = json.loads((changed / "model" / "added_tokens.json").read_text())
    rows = len(last["ernie.embeddings.word_embeddings.weight"])
    assert known == {"dirty room": rows - 2, "staff#": rows - 1}
    assert json.loads((changed / "model" / "config.json").read_text())["vocab_size"] == rows

    facts = work.manifest("changed")["parameters"]
    distinct = {name: array.size for name, array in last.items() if ".layers.1." not in name}
    assert facts["total"] == sum(distinct.values()) and facts["frozen"] == 512 * 32 + 2 * 32
    assert facts["trainable"] == facts["total"] - facts["frozen"]
    assert facts["added_tokens"] == 2 and facts["tied"] == 16 and facts["set"]["*.pooler.dense.bias"] == 1
    groups = facts["optimizer"]
    assert sum(group["parameters"] for group in groups) == facts["trainable"]
    assert {(group["learning_rate"], group["weight_decay"]) for group in groups} == {
        (0.02, 0.1), (0.01, 0.01), (0.01, 0.0), (0.0025, 0.01), (0.0025, 0.0), (0.00125, 0.01), (0.00125, 0.0)
    }  # fmt: skip
    assert str(work / "positions.npy") in work.manifest("changed")["data"]


def test_killed_and_resumed_it_ends_the_same(work, changed, same_bits):
    words = ("train", "changes.yaml", *work.stepwise, "--set", LAST)
    work.end(work.start(*words), (work / "changed-killed/checkpoints/checkpoint-6").exists, signal.SIGKILL)
    positions = work / "positions.npy"
    kept = positions.read_bytes()
    np.save(positions, np.zeros((512, 32), "float32"))
    done = work.nlpctl(*words, "--resume")
    assert done.returncode == 2 and "the data changed since the run began" in done.stderr, done.stderr
    positions.write_bytes(kept)
    done = work.nlpctl(*words, "--resume")
    assert done.returncode == 0, done.stderr
    assert same_bits(work / "changed-killed", changed)
    for line in ("added 2 tokens", "in the vocabulary already: view", "tied 16 parameters", "are trained",
                 "learning rate 0.02, weight decay 0.1: 66 parameters"):  # fmt: skip
        assert line in done.stderr


def test_ls_export_set_and_diff(work, changed):
    done = work.nlpctl("params", "ls", changed, "--match", "classifier", "--match", "*.norm2.weight", "--json")
    listed = json.loads(done.stdout)["result"]
    names = [row["name"] for row in listed["parameters"]]
    norms = [f"ernie.encoder.layers.{i}.norm2.weight" for i in (0, 1)]
    assert names == [*norms, "classifier.weight", "classifier.bias"]
    assert [row["same_as"] for row in listed["parameters"]] == [None, names[0], None, None]
    assert listed["total"] == 32 + 64 + 2

    done = work.nlpctl("params", "export", changed, "--match", names[0], "-o", "norm.npy")
    assert done.returncode == 0, done.stderr
    exported = np.load(work / "norm.npy")
    assert exported.mean() == pytest.approx(listed["parameters"][0]["mean"], rel=1e-6)
    np.save(work / "double.npy", 2 * exported)

    values = ("--value", f"{names[0]}=double.npy", "--value", "classifier=0")
    done = work.nlpctl("params", "set", changed, *values, "-o", "doubled")
    assert done.returncode == 0 and "(2 set)" in done.stderr, done.stderr
    done = work.nlpctl("params", "diff", changed, "doubled", "--json")
    found = json.loads(done.stdout)["result"]
    assert [row["name"] for row in found["changed"]] == names  # the tied layer's too
    assert found["changed"][0]["share"] == pytest.approx(1.0) and found["same"] > 30
    done = work.nlpctl("predict", "doubled", "-", stdin="a dirty room\n")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["probabilities"] == {"neg": 0.5, "pos": 0.5}


def test_layer_outputs(work, changed):
    """The classifier's are the logits of the answers, the encoder's those of every token; batches do not matter."""
    texts = ["a dirty room", "very good staff# and a good view was the bed", "clean", "x", "the food was bad"]
    lines = "".join(f"{text}\n" for text in texts)
    words = ("predict", changed, "-", "--format", "text", "--layer-outputs", "ernie.encoder.layers.0-1")
    found = []
    for size in ("64", "2"):
        name = f"layers-{size}.npz"
        more = ("--layer-outputs", "classifier", "--layer-outputs", "ernie.pooler", "-o", name, "--batch-size", size)
        done = work.nlpctl(*words, *more, stdin=lines)
        assert done.returncode == 0, done.stderr
        found.append(dict(np.load(work / name)))
    one, other = found
    assert set(one) == {"ernie.encoder.layers.0", "ernie.encoder.layers.1", "classifier", "ernie.pooler", "row",
                        "offsets", "input_ids"}  # fmt: skip
    assert one["row"].tolist() == [0, 1, 2, 3, 4] and one["classifier"].shape == (5, 2)
    tokens = one["offsets"][-1]
    assert one["ernie.encoder.layers.1"].shape == (tokens, 32) and one["input_ids"].shape == (tokens,)
    assert np.diff(one["offsets"]).tolist() == [4, 12, 3, 3, 6]  # [CLS] a 'dirty room' [SEP]
    assert all(np.allclose(one[name], other[name], atol=1e-6) for name in one)
    answers = [json.loads(line) for line in work.nlpctl("predict", changed, "-", stdin=lines).stdout.splitlines()]
    odds = np.exp(one["classifier"] - one["classifier"].max(1, keepdims=True))
    shares = odds / odds.sum(1, keepdims=True)
    assert np.allclose(shares, [list(answer["probabilities"].values()) for answer in answers], atol=2e-6)
    assert "layer outputs: about " in done.stderr and "per row; --float16 halves it" in done.stderr
    (work / "five.txt").write_text(lines)
    halved = (*words[:2], "five.txt", *words[5:], "--float16", "-o", "half.npz")
    done = work.nlpctl(*halved)
    assert done.returncode == 0, done.stderr
    told = re.search(r"layer outputs: about (\d+\.?\d*) kB for 5 rows\n", done.stderr)
    half = dict(np.load(work / "half.npz"))
    assert float(told[1]) == pytest.approx(sum(array.nbytes for array in half.values()) / 1000, rel=0.02)
    assert half["ernie.encoder.layers.1"].dtype == np.float16 and half["offsets"].dtype == np.int64
    assert np.allclose(half["ernie.encoder.layers.1"], one["ernie.encoder.layers.1"], atol=5e-3)
    done = work.nlpctl(*words[:-1], "ernie.encoder.layer.0", "-o", "x.npz", stdin=lines)
    assert done.returncode == 2 and "did you mean ernie.encoder.layers.0" in done.stderr
