import numpy as np
import paddle
import paddle.inference
import pytest

from nlpctl.runtime.machine import cpu_info
from nlpctl.upstream.bfloat16_cast import keep_casts

pytestmark = pytest.mark.skipif(not cpu_info().computes("bf16"), reason="this processor has no bf16")


class Casting(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = paddle.nn.Linear(8, 8), paddle.nn.Linear(8, 8)

    def forward(self, x):
        hidden = paddle.nn.functional.gelu(self.inner(x)).astype("float32")
        return paddle.nn.functional.normalize(self.outer(hidden) * hidden)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """The prefix of a graph with a cast that changes nothing, an input and its output."""
    prefix, network = str(tmp_path_factory.mktemp("cast") / "model"), Casting()
    network.eval()
    x = paddle.rand([3, 8])
    paddle.jit.save(network, prefix, input_spec=[paddle.static.InputSpec([None, 8], "float32")])
    return prefix, x.numpy(), network(x).numpy()


def run(graph, fix):
    prefix, x, _ = graph
    config = paddle.inference.Config(f"{prefix}.pdmodel", f"{prefix}.pdiparams")
    config.disable_gpu()
    config.enable_mkldnn()
    config.enable_mkldnn_bfloat16()
    fix(config)
    predictor = paddle.inference.create_predictor(config)
    predictor.get_input_handle(predictor.get_input_names()[0]).copy_from_cpu(x)
    predictor.run()
    return predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()


def test_a_cast_still_cannot_be_computed_in_bfloat16(graph):
    with pytest.raises(NotImplementedError, match="dequantize"):
        run(graph, lambda config: None)


def test_with_casts_left_alone_it_can(graph):
    np.testing.assert_allclose(run(graph, keep_casts), graph[2], atol=0.05)
    assert np.abs(graph[2]).max() > 0.2
