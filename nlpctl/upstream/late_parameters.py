"""Resuming an optimizer before some parameters had their first gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import paddle


def take_late_parameters(optimizer: paddle.optimizer.Optimizer) -> None:
    """Let a resumed `optimizer` begin anew with a parameter that its stored state does not know.

    paddlepaddle 2.6.2 and 3.1.1, optimizer/optimizer.py:974 (_add_accumulator): a parameter that gets its first
    gradient after `set_state_dict`, while states of others are not taken yet, ends the run: "Optimizer set error,
    linear_1.w_0_moment1_0 should in state dict". Test: tests/upstream/test_late_parameters.py.
    """
    add = optimizer._add_accumulator

    def added(name: str, param: Any, *rest: Any, **options: Any) -> Any:
        held = optimizer._accumulators_holder
        if any(each.startswith(f"{param.name}_{name}_") for each in held):
            return add(name, param, *rest, **options)
        optimizer._accumulators_holder = {}
        try:
            return add(name, param, *rest, **options)
        finally:
            optimizer._accumulators_holder = held

    optimizer._add_accumulator = added
