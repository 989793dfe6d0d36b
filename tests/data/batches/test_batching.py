"""Which examples form a batch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.data.batches.batching import MEGABATCH, LengthGroupedBatchSampler
from nlpctl.errors import UserError


def lengths_of(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(1, 400, count)


def batches(count: int, batch_size: int, epoch: int = 0, **options) -> list[list[int]]:
    sampler = LengthGroupedBatchSampler(lengths_of(count), batch_size, **options)
    sampler.set_epoch(epoch)
    found = list(sampler)
    assert len(found) == len(sampler)
    return found


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("count", [32, 1000, 1007])
def test_every_example_once(count, drop_last, grouped):
    found = batches(count, 8, drop_last=drop_last, grouped=grouped)
    indices = [index for batch in found for index in batch]
    assert len(set(indices)) == len(indices) == (count // 8 * 8 if drop_last else count)
    assert sorted(map(len, found))[1:] == [8] * (len(found) - 1)
    assert all(type(index) is int for index in indices)


def test_order_is_a_function_of_seed_and_epoch():
    for grouped in (True, False):
        assert batches(500, 8, 3, seed=7, grouped=grouped) == batches(500, 8, 3, seed=7, grouped=grouped)
        assert batches(500, 8, 3, seed=7, grouped=grouped) != batches(500, 8, 4, seed=7, grouped=grouped)
        assert batches(500, 8, 3, seed=7, grouped=grouped) != batches(500, 8, 3, seed=8, grouped=grouped)


def test_iterating_again_without_set_epoch_gives_the_same():
    sampler = LengthGroupedBatchSampler(lengths_of(100), 8)
    assert list(sampler) == list(sampler)


def padding(found: list[list[int]], lengths: np.ndarray) -> float:
    padded = sum(len(batch) * lengths[batch].max() for batch in found)
    return padded / lengths.sum()


def test_grouping_saves_padding_and_still_shuffles():
    lengths = lengths_of(4000)
    assert padding(batches(4000, 8, grouped=False), lengths) > 1.6
    grouped = batches(4000, 8, grouped=True)
    assert padding(grouped, lengths) < 1.05
    means = np.array([lengths[batch].mean() for batch in grouped[1:]])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2
    first, second = (set(map(frozenset, batches(4000, 8, epoch))) for epoch in (0, 1))
    assert len(first & second) < 5


def test_longest_batch_comes_first():
    lengths = lengths_of(4000)
    lengths[1234] = 10_000
    sampler = LengthGroupedBatchSampler(lengths, 8)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert 1234 in next(iter(sampler))


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("count", [960, 963, 1000, 961, 7, 1])
@pytest.mark.parametrize(("ranks", "batch_size"), [(2, 16), (4, 8)])
def test_ranks_share_the_batches_of_one_process(ranks, batch_size, count, grouped):
    whole = batches(count, ranks * batch_size, 2, seed=5, grouped=grouped)
    parts = [
        batches(count, batch_size, 2, seed=5, grouped=grouped, num_replicas=ranks, rank=rank) for rank in range(ranks)
    ]
    for together, *shares in zip(whole, *parts, strict=True):
        assert all(shares)
        joined = list(itertools.chain(*shares))
        if len(together) >= ranks:
            assert joined == together
            assert max(map(len, shares)) - min(map(len, shares)) <= 1
        else:
            assert len(joined) == ranks and set(joined) == set(together)


def test_drop_last_over_ranks():
    parts = [batches(1000, 16, num_replicas=4, rank=rank, drop_last=True) for rank in range(4)]
    assert [len(part) for part in parts] == [15] * 4
    assert {len(batch) for part in parts for batch in part} == {16}


def test_drop_last_that_leaves_nothing():
    with pytest.raises(UserError, match="dataloader_drop_last: 7 training rows do not fill one batch of 8"):
        LengthGroupedBatchSampler(lengths_of(7), 4, num_replicas=2, rank=0, drop_last=True)


def test_start_at_is_for_the_next_iteration_only():
    sampler = LengthGroupedBatchSampler(lengths_of(1000), 8, seed=3)
    sampler.set_epoch(2)
    everything = list(sampler)
    for start in (0, 1, 60, len(everything)):
        sampler.start_at(start)
        assert len(sampler) == len(everything)
        assert list(sampler) == everything[start:]
        assert list(sampler) == everything
    for wrong in (-1, len(everything) + 1):
        with pytest.raises(ValueError):
            sampler.start_at(wrong)


def test_large_sets_are_planned_in_pieces():
    """A megabatch is sorted, the epoch is not: neighbours in length do not always meet."""
    count = 3 * MEGABATCH * 4
    lengths = np.arange(count)
    found = list(LengthGroupedBatchSampler(lengths, 4))
    spans = [max(batch) - min(batch) for batch in found]
    assert len(found) == count // 4 and 3 < np.mean(spans) < 40
