"""The lexical analyser that jieba ships, from its parameters of Paddle 1.x to answers and to training that goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

SOURCE = "python:jieba/lac_small/model_baseline"
SENTENCES = [
    [tuple(pair.rsplit("/", 1)) for pair in line.split(" ")]
    for line in Path(__file__).with_name("lac_sentences.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


@pytest.fixture(scope="session")
def lac(work):
    """The converted model, and the report of its conversion."""
    done = work.nlpctl("convert-static", SOURCE, "--to", "lac", "-o", "lac", "--json")
    assert done.returncode == 0, done.stderr
    return work / "lac", json.loads(done.stdout)["result"]


def test_every_variable_has_its_place_and_the_old_operators_agree(lac):
    folder, report = lac
    used = {name for row in report["matched"] for name in row["variables"]}
    assert len(used) == 20 and not report["unused"] and not report["missing"]
    assert sum(row["how"] == "built-in map lac" for row in report["matched"]) == 12
    outputs = {each["output"]: each["difference"] for each in report["proof"]["outputs"]}
    assert set(outputs) == {"hidden states", "tag scores", "best tags"} and max(outputs.values()) < 1e-5
    assert outputs["best tags"] == 0
    assert len(json.loads((folder / "labels.json").read_text())["labels"]) == 57


def test_thirty_sentences_are_segmented_and_tagged_as_they_were_read(work, lac):
    assert len(SENTENCES) == 30
    texts = ["".join(word for word, _ in sentence) for sentence in SENTENCES]
    done = work.nlpctl("predict", lac[0], "-", stdin="\n".join(texts) + "\n")
    assert done.returncode == 0, done.stderr
    for text, expected, line in zip(texts, SENTENCES, done.stdout.splitlines(), strict=True):
        words = json.loads(line)["words"]
        assert [(word["text"], word["tag"]) for word in words] == expected
        assert all(text[word["start"] : word["end"]] == word["text"] for word in words)


def test_it_goes_on_with_new_labels(work, lac, weights):
    """The tags that LAC knows keep their places in the head; those that are new are told."""
    rows = {"train": "北京/LOC 公司/n 生产/v 手机/GOOD", "dev": "上海/LOC 销售/v 电脑/GOOD"}
    for name, words in rows.items():
        pairs = [word.split("/") for word in words.split()]
        lines = [f"{c}\t{kind}-{'I' if i else 'B'}" for text, kind in pairs for i, c in enumerate(text)]
        (work / f"lac_{name}.txt").write_text("\n".join(lines) + "\n\n")
    (work / "lac.yaml").write_text(
        "task: lexical_analysis\n"
        "model: {name_or_path: lac, head: crf}\n"
        "data: {train: lac_train.txt, dev: lac_dev.txt}\n"
        "training: {learning_rate: 1e-12, max_steps: 1, per_device_train_batch_size: 1}\n"
        "runtime: {device: cpu}\n"
    )
    done = work.nlpctl("train", "lac.yaml", "--output_dir", "lac_on")
    assert done.returncode == 0, done.stderr
    assert "newly initialised: the places of GOOD-B, GOOD-I" in done.stderr
    old, new = weights(lac[0]), weights(work / "lac_on" / "model")
    for name in (name for name in old if name.startswith("bigru.")):
        np.testing.assert_allclose(new[name], old[name], rtol=0, atol=1e-9)
    before = json.loads((lac[0] / "labels.json").read_text())["labels"].index("LOC-B")
    after = json.loads((work / "lac_on" / "model" / "labels.json").read_text())["labels"].index("LOC-B")
    np.testing.assert_allclose(
        new["classifier.weight"][:, after], old["classifier.weight"][:, before], rtol=0, atol=1e-9
    )


def test_dictionaries_that_are_not_there(work, tmp_path):
    import jieba

    folder = Path(jieba.__file__).parent / "lac_small" / "model_baseline"
    alone = tmp_path / "a" / "b" / "parameters"
    shutil.copytree(folder, alone)
    done = work.nlpctl("convert-static", alone, "--to", "lac", "-o", "none")
    assert done.returncode == 2 and "no dictionaries beside these parameters" in done.stderr
    assert not (work / "none").exists()
    done = work.nlpctl("convert-static", alone, "--to", "lac", "-o", "with", "--vocabulary", folder.parent)
    assert done.returncode == 0, done.stderr
