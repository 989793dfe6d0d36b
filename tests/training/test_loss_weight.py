"""An update's gradient is that of the mean over its examples, however it is cut into parts."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.data.batches.batching import LengthGroupedBatchSampler, TokenBatchSampler
from nlpctl.runtime.event_log import EventLog

LENGTHS = np.random.default_rng(3).integers(1, 99, 61)
CUTS = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (3, 2)]  # accumulation steps, ranks


def samplers(rows: int, batch_size: int, accumulation: int, ranks: int, **options) -> list[LengthGroupedBatchSampler]:
    return [
        LengthGroupedBatchSampler(
            LENGTHS[:rows],
            batch_size,
            accumulation_steps=accumulation,
            num_replicas=ranks,
            rank=rank,
            seed=5,
            **options,
        )
        for rank in range(ranks)
    ]


def updates(parts: list[LengthGroupedBatchSampler], epoch: int = 1) -> list[list[list[int]]]:
    """Per update the parts of all ranks and accumulation steps."""
    steps, of_ranks = parts[0].accumulation_steps, []
    for sampler in parts:
        sampler.set_epoch(epoch)
        of_ranks.append(list(sampler))
    count = len(of_ranks[0]) // steps
    assert all(len(batches) == count * steps == len(parts[0]) for batches in of_ranks)
    return [[part for batches in of_ranks for part in batches[i * steps : (i + 1) * steps]] for i in range(count)]


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("rows", [61, 48, 49, 12, 5, 1])
@pytest.mark.parametrize(("accumulation", "ranks"), CUTS)
def test_weighted_parts_are_the_mean_of_the_update(accumulation, ranks, rows, grouped):
    """In exact arithmetic: the mean over parts of (weight x mean of the part) is the mean of the whole batch."""
    parts = samplers(rows, 12 // (accumulation * ranks), accumulation, ranks, grouped=grouped)
    (whole,) = samplers(rows, 12, 1, 1, grouped=grouped)
    cut, plain = updates(parts), updates([whole])
    assert len(cut) == len(plain) == parts[0].updates == -(-rows // 12)
    for i in range(len(cut)):
        update = 7 * len(cut) + i  # of the eighth epoch
        weights = [as_fraction(each) for each in weights_of(parts, update)]
        means = [
            Fraction(sum(value(row) for row in part), len(part)) * weight
            for part, weight in zip(cut[i], weights, strict=True)
        ]
        (batch,) = plain[i]
        counted = [row for part, weight in zip(cut[i], weights, strict=True) if weight for row in part]
        assert sorted(counted) == sorted(batch) and all(cut[i])
        assert sum(means) / len(means) == Fraction(sum(map(value, batch)), len(batch))


@pytest.mark.parametrize("by_tokens", [False, True])
def test_every_division_of_every_remainder_is_the_mean_of_its_rows(by_tokens):
    for accumulation, ranks, size, rows in itertools.product((1, 2, 3, 5), (1, 2, 4), (1, 2, 3), range(1, 32)):
        if by_tokens:
            options = {"planned_steps": 1, "accumulation_steps": accumulation, "num_replicas": ranks}
            parts = [TokenBatchSampler(LENGTHS[:rows], 99 * size, rank=rank, **options) for rank in range(ranks)]
        else:
            parts = samplers(rows, size, accumulation, ranks)
        share = np.zeros(rows)
        cut = updates(parts)
        for i, update in enumerate(cut):
            before = share.copy()
            weights = weights_of(parts, len(cut) + i)
            for part, weight in zip(update, weights, strict=True):
                share[part] += weight / len(part) / len(update)
            counted = share[share != before]
            np.testing.assert_allclose(counted, 1 / len(counted))
        assert (share > 0).all()


def weights_of(parts: list[LengthGroupedBatchSampler], update: int) -> list[float]:
    """As `updates` lists the parts."""
    return [sampler.loss_weight(update, part) for sampler in parts for part in range(sampler.accumulation_steps)]


def value(row: int) -> int:
    """A stand-in for the loss of a row."""
    return row * row + 3


def as_fraction(weight: float) -> Fraction:
    exact = Fraction(weight).limit_denominator(1000)
    assert float(exact) == weight
    return exact


def test_full_updates_weigh_nothing_and_the_last_one_by_its_rows():
    (sampler,) = samplers(61, 3, 2, 1)  # updates of 6: ten of them full, the last has 1 row, filled up to 2
    assert [sampler.loss_weight(update, 1) for update in range(10)] == [1.0] * 10
    assert [sampler.loss_weight(update, part) for update in (10, 21) for part in (0, 1)] == [2.0, 0.0, 2.0, 0.0]
    (sampler,) = samplers(59, 3, 2, 1)  # the last update has 5 rows: 3 + 2
    assert [len(part) for part in updates([sampler])[-1]] == [3, 2]
    assert (sampler.loss_weight(9, 0), sampler.loss_weight(9, 1)) == (6 / 5, 4 / 5)
    assert sampler.loss_weight(10, 0) == 1.0  # the first update of the next epoch


def test_dropped_last_batches_weigh_nothing():
    (sampler,) = samplers(61, 3, 2, 1, drop_last=True)
    assert sampler.updates == 10 and len(sampler) == 20
    assert {sampler.loss_weight(update, 1) for update in range(25)} == {1.0}


@pytest.mark.parametrize(("accumulation", "ranks"), CUTS)
def test_gradients_are_those_of_the_whole_batch(accumulation, ranks):
    """With Paddle's own arithmetic, as the Trainer does it: loss / steps, then gradients averaged over ranks."""
    import paddle

    random = np.random.default_rng(0)
    features, labels = random.normal(size=(61, 7)).astype("float64"), random.integers(0, 3, 61)

    def gradient(part: list[int], factor: float) -> np.ndarray:
        layer = paddle.nn.Linear(7, 3)
        layer.weight = layer.create_parameter([7, 3], dtype="float64")
        layer.bias = layer.create_parameter([3], dtype="float64", is_bias=True)
        layer.weight.set_value(np.linspace(-1, 1, 21).reshape(7, 3))
        logits = layer(paddle.to_tensor(features[part]))
        loss = paddle.nn.functional.cross_entropy(logits, paddle.to_tensor(labels[part]))
        (loss * factor).backward()
        return np.concatenate([layer.weight.grad.numpy().ravel(), layer.bias.grad.numpy()])

    parts = samplers(61, 12 // (accumulation * ranks), accumulation, ranks)
    (whole,) = samplers(61, 12, 1, 1)
    for i in (0, 5):  # a full update, and the last one, of a single row
        cut, (batch,) = updates(parts)[i], updates([whole])[i]
        weights = weights_of(parts, i)
        total = sum(gradient(part, weight / len(cut)) for part, weight in zip(cut, weights, strict=True))
        np.testing.assert_allclose(total, gradient(batch, 1.0), rtol=1e-12, atol=1e-14)


def test_a_training_does_not_depend_on_the_division_of_its_last_step(tiny, difference):
    """45 rows in steps of 16: the last has 13, for 16 parts."""
    settings = [f"model.config.{name}_dropout_prob=0" for name in ("hidden", "attention_probs")]
    settings += ["loss.label_smoothing=0.1", "loss.class_weights=balanced", "training.num_train_epochs=1"]

    def run(batch: int):
        cut = f"training.per_device_train_batch_size={batch}", f"training.gradient_accumulation_steps={16 // batch}"
        return tiny(f"cut-{batch}", *settings, *cut)

    whole, cut = run(16), run(1)
    assert difference(whole.model, cut.model) < 1e-5
    np.testing.assert_allclose(logged(whole), logged(cut), rtol=1e-5)


def logged(run) -> list[float]:
    return [event["loss"] for event in EventLog(run.events_file).read() if event["event"] == "log"]
