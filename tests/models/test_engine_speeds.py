"""Speeds between, below and beyond the timed batch sizes; what is stored is read back."""

from __future__ import annotations

import dataclasses
import json

import pytest

from nlpctl.models.engine_speeds import Conditions, EngineSpeeds

HERE = Conditions("AMD EPYC", ("avx2",), "cpu", 2, {"onnxruntime": "1"}, cores=2)
SPEEDS = EngineSpeeds(HERE, {"one": {1: 100.0, 8: 400.0, 64: 800.0}, "two": {8: 10.0}}, {"three": "no memory"})


def test_a_timed_size_has_its_own_speed():
    assert [SPEEDS.speed("one", size) for size in (1, 8, 64)] == pytest.approx([100, 400, 800])


def test_the_time_of_a_batch_grows_linearly_between_timed_sizes():
    assert SPEEDS.speed("one", 36) == pytest.approx(36 / ((0.02 + 0.08) / 2))
    assert 100 < SPEEDS.speed("one", 2) < SPEEDS.speed("one", 7) < 400


def test_beyond_the_timed_sizes_the_nearest_holds():
    assert SPEEDS.speed("one", 1000) == 800
    assert [SPEEDS.speed("two", size) for size in (1, 8, 64)] == [10, 10, 10]
    assert SPEEDS.speed("three", 8) is SPEEDS.speed("unknown", 8) is None


def test_what_is_stored_is_read_back():
    assert EngineSpeeds.from_json(json.loads(json.dumps(SPEEDS.to_json()))) == SPEEDS


def test_cores_do_not_count_but_threads_do():
    assert dataclasses.replace(HERE, cores=64) == HERE
    assert dataclasses.replace(HERE, threads=1) != HERE != dataclasses.replace(HERE, versions={"onnxruntime": "2"})


@pytest.mark.parametrize(
    "damaged",
    [{"one": {"1": 0}}, {"one": {"1": "fast"}}, {"one": {"1": None}}, {"one": 5}, None,
     {"one": {"1": float("inf")}}, {"one": {"1": float("nan")}}, {"one": {"0": 5}}, {"one": {"-3": 5}}],
)  # fmt: skip
def test_damaged_figures_are_refused(damaged):
    with pytest.raises((ValueError, TypeError, AttributeError)):
        EngineSpeeds.from_json(json.loads(json.dumps(SPEEDS.to_json())) | {"rows_per_second": damaged})
