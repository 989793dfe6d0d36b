"""Batches from any place on, and the seeds that belong to a step."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.data.batches.batching import LengthGroupedBatchSampler
from nlpctl.errors import RunFailed
from nlpctl.training.batches import SKIPPED, ResumableBatches, ResumableStream, step_seed
from nlpctl.training.trainer import RecipeTrainer


class Loader:
    """Yields what the sampler says, as lists of indices."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        return iter(self.sampler)


def batches(accumulation: int = 1) -> ResumableBatches:
    sampler = LengthGroupedBatchSampler(np.arange(1, 62), 4, accumulation_steps=accumulation, seed=1)
    return ResumableBatches(Loader(sampler), sampler)


def test_epoch_after_epoch():
    uninterrupted = batches()
    first, second = list(uninterrupted), list(uninterrupted)
    assert first != second and len(first) == len(second) == len(uninterrupted) == 16
    again = batches()
    assert [list(again), list(again)] == [first, second]


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize(("epoch", "update"), [(0, 0), (0, 3), (1, 0), (1, 7), (2, 0)])
def test_started_anywhere(epoch, update, accumulation):
    uninterrupted = batches(accumulation)
    epochs = [list(uninterrupted) for _ in range(4)]
    resumed = batches(accumulation)
    skip = update * accumulation
    resumed.start_at(epoch, skip)
    assert len(resumed) == len(epochs[0])  # what the Trainer counts its steps by
    assert list(resumed) == [SKIPPED] * skip + epochs[epoch][skip:]
    assert list(resumed) == epochs[epoch + 1]


class Stream:
    """Endless numbers; `start_at` as StreamingExamples has it."""

    start = 0
    source = SimpleNamespace(description="numbers")

    def start_at(self, batch: int) -> None:
        self.start = batch

    def __iter__(self):
        return iter(range(self.start, 10))


def test_a_stream_goes_on_where_it_was():
    stream = Stream()
    resumed = ResumableStream(stream, stream)
    assert list(islice(resumed, 10)) == list(range(10))
    resumed.start_at(0, 4)
    assert list(islice(resumed, 10)) == [SKIPPED] * 4 + list(range(4, 10))
    with pytest.raises(RunFailed, match="numbers: the stream of training rows ended"):
        list(resumed)  # the Trainer would begin anew, for ever
    assert resumed.loss_weight(3, 1) == 1.0
    with pytest.raises(TypeError):  # the Trainer asks for it, and must hear that a stream has none
        len(resumed)


def test_step_seeds_differ():
    seeds = {step_seed(seed, step, rank) for seed in (0, 1, 42, 2**31 - 1) for step in range(5000) for rank in range(4)}
    assert len(seeds) > 79_990  # a few of 80,000 may meet among 2 ** 31
    assert all(0 <= seed < 2**31 for seed in seeds)
    for rank in (1, 2, 3):
        assert step_seed(42, 7, rank) != step_seed(42, 7, 0)


def test_a_step_seed_never_changes():
    """Pinned: another formula would break the resume of runs that began with this one."""
    assert [step_seed(42, 0, 0), step_seed(42, 1, 0), step_seed(42, 1, 1)] == PINNED


PINNED = [1964636152, 2063974790, 1035497373]


@pytest.mark.parametrize("processes, expected", [(1, [0, 2, 5, 7]), (3, [*range(10)])])
def test_a_part_of_dev_comes_from_all_over_it(processes, expected):
    """A file may be sorted by label. Where it is smaller than the part, all of it is taken."""
    args = SimpleNamespace(max_evaluate_steps=2, eval_batch_size=2, dataset_world_size=processes)
    trainer = SimpleNamespace(args=args, data=SimpleNamespace(dev=list(range(10))))
    assert RecipeTrainer._dev_examples(trainer) == expected
