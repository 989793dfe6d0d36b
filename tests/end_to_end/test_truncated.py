"""Texts of more than data.max_seq_length tokens are cut, and whoever uses them is told."""

from __future__ import annotations

import json
import signal

import pytest

LENGTHS = [words for _ in range(50) for words in range(1, 21)]  # `base` reads 16 tokens, of which 2 are special
CUT = sum(words > 14 for words in LENGTHS)


@pytest.fixture(scope="session")
def texts(work) -> str:
    lines = ["good " + "room " * (words - 1) for words in LENGTHS]
    (work / "lengths.txt").write_text("".join(f"{line.strip()}\n" for line in lines) + "\n")
    return "lengths.txt"


def result(done) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]


def test_answers_that_differ_in_their_last_sentence_only_are_told(work, base):
    long = "good " + "room " * 1500
    done = work.nlpctl("predict", base, "--json", stdin=f"{long}and bad\n{long}and clean\ngood room\n")
    answers = [{name: row[name] for name in ("label", "probabilities")} for row in result(done)["answers"]]
    assert answers[0] == answers[1] != answers[2]
    assert result(done)["truncated"] == 2
    (warning,) = json.loads(done.stdout)["warnings"]
    assert warning in done.stderr and "cut to 16 tokens: 2 of 3 rows" in warning and "--truncated" in warning


def test_the_count_is_that_of_the_answers_in_one_process_in_several_and_in_an_export(work, base, texts):
    """And without the flag no answer has it."""
    plain = result(work.nlpctl("predict", base, texts, "-o", "cut/plain.jsonl", "--json"))
    assert (plain["rows"], plain["truncated"]) == (len(LENGTHS) + 1, CUT)
    bare = [json.loads(line) for line in (work / "cut/plain.jsonl").read_text().splitlines()]
    flags = [*(words > 14 for words in LENGTHS), False]  # the last line is blank
    assert not any("truncated" in row for row in bare)
    done = work.nlpctl("export", base, "-o", "cut/export", "--format", "onnx", "--precision", "fp32")
    assert done.returncode == 0, done.stderr
    small = ("--truncated", "--json", "--batch-size", "2")
    for number, (model, more) in enumerate((("base", ()), ("cut/export", ()), ("cut/export", ("--workers", "2")))):
        output = f"cut/{number}.jsonl"
        assert result(work.nlpctl("predict", model, texts, "-o", output, *small, *more))["truncated"] == CUT
        rows = [json.loads(line) for line in (work / output).read_text().splitlines()]
        assert [row.pop("truncated") for row in rows] == flags
        assert [row["label"] for row in rows] == [row["label"] for row in bare]


def test_a_resumed_prediction_counts_what_was_cut_before(work, base, texts):
    words = ("predict", base, texts, "-o", "cut/killed.jsonl", "--batch-size", "1", "--flush", "--json")
    partial = work / "cut/killed.jsonl.partial"
    started = work.start(*words)
    work.end(started, lambda: partial.exists() and partial.read_bytes().count(b"\n") > 100, signal.SIGKILL)
    done = work.nlpctl(*words, "--resume", "--truncated")
    assert done.returncode == 2 and "other settings" in done.stderr
    done = work.nlpctl(*words, "--resume")
    assert "resuming after" in done.stderr and result(done)["truncated"] == CUT
    assert not list(partial.parent.glob("killed.jsonl.*"))


def test_before_a_training_and_in_its_scores(work):
    """60 rows, of which 20 have 30 words and are cut to 14; of dev, 5."""
    for name, count in (("train", 60), ("dev", 15)):
        rows = [f"{'good' if i % 2 else 'bad'} {'room ' * (2 if i % 3 else 29)}\t{i % 2}" for i in range(count)]
        (work / f"cut_{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    files = ("--set", "data.train=cut_train.tsv", "--set", "data.dev=cut_dev.tsv", "--set", "data.test=")
    done = work.nlpctl("train", "recipe.yaml", *files, "--output_dir", "cut/run", "--max_steps", "2", "--json")
    assert result(done)["metrics"]["dev"]["truncated"] == 5
    warning = next(each for each in json.loads(done.stdout)["warnings"] if "max_seq_length" in each)
    unread = 20 * (30 - 14) / (20 * 32 + 40 * 5)
    assert f"20 of 60 training rows; {100 * unread:.1f} % of all tokens are not read" in warning
    assert "at most to 512" in warning
    done = work.nlpctl("eval", "cut/run", "--json")
    assert result(done)["metrics"]["dev"]["truncated"] == 5
    assert any("5 of 15 rows" in each for each in json.loads(done.stdout)["warnings"])
