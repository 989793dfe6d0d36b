import inspect

import paddle
import pytest
from paddlenlp.trainer import trainer_compress
from paddleslim.nas.ofa.layers import SuperLayerNorm


@pytest.mark.parametrize("rows", [2, 5])
def test_paddleslims_norm_still_takes_a_tensor_for_three(rows):
    with pytest.raises(ValueError, match="values to unpack"):
        SuperLayerNorm(8)(paddle.ones([rows, 8]))


def test_paddlenlp_still_evaluates_widths_and_changes_one_model_for_all_of_them():
    assert "eval(width_mult)" in inspect.getsource(trainer_compress.compress)
    cut = inspect.getsource(trainer_compress._export_dynamic_dynabert_model)
    assert "_get_dynabert_model(self.original_model" in cut
