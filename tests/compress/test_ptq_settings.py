"""Settings of post-training quantisation that Paddle takes without effect."""

from __future__ import annotations

import numpy as np
import pytest

from nlpctl.errors import UserError
from nlpctl.graphs.program_edit import read_parameters
from nlpctl.graphs.ptq import quantize
from nlpctl.graphs.ptq_settings import ALGORITHMS, PtqSettings

REFUSED = [
    ({"algo": "median"}, "compression.algo_list", "is not one of avg, abs_max"),
    ({"activation_quantize_type": "moving_average_abs_max"}, "compression.activation_quantize_type", "no effect"),
    ({"weight_quantize_type": "range_abs_max"}, "compression.weight_quantize_type", "is not one of"),
    ({"round_type": "up"}, "compression.round_type", "is not one of round, adaround"),
    ({"onnx_format": False}, "compression.onnx_format", "wrong scales"),
]


@pytest.mark.parametrize(("settings", "key", "reason"), REFUSED)
def test_what_cannot_be_done_is_refused_by_its_key(tmp_path, settings, key, reason):
    with pytest.raises(UserError) as raised:
        quantize(tmp_path / "none", tmp_path / "int8", [], PtqSettings(**settings))
    (problem,) = raised.value.problems
    assert problem.where == key and reason in problem.message and problem.hint


def test_all_at_once():
    with pytest.raises(UserError) as raised:
        PtqSettings(algo="median", onnx_format=False).check()
    assert len(raised.value.problems) == 2


def test_every_algorithm_finds_other_bounds(attention, tmp_path):
    """But those that happen to agree on a value: none has the bounds of another throughout."""
    found = {}
    for algo in ALGORITHMS:
        quantize(attention.prefix, tmp_path / algo, attention.batches, PtqSettings(algo=algo))
        desc, _ = read_parameters(tmp_path / algo)
        ops = [{each.name: each for each in op.attrs} for op in desc.blocks[0].ops if op.type == "fc"]
        found[algo] = [attributes["Scale_in"].f for attributes in ops if "Scale_weights" in attributes]
    assert {len(scales) for scales in found.values()} == {5}
    pairs = [(a, b) for a in ALGORITHMS for b in ALGORITHMS if a < b]
    assert all(not np.allclose(found[a], found[b], rtol=1e-4) for a, b in pairs)
