"""One small network, saved by the installed Paddle in every static layout it can write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest

from nlpctl.formats.program import static_mode


class Network(paddle.nn.Layer):
    """Parameters, buffers that are kept, and a parameter that the graph does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.words = paddle.nn.Embedding(11, 8)
        self.inner = paddle.nn.Sequential(paddle.nn.Linear(8, 8), paddle.nn.LayerNorm(8))
        self.scale = paddle.nn.BatchNorm1D(8)
        self.head = paddle.nn.Linear(8, 3)
        self.pooler = paddle.nn.Linear(8, 2)

    def forward(self, ids: paddle.Tensor) -> paddle.Tensor:
        return self.head(self.scale(self.inner(self.words(ids)).mean(axis=1)))


@dataclass(frozen=True)
class Saved:
    """`network`: the arrays of the dygraph network by structured name, and `counted` by internal name.

    `folder` holds jit, inference, static, vars and combined; `trained`: arrays of the static program, by name.
    """

    folder: Path
    network: Mapping[str, np.ndarray]
    counted: Mapping[str, str]
    trained: Mapping[str, np.ndarray]

    def prefix(self, kind: str) -> Path:
        return self.folder / kind / "model"


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder = tmp_path_factory.mktemp("static")
    paddle.seed(3)
    with paddle.utils.unique_name.guard():
        network = Network()
        network.eval()
        spec = [paddle.static.InputSpec([None, None], "int64", name="ids")]
        paddle.jit.save(paddle.jit.to_static(network, input_spec=spec), str(folder / "jit" / "model"))
    state = network.state_dict()
    trained = _save_program(folder)
    return Saved(
        folder,
        {name: value.numpy() for name, value in state.items()},
        {name: value.name for name, value in state.items()},
        trained,
    )


def _save_program(folder: Path) -> dict[str, np.ndarray]:
    """A program that was trained for a step, in the layouts of static mode: `static`, `inference` and the folders
    `vars` (save_vars, all persistables) and `combined` (the same in one file, with the program)."""
    with static_mode(), paddle.utils.unique_name.guard():
        main, start, scope = paddle.static.Program(), paddle.static.Program(), paddle.static.Scope()
        with paddle.static.program_guard(main, start), paddle.static.scope_guard(scope):
            ids = paddle.static.data("ids", [None, 5], "int64")
            hidden = paddle.static.nn.embedding(ids, [11, 8])
            hidden = paddle.static.nn.fc(hidden.mean(axis=1), 8, activation="relu")
            output = paddle.static.nn.fc(hidden, 3)
            paddle.optimizer.AdamW(0.1).minimize(output.mean())
            executor = paddle.static.Executor(paddle.CPUPlace())
            executor.run(start)
            executor.run(main, feed={"ids": np.arange(10).reshape(2, 5)})
            (folder / "static").mkdir()
            paddle.static.save(main, str(folder / "static" / "model"))
            prefix = str(folder / "inference" / "model")
            paddle.static.save_inference_model(prefix, [ids], [output], executor, program=main)
            _save_vars(executor, main, folder)
            names = [variable.name for variable in main.list_vars() if variable.persistable]
            return {name: np.array(scope.find_var(name).get_tensor()) for name in names}


def _save_vars(executor: Any, main: Any, folder: Path) -> None:
    from paddle.static import io

    def kept(variable: Any) -> bool:
        return variable.persistable

    io.save_vars(executor, str(folder / "vars"), main, predicate=kept)
    io.save_vars(executor, str(folder / "combined"), main, predicate=kept, filename="__params__")
    (folder / "combined" / "__model__").write_bytes(main.desc.serialize_to_string())
