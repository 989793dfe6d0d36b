"""Whether a loss falls is told in spite of its noise: without false alarms, and in every case that must alarm."""

from __future__ import annotations

import math
import random

import pytest

from nlpctl.training.plateau import EARLIEST, Fall, LossMonitor, Plateau, checks, describe, is_rising

LN2 = math.log(2)


def verdict(losses, constant=LN2, total=None, warmup=0, per_epoch=100, from_start=True) -> Plateau | None:
    monitor = LossMonitor(constant, from_start)
    monitor.begin(total or len(losses), warmup, per_epoch)
    told = [each for step, loss in enumerate(losses, 1) if (each := monitor.add(step, loss))]
    for kind in (Plateau, Fall):
        assert sum(isinstance(each, kind) for each in told) <= 1, "told once"
    return next((each for each in told if isinstance(each, Plateau)), None)


def noisy(mean, noise, steps=400, seed=0):
    chance = random.Random(seed)
    return [max(mean(step) + chance.gauss(0, noise), 0.0) for step in range(1, steps + 1)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("noise", "constant"), [(0.001, LN2), (0.05, LN2), (0.15, LN2), (0.001, None), (0.05, None)])
def test_a_loss_that_stays_is_told(noise, seed, constant):
    found = verdict(noisy(lambda step: LN2, noise, 800, seed), constant)
    assert found and found.step >= EARLIEST and found.constant is (constant is not None)
    assert abs(found.mean - LN2) < 0.05 and found.jumps is (noise > 0.1)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("noise", [0.02, 0.15, 0.3])
@pytest.mark.parametrize("constant", [LN2, None])
def test_a_loss_that_falls_is_not(noise, seed, constant):
    """Also one that needs its time: a tenth of the way down after 100 steps."""
    assert not verdict(noisy(lambda step: LN2 * math.exp(-step / 400), noise, seed=seed), constant)


def test_what_a_good_start_costs_less_is_learning():
    """A model that was trained before hardly gets better, but costs far less than a guess."""
    assert not verdict(noisy(lambda step: 0.2, 0.1))
    assert not verdict(noisy(lambda step: 2.0, 0.1), constant=None, from_start=False)


def test_far_too_high_a_rate_is_told():
    found = verdict(noisy(lambda step: 1.5, 0.8))
    assert found and found.jumps


def test_it_waits_for_warm_up_and_plan():
    assert verdict([LN2] * 99) is None  # too short to say
    assert verdict([LN2] * 2000, per_epoch=300, total=3000).step == 750
    assert verdict([LN2] * 900, warmup=500).step == 550
    assert verdict([LN2] * 1500, per_epoch=100_000, total=100_000).step == 1000
    late = [LN2] * 120 + [LN2 * 0.8] * 300
    assert verdict(late, total=420, per_epoch=200) is None


def test_what_falls_late_is_taken_back():
    """15 classes, as in a run whose score on dev rose from 0.06 to 0.36."""
    guess = math.log(15)
    losses = noisy(lambda step: guess if step < 200 else guess - 0.004 * (step - 200), 0.05)
    monitor = LossMonitor(guess, True)
    monitor.begin(len(losses), 0, 38)
    told = [each for step, loss in enumerate(losses, 1) if (each := monitor.add(step, loss))]
    assert [type(each) for each in told] == [Plateau, Fall]
    assert told[0].step == 100 and 250 < told[1].step < 400 and told[1].mean < 0.95 * guess


def test_a_score_of_dev_that_rises_shows_a_slow_start():
    scores = [0.0625, 0.0828, 0.1313, 0.1750, 0.2375]
    assert is_rising(scores) and is_rising(scores[:3]) and not is_rising(scores[:2]) and not is_rising([])
    assert not is_rising([*scores, 0.2]) and not is_rising([0.1, 0.1, 0.1])
    seen = []
    monitor = LossMonitor(LN2, True, dev=lambda: seen)
    monitor.begin(800, 0, 100)
    for step in range(1, 301):  # it looks from step 200 on
        seen[:] = scores[: step // 40]
        assert monitor.add(step, LN2) is None
    seen.append(0.1)
    assert [step for step in range(301, 401) if monitor.add(step, LN2)] == [325]


def test_what_is_said():
    found = verdict([LN2] * 200)
    assert describe(found) == (
        "the loss does not fall: 0.6931 over the last 50 steps up to step 100, where always giving the same answer "
        "costs 0.6931"
    )
    told = checks(found, "outputs/x", learning_rate=1e-5, batch=8, gradient=0.5, frozen=True)
    order = ("labels", "one batch", "learning rate, 1e-05 at this step: the losses hardly move", "batch, 8", "gradient")
    assert [check.startswith(part) for check, part in zip(told, order, strict=True)] == [True] * 5
    assert "nlpctl params ls outputs/x/recipe.yaml" in told[-1]  # the run has no model yet
    told_quoted = "\n".join(checks(None, "my x", learning_rate=1, batch=8, gradient=None, frozen=False))
    for command in ("data inspect 'my x'", "train 'my x' --overfit-batch", "params ls 'my x/recipe.yaml'"):
        assert f"`nlpctl {command}`" in told_quoted
    assert "nlpctl train outputs/x --overfit-batch" in told[1] and "some parameters are frozen" in told[-1]
