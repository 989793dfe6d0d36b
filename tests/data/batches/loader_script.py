"""Run by test_collate.py in a process of its own, because what it guards against is a hang.

python loader_script.py MODE WORKERS   (MODE: ok, fail, user, die, die-in-step, stream)
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.schema import DataSection
from nlpctl.data.batches.batching import CheckedDataLoader, LengthGroupedBatchSampler, lost_worker_as_error
from nlpctl.data.batches.collate import Collator
from nlpctl.data.batches.streaming import StreamingExamples
from nlpctl.data.readers.row import BadRow, Row
from nlpctl.data.rows.examples import ExampleList, ExampleReader
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.text_rows import TextExample, TextRows
from nlpctl.data.text.encoder import Encoding
from nlpctl.errors import NlpctlError, UserError


class Encoder:
    """One token per character, its code point."""

    pad_id = 0
    pad_token_type_id = 0
    uses_token_types = False

    def encode(self, texts, pairs, max_length, tell_cut=True):
        if "20" in texts and MODE == "fail":
            raise KeyError("token")
        if "20" in texts and MODE == "user":
            raise UserError("too short", where="data.max_seq_length", hint="make it longer")
        if "20" in texts and MODE.startswith("die"):
            os._exit(9)
        return [Encoding([ord(c) for c in text][:max_length], []) for text in texts]


class Source:
    description = "numbers"

    def __iter__(self):
        for i in range(50):
            if i == 40 and MODE == "stream":
                yield BadRow("numbers", i, "blank text")
            yield Row("numbers", i, {"text": str(i), "label": i % 2})


def loader(workers: int) -> CheckedDataLoader:
    collator = Collator(Encoder(), 16, with_labels=True)
    if MODE == "stream":
        reader = ExampleReader(TextRows(DataSection()), LabelSet(("0", "1")))
        stream = StreamingExamples(
            Source(), reader, lambda example: (example,), batch_size=4, shuffle_buffer=5, seed=0, on_bad_row="error"
        )
        return CheckedDataLoader(stream, batch_size=4, collate_fn=collator, num_workers=workers)
    examples = ExampleList()
    for i in range(40):
        examples.append(TextExample(str(i), None, i % 2))
    sampler = LengthGroupedBatchSampler(np.full(40, 2), 4)
    return CheckedDataLoader(examples, batch_sampler=sampler, collate_fn=collator, num_workers=workers)


MODE = sys.argv[1]
seen = []
try:
    with lost_worker_as_error():
        for batch in loader(int(sys.argv[2])):
            if MODE == "die-in-step":
                time.sleep(1)  # the news of the worker's end comes while this step "computes"
            assert sorted(batch) == ["input_ids", "labels"], batch
            for row, label in zip(batch["input_ids"].numpy(), batch["labels"].numpy(), strict=True):
                number = int("".join(chr(c) for c in row if c))
                assert label == number % 2
                seen.append(number)
except NlpctlError as error:
    print(type(error).__name__, error)
else:
    print("all", sorted(seen) == list(range(40)))
