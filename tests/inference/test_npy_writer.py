"""The .npy file that grows."""

from __future__ import annotations

import numpy as np
import pytest

from nlpctl.inference.embed import ArrayFile


@pytest.mark.parametrize("parts", [[0], [3], [1, 0, 999, 12_345]])
@pytest.mark.parametrize(("shape", "dtype"), [((7,), np.float32), ((), np.int64), ((2, 3), np.float16)])
def test_numpy_reads_what_was_appended(tmp_path, parts, shape, dtype):
    path = tmp_path / "v.npy"
    random = np.random.default_rng(1)
    blocks = [(100 * random.normal(size=(rows, *shape))).astype(dtype) for rows in parts]
    with path.open("w+b") as stream:
        file = ArrayFile(stream, shape, dtype)
        for block in blocks:
            file.append(block)
        file.finish()
    read = np.load(path, mmap_mode="r")
    assert read.dtype == dtype and (read == np.concatenate(blocks)).all()


def test_rows_of_another_shape_are_refused(tmp_path):
    with (tmp_path / "v.npy").open("w+b") as stream, pytest.raises(ValueError, match="a file of \\[7\\]"):
        ArrayFile(stream, (7,), np.float32).append(np.zeros((2, 6)))
