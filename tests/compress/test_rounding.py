"""Rounding and correcting int8 weights, judged by the outputs of the product they belong to."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from nlpctl.graphs.int8_program import Int8Weight, int8_weights
from nlpctl.graphs.program_edit import read_parameters
from nlpctl.graphs.ptq import Inputs, mean_error, quantize, rounded, simulate, spread_as
from nlpctl.graphs.ptq_settings import PtqSettings

DRAW = np.random.default_rng(0)
ORIGINAL = DRAW.normal(size=(96, 5)).astype(np.float32)
ROWS = (DRAW.normal(size=(200, 96)) @ DRAW.normal(size=(96, 96)) + 3).astype(np.float32)  # entries go together
INPUTS = Inputs(len(ROWS), ROWS.sum(0), ROWS.T @ ROWS)


def nearest(bounds):
    steps = np.rint(ORIGINAL / bounds * 127).astype(np.int8)
    return Int8Weight(steps, np.asarray(bounds, np.float32).reshape(-1), 1, SimpleNamespace())


BY_COLUMN, AT_ALL = nearest(np.abs(ORIGINAL).max(0)), nearest(np.abs(ORIGINAL).max())


def error(values):
    return np.square(ROWS @ (values - ORIGINAL)).mean(0)


@pytest.mark.parametrize("weight", [BY_COLUMN, AT_ALL])
def test_rounding_up_or_down_brings_the_outputs_of_every_column_nearer(weight):
    steps = rounded(ORIGINAL, weight, INPUTS)
    found = Int8Weight(steps, weight.bounds, 1, weight.operator).values
    assert (error(found) < 0.75 * error(weight.values)).all()
    assert steps.dtype == np.int8 and np.abs(found - ORIGINAL).max() <= weight.bounds.max() / 127 * 1.001


def test_a_choice_that_no_single_change_betters():
    """Four weights: all sixteen choices are few enough to try, and one place at a time finds none better."""
    rows, original = ROWS[:, :4], ORIGINAL[:4, :1]
    inputs = Inputs(len(rows), rows.sum(0), rows.T @ rows)
    bounds = np.abs(original).max(0)
    weight = Int8Weight(np.rint(original / bounds * 127).astype(np.int8), bounds, 1, SimpleNamespace())
    steps = rounded(original, weight, inputs)

    def loss(steps):
        return np.square(rows @ (steps * bounds / 127 - original)).sum()

    exact = original / bounds * 127
    for place in range(4):
        other = steps.astype(float)
        other[place] = np.floor(exact[place]) if steps[place] > exact[place] else np.floor(exact[place]) + 1
        assert loss(other) >= loss(steps)
    assert loss(steps) <= loss(weight.steps)


@pytest.mark.parametrize("weight", [BY_COLUMN, AT_ALL])
def test_spread_and_mean_are_as_they_were(weight):
    narrowed = Int8Weight((weight.steps * 0.9).astype(np.int8), weight.bounds, 1, weight.operator)
    found = Int8Weight(narrowed.steps, spread_as(ORIGINAL, narrowed), 1, weight.operator)
    axis = 0 if weight.bounds.size > 1 else None
    np.testing.assert_allclose(found.values.std(axis), ORIGINAL.std(axis), rtol=1e-5)
    outputs = ROWS @ found.values + mean_error(ORIGINAL, found, INPUTS)
    np.testing.assert_allclose(outputs.mean(0), (ROWS @ ORIGINAL).mean(0), rtol=1e-3, atol=1e-3)


def written(prefix):
    desc, arrays = read_parameters(prefix)
    return {weight.name: weight for weight in int8_weights(desc, arrays)}, arrays


def test_adaround_changes_steps_only_and_correction_bounds_and_biases(attention, tmp_path):
    for name, settings in (("near", {}), ("ada", {"round_type": "adaround"}), ("bias", {"bias_correction": True})):
        simulate(attention.prefix, tmp_path / name, attention.batches, PtqSettings(algo="abs_max", **settings))
    (near, plain), (ada, rounded_), (bias, corrected) = (written(tmp_path / name) for name in ("near", "ada", "bias"))
    assert len(near) >= 5
    for name, weight in near.items():
        changed = ada[name].steps.astype(int) - weight.steps
        assert 0 < (changed != 0).mean() < 0.5 and np.abs(changed).max() == 1
        np.testing.assert_array_equal(ada[name].bounds, weight.bounds)
        np.testing.assert_array_equal(bias[name].steps, weight.steps)
        assert (bias[name].bounds != weight.bounds).any()
        np.testing.assert_allclose(bias[name].bounds, weight.bounds, rtol=0.02)
    biases = [name for name in plain if ".b_" in name]
    assert any((corrected[name] != plain[name]).any() for name in biases)
    assert all((rounded_[name] == plain[name]).all() for name in biases)


@pytest.mark.usefixtures("native_int8")
def test_both_in_the_engine(attention, tmp_path):
    """One scale per weight is coarse enough for roundings to count."""
    errors = []
    for settings in ({}, {"round_type": "adaround", "bias_correction": True}):
        calibration = PtqSettings(algo="abs_max", weight_quantize_type="abs_max", **settings)
        quantize(attention.prefix, tmp_path / "int8", attention.batches, calibration)
        errors.append(np.square(attention.paddle_int8(tmp_path / "int8") - attention.expected).mean())
    assert errors[1] < errors[0]
