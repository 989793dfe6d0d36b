"""Shared by the hand-written inference scripts, which are controlled on standard input.

Each is started as `python SCRIPT SPEC`; SPEC is a JSON file with "texts", "max_length", "folder", "precision",
"threads" and "exact" (whether ONNX Runtime needs its option for exact sums of int8). It prints "ready".
Then it reads lines with a batch size; for each it answers all texts once and writes {"seconds", "labels"}.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Answer = Callable[[list[str], int], list[int]]


def serve(load: Callable[[dict[str, Any]], Answer]) -> None:
    """Answer rounds until standard input ends."""
    with open(sys.argv[1], encoding="utf-8") as stream:
        spec = json.load(stream)
    answer = load(spec)
    print("ready", flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        labels = answer(spec["texts"], int(line))
        print(json.dumps({"seconds": time.perf_counter() - started, "labels": labels}), flush=True)


def fast_tokenizer(spec: dict[str, Any]) -> Any:
    """The tokenizer that a careful user would choose: Hugging Face's `tokenizers`, which uses every core."""
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(f"{spec['folder']}/vocab.txt", lowercase=True)
    tokenizer.enable_truncation(spec["max_length"])
    return tokenizer


def sorted_batches(tokenizer: Any, texts: list[str], size: int) -> Iterator[tuple[list[int], np.ndarray]]:
    """Rows of similar length together: their places, and their ids as one padded int64 array."""
    rows = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    for start in range(0, len(order), size):
        places = order[start : start + size]
        ids = np.zeros((len(places), len(rows[places[-1]])), np.int64)
        for row, place in enumerate(places):
            ids[row, : len(rows[place])] = rows[place]
        yield places, ids


def in_order(found: Sequence[tuple[list[int], np.ndarray]], count: int) -> list[int]:
    """The labels by the places of their texts."""
    labels = np.empty(count, np.int64)
    for places, logits in found:
        labels[places] = logits.argmax(-1)
    return labels.tolist()
