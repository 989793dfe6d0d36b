"""A training that is timed by its first steps, and what `nlpctl new` makes of that."""

from __future__ import annotations

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.load import load_recipe
from nlpctl.datatools.recipe_defaults import bfloat16_presets
from nlpctl.runtime.machine import cpu_info
from nlpctl.training.overfit import ready_to_train
from nlpctl.training.trial import Measured, Trial, time_training


def test_the_first_steps_tell_how_long_all_takes(tiny):
    before = {path: path.stat().st_mtime_ns for path in tiny.folder.rglob("*")}
    trial = time_training(ready_to_train(load_recipe(tiny.folder / "recipe.yaml")))
    assert trial.in_32_bits.training > 12 * 0.5 * trial.in_32_bits.step > 0  # 12 steps, on two threads at most
    assert (trial.in_bfloat16 is not None) is cpu_info().trains_in_bfloat16
    assert {path: path.stat().st_mtime_ns for path in tiny.folder.rglob("*")} == before


def test_bf16_is_taken_where_its_steps_were_faster():
    """Whatever other programs made of the time of the whole training, and whatever network it is."""
    faster = Trial(Measured(90.0, 1.5), Measured(100.0, 1.0))
    assert faster.bfloat16_pays and faster.seconds == 100.0
    assert [preset.key for preset in bfloat16_presets(True, faster)] == ["training.bf16"]
    for slower in (Trial(Measured(90.0, 1.0), Measured(50.0, 1.0)), Trial(Measured(90.0, 1.0))):
        assert not slower.bfloat16_pays and slower.seconds == 90.0
        assert bfloat16_presets(False, slower) == []
