"""How steps are counted, with what is left over."""

from __future__ import annotations

import pytest

from nlpctl.training.step_count import StepCount


def count(**given):
    values = {"examples": 61, "rows": 61, "per_device": 4, "accumulation": 2, "processes": 1, "drop_last": False,
              "epochs": 6, "total": 48, "warmup": 4}  # fmt: skip
    return StepCount(**values | given)


@pytest.mark.parametrize(
    ("given", "batch", "told"),
    [
        ({}, "8 rows = 4 per device x 2 accumulated x 1 process",
         "61 rows: 8 steps an epoch (the last of 5 rows); 6 epochs: 48 steps, warm-up in the first 4"),
        ({"drop_last": True, "total": 42, "warmup": 0}, "8 rows",
         "61 rows: 7 steps an epoch (5 rows left out: dataloader_drop_last); 6 epochs: 42 steps, no warm-up"),
        ({"processes": 2, "rows": 64}, "16 rows = 4 per device x 2 accumulated x 2 processes",
         "61 examples, cut into 64 rows: 4 steps an epoch; 6 epochs: 48 steps, warm-up in the first 4"),
        ({"batch_tokens": 512, "planned": 9},
         "at most 1,024 tokens with padding, about 8 rows = 4 per device x 2 accumulated x 1 process",
         "61 rows: 9 steps an epoch; 6 epochs: 48 steps, warm-up in the first 4"),
        ({"examples": None, "rows": None, "total": 2000}, "8 rows",
         "2,000 steps of a stream, warm-up in the first 4"),
    ],
)  # fmt: skip
def test_what_is_told(given, batch, told):
    lines = count(**given).describe()
    assert f"a step is {batch}" in lines[0] and lines[1] == told


def test_the_manifest_holds_what_follows():
    assert count().to_json() | {"global_batch": 8, "per_epoch": 8} == count().to_json()
