import gc

import numpy as np
import paddle
import paddle.inference
import pytest

from nlpctl.paddle_version import release
from nlpctl.upstream.predictor_clones import successors

X = np.arange(16).reshape(2, 8)


@pytest.fixture
def files(tmp_path):
    paddle.seed(1)
    layer = paddle.nn.Embedding(16, 3)
    paddle.jit.save(layer, str(tmp_path / "model"), input_spec=[paddle.static.InputSpec([None, 8], "int64")])
    return tmp_path / "model.pdmodel", tmp_path / "model.pdiparams"


def opened(program, parameters):
    config = paddle.inference.Config(str(program), str(parameters))
    config.disable_gpu()
    config.disable_glog_info()
    return paddle.inference.create_predictor(config)


def answers(predictor):
    predictor.get_input_handle(predictor.get_input_names()[0]).copy_from_cpu(X)
    predictor.run()
    return predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()


def test_a_clone_that_ends_still_takes_the_weights_of_all(files):
    first = opened(*files)
    clone = first.clone()
    expected = answers(first)
    np.testing.assert_array_equal(answers(clone), expected)
    del clone
    gc.collect()
    if release() < (3, 0):
        np.testing.assert_array_equal(answers(first), expected)
    else:
        with pytest.raises(RuntimeError, match="Tensor holds no memory"):
            answers(first)


def test_successors_answer_alike_when_all_before_them_have_ended(files):
    """Also when the files are gone, as where an export was replaced."""
    predictor = opened(*files)
    expected = answers(predictor)
    successor = successors(*files, opened)
    for file in files:
        file.unlink()
    for _ in range(3):
        predictor = successor(predictor)
        gc.collect()
        np.testing.assert_array_equal(answers(predictor), expected)
