"""`nlpctl predict` in a shell pipe: with --flush each line is answered before the next one is there."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time

import pytest

WAIT = 120  # seconds that an answer may take on a busy machine


def answered(process: subprocess.Popen[str], seconds: float = WAIT) -> dict | None:
    """The next line of the answers; None where none comes in time. Reads the pipe itself: Popen's stream buffers."""
    line, deadline = b"", time.monotonic() + seconds
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            assert not line
            return None
        read = os.read(process.stdout.fileno(), 1)
        assert read, f"ended: {process.stderr.read()}"
        line += read
    return json.loads(line)


def send(process: subprocess.Popen[str], line: str) -> None:
    process.stdin.write(line + "\n")
    process.stdin.flush()


def one_by_one(work, *more: str) -> subprocess.Popen[str]:
    return work.start("predict", "base", "--batch-size", "1", "--flush", *more)


@pytest.mark.parametrize(
    ("format", "head", "row"),
    [
        ("text", None, "{}"),
        pytest.param("tsv", "id\ttext", "7\t{}", marks=pytest.mark.slow),
        pytest.param("csv", "id,text", '7,"{}"', marks=pytest.mark.slow),
        ("jsonl", None, '{{"text": "{}"}}'),
    ],
)
def test_a_line_is_answered_before_the_next_one_is_there(work, base, format, head, row):
    process = one_by_one(work, "--format", format, "--set", "data.on_bad_row=skip")
    if head is not None:
        send(process, head)
    for text in ("the room was good", "dirty bed"):
        send(process, row.format(text))
        assert answered(process)["text"] == text
    send(process, row.format(" "))
    assert list(answered(process)) == ["error"] or format == "text"
    send(process, row.format("bad"))
    assert answered(process)["label"] == "neg"
    process.stdin.close()
    assert process.stdout.read() == "" and process.wait(WAIT) == 0
    process.stderr.close()


def test_batches_are_answered_as_they_are_read(work, base):
    """Also where many are there at once; answers are those of a file that is read in the same batches."""
    texts = [f"the {word} was {telling}" for word in ("room", "bed", "food") for telling in ("good", "bad", "dirty")]
    process = work.start("predict", "base", "--batch-size", "4", "--flush")
    for text in texts:
        send(process, text)
    first = [answered(process) for _ in range(8)]
    assert answered(process, 1) is None  # the ninth waits for its batch
    process.stdin.close()
    found = [*first, answered(process)]
    assert process.wait(WAIT) == 0
    (work / "flush.txt").write_text("".join(f"{text}\n" for text in texts))
    done = work.nlpctl("predict", "base", "flush.txt", "-o", "flush.jsonl", "--batch-size", "4", "--flush")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in (work / "flush.jsonl").read_text().splitlines()] == found
    assert [answer["text"] for answer in found] == texts


@pytest.mark.parametrize("flush", [("--flush",), pytest.param((), marks=pytest.mark.slow)])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_it_waits_for_a_line(work, base, flush, number):
    """Of what was read in whole chunks every answer is there."""
    process = work.start("predict", "base", "--batch-size", "1", *flush)
    for _ in range(32):  # a chunk, where lines are not flushed
        send(process, "good food")
    assert [answered(process)["label"] for _ in range(32)] == ["pos"] * 32
    started = time.monotonic()
    process.send_signal(number)
    assert process.wait(WAIT) == 130 and time.monotonic() - started < 60
    err = process.stderr.read()
    assert err.rstrip().endswith("interrupted") and "Traceback" not in err and "Fatal" not in err
    process.stdin.close()


def test_a_bad_row_ends_it_while_the_input_is_open(work, base):
    process = one_by_one(work)
    send(process, "good")
    assert answered(process)["label"] == "pos"
    for blank in ("", " "):  # an answer, and no end
        send(process, blank)
        assert answered(process) == {"text": "", "label": None, "probabilities": None}
    send(process, "\0")
    assert process.wait(WAIT) == 2
    assert "standard input:4: NUL byte" in process.stderr.read()
    process.stdin.close()


def test_the_reader_of_the_answers_leaves(work, base):
    """`nlpctl predict ... | head -1`."""
    (work / "leaves.txt").write_text("good food\n" * 20_000)
    process = work.start("predict", "base", "leaves.txt", "--batch-size", "4")
    assert answered(process)["label"] == "pos"
    process.stdout.close()
    assert process.wait(WAIT) == 0
    err = process.stderr.read()
    assert "Traceback" not in err and "rror" not in err
    process.stdin.close()


@pytest.mark.parametrize(
    "words", [("--flush",), ("--min-confidence", "0.5"), ("--engine", "onnxruntime"), ("--precision", "int8")], ids=str
)
def test_what_layer_outputs_do_not_know_is_refused(work, base, words):
    done = work.nlpctl("predict", "base", "dev.tsv", *words, "--layer-outputs", "*", "-o", "x.npz")
    assert done.returncode == 2 and f"error: {words[0]}" in done.stderr
