"""Int8 ONNX graphs of every family: what ONNX Runtime makes of them when it loads them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import paddle
import pytest
from onnx import numpy_helper
from paddlenlp import transformers

from nlpctl.engines.engine import DygraphPredictor
from nlpctl.engines.onnx_runtime import session_options
from nlpctl.graphs import onnx_quantize
from nlpctl.graphs.onnx import write_onnx_graph
from nlpctl.graphs.onnx_graph import read_graph, sum_residuals
from nlpctl.graphs.onnx_quantize import quantize_dynamic, quantize_static
from nlpctl.graphs.to_static import write_paddle_graph
from nlpctl.models.crf import with_crf
from nlpctl.models.pruned import Kept, prune
from nlpctl.upstream.roberta_tagger import translatable

LAYERS, WORDS = 2, 1100
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 48,
    "embedding_size": 24,  # of ELECTRA: a product of its own makes it as wide as the layers
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 3,
    "intermediate_size": 80,
    "max_position_embeddings": 32,
    "initializer_range": 0.15,
    "num_labels": 3,
}
KEPT = Kept(heads=((2, 0), (1,)), neurons=(tuple(range(0, 80, 2)), tuple(range(3, 23))))
OUTPUTS = {
    "SequenceClassification": ("logits",),
    "TokenClassification": ("logits",),
    "QuestionAnswering": ("start", "end"),
}
# family, head, with a CRF, with fewer heads and neurons, products that become int8 beside 6 of each layer
CASES = [
    ("Bert", "SequenceClassification", False, False, 1),
    pytest.param(("Ernie", "TokenClassification", False, False, 0), marks=pytest.mark.slow),
    ("Roberta", "TokenClassification", True, False, 0),
    ("Electra", "QuestionAnswering", False, False, 1),
    ("Electra", "SequenceClassification", False, True, 2),
    pytest.param(("Ernie", "SequenceClassification", False, True, 1), marks=pytest.mark.slow),
]


def batch(seed: int, rows: int = 8, length: int = 9) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(seed).integers(1, WORDS, (rows, length))
    ids[::2, length // 2 :] = 0
    return {"input_ids": ids, "token_type_ids": np.zeros_like(ids)}


@dataclass(frozen=True)
class Made:
    """A network and its fp32 ONNX graph; `products` can be int8."""

    file: Path
    network: paddle.nn.Layer
    products: int

    def quantised(self, out: Path, method: str) -> onnx_quantize.Int8Graph:
        if method == "dynamic":
            return quantize_dynamic(self.file, out)
        return quantize_static(self.file, out, [batch(seed) for seed in range(1, 9)])


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}{case[1]}{'-pruned' if case[3] else ''}")
def made(request, tmp_path_factory) -> Made:
    family, head, crf, pruned, more = request.param
    network_class = translatable(vars(transformers)[f"{family}For{head}"])
    with paddle.utils.unique_name.guard():
        paddle.seed(4)
        network = (with_crf(network_class) if crf else network_class)(vars(transformers)[f"{family}Config"](**SIZES))
        if pruned:
            prune(network, KEPT)
        network.eval()
        outputs = (*OUTPUTS[head], "transitions") if crf else OUTPUTS[head]
        folder = tmp_path_factory.mktemp("family")
        write_paddle_graph(network, batch(0), outputs, folder / "model")
    write_onnx_graph(folder / "model", folder / "model.onnx", 0)
    return Made(folder / "model.onnx", network, 6 * LAYERS + more)


def run(model: Path | bytes, rows: dict[str, np.ndarray], optimised: Path | None = None) -> list[np.ndarray]:
    options = session_options(1, 0)
    if optimised:
        options.optimized_model_filepath = str(optimised)
    content = model if isinstance(model, bytes) else str(model)
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return session.run(None, {each.name: rows[each.name] for each in session.get_inputs()})


def operators(file: Path, folder: Path) -> Counter[str]:
    """What ONNX Runtime runs for a graph."""
    run(file, batch(0), folder / "optimised.onnx")
    return Counter(node.op_type for node in onnx.load(str(folder / "optimised.onnx")).graph.node)


def largest_error(found: np.ndarray, expected: np.ndarray) -> float:
    """As a share of the largest output."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("method", ["dynamic", "static"])
def test_answers_and_operators(made, tmp_path, method):
    out = tmp_path / "int8.onnx"
    counts = made.quantised(out, method)
    assert (counts.products, counts.tables) == (made.products, 1)
    rows = batch(100, rows=48, length=11)
    for found, expected in zip(run(out, rows), DygraphPredictor(made.network).outputs(rows), strict=True):
        assert found.shape == expected.shape and largest_error(found, expected) < 0.25
        assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.99
    kinds = operators(out, tmp_path)
    assert kinds["LayerNormalization"] == 1 + 2 * LAYERS and kinds["SkipLayerNormalization"] == 0
    assert kinds["Gelu"] >= LAYERS and kinds["BiasGelu"] == kinds["Erf"] == 0  # biases are added in products
    assert kinds["MatMulIntegerToFloat"] + kinds["DynamicQuantizeMatMul"] == made.products
    assert kinds["FusedMatMul"] + kinds["MatMul"] <= 2 * LAYERS + 1  # of attention, and a head
    assert kinds["DequantizeLinear"] == kinds["MatMulInteger"] == 0


def test_without_sums_the_slow_operator_is_there(made, tmp_path, monkeypatch):
    """Fails when ONNX Runtime no longer makes it: then `sum_residuals` can go."""
    monkeypatch.setattr(onnx_quantize, "sum_residuals", lambda graph: 0)
    quantize_dynamic(made.file, tmp_path / "int8.onnx")
    assert operators(tmp_path / "int8.onnx", tmp_path)["SkipLayerNormalization"] >= LAYERS


def test_sums_compute_the_same(made):
    model, rows = read_graph(made.file), batch(7)
    assert sum_residuals(model.graph) == 1 + 2 * LAYERS
    onnx.checker.check_model(model)
    for found, expected in zip(run(model.SerializeToString(), rows), run(made.file, rows), strict=True):
        assert largest_error(found, expected) <= 1e-5


def test_the_fp32_graph_is_portable_and_holds_word_embeddings_once(made):
    model = onnx.load(str(made.file))
    assert {node.domain for node in model.graph.node} == {""}
    tables = [numpy_helper.to_array(each) for each in model.graph.initializer if list(each.dims[:1]) == [WORDS]]
    assert len(tables) == 1
