"""Runs LAC as Paddle 1.x did: with the operators lookup_table, mul, gru and crf_decoding, without padding.

Paddle's Python code no longer calls gru and crf_decoding, but 2.6 still registers them, so a static program with them
runs. Its outputs verify a converted LAC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import paddle

from nlpctl.formats.program import static_mode

LAYERS = 2
NEEDED = ("lookup_table", "mul", "elementwise_add", "concat", "gru", "crf_decoding")


class OldAnswer(NamedTuple):
    """One sentence: hidden states [length, 2h], tag scores [length, tags], and the best path int64 [length]."""

    hidden: np.ndarray
    emissions: np.ndarray
    path: np.ndarray


def missing_operators() -> list[str]:
    """Those of the operators that this Paddle no longer registers."""
    from paddle.base import core

    registered = set(core.get_all_op_names())
    return [name for name in NEEDED if name not in registered]


def run_lexical(arrays: Mapping[str, np.ndarray], sentences: Sequence[Sequence[int]]) -> list[OldAnswer]:
    """Run sentences of ids through the network whose parameters are `arrays`, under LAC's names, float32."""
    from paddle.base import create_lod_tensor

    lengths = [len(sentence) for sentence in sentences]
    ids = np.concatenate([np.asarray(sentence, np.int64) for sentence in sentences]).reshape(-1, 1)
    place = paddle.CPUPlace()
    with static_mode():
        program = paddle.static.Program()
        scope = paddle.static.Scope()
        with paddle.static.program_guard(program, paddle.static.Program()), paddle.static.scope_guard(scope):
            outputs = _build(program.global_block(), arrays)
            for name, array in arrays.items():
                scope.var(name).get_tensor().set(np.ascontiguousarray(array), place)
            # LoD instead of padding: one row per word of all sentences, with the lengths beside it.
            fed = {"words": create_lod_tensor(ids, [lengths], place)}
            executor = paddle.static.Executor(place)
            found = executor.run(program, feed=fed, fetch_list=outputs, return_numpy=False)
    hidden, emissions, paths = (np.array(tensor) for tensor in found)
    return [
        OldAnswer(hidden[start:end], emissions[start:end], paths[start:end, 0])
        for start, end in pairwise(accumulate(lengths, initial=0))
    ]


def _build(block: Any, arrays: Mapping[str, np.ndarray]) -> list[Any]:
    """Append lex_net() of LAC's nets.py to `block`; returns hidden states, tag scores and paths."""
    build = _Builder(block, arrays)
    words = paddle.static.data("words", [-1, 1], "int64", lod_level=1)
    outputs = build.op(
        "lookup_table", {"W": build.parameter("word_emb"), "Ids": words}, "Out", {"padding_idx": -1, "is_sparse": False}
    )
    for layer in range(LAYERS):
        directions = []
        for number, is_reverse in ((2 * layer, False), (2 * layer + 1, True)):
            projected = build.linear(outputs, f"fc_{number}")
            directions.append(build.gru(projected, f"gru_{number}", is_reverse))
        outputs = build.op("concat", {"X": directions}, "Out", {"axis": 1})
    emissions = build.linear(outputs, f"fc_{2 * LAYERS}")
    inputs = {"Emission": emissions, "Transition": build.parameter("crfw")}
    return [outputs, emissions, build.op("crf_decoding", inputs, "ViterbiPath", {}, dtype="int64")]


class _Builder:
    """Appends operators by their names, with variables of their own."""

    def __init__(self, block: Any, arrays: Mapping[str, np.ndarray]):
        self._block = block
        self._arrays = arrays
        self._count = 0

    def parameter(self, name: str) -> Any:
        return self._block.create_parameter(name=name, shape=list(self._arrays[name].shape), dtype="float32")

    def linear(self, inputs: Any, name: str) -> Any:
        weight, bias = self.parameter(f"{name}.w_0"), self.parameter(f"{name}.b_0")
        product = self.op("mul", {"X": inputs, "Y": weight}, "Out", {"x_num_col_dims": 1, "y_num_col_dims": 1})
        return self.op("elementwise_add", {"X": product, "Y": bias}, "Out", {"axis": 1})

    def gru(self, inputs: Any, name: str, is_reverse: bool) -> Any:
        slots = {"Input": inputs, "Weight": self.parameter(f"{name}.w_0"), "Bias": self.parameter(f"{name}.b_0")}
        attributes = {
            "is_reverse": is_reverse,
            "gate_activation": "sigmoid",
            "activation": "tanh",
            "origin_mode": False,  # the new state is (1 - update) * old + update * candidate
            "is_test": True,
        }
        workspace = ("BatchGate", "BatchResetHiddenPrev", "BatchHidden")
        return self.op("gru", slots, "Hidden", attributes, others=workspace)

    def op(
        self,
        kind: str,
        inputs: Mapping[str, Any],
        output: str,
        attributes: Mapping[str, Any],
        dtype: str = "float32",
        others: Sequence[str] = (),
    ) -> Any:
        """Append one operator; returns its `output`. `others`: slots that it wants besides."""
        variables = {slot: self._variable(dtype) for slot in (output, *others)}
        self._block.append_op(type=kind, inputs=dict(inputs), outputs=variables, attrs=dict(attributes))
        return variables[output]

    def _variable(self, dtype: str) -> Any:
        self._count += 1
        return self._block.create_var(name=f"lexical_{self._count}", dtype=dtype, lod_level=1)
