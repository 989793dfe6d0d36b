"""Token classification through the command line: every format, a CRF, a killed run, answers that index their text."""

from __future__ import annotations

import json
import random
import signal

import pandas as pd
import pytest

import nlpctl
from nlpctl.data.rows.tagged_rows import put_together

RECIPE = """\
task: token_classification
model:
  from_scratch: {vocab_size: 200, min_frequency: 1, hidden_size: 32, num_hidden_layers: 1, intermediate_size: 64}
  config: {hidden_dropout_prob: 0.1}
  head: crf
optimizer: {groups: [{match: crf, learning_rate: 0.1}]}
data: {train: ner/train.conll, dev: ner/dev.conll, test: ner/test.conll, max_seq_length: 12, doc_stride: 5}
decode: {terms: ner/terms.tsv}
training:
  output_dir: ner/base
  learning_rate: 1e-2
  num_train_epochs: 6
  per_device_train_batch_size: 8
  evaluation_strategy: epoch
  save_strategy: epoch
  load_best_model_at_end: true
  metric_for_best_model: f1
  logging_steps: 4
runtime: {device: cpu}
"""
TERMS = "Atlantis\tLOC\n"


def sentences(count: int, seed: int) -> list[tuple[list[str], list[str]]]:
    """Names after "mr", places of one or two words after "in"; up to 30 words, so that some need windows."""
    chance, made = random.Random(seed), []
    for _ in range(count):
        words, tags = [], []
        for _ in range(chance.randint(1, 6)):
            words += chance.choices("the room bed was staff view food very a and".split(), k=chance.randint(0, 3))
            tags += ["O"] * (len(words) - len(tags))
            if chance.random() < 0.5:
                words += ["mr", chance.choice(("smith", "jones", "room"))]
                tags += ["O", "B-PER"]
            else:
                place = chance.choice((["york"], ["new", "york"], ["food"]))
                words += ["in", *place]
                tags += ["O", "B-LOC", *(["I-LOC"] * (len(place) - 1))]
        made.append((words, tags))
    return made


def conll(rows) -> str:
    return "\n".join("".join(f"{word}\t{tag}\n" for word, tag in zip(*row, strict=True)) for row in rows)


@pytest.fixture(scope="session")
def ner(work):
    """The folder of recipe and data, and the run of it."""
    folder = work / "ner"
    folder.mkdir()
    for name, count, seed in (("train", 61, 1), ("dev", 40, 2), ("test", 30, 3)):
        (folder / f"{name}.conll").write_text(conll(sentences(count, seed)))
    (folder / "terms.tsv").write_text(TERMS)
    (work / "ner.yaml").write_text(RECIPE)
    work.train("ner/base", recipe="ner.yaml")
    return folder


def test_scores_and_files(work, ner):
    metrics = json.loads((ner / "base/metrics.json").read_text())
    report = metrics["test"]
    assert report["rows"] == 30 and report["f1"] > 0.8
    assert set(report["labels"]) == {"LOC", "PER"} and report["words"] == sum(len(w) for w, _ in sentences(30, 3))
    assert json.loads((ner / "base/model/labels.json").read_text()) == {"labels": ["B-LOC", "B-PER", "I-LOC", "O"]}
    done = work.nlpctl("eval", ner / "base/model", "--json", "--set", f"data.test={ner / 'test.conll'}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["metrics"]["test"] == report


def test_predict_gives_exact_offsets(work, ner):
    texts = ["In  New York was Mr\u3000Smith\U0001f44d\U0001f3fd, in atlantis", "x", "mr jones " * 20, "in Atlantis."]
    done = work.nlpctl("predict", ner / "base/model", "-", stdin="\n".join(texts) + "\n")
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["text"] for answer in answers] == [text.rstrip("\n") for text in texts]
    for answer in answers:
        for entity in answer["entities"]:
            assert answer["text"][entity["start"] : entity["end"]] == entity["text"]
    assert ("LOC", "New York") in [(e["type"], e["text"]) for e in answers[0]["entities"]]
    assert len([e for e in answers[2]["entities"] if e["text"] == "jones"]) > 15  # rejoined from windows
    term = {"type": "LOC", "start": 3, "end": 11, "text": "Atlantis", "confidence": None}  # the tags do not say it
    assert term in answers[3]["entities"]


def test_a_frame_without_rows_has_the_columns_of_one_with_rows(ner):
    model = nlpctl.load(ner / "base")
    for frame in (pd.DataFrame({"tokens": [["mr", "smith"]], "id": [1]}), pd.DataFrame({"text": ["mr smith"]})):
        for keep in ("none", "all"):
            assert list(model.predict(frame[:0], keep=keep)) == list(model.predict(frame, keep=keep))


@pytest.mark.parametrize("kind", ["conll", "jsonl", "tsv"])
def test_predict_takes_words_in_every_format(work, ner, kind):
    rows = sentences(5, 9)
    made = {
        "conll": conll(rows),
        "jsonl": "".join(json.dumps({"tokens": words}) + "\n" for words, _ in rows),
        "tsv": "tokens\n" + "".join("\002".join(words) + "\n" for words, _ in rows),
    }
    (ner / f"in.{kind}").write_text(made[kind])
    done = work.nlpctl("predict", ner / "base", ner / f"in.{kind}")
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["tokens"] for answer in answers] == [words for words, _ in rows]
    assert [answer["text"] for answer in answers] == [put_together(words)[0] for words, _ in rows]
    assert sum(len(answer["entities"]) for answer in answers) > 5


@pytest.mark.parametrize("kind", ["jsonl", "joined", "joined without header"])
def test_the_same_data_in_other_formats_trains_the_same_model(work, ner, same_bits, kind):
    name = kind.replace(" ", "_")
    words = ["--num_train_epochs", "1"]
    for split, count, seed in (("train", 61, 1), ("dev", 40, 2), ("test", 30, 3)):
        rows = sentences(count, seed)
        if kind == "jsonl":
            file = ner / f"{split}.jsonl"
            file.write_text("".join(json.dumps(dict(zip(("w", "t"), row, strict=True))) + "\n" for row in rows))
            columns = ("w", "t")
        else:
            file = ner / f"{split}.{name}.tsv"
            columns = ("text_a", "label") if kind == "joined" else ("0", "1")
            head = "text_a\tlabel\n" if kind == "joined" else ""
            file.write_text(head + "".join("\002".join(w) + "\t" + "\002".join(t) + "\n" for w, t in rows))
        words += ["--set", f"data.{split}={file}"]
    words += ["--set", f"data.columns.tokens={columns[0]}", "--set", f"data.columns.tags={columns[1]}"]
    words += ["--set", f"data.header={str(kind != 'joined without header').lower()}"]
    if not (ner / "short").exists():
        work.train("ner/short", "--num_train_epochs", "1", recipe="ner.yaml")
    assert same_bits(work.train(f"ner/{name}", *words, recipe="ner.yaml"), ner / "short")


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_model(work, ner, same_bits):
    """The CRF's own learning rate is that of the resumed run too."""
    words = ("train", "ner.yaml", "--set", "training.output_dir=ner/killed")
    checkpoint = ner / "killed" / "checkpoints" / "checkpoint-36"
    work.end(work.start(*words), checkpoint.exists, signal.SIGKILL)
    work.train("ner/killed", "--resume", recipe="ner.yaml")
    assert same_bits(ner / "killed", ner / "base")


def test_bad_data_is_told_by_line(work, ner):
    to = ("--set", "training.output_dir=ner/no")
    (ner / "bad.conll").write_text("a\tO\n\nmr\tO\nsmith\tB-PRE\n\nb\n\nc\tO\n")
    done = work.nlpctl("train", "ner.yaml", "--set", "data.dev=ner/bad.conll", *to)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "bad.conll:4: unknown label: 'B-PRE'; did you mean 'B-PER'? (word 2)" in done.stderr
    assert "bad.conll:6: no tag: the line holds 'b' only" in done.stderr and not (ner / "no").exists()
    (ner / "mixed.conll").write_text("a\tB-PER\n\nb\tPER-B\n")
    done = work.nlpctl("train", "ner.yaml", "--set", "data.train=ner/mixed.conll", *to)
    assert done.returncode == 2 and "tags of different styles are mixed" in done.stderr
    assert "mixed.conll:1), 'PER-B' (suffix, " in "".join(done.stderr.split("\n"))
    (ner / "bad_terms.tsv").write_text("york\n")
    done = work.nlpctl("train", "ner.yaml", "--set", "decode.terms=ner/bad_terms.tsv", *to)
    assert done.returncode == 2 and "bad_terms.tsv:1: expected TERM<TAB>TYPE" in done.stderr
    assert not (ner / "no").exists()


@pytest.mark.slow
def test_two_processes(work, ner):
    """Their gradients are averaged, those of the transitions too."""
    words = ["--set", "runtime.nproc=2", "--per_device_train_batch_size", "4", "--num_train_epochs", "2"]
    run = work.train("ner/two", *words, recipe="ner.yaml")
    assert json.loads((run / "metrics.json").read_text())["test"]["f1"] > 0.5
