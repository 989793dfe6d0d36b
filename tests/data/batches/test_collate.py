"""Padding, and failures that must never hang Paddle's loader."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.data.batches.collate import Collator, LoaderFailure, failure_batch, pad_batch, raise_failure
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.data.text.encoder import Encoding
from nlpctl.errors import RunFailed, UserError

SCRIPT = Path(__file__).with_name("loader_script.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}


class Encoder:
    pad_id = 9
    pad_token_type_id = 3
    uses_token_types = True

    def encode(self, texts, pairs, max_length, tell_cut=True):
        rows = texts if pairs is None else [text + pair for text, pair in zip(texts, pairs, strict=True)]
        return [Encoding([int(c) for c in row][:max_length], [0] * min(len(row), max_length)) for row in rows]


def test_pad_batch():
    encodings = [Encoding([1, 2, 3], [0, 0, 1]), Encoding([4], [0])]
    batch = pad_batch(encodings, 7, 2)
    assert list(batch) == ["input_ids", "token_type_ids"]
    assert all(array.dtype == np.int64 for array in batch.values())
    assert batch["input_ids"].tolist() == [[1, 2, 3], [4, 7, 7]]
    assert batch["token_type_ids"].tolist() == [[0, 0, 1], [0, 2, 2]]
    assert list(pad_batch(encodings, 7, None)) == ["input_ids"]


def test_collator_with_pairs_and_labels():
    collator = pickle.loads(pickle.dumps(Collator(Encoder(), 3, with_labels=True)))
    batch = collator([TextExample("12", "34", 1), TextExample("5", "6", 0)])
    assert {key: value.tolist() for key, value in batch.items()} == {
        "input_ids": [[1, 2, 3], [5, 6, 9]],
        "token_type_ids": [[0, 0, 0], [0, 0, 3]],
        "labels": [1, 0],
    }
    assert list(Collator(Encoder(), 3, with_labels=False)([TextExample("1", None, None)])) == [
        "input_ids",
        "token_type_ids",
    ]


def test_collator_never_raises():
    batch = Collator(Encoder(), 3, with_labels=True)([TextExample("x", None, 1)])
    with pytest.raises(RunFailed, match=r"making a batch failed: ValueError: .*'x'.*test_collate.py:\d+"):
        raise_failure(batch)
    raise_failure({"input_ids": np.zeros(1)})
    raise_failure((np.zeros(1),))


def test_failure_keeps_kind_place_and_hint():
    failure = LoaderFailure.from_exception(UserError("wrong", where="data.x", hint="fix it"))
    batch = pickle.loads(pickle.dumps(Collator(Encoder(), 3, True)([TextExample("1", None, 1), failure])))
    with pytest.raises(UserError) as caught:
        raise_failure(batch)
    assert str(caught.value) == "data.x: wrong\n  -> fix it"
    assert failure_batch(failure).keys() == batch.keys()


def run_loader(mode: str, workers: int) -> subprocess.CompletedProcess:
    command = [sys.executable, SCRIPT, mode, str(workers)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("mode", "answer"),
    [
        ("ok", "all True\n"),
        ("fail", "RunFailed making a batch failed: KeyError: 'token' ("),
        ("user", "UserError data.max_seq_length: too short\n  -> make it longer\n"),
        ("stream", "RunFailed numbers:40: blank text\n"),
    ],
)
def test_loader_does_not_hang(mode, workers, answer):
    done = run_loader(mode, workers)
    assert done.stdout.startswith(answer), done.stdout + done.stderr
    assert done.returncode == 0 and "Traceback" not in done.stderr


@pytest.mark.parametrize("mode", [pytest.param("die", marks=pytest.mark.slow), "die-in-step"])
def test_lost_worker_is_told(mode):
    done = run_loader(mode, 2)
    assert done.stdout.startswith("RunFailed a data worker process ended unexpectedly"), done.stdout + done.stderr
