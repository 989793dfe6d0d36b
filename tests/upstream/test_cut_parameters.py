"""A failing disk, as a limit on the size of files: Linux refuses what is beyond it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest

from nlpctl.formats.lod_tensor import read_tensors
from nlpctl.graphs.to_static import refuse_cut_parameters, write_paddle_graph

SAVE = """
import resource, signal, sys
import nlpctl, paddle
network = paddle.nn.Sequential(paddle.nn.Linear(64, 256), paddle.nn.Linear(256, 64))
network.eval()
specs = [paddle.static.InputSpec([None, 64], "float32", "x")]
static = paddle.jit.to_static(network, input_spec=specs, full_graph=True)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write fails with EFBIG instead
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
paddle.jit.save(static, sys.argv[1])
"""


# In the middle of the second weight; and where the first bias ends, so that no tensor is cut.
@pytest.mark.parametrize("size", [60_000, 1049])
def test_paddle_still_says_nothing_of_a_failed_write(tmp_path: Path, size: int) -> None:
    words = [sys.executable, "-c", SAVE, str(tmp_path / "model"), str(max(size, 20_000))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    parameters = tmp_path / "model.pdiparams"
    parameters.write_bytes(parameters.read_bytes()[:size])
    with pytest.raises(OSError, match="model.pdiparams"):
        refuse_cut_parameters(tmp_path / "model.pdmodel", parameters)


NETWORKS = [(paddle.nn.Linear(4, 3), "input", 2), (paddle.nn.ReLU(), "x", 0)]


@pytest.mark.parametrize(("network", "taken", "count"), NETWORKS)
def test_what_was_written_whole_passes(tmp_path: Path, network: paddle.nn.Layer, taken: str, count: int) -> None:
    write_paddle_graph(network, {taken: np.zeros((2, 4), np.float32)}, ["y"], tmp_path / "model")
    file = tmp_path / "model.pdiparams"
    assert (len(read_tensors(file)) if file.exists() and file.stat().st_size else 0) == count
