"""Vectors from a text file: they land in their rows, and every bad line is told with its place."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from nlpctl.errors import UserError
from nlpctl.models.scratch import fill_embedding, read_vectors

WORDS = ["[PAD]", "酒店", "很", "好"]


def written(tmp_path, text):
    file = tmp_path / "vectors.txt"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_known_words_get_their_vectors_and_the_others_keep_theirs(tmp_path, capsys):
    file = written(tmp_path, "4 3\n好 1 2 3\n酒店 -1e-2 0 .5\n好 9 9 9\nNew York 7 8 9\n")
    embedding = paddle.nn.Embedding(4, 3)
    before = embedding.weight.numpy().copy()
    assert fill_embedding(embedding, WORDS, file) == 2
    now = embedding.weight.numpy()
    np.testing.assert_allclose(now[3], [1, 2, 3])  # the first of two
    np.testing.assert_allclose(now[1], [-0.01, 0, 0.5])
    assert np.array_equal(now[[0, 2]], before[[0, 2]])
    assert "2 of 4 entries (50.0%)" in capsys.readouterr().err


def test_a_word_may_contain_spaces(tmp_path):
    vectors = read_vectors(written(tmp_path, "New York 7 8 9\n"), ["New York"], 3)
    np.testing.assert_allclose(vectors.by_id[0], [7, 8, 9])


def test_white_space_beyond_ascii_is_a_word_like_any(tmp_path):
    """Published Chinese vectors have entries for U+3000 and the no-break space."""
    file = written(tmp_path, "\u3000 7 8 9 \n\u00a0 4 5 6\na\u00a0b 1 2 3\n")
    vectors = read_vectors(file, ["a\u00a0b", "\u3000"], 3)
    assert vectors.entries == 3
    np.testing.assert_allclose([vectors.by_id[0], vectors.by_id[1]], [[1, 2, 3], [7, 8, 9]])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("好 1 2", "2 numbers where 3 are expected"),
        ("好 1 2 3 4", "more than 3 numbers"),
        ("好 1 zwei 3", "not a number: 'zwei'"),
        ("好 1 nan 3", "infinite or not a number"),
        ("好 1 inf 3", "infinite or not a number"),
        (b"\xff 1 2 3", "not UTF-8"),
    ],
)
def test_bad_lines_are_told_with_their_place(tmp_path, line, message):
    line = line if isinstance(line, bytes) else line.encode()
    file = written(tmp_path, "很 1 2 3\n".encode() + line + "\n酒店 1 2\n".encode())
    with pytest.raises(UserError) as caught:
        read_vectors(file, WORDS, 3)
    first, second = caught.value.problems
    assert first.where == f"{file}:2" and message in first.message and first.hint
    assert second.where == f"{file}:3"


def test_a_file_without_a_known_word_is_refused(tmp_path):
    with pytest.raises(UserError, match="none of its 1 words"):
        fill_embedding(paddle.nn.Embedding(4, 3), WORDS, written(tmp_path, "x 1 2 3\n"))


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_vectors(tmp_path / "none.txt", WORDS, 3)
