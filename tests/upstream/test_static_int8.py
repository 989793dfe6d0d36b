"""The day these comparisons fail, oneDNN computes stock int8 graphs right and static_int8.py can go."""

import numpy as np
import paddle
import pytest
from paddle.static.quantization import PostTrainingQuantization

from nlpctl.upstream.static_int8 import ProductsOnly, scale_square_weights_by_row

PRODUCTS = ["matmul", "matmul_v2"]
ROWS = np.random.default_rng(0).normal(size=(16, 4, 24)).astype(np.float32)


class Masked(paddle.nn.Layer):
    """A product, and something large added to a part of what comes out, as a mask is."""

    def __init__(self):
        super().__init__()
        self.inner = paddle.nn.Linear(24, 48)

    def forward(self, x):
        mask = (paddle.arange(48) > 40).astype("float32") * -1e4
        return paddle.nn.functional.softmax(self.inner(x) + paddle.scale(mask, 1.0))


class Product(paddle.nn.Layer):
    """A product with a weight of `width` columns, whose largest entries are of one size, or not.

    The square one has rows and columns of different size, row c as large as column c.
    """

    def __init__(self, width, even=True):
        super().__init__()
        self.inner = paddle.nn.Linear(24, width)
        draw = np.random.default_rng(1)
        weight = draw.uniform(0.5, 1, (24, width)) * draw.choice([-1, 1], (24, width))
        sizes = draw.uniform(0.1, 1, 24)
        weight = np.sign(weight) * np.outer(sizes, sizes) if width == 24 else weight
        weight *= 1 if even else np.logspace(-2, 0, width)
        self.inner.weight.set_value(weight.astype(np.float32))

    def forward(self, x):
        return self.inner(x)


class Batches(paddle.io.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {"x": ROWS[4 * index : 4 * index + 4]}


def quantised(network, folder, config=None, mend=False):
    """Write the network's graph in int8; returns its outputs in fp32 and by oneDNN's int8."""
    with paddle.utils.unique_name.guard():
        network = network()
        network.eval()
        weight = {network.inner.weight.name: network.inner.weight.numpy()}
        expected = network(paddle.to_tensor(ROWS)).numpy()
        spec = [paddle.static.InputSpec([None, 4, 24], "float32", name="x")]
        paddle.jit.save(paddle.jit.to_static(network, input_spec=spec), str(folder / "fp32"))
    paddle.enable_static()
    try:
        scope = paddle.static.Scope()
        with paddle.static.scope_guard(scope):
            ptq = PostTrainingQuantization(
                paddle.static.Executor(paddle.CPUPlace()), str(folder), scope, "fp32.pdmodel", "fp32.pdiparams",
                data_loader=paddle.io.DataLoader(Batches(), batch_size=None, collate_fn=lambda x: x, return_list=True),
                batch_nums=4, algo="abs_max", quantizable_op_type=PRODUCTS, onnx_format=True,
            )  # fmt: skip
            if config is not None:
                ptq.quant_config = config
            program = ptq.quantize()
            assert not mend or scale_square_weights_by_row(program, scope, weight) == list(weight)
            ptq.save_quantized_model(str(folder), "int8.pdmodel", "int8.pdiparams")
    finally:
        paddle.disable_static()
    return expected, engine(folder / "int8")


def engine(prefix):
    config = paddle.inference.Config(f"{prefix}.pdmodel", f"{prefix}.pdiparams")
    config.disable_gpu()
    config.disable_glog_info()
    config.enable_mkldnn()
    config.enable_mkldnn_int8()
    predictor = paddle.inference.create_predictor(config)
    predictor.get_input_handle("x").copy_from_cpu(ROWS)
    predictor.run()
    return predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()


def error(found):
    expected, int8 = found
    return np.abs(int8 - expected).max() / np.abs(expected).max()


def test_onednn_still_executes_observers(tmp_path):
    assert error(quantised(Masked, tmp_path)) > 0.5


def test_without_observers_a_mask_does_no_harm(tmp_path):
    assert error(quantised(Masked, tmp_path, ProductsOnly(PRODUCTS))) < 0.1


@pytest.mark.parametrize("mend", [False, True])
def test_onednn_still_dequantises_square_weights_along_the_wrong_axis(tmp_path, mend):
    found = error(quantised(lambda: Product(24), tmp_path, ProductsOnly(PRODUCTS), mend=mend))
    assert found < 0.06 if mend else found > 0.1


def test_onednn_still_takes_the_scales_of_columns_from_other_entries(tmp_path):
    """compute_propagate_scales_mkldnn_pass.cc, GetScales: column c's from the entries c * k ... of the memory, so
    that columns of very different size are cut off. Nothing mends it: the scales are not in the file."""
    assert error(quantised(lambda: Product(32, even=False), tmp_path, ProductsOnly(PRODUCTS))) > 0.1
    assert error(quantised(lambda: Product(32), tmp_path, ProductsOnly(PRODUCTS))) < 0.05
