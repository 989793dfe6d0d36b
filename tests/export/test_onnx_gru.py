"""The ONNX graph of a BiGRU whose reset gate acts before the product, against the network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import paddle
import pytest

from nlpctl.graphs.onnx import is_own_onnx, write_onnx_gru
from nlpctl.models.crf import with_crf
from nlpctl.models.networks.bigru import BiGRUConfig, BiGRUForTokenClassification

onnxruntime = pytest.importorskip("onnxruntime")
PAD = 3  # not 0, so that a mask by mistake shows


def network(*, crf: bool, layers: int = 2, reset_gate: str = "before") -> paddle.nn.Layer:
    paddle.seed(4)
    config = BiGRUConfig(
        vocab_size=20, embedding_size=6, hidden_size=5, num_hidden_layers=layers, reset_gate=reset_gate,
        pad_token_id=PAD, num_labels=4,
    )  # fmt: skip
    built = (with_crf(BiGRUForTokenClassification) if crf else BiGRUForTokenClassification)(config)
    for name, value in built.state_dict().items():
        if name.endswith("bias"):  # new ones are 0, which would hide a bias in the wrong place
            value.set_value(paddle.randn(value.shape))
    built.eval()
    return built


@pytest.mark.parametrize("crf", [True, False])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_scores_are_those_of_the_network(tmp_path: Path, crf: bool, layers: int) -> None:
    net = network(crf=crf, layers=layers)
    names = ["scores", "transitions"] if crf else ["scores"]
    write_onnx_gru(net, "input_ids", names, tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == ["input_ids"]
    assert [each.name for each in session.get_outputs()] == names
    draw = np.random.default_rng(1)
    for lengths in ((7, 3, 1), (1,), (2, 9, 9, 4)):
        ids = np.full((len(lengths), max(lengths)), PAD, np.int64)
        for row, length in zip(ids, lengths, strict=True):
            row[:length] = draw.choice([id for id in range(20) if id != PAD], length)
        theirs = session.run(None, {"input_ids": ids})
        ours = net(paddle.to_tensor(ids))
        ours = [output.numpy() for output in (ours if crf else [ours])]
        for row, length in enumerate(lengths):
            np.testing.assert_allclose(theirs[0][row, :length], ours[0][row, :length], rtol=0, atol=1e-6)
        for mine, other in zip(ours[1:], theirs[1:], strict=True):
            np.testing.assert_array_equal(other, mine)


def test_only_for_networks_that_need_it() -> None:
    assert is_own_onnx(network(crf=True)) and is_own_onnx(network(crf=False))
    assert not is_own_onnx(network(crf=True, reset_gate="after"))
