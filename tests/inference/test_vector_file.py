"""The .npy file that grows."""

from __future__ import annotations

import numpy as np
import pytest

from nlpctl.inference.vector_file import VectorFile


@pytest.mark.parametrize("parts", [[0], [3], [1, 0, 999, 12_345]])
def test_numpy_reads_what_was_appended(tmp_path, parts):
    path = tmp_path / "v.npy"
    random = np.random.default_rng(1)
    blocks = [random.normal(size=(rows, 7)) for rows in parts]
    with path.open("w+b") as stream:
        file = VectorFile(stream, 7)
        for block in blocks:
            file.append(block)
        file.finish()
    read = np.load(path, mmap_mode="r")
    assert read.dtype == np.float32 and (read == np.concatenate(blocks).astype("float32")).all()


def test_vectors_of_another_width_are_refused(tmp_path):
    with (tmp_path / "v.npy").open("w+b") as stream, pytest.raises(ValueError, match="width 7"):
        VectorFile(stream, 7).append(np.zeros((2, 6)))
