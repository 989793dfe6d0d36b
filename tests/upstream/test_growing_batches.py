from __future__ import annotations

import json

import numpy as np
import pytest

from nlpctl.runtime.worker import run_python
from nlpctl.upstream.growing_batches import Growth

# The megabytes that batches of these (rows, tokens) add to a new process, one after the other.
MEASURE = """
import json, sys
import nlpctl, numpy as np, paddle, paddle.inference

class Network(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.embedding = paddle.nn.Embedding(50, 32)
        self.encoder = paddle.nn.TransformerEncoder(paddle.nn.TransformerEncoderLayer(32, 8, 64), 4)

    def forward(self, ids):
        return self.encoder(self.embedding(ids)).mean(1)

def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6

prefix = sys.argv[1]
network = Network()
network.eval()
paddle.jit.save(network, prefix, input_spec=[paddle.static.InputSpec([None, None], "int64")])
config = paddle.inference.Config(prefix + ".pdmodel", prefix + ".pdiparams")
config.disable_gpu()
config.disable_glog_info()
config.enable_memory_optim()
config.set_cpu_math_library_num_threads(1)
config.enable_mkldnn()
config.set_mkldnn_cache_capacity(0)
predictor = paddle.inference.create_predictor(config)
before = megabytes()
for shape in json.loads(sys.argv[2]):
    predictor.get_input_handle(predictor.get_input_names()[0]).copy_from_cpu(np.ones(shape, "int64"))
    predictor.run()
print(megabytes() - before)
"""


def batch(rows, length):
    return {"input_ids": np.arange(rows * length).reshape(rows, length)}


def test_a_larger_batch_is_told():
    growth = Growth()
    assert not growth.outgrown_by(batch(8, 64))
    assert not growth.outgrown_by(batch(8, 63))
    assert growth.outgrown_by(batch(8, 65))
    assert growth.outgrown_by(batch(4, 129))  # of fewer tokens, but of more pairs
    assert growth.outgrown_by(batch(64, 10))  # the other way round
    assert not growth.outgrown_by(batch(8, 65)) and not growth.outgrown_by(batch(4, 129))


def test_one_batch_stands_for_the_largest_of_both_kinds():
    growth = Growth()
    growth.outgrown_by(batch(64, 10))
    assert growth.as_large(batch(64, 10)) is None
    growth.outgrown_by(batch(4, 129))
    rows, length = growth.as_large(batch(4, 129))["input_ids"].shape
    assert 640 <= rows * length < 800 and 4 * 129**2 <= rows * length**2 < 5 * 129**2 and length <= 129


def test_places_in_the_rows_stay_within_them():
    growth = Growth()
    growth.outgrown_by(batch(64, 20))
    places = {"masked_positions": np.full((8, 3), 127)}
    growth.outgrown_by(batch(8, 128))
    made = growth.as_large({**batch(8, 128), **places})
    rows, length = made["input_ids"].shape
    assert made["masked_positions"].shape == (rows, 3) and made["masked_positions"].max() == length - 1


@pytest.mark.slow
def test_a_larger_batch_still_takes_more_after_a_small_one(tmp_path):
    """Measured: 78 and 280 MB with Paddle 2.6.2, 83 and 282 MB with 3.1.1."""

    script = tmp_path / "measure.py"
    script.write_text(MEASURE)  # Paddle reads the source of what it translates

    def megabytes(*shapes):
        done = run_python(str(script), str(tmp_path / "network"), json.dumps(shapes))
        assert not done.failure, done.failure
        return float(done.output.splitlines()[-1])

    assert megabytes((1, 8), (16, 256)) > 1.5 * megabytes((16, 256))
