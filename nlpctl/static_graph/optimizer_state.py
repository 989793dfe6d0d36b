"""Separates the variables of an optimizer from those of a network; `save_persistables` writes both to one folder."""

from __future__ import annotations

import re
from collections.abc import Collection

# The accumulators of Paddle's optimizers, each named PARAMETER_WORD_NUMBER
_WORDS = (
    "moment moment1 moment2 beta1_pow_acc beta2_pow_acc velocity momentum mean_square mean_grad inf_norm squared "
    "linear _avg_squared_grad _avg_squared_update dgc_u dgc_v fp32_master"
)
_ACCUMULATOR = re.compile(rf"(.+)_(?:{'|'.join(_WORDS.split())})_\d+")
_GLOBAL = re.compile(
    r"(scheduled_)?learning_rate(_\d+)?|@LR_DECAY_COUNTER@|@LR_DECAY_\w+|loss_scaling_\d+|num_(good|bad)_steps_\d+"
)


def optimizer_state(names: Collection[str]) -> frozenset[str]:
    """Those of `names` that belong to an optimizer: learning rates, and accumulators of a parameter among `names`."""
    known = frozenset(names)

    def is_state(name: str) -> bool:
        accumulator = _ACCUMULATOR.fullmatch(name)
        # an accumulator may itself have a master copy, PARAMETER_fp32_master_0_moment1_0
        return _GLOBAL.fullmatch(name) is not None or (accumulator is not None and _base(accumulator[1]) in known)

    return frozenset(name for name in known if is_state(name))


def _base(name: str) -> str:
    master = re.fullmatch(r"(.+)_fp32_master_\d+", name)
    return master[1] if master else name
