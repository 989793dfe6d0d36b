"""A small network with all that quantising stumbles over: attention under a mask, square weights, a large table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import paddle
import pytest

from nlpctl.engines.engine import DygraphPredictor
from nlpctl.engines.onnx_runtime import OnnxPredictor
from nlpctl.engines.paddle_inference import PaddlePredictor
from nlpctl.graphs.onnx import write_onnx_graph
from nlpctl.graphs.to_static import write_paddle_graph
from nlpctl.models.export_folder import ExportManifest, Graph, TensorSpec
from nlpctl.runtime.process import ProcessSetup

SETUP = ProcessSetup("cpu", threads=1, rank=0, world_size=1)
WORDS, SIZE = 1200, 32


class Attention(paddle.nn.Layer):
    """One layer of a transformer, one output per row; what is no word (id 0) is masked by -10000."""

    def __init__(self):
        super().__init__()
        self.table, self.head = paddle.nn.Embedding(WORDS, SIZE), paddle.nn.Linear(SIZE, 3)
        self.query, self.key, self.value = (paddle.nn.Linear(SIZE, SIZE) for _ in range(3))
        self.inner, self.outer = paddle.nn.Linear(SIZE, 4 * SIZE), paddle.nn.Linear(4 * SIZE, SIZE)

    def forward(self, input_ids):
        mask = (input_ids == 0).astype("float32").unsqueeze(1) * -1e4
        states = self.table(input_ids)
        scores = paddle.matmul(self.query(states), self.key(states), transpose_y=True) + mask
        states = paddle.matmul(paddle.nn.functional.softmax(scores), self.value(states))
        states = states + self.outer(paddle.nn.functional.gelu(self.inner(states)))
        return self.head(states.mean(1))


class Outliers(Attention):
    """A column of what query, key and value read is far larger than the others, and one of what the last product reads,
    as in trained encoders."""

    def __init__(self):
        super().__init__()
        table, bias = self.table.weight.numpy(), np.zeros(4 * SIZE, np.float32)
        table[:, 5] *= 30
        bias[7] = 60
        self.table.weight.set_value(table)
        self.inner.bias.set_value(bias)


class Recurrent(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.table, self.head = paddle.nn.Embedding(WORDS, SIZE), paddle.nn.Linear(2 * SIZE, 3)
        self.states = paddle.nn.LSTM(SIZE, SIZE, direction="bidirect")

    def forward(self, input_ids):
        lengths = (input_ids != 0).astype("int64").sum(1)
        return self.head(self.states(self.table(input_ids), sequence_length=lengths)[0].mean(1))


def batch(seed: int, rows: int = 8, length: int = 9) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(seed).integers(1, WORDS, (rows, length))
    ids[::2, length // 2 :] = 0
    return {"input_ids": ids}


@dataclass(frozen=True)
class Made:
    """A network and its graphs model.pdmodel and model.onnx in `folder`; `rows` are not those of `batches`."""

    folder: Path
    network: paddle.nn.Layer
    batches: list[dict[str, np.ndarray]]
    rows: dict[str, np.ndarray]

    @property
    def prefix(self) -> Path:
        return self.folder / "model"

    @property
    def expected(self) -> np.ndarray:
        return DygraphPredictor(self.network).outputs(self.rows)[0]

    def cut(self, rows: int, length: int) -> Made:
        """The same with fewer and shorter rows."""
        return replace(self, rows={"input_ids": self.rows["input_ids"][:rows, :length]})

    def paddle_int8(self, prefix: Path) -> np.ndarray:
        """What Paddle Inference makes of `rows` with oneDNN's int8."""
        files = (f"{prefix.name}.pdmodel", f"{prefix.name}.pdiparams")
        graph = Graph("paddle", "int8", files, "ptq")
        return PaddlePredictor(prefix.parent, self._manifest(graph), graph, "int8", SETUP).outputs(self.rows)[0]

    def simulated(self, prefix: Path) -> np.ndarray:
        """What Paddle's own kernels make of `rows`, operator by operator."""
        config = paddle.inference.Config(f"{prefix}.pdmodel", f"{prefix}.pdiparams")
        config.disable_gpu()
        config.disable_glog_info()
        config.switch_ir_optim(False)
        predictor = paddle.inference.create_predictor(config)
        predictor.get_input_handle("input_ids").copy_from_cpu(self.rows["input_ids"])
        predictor.run()
        return predictor.get_output_handle("logits").copy_to_cpu()

    def onnx(self, file: Path) -> np.ndarray:
        graph = Graph("onnx", "int8", (file.name,), "dynamic")
        return OnnxPredictor(file.parent, self._manifest(graph), graph, SETUP).outputs(self.rows)[0]

    def _manifest(self, graph: Graph) -> ExportManifest:
        inputs = (TensorSpec("input_ids", "int64", (None, None)),)
        outputs = (TensorSpec("logits", "float32", (None, 3)),)
        return ExportManifest("sequence_classification", inputs, outputs, 64, (graph,), 0, "", {})


def make(folder: Path, network_class: type[paddle.nn.Layer]) -> Made:
    with paddle.utils.unique_name.guard():
        paddle.seed(3)
        network = network_class()
        network.eval()
        draw = np.random.default_rng(5)
        for name, parameter in network.named_parameters():
            if parameter.ndim == 2 and "table" not in name:  # columns of very different size
                columns = draw.uniform(0.05, 1.5, (1, parameter.shape[1])).astype(np.float32)
                parameter.set_value(draw.normal(0, 0.3, parameter.shape).astype(np.float32) * columns)
        write_paddle_graph(network, batch(0), ("logits",), folder / "model")
    write_onnx_graph(folder / "model", folder / "model.onnx", 0)
    return Made(folder, network, [batch(seed) for seed in range(1, 9)], batch(100, rows=64))


@pytest.fixture(scope="session")
def attention(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("attention"), Attention)


@pytest.fixture(scope="session")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("recurrent"), Recurrent)


@pytest.fixture(scope="session")
def outliers(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("outliers"), Outliers)


@pytest.fixture
def make_network(tmp_path: Path) -> Callable[[type[paddle.nn.Layer]], Made]:
    return lambda kind: make(tmp_path, kind)
