"""paddle2onnx drops the lengths of the rows of recurrent layers; they are put back."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest

import nlpctl  # noqa: F401
from nlpctl.upstream.onnx_lengths import give_lengths

IDS = np.array([[3, 4, 5, 0, 0], [6, 7, 8, 9, 3], [0, 0, 0, 0, 0]])


@pytest.fixture(scope="module", params=["GRU", "LSTM"])
def converted(request, tmp_path_factory):
    """A small bidirectional network, and what paddle2onnx makes of it."""
    import paddle
    import paddle2onnx

    class Network(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.words = paddle.nn.Embedding(10, 4)
            self.layer = vars(paddle.nn)[request.param](4, 3, direction="bidirect")

        def forward(self, input_ids):
            lengths = paddle.clip((input_ids != 0).astype("int64").sum(1), min=1)
            return self.layer(self.words(input_ids), sequence_length=lengths)[0]

    paddle.seed(2)
    network = Network()
    network.eval()
    expected = network(paddle.to_tensor(IDS)).numpy()
    prefix = tmp_path_factory.mktemp("network") / "model"
    spec = paddle.static.InputSpec([None, None], "int64", "input_ids")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paddle.jit.save(paddle.jit.to_static(network, input_spec=[spec], full_graph=True), str(prefix))
    content = paddle2onnx.export(f"{prefix}.pdmodel", f"{prefix}.pdiparams", opset_version=13, verbose=False)
    return expected, content


def run(model: onnx.ModelProto) -> np.ndarray:
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"input_ids": IDS})[0]


def test_paddle2onnx_drops_them(converted):
    expected, content = converted
    assert not np.allclose(run(onnx.load_from_string(content)), expected, atol=1e-2)


def test_they_are_put_back(converted):
    expected, content = converted
    model = onnx.load_from_string(content)
    assert give_lengths(model, 0) == 1
    assert np.allclose(run(model), expected, atol=1e-6)
    assert give_lengths(model, 0) == 0  # there they are
