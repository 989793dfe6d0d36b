"""ERNIE as Paddle 1.x wrote it: its parameters under their old names, and its program of the old operators.

Names and network follow ERNIE 1.0's transformer_encoder.py, with small sizes and random values.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from static_tensor import save_tensor

from nlpctl.formats.program import static_mode

LAYERS, HIDDEN, HEADS, WORDS, POSITIONS = 12, 16, 2, 40, 32
CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "relu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": HIDDEN,
    "initializer_range": 0.02,
    "max_position_embeddings": POSITIONS,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "type_vocab_size": 2,
    "vocab_size": WORDS,
}
HUB = "@HUB_ernie@"


def parameters(seed: int = 0, tasks: int = 0, classes: int = 0) -> dict[str, np.ndarray]:
    """Name to array: the encoder with its pooler; `tasks`: the task embedding of ERNIE 2.0; `classes`: a classifier."""
    shapes: dict[str, tuple[int, ...]] = {
        "word_embedding": (WORDS, HIDDEN),
        "pos_embedding": (POSITIONS, HIDDEN),
        "sent_embedding": (2, HIDDEN),
        "pre_encoder_layer_norm_scale": (HIDDEN,),
        "pre_encoder_layer_norm_bias": (HIDDEN,),
    }
    if tasks:
        shapes["task_embedding"] = (tasks, HIDDEN)
    linear = {"multi_head_att_query_fc": (HIDDEN, HIDDEN), "multi_head_att_key_fc": (HIDDEN, HIDDEN),
              "multi_head_att_value_fc": (HIDDEN, HIDDEN), "multi_head_att_output_fc": (HIDDEN, HIDDEN),
              "ffn_fc_0": (HIDDEN, 4 * HIDDEN), "ffn_fc_1": (4 * HIDDEN, HIDDEN)}  # fmt: skip
    for layer in range(LAYERS):
        for name, shape in linear.items():
            shapes[f"encoder_layer_{layer}_{name}.w_0"] = shape
            shapes[f"encoder_layer_{layer}_{name}.b_0"] = shape[1:]
        for name in ("post_att_layer_norm", "post_ffn_layer_norm"):
            shapes[f"encoder_layer_{layer}_{name}_scale"] = (HIDDEN,)
            shapes[f"encoder_layer_{layer}_{name}_bias"] = (HIDDEN,)
    shapes |= {"pooled_fc.w_0": (HIDDEN, HIDDEN), "pooled_fc.b_0": (HIDDEN,)}
    if classes:
        shapes |= {"cls_out_w": (HIDDEN, classes), "cls_out_b": (classes,)}
    random = np.random.default_rng(seed)
    # Norms around 1, as trained ones: with small ones every layer forgets what it read, and nothing could be proved.
    return {name: random.normal(float(name.endswith("_scale")), 0.3, shape).astype("float32")
            for name, shape in shapes.items()}  # fmt: skip


def write_folder(folder: Path, arrays: Mapping[str, np.ndarray], prefix: str = "") -> Path:
    """One file per variable, as save_params of Paddle 1.x; `prefix`: of a PaddleHub module."""
    folder.mkdir(parents=True)
    for name, array in arrays.items():
        save_tensor(paddle.to_tensor(array), folder / f"{prefix}{name}")
    return folder


def write_program(folder: Path, rename: Mapping[str, str] | None = None) -> None:
    """__model__ beside the variables: sequence and pooled output, of lookup_table, mul, matmul and layer_norm."""
    with static_mode():
        program = paddle.static.Program()
        with paddle.static.program_guard(program, paddle.static.Program()):
            feeds = [paddle.static.data(name, [-1, -1, 1], "int64") for name in ("src_ids", "pos_ids", "sent_ids")]
            feeds.append(paddle.static.data("input_mask", [-1, -1, 1], "float32"))
            fetches = _Builder(program.global_block(), rename or {}).ernie(*feeds)
            content = paddle.static.serialize_program(feeds, fetches, program=program)
    (folder / "__model__").write_bytes(content)


class _Builder:
    def __init__(self, block: Any, rename: Mapping[str, str]):
        self._block, self._rename, self._count = block, rename, 0
        self._shapes = {name: array.shape for name, array in parameters().items()}

    def ernie(self, src: Any, pos: Any, sent: Any, mask: Any) -> list[Any]:
        embedded = [self.op("lookup_table", "Out", {"W": self.parameter(name), "Ids": ids}, padding_idx=-1)
                    for name, ids in (("word_embedding", src), ("pos_embedding", pos), ("sent_embedding", sent))]
        states = self.add(self.add(embedded[0], embedded[1]), embedded[2])
        states = self.norm(states, "pre_encoder_layer_norm")
        between = self.op("matmul", "Out", {"X": mask, "Y": mask}, transpose_Y=True)
        scaled = self.op("scale", "Out", {"X": between}, scale=10000.0, bias=-1.0, bias_after_scale=False)
        bias = self.op("stack", "Y", {"X": [scaled] * HEADS}, axis=1)
        for layer in range(LAYERS):
            states = self.layer(states, bias, f"encoder_layer_{layer}")
        first = self.op("slice", "Out", {"Input": states}, axes=[1], starts=[0], ends=[1], decrease_axis=[1])
        pooled = self.op("tanh", "Out", {"X": self.linear(first, "pooled_fc", 1)})
        return [states, pooled]

    def layer(self, states: Any, bias: Any, name: str) -> Any:
        heads = {}
        for role in ("query", "key", "value"):
            projected = self.linear(states, f"{name}_multi_head_att_{role}_fc", 2)
            split = self.op("reshape2", "Out", {"X": projected}, ["XShape"], shape=[0, 0, HEADS, HIDDEN // HEADS])
            heads[role] = self.op("transpose2", "Out", {"X": split}, ["XShape"], axis=[0, 2, 1, 3])
        query = self.op("scale", "Out", {"X": heads["query"]}, scale=(HIDDEN // HEADS) ** -0.5)
        scores = self.add(self.op("matmul", "Out", {"X": query, "Y": heads["key"]}, transpose_Y=True), bias)
        context = self.op("matmul", "Out", {"X": self.op("softmax", "Out", {"X": scores}), "Y": heads["value"]})
        context = self.op("transpose2", "Out", {"X": context}, ["XShape"], axis=[0, 2, 1, 3])
        context = self.op("reshape2", "Out", {"X": context}, ["XShape"], shape=[0, 0, HIDDEN])
        attended = self.linear(context, f"{name}_multi_head_att_output_fc", 2)
        states = self.norm(self.add(attended, states), f"{name}_post_att_layer_norm")
        inner = self.op("relu", "Out", {"X": self.linear(states, f"{name}_ffn_fc_0", 2)})
        return self.norm(self.add(self.linear(inner, f"{name}_ffn_fc_1", 2), states), f"{name}_post_ffn_layer_norm")

    def linear(self, inputs: Any, name: str, columns: int) -> Any:
        weight, bias = self.parameter(f"{name}.w_0"), self.parameter(f"{name}.b_0")
        product = self.op("mul", "Out", {"X": inputs, "Y": weight}, x_num_col_dims=columns, y_num_col_dims=1)
        return self.add(product, bias, columns)

    def norm(self, inputs: Any, name: str) -> Any:
        given = {"X": inputs, "Scale": self.parameter(f"{name}_scale"), "Bias": self.parameter(f"{name}_bias")}
        return self.op("layer_norm", "Y", given, ["Mean", "Variance"], epsilon=1e-5, begin_norm_axis=2)

    def add(self, one: Any, other: Any, axis: int = -1) -> Any:
        return self.op("elementwise_add", "Out", {"X": one, "Y": other}, axis=axis)

    def parameter(self, name: str) -> Any:
        return self._block.create_parameter(
            name=self._rename.get(name, name), shape=list(self._shapes[name]), dtype="float32"
        )

    def op(self, kind: str, output: str, inputs: dict[str, Any], others: list[str] | None = None, **attrs: Any) -> Any:
        """Append one operator; returns its `output`. `others`: slots that it wants besides."""
        made = {slot: self._variable() for slot in (output, *(others or ()))}
        self._block.append_op(type=kind, inputs=inputs, outputs=made, attrs=attrs)
        return made[output]

    def _variable(self) -> Any:
        self._count += 1
        return self._block.create_var(name=f"made_{self._count}", dtype="float32")
