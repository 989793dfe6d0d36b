"""What keeps PaddleNLP's own encoders from answering for Hugging Face's, and graphs of nlpctl's from being plain."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

SIZES = {
    "vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12,
    "max_position_embeddings": 16,
}  # fmt: skip


def test_albert_still_looks_at_padding():
    from paddlenlp.transformers import AlbertConfig, AlbertModel

    paddle.seed(1)
    network = AlbertModel(AlbertConfig(**SIZES, embedding_size=4, pad_token_id=0))
    network.eval()
    alone, padded = (network(paddle.to_tensor([row]))[0][0, :3] for row in ([5, 6, 7], [5, 6, 7, 0, 0, 0]))
    assert float((alone - padded).abs().max()) > 1e-3


def test_nezha_still_lacks_a_key_of_its_config():
    from paddlenlp.transformers import NeZhaConfig, NeZhaModel

    with pytest.raises(AttributeError, match="use_relative_position"):
        NeZhaModel(NeZhaConfig(**SIZES))


def test_deberta_is_still_not_found_by_its_type():
    from paddlenlp.transformers.auto.modeling import MAPPING_NAMES

    assert not any("deberta" in module for module in MAPPING_NAMES.values())


def test_classifiers_still_have_other_heads():
    """Transformers has two layers in each of these."""
    from paddlenlp import transformers

    for name in ("MPNet", "RoFormer"):
        config = vars(transformers)[f"{name}Config"](**SIZES)
        network = vars(transformers)[f"{name}ForSequenceClassification"](config)
        assert "classifier.weight" in network.state_dict()


class Gelu(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.one = self.create_parameter([1], default_initializer=paddle.nn.initializer.Constant(1.0))

    def forward(self, x):
        return F.gelu(x * self.one, approximate=True)


class Padded(Gelu):
    def forward(self, x):
        return F.pad(x * self.one, [2, 2], data_format="NLC")


def in_onnx_runtime(network, x, folder):
    """What ONNX Runtime computes of paddle2onnx's graph of a network."""
    import onnxruntime
    import paddle2onnx

    prefix = str(folder / "model")
    spec = paddle.static.InputSpec([None] * x.ndim, "float32", "x")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paddle.jit.save(paddle.jit.to_static(network, input_spec=[spec], full_graph=True), prefix)
    file = str(folder / "model.onnx")
    paddle2onnx.export(f"{prefix}.pdmodel", f"{prefix}.pdiparams", file, opset_version=13, verbose=False)
    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def test_paddle2onnx_still_takes_one_gelu_for_the_other(tmp_path):
    x = np.linspace(-4, 4, 100, dtype="float32").reshape(5, 20)
    found = in_onnx_runtime(Gelu(), x, tmp_path)
    np.testing.assert_allclose(found, F.gelu(paddle.to_tensor(x)).numpy(), atol=1e-6)
    assert 1e-4 < np.abs(found - Gelu()(paddle.to_tensor(x)).numpy()).max() < 1e-3


def test_paddle2onnx_still_pads_another_axis(tmp_path):
    x = np.ones((1, 3, 4), "float32")
    assert Padded()(paddle.to_tensor(x)).shape == [1, 7, 4]
    try:
        found = in_onnx_runtime(Padded(), x, tmp_path)
    except Exception as error:
        assert "Squeeze" in str(error)
    else:
        assert found.shape != (1, 7, 4)


CRASHES = """
import sys
import nlpctl
import paddle
import paddle.inference as inference

class Reads(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.table = self.create_parameter([6, 4])
        self.linear = paddle.nn.Linear(4, 3)

    def forward(self, x):
        return paddle.matmul(x, self.linear(self.table), transpose_y=True)

prefix = sys.argv[1]
spec = paddle.static.InputSpec([None, 3], "float32", "x")
paddle.jit.save(Reads(), prefix, input_spec=[spec])
config = inference.Config(prefix + ".pdmodel", prefix + ".pdiparams")
config.disable_gpu()
inference.create_predictor(config)
print("made")
"""


def test_paddle_inference_still_dies_of_a_linear_layer_over_a_parameter(tmp_path):
    (tmp_path / "crashes.py").write_text(CRASHES, encoding="utf-8")  # Paddle translates what lies in a file
    words = [sys.executable, str(tmp_path / "crashes.py"), str(tmp_path / "model")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode < 0 and "made" not in done.stdout, done.stderr[-2000:]


MULTIPLIES = """
import sys
import nlpctl
import numpy as np
import paddle
import paddle.inference as inference

class Multiplies(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(8, 8)  # a graph without parameters is not opened

    def forward(self, x, y):
        return self.linear(x) * y

prefix, shape = sys.argv[1], [int(size) for size in sys.argv[2:]]
shapes = {"x": shape, "y": [*shape[:-1], 1]}
specs = [paddle.static.InputSpec([None] * len(shape), "float32", name) for name in shapes]
paddle.jit.save(paddle.jit.to_static(Multiplies(), input_spec=specs, full_graph=True), prefix)
config = inference.Config(prefix + ".pdmodel", prefix + ".pdiparams")
config.disable_gpu()
config.enable_mkldnn()
predictor = inference.create_predictor(config)
for name, shape in shapes.items():
    predictor.get_input_handle(name).copy_from_cpu(np.ones(shape, "float32"))
predictor.run()
"""


def test_onednn_still_stretches_a_fourth_axis_by_its_slow_code(tmp_path):
    """oneDNN tells which code it takes: compiled for the processor (jit), or one for all cases (ref)."""
    (tmp_path / "multiplies.py").write_text(MULTIPLIES, encoding="utf-8")
    taken = []
    for shape in (["2", "3", "8"], ["2", "3", "2", "8"]):
        words = [sys.executable, str(tmp_path / "multiplies.py"), str(tmp_path / f"model-{len(shape)}"), *shape]
        verbose = os.environ | {"DNNL_VERBOSE": "1"}
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=verbose)
        assert done.returncode == 0, done.stderr[-2000:]
        lines = [line for line in done.stdout.splitlines() if ",binary," in line and "alg:binary_mul" in line]
        taken.append([re.search(r",binary,(\w+):", line)[1] for line in lines])
    assert taken == [["jit"], ["ref"]]
