"""The day these comparisons fail, oneDNN computes stock int8 graphs right and static_int8.py can go."""

import numpy as np
import paddle
import pytest
from paddle.static.quantization import PostTrainingQuantization

from nlpctl.graphs.int8_program import write_onednn_program
from nlpctl.upstream.static_int8 import ProductsOnly

PRODUCTS = ["matmul", "matmul_v2"]
# Without VNNI, sums of int8 products saturate, and no comparison tells more than that.
pytestmark = pytest.mark.usefixtures("native_int8")
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


def quantised(network, folder, config=None, **settings):
    """Write the network's graph as int8.*, simulated; returns its outputs in fp32 and by oneDNN's int8."""
    with paddle.utils.unique_name.guard():
        network = network()
        network.eval()
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
                batch_nums=4, algo="abs_max", quantizable_op_type=PRODUCTS, onnx_format=True, **settings,
            )  # fmt: skip
            if config is not None:
                ptq.quant_config = config
            ptq.quantize()
            ptq.save_quantized_model(str(folder), "int8.pdmodel", "int8.pdiparams")
    finally:
        paddle.disable_static()
    return expected, engine(folder / "int8", replace=True)


def engine(prefix, replace):
    """What Paddle Inference computes by oneDNN; `replace`: it looks for pairs to make int8 of by itself."""
    config = paddle.inference.Config(f"{prefix}.pdmodel", f"{prefix}.pdiparams")
    config.disable_gpu()
    config.disable_glog_info()
    config.enable_mkldnn()
    if replace:
        config.enable_mkldnn_int8()
    predictor = paddle.inference.create_predictor(config)
    predictor.get_input_handle("x").copy_from_cpu(ROWS)
    predictor.run()
    return predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()


def error(found):
    expected, int8 = found
    return np.abs(int8 - expected).max() / np.abs(expected).max()


def column_error(found):
    """That of the worst column, as a share of what is in it."""
    expected, int8 = found
    return (np.abs(int8 - expected).max((0, 1)) / np.abs(expected).max((0, 1))).max()


def test_onednn_still_executes_observers(tmp_path):
    assert error(quantised(Masked, tmp_path)) > 0.5


def test_without_observers_a_mask_does_no_harm(tmp_path):
    assert error(quantised(Masked, tmp_path, ProductsOnly(PRODUCTS))) < 0.1


SHAPES = {"square": lambda: Product(24), "wide": lambda: Product(32, even=False), "narrow": lambda: Product(16, False)}


@pytest.mark.parametrize("shape", SHAPES)
def test_onednn_still_takes_the_scales_of_weights_from_other_entries(tmp_path, shape):
    """Square ones are multiplied out along the wrong axis, too."""
    expected, found = quantised(SHAPES[shape], tmp_path, ProductsOnly(PRODUCTS))
    assert column_error((expected, found)) > 0.1
    write_onednn_program(tmp_path / "int8", tmp_path / "mended")
    assert 0 < column_error((expected, engine(tmp_path / "mended", replace=False))) < 0.03


def test_columns_of_one_size_are_right_by_chance(tmp_path):
    assert column_error(quantised(lambda: Product(32), tmp_path, ProductsOnly(PRODUCTS))) < 0.05


def test_adaround_still_quantises_weights_twice(tmp_path):
    assert error(quantised(lambda: Product(32), tmp_path, ProductsOnly(PRODUCTS), round_type="adaround")) > 0.1


@pytest.mark.parametrize("setting", [{"bias_correction": True}, {"activation_quantize_type": "abs_max"}])
def test_some_settings_still_do_nothing(tmp_path, setting):
    for name, settings in (("without", {}), ("with", setting)):
        (tmp_path / name).mkdir()
        quantised(lambda: Product(32), tmp_path / name, ProductsOnly(PRODUCTS), **settings)
    files = [tmp_path / name / "int8.pdiparams" for name in ("without", "with")]
    assert files[0].read_bytes() == files[1].read_bytes()


class Transposed(Product):
    """A language model scores words by the rows of its table."""

    def forward(self, x):
        return paddle.matmul(x, self.table, transpose_y=True)

    def __init__(self):
        super().__init__(24)
        self.table = self.create_parameter([96, 24])


def test_a_transposed_weight_still_has_the_scales_of_its_rows_and_is_rounded_by_columns(tmp_path):
    with pytest.raises(IndexError, match="index 24 is out of bounds"):
        quantised(Transposed, tmp_path)
