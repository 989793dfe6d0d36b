"""Batches limited by tokens."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.data.batches.batching import BUCKET, TokenBatchSampler, rounded
from nlpctl.errors import UserError

LENGTHS = np.random.default_rng(1).integers(3, 129, 1007)
TOKENS = 512


def batches(epoch: int = 0, **options) -> list[list[int]]:
    sampler = TokenBatchSampler(LENGTHS, TOKENS, **options)
    sampler.set_epoch(epoch)
    found = list(sampler)
    assert len(found) == len(sampler)
    return found


def tokens(batch: list[int]) -> int:
    return len(batch) * int(LENGTHS[batch].max())


@pytest.mark.parametrize("epoch", range(3))
@pytest.mark.parametrize(("ranks", "steps"), [(1, 1), (2, 1), (1, 3), (2, 2)])
def test_every_row_once_and_no_batch_too_large(ranks, steps, epoch):
    options = {"num_replicas": ranks, "planned_steps": steps, "accumulation_steps": steps}
    shares = [batches(epoch, rank=rank, **options) for rank in range(ranks)]
    assert len({len(share) for share in shares}) == 1  # the same number of batches in every process
    found = list(itertools.chain(*itertools.chain(*shares)))
    assert sorted(found) == list(range(len(LENGTHS)))
    assert max(tokens(batch) for share in shares for batch in share) <= TOKENS
    assert len(shares[0]) == len(batches(0, rank=0, **options))  # and in every epoch


def test_little_is_padding_and_rows_are_mixed():
    found = batches()
    assert sum(map(tokens, found)) / LENGTHS.sum() < 1 + BUCKET / LENGTHS.mean()
    assert min(map(len, found)) == TOKENS // 128 and max(map(len, found)) > 5 * TOKENS // 128
    means = np.array([LENGTHS[batch].mean() for batch in found[1:]])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2
    assert len(set(map(frozenset, found)) & set(map(frozenset, batches(1)))) < 5


def test_order_is_a_function_of_seed_and_epoch():
    assert batches(3, seed=7) == batches(3, seed=7) != batches(4, seed=7)
    assert batches(3, seed=7) != batches(3, seed=8)


def test_an_update_is_the_same_however_it_is_cut():
    """Two processes, two accumulation steps, or four after a lack of memory: the same rows in every update."""
    planned = {"planned_steps": 2}
    whole = TokenBatchSampler(LENGTHS, TOKENS, accumulation_steps=2, **planned)
    cut = TokenBatchSampler(LENGTHS, TOKENS, accumulation_steps=8, **planned)
    both = [TokenBatchSampler(LENGTHS, TOKENS, num_replicas=2, rank=rank) for rank in range(2)]
    for update in range(2 * whole.updates):
        rows = sorted(itertools.chain(*whole.parts_of(update)))
        assert rows == sorted(itertools.chain(*both[0].parts_of(update), *both[1].parts_of(update)))
        parts = cut.parts_of(update)
        if len(rows) >= 8:
            assert rows == sorted(itertools.chain(*parts))
        weights = [cut.loss_weight(update, part) for part in range(len(parts))]
        assert sum(weights) / 8 == pytest.approx(1), weights


def test_start_at_skips_batches():
    sampler = TokenBatchSampler(LENGTHS, TOKENS)
    everything = list(sampler)
    sampler.start_at(5)
    assert list(sampler) == everything[5:] and list(sampler) == everything


def test_drop_last_drops_other_rows_in_every_epoch():
    """As many as are left of the shortest, but any: no row is never seen."""
    dropped = []
    for epoch in range(3):
        kept = batches(epoch, drop_last=True)
        assert len(batches(epoch)) - len(kept) == 1 and max(map(tokens, kept)) <= TOKENS
        dropped.append(set(range(len(LENGTHS))) - set(itertools.chain(*kept)))
    assert len(set(map(len, dropped))) == 1 and not set.intersection(*dropped) and all(dropped)
    assert max(LENGTHS[list(rows)].max() for rows in dropped) > np.sort(LENGTHS)[len(dropped[0])] + BUCKET
    with pytest.raises(UserError, match="do not fill one batch of 99999 tokens"):
        TokenBatchSampler(LENGTHS, 99999, num_replicas=9, drop_last=True)


def test_a_row_that_is_too_long():
    with pytest.raises(UserError, match="data.batch_tokens: a row has 128 tokens, more than a batch may have .100"):
        TokenBatchSampler(LENGTHS, 100)


def test_the_longest_comes_first():
    for epoch in range(3):
        assert LENGTHS[batches(epoch)[0]].max() * len(batches(epoch)[0]) == max(map(tokens, batches(epoch)))


def test_sizes_that_can_be_halved():
    assert [rounded(rows) for rows in (0.4, 1, 3.4, 7.2, 13, 37.5, 100, 1000)] == [1, 1, 3, 7, 12, 40, 96, 1024]
