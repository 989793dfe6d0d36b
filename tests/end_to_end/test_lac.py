"""The lexical analyser that jieba ships, from its parameters of Paddle 1.x to answers and to training that goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.jieba_lac import JiebaLac

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


def as_jieba_reads(work, lac, texts):
    """Check that the words of `texts` are those of jieba's own code, which the helper transcribes; returns them."""
    import jieba

    done = work.nlpctl("predict", lac[0], "-", "--set", "decode.replacements=false", stdin="\n".join(texts) + "\n")
    assert done.returncode == 0, done.stderr
    found = [[(word["text"], word["tag"]) for word in json.loads(line)["words"]] for line in done.stdout.splitlines()]
    transcription = JiebaLac(Path(jieba.__file__).parent / "lac_small")
    assert found == [transcription.cut(text) for text in texts]
    return found


def test_every_character_as_it_stands_is_what_jieba_reads(work, lac):
    texts = ["".join(word for word, _ in sentence) for sentence in SENTENCES[:20]]
    found = as_jieba_reads(work, lac, texts)
    assert found != [list(sentence) for sentence in SENTENCES[:20]]  # commas and capitals


@pytest.mark.slow
def test_300_sentences_as_jieba_reads_them(work, lac, shared_data):
    blocks = (shared_data / "msra_ner" / "test.txt").read_text(encoding="utf-8").split("\n\n")
    texts = ["".join(line.split("\t")[0] for line in block.split("\n")) for block in blocks]
    as_jieba_reads(work, lac, [text for text in texts if text == "".join(text.split()) != ""][:300])


def test_it_goes_on_with_new_labels(work, lac, weights):
    """The tags that LAC knows keep their places in the head, also by other names; those that are new are told."""
    rows = {"train": "北京/LOC 公司/n 生产/v 手机/GOOD 张三/PERSON", "dev": "上海/LOC 销售/v 电脑/GOOD"}
    for name, words in rows.items():
        pairs = [word.split("/") for word in words.split()]
        lines = [f"{c}\t{kind}-{'I' if i else 'B'}" for text, kind in pairs for i, c in enumerate(text)]
        (work / f"lac_{name}.txt").write_text("\n".join(lines) + "\n\n")
    (work / "lac.yaml").write_text(
        "task: lexical_analysis\n"
        "model: {name_or_path: lac, head: crf}\n"
        "data: {train: lac_train.txt, dev: lac_dev.txt, tag_map: {PERSON: PER}}\n"
        "training: {learning_rate: 1e-12, max_steps: 1, per_device_train_batch_size: 1}\n"
        "runtime: {device: cpu}\n"
    )
    done = work.nlpctl("train", "lac.yaml", "--output_dir", "lac_on")
    assert done.returncode == 0, done.stderr
    assert "newly initialised: the places of GOOD-B, GOOD-I" in done.stderr
    assert "PERSON-B (was PER-B), PERSON-I (was PER-I)" in " ".join(done.stderr.split())
    old, new = weights(lac[0]), weights(work / "lac_on" / "model")
    for name in (name for name in old if name.startswith("bigru.")):
        np.testing.assert_allclose(new[name], old[name], rtol=0, atol=1e-9)
    before, after = (
        json.loads((folder / "labels.json").read_text())["labels"] for folder in (lac[0], work / "lac_on" / "model")
    )
    pairs = [(before.index(was), after.index(now)) for was, now in (("LOC-B", "LOC-B"), ("PER-I", "PERSON-I"))]
    for name in ("classifier.weight", "classifier.bias"):
        for was, now in pairs:
            np.testing.assert_allclose(new[name][..., now], old[name][..., was], rtol=0, atol=1e-9)
    (was, now), (was_next, now_next) = pairs
    key = "crf.transitions"
    assert abs(new[key][now, now_next] - old[key][was, was_next]) < 1e-9


def test_the_entities_of_a_file_go_among_its_words(work, lac):
    rows = {
        "given.txt": "邓 B-PERSON|颖 I-PERSON|超 I-PERSON|生 O|前 O|在 O|北 B-LOC|京 I-LOC|展 O|出 O||上 O|海 O|好 O",
        "odd.txt": "上 B-LOC|海 I-LOC||好 O|吗 LOC",
    }
    for name, text in rows.items():
        (work / name).write_text(text.replace(" ", "\t").replace("|", "\n") + "\n", encoding="utf-8")
    command = ("data", "retag", lac[0], "given.txt", "-o", "retagged.txt")
    done = work.nlpctl(*command, "--map", "PERSON=PER", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["result"]
    assert told["sentences"] == 2 and told["inserted"] == {"PER": 1} and told["made_plain"] == {"LOC": 1}
    blocks = (work / "retagged.txt").read_text(encoding="utf-8").split("\n\n")
    tags = [[line.split("\t")[1] for line in block.split("\n")] for block in blocks if block]
    assert tags[0] == "PER-B PER-I PER-I v-B f-B p-B LOC-B LOC-I v-B v-I".split()
    assert tags[1] == ["ns-B", "ns-I", "a-B"]
    again = work.nlpctl(*command)
    assert again.returncode == 2 and "retagged.txt: the file exists" in again.stderr
    (work / "kept.py").write_text("def same(row):\n    return row\n")
    unmapped = work.nlpctl(*command[:-1], "more.jsonl", "--set", "data.map=kept:same")
    assert unmapped.returncode == 0, unmapped.stderr
    assert "more.jsonl has the texts as they are before data.map" in " ".join(unmapped.stderr.split())
    first = json.loads((work / "more.jsonl").read_text(encoding="utf-8").split("\n")[0])
    assert first["tags"][:3] == ["PERSON-B", "PERSON-I", "PERSON-I"] and first["tokens"][:2] == ["邓", "颖"]
    assert "PERSON is a type that the model does not know (first at given.txt:1)" in " ".join(unmapped.stderr.split())
    odd = work.nlpctl("data", "retag", lac[0], "odd.txt", "-o", "none.txt")
    assert odd.returncode == 2 and "odd.txt:5: 'LOC': no mark B, I, E, S, M, L or U" in odd.stderr
    assert not (work / "none.txt").exists()


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
