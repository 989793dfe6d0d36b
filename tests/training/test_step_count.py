"""How steps are counted, with what is left over."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.data.batches.batching import TokenBatchSampler, rounded
from nlpctl.training.callbacks import StepCount, step_count


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
        ({"warmup": None}, "8 rows",
         "61 rows: 8 steps an epoch (the last of 5 rows); 6 epochs: 48 steps, a schedule of your own"),
        ({"examples": None, "rows": None, "total": 2000}, "8 rows",
         "2,000 steps of a stream, warm-up in the first 4"),
    ],
)  # fmt: skip
def test_what_is_told(given, batch, told):
    lines = count(**given).describe()
    assert f"a step is {batch}" in lines[0] and lines[1] == told


def sampler_and_arguments(processes, accumulation, drop_last, schedule="linear"):
    lengths = np.random.default_rng(1).integers(3, 129, 1007)
    shape = {"accumulation_steps": accumulation, "num_replicas": processes, "drop_last": drop_last}
    sampler = TokenBatchSampler(lengths, 512, planned_steps=accumulation, **shape)
    args = SimpleNamespace(
        warmup_steps=3, per_device_train_batch_size=rounded(sampler.mean_rows), max_steps=-1, num_train_epochs=2,
        gradient_accumulation_steps=accumulation, dataset_world_size=processes, dataloader_drop_last=drop_last,
        lr_scheduler_type=SimpleNamespace(value=schedule),
    )  # fmt: skip
    return sampler, args


def test_a_constant_rate_has_no_warmup():
    """PaddleNLP's get_scheduler gives it none, whatever warmup_steps says; the plan told of one."""
    sampler, args = sampler_and_arguments(1, 1, False, "constant")
    found = step_count(args, SimpleNamespace(max_steps=9), SimpleNamespace(sampler=sampler), 1007)
    assert found.warmup == 0 and "no warm-up" in found.describe()[1]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("processes", "accumulation"), [(1, 1), (2, 2)])
def test_steps_of_batches_by_tokens_are_those_that_the_sampler_makes(processes, accumulation, drop_last):
    sampler, args = sampler_and_arguments(processes, accumulation, drop_last)
    updates = len(list(sampler)) // accumulation
    found = step_count(args, SimpleNamespace(max_steps=2 * updates), SimpleNamespace(sampler=sampler), 1007)
    assert found.per_epoch == sampler.updates == updates
    batch, steps = found.describe()
    assert f"a step is at most {512 * processes * accumulation:,} tokens" in batch
    assert f"{updates:,} steps an epoch" in steps and f"2 epochs: {2 * updates:,} steps" in steps
    assert ("rows left out" in steps) is drop_last


def test_the_manifest_holds_what_follows():
    assert count().to_json() | {"global_batch": 8, "per_epoch": 8} == count().to_json()
