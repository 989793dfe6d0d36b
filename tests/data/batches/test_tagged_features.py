from array import array

import numpy as np
import pytest

from nlpctl.data.batches.tagged_features import IGNORED, TaggedCollator, tagged_windows
from nlpctl.data.rows.tagged_rows import TaggedExample, put_together
from nlpctl.data.text.encoder import Encoding
from nlpctl.errors import UserError

CLS, SEP = 101, 102


class LetterEncoder:
    """A piece per letter, its code point; [CLS] and [SEP] around."""

    pad_id, pad_token_type_id, uses_token_types = 0, 0, True

    def pieces_in(self, text, spans):
        return [[ord(letter) for letter in text[start:end]] for start, end in spans]

    def overhead(self, pair):
        return 2

    def assemble(self, first, second=None):
        return Encoding([CLS, *first, SEP], [0] * (len(first) + 2))

    def starts(self, first, pair):
        return 1, None


ENCODER = LetterEncoder()


def example(words):
    text, bounds = put_together(words)
    return TaggedExample(text, bounds, array("i", range(len(words))), True)


def test_a_sentence_that_fits_is_one_window_with_labels_at_first_pieces():
    (window,) = tagged_windows(example(["ab", "c", "def"]), ENCODER, 8, 4)
    assert (window.start, window.end, window.first, list(window.places)) == (0, 3, 0, [1, 3, 4])
    short = tagged_windows(example(["z"]), ENCODER, 8, 4)
    batch = TaggedCollator(ENCODER, 8, with_labels=True)([window, *short])
    assert batch["input_ids"].tolist() == [[CLS, *map(ord, "abcdef"), SEP], [CLS, ord("z"), SEP, 0, 0, 0, 0, 0]]
    no = IGNORED
    assert batch["labels"].tolist() == [[no, 0, no, 1, 2, no, no, no], [no, 0, no, no, no, no, no, no]]
    assert batch["labels"].dtype == np.int64 and batch["token_type_ids"].shape == (2, 8)
    assert set(TaggedCollator(ENCODER, 8, with_labels=False)([window])) == {"input_ids", "token_type_ids"}


def test_the_end_of_a_word_longer_than_a_window_is_not_read():
    collate = TaggedCollator(ENCODER, 8, with_labels=False)
    for word, truncated in (("abcdefg", True), ("abcdef", False)):
        windows = tagged_windows(example(["x", word, "y"]), ENCODER, 8, 4)
        assert any(row.truncated for row in collate.encodings(windows)) == truncated


def test_a_long_sentence_is_read_in_overlapping_windows():
    windows = tagged_windows(example(list("abcdefghij")), ENCODER, 8, 2)
    assert not any(row.truncated for row in TaggedCollator(ENCODER, 8, with_labels=False).encodings(windows))
    # Six pieces fit; windows begin two pieces apart and share four, of which each side keeps two.
    assert [(w.start, w.end, w.first, len(w.places)) for w in windows] == [(0, 6, 0, 4), (2, 8, 4, 2), (4, 10, 6, 4)]
    assert [list(w.places) for w in windows] == [[1, 2, 3, 4], [3, 4], [3, 4, 5, 6]]
    batch = TaggedCollator(ENCODER, 8, with_labels=True)(windows)
    kept = batch["labels"][batch["labels"] != IGNORED]
    assert kept.tolist() == list(range(10))


@pytest.mark.parametrize("seed", range(200))
def test_every_word_is_answered_for_once_where_it_stands(seed):
    draw = np.random.default_rng(seed)
    words = ["".join(draw.choice(list("abcdefgh"), draw.integers(1, 9))) for _ in range(draw.integers(1, 40))]
    max_length, stride = int(draw.integers(3, 30)), int(draw.integers(1, 40))
    room = max_length - 2
    sentence = example(words)
    windows = tagged_windows(sentence, ENCODER, max_length, stride)
    batch = TaggedCollator(ENCODER, max_length, with_labels=True)(windows)
    assert batch["input_ids"].shape[1] <= max_length
    following = 0
    for window, ids, labels in zip(windows, batch["input_ids"], batch["labels"], strict=True):
        assert window.first == following and window.start <= window.first
        following += len(window.places)
        assert following <= window.end
        for i, place in enumerate(window.places):
            word = words[window.first + i][:room]
            assert ids[place : place + len(word)].tolist() == list(map(ord, word))
            assert labels[place] == window.first + i
        assert (labels != IGNORED).sum() == len(window.places)
    assert following == len(words)
    whole = sum(min(len(word), room) for word in words)
    assert (len(windows) == 1) == (whole <= room) or len(windows) == 1 == len(words)


def test_words_have_text_on_both_sides_where_there_is_some():
    windows = tagged_windows(example(["x"] * 1000), ENCODER, 66, 32)
    for window in windows:
        before, after = window.first - window.start, window.end - window.first - len(window.places)
        assert before >= 16 or window.start == 0
        assert after >= 16 or window.end == 1000


def test_no_room():
    with pytest.raises(UserError, match="leave no room") as caught:
        tagged_windows(example(["a"]), ENCODER, 2, 1)
    assert caught.value.problems[0].hint == "set it to 3 or more"
