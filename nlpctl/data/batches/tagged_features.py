"""Features of token classification: windows of tagged sentences that fit the network, and their padded batches.

A sentence that fits is one window. A longer one is cut into windows that begin at most `stride` pieces apart
(data.doc_stride), at word boundaries. Each word belongs to exactly one window, for training and prediction: the first
half of an overlap belongs to the earlier window, so that every word has context on both sides. The concatenated tags of
the windows are the tags of the sentence.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING

import numpy as np

from nlpctl.data.batches.collate import Collator
from nlpctl.data.rows.tagged_rows import TaggedExample
from nlpctl.errors import UserError

if TYPE_CHECKING:
    from nlpctl.data.text.encoder import Encoding, TextEncoder

IGNORED = -100  # the label of tokens that count neither in the loss nor in the score


@dataclass(frozen=True, slots=True)
class TaggedWindow:
    """The words [start, end) of an example; the window answers for the words from `first` on.

    `places`: where the first pieces of those words stand in the row of tokens, one place per word.
    """

    example: TaggedExample
    start: int
    end: int
    first: int
    places: array

    @property
    def byte_length(self) -> int:
        """Proportional to tokens: UTF-8 bytes of the words."""
        bounds = self.example.bounds
        return len(self.example.text[bounds[2 * self.start] : bounds[2 * self.end - 1]].encode())


def tagged_windows(
    example: TaggedExample, encoder: TextEncoder, max_length: int, stride: int
) -> tuple[TaggedWindow, ...]:
    """The windows of `example`, in order; together they answer for every word once.

    A word of more pieces than fit is read by its first ones. UserError if `max_length` leaves no room.
    """
    room = free_window(encoder, max_length)
    # A word of more pieces than the window holds is cut, so that every word keeps a place for its tag.
    sizes = [min(len(pieces), room) for pieces in encoder.pieces_in(example.text, example.spans())]
    offsets = [0, *accumulate(sizes)]  # of each word's first piece among all pieces; the last is their number
    parts = [(0, len(sizes))] if offsets[-1] <= room else _overlapping(offsets, room, stride)
    limits = [0, *(_middle(offsets, begin, end) for (_, end), (begin, _) in zip(parts, parts[1:], strict=False))]
    lead = encoder.starts(0, pair=False)[0]
    windows = []
    for (start, end), first, last in zip(parts, limits, [*limits[1:], len(sizes)], strict=True):
        places = array("i", [lead + offsets[i] - offsets[start] for i in range(first, last)])
        # A window may answer for no word where its neighbours divide the overlap between them.
        if places:
            windows.append(TaggedWindow(example, start, end, first, places))
    return tuple(windows)


def free_window(encoder: TextEncoder, max_length: int) -> int:
    """The number of pieces that fit next to the special tokens. UserError if none fits."""
    room = max_length - encoder.overhead(pair=False)
    if room < 1:
        raise UserError(
            f"{max_length} tokens leave no room for text besides the special tokens",
            where="data.max_seq_length",
            hint=f"set it to {max_length - room + 1} or more",
        )
    return room


def _overlapping(offsets: Sequence[int], room: int, stride: int) -> list[tuple[int, int]]:
    """[start, end) in words of windows of at most `room` pieces that begin at most `stride` pieces apart."""
    words = len(offsets) - 1
    step = min(stride, room)
    parts, start = [], 0
    while True:
        end = start + 1
        while end < words and offsets[end + 1] - offsets[start] <= room:
            end += 1
        parts.append((start, end))
        if end == words:
            return parts
        # At least one word further, or a word larger than the stride would never be passed.
        following = start + 1
        while following < end and offsets[following + 1] - offsets[start] <= step:
            following += 1
        start = following


def _middle(offsets: Sequence[int], begin: int, end: int) -> int:
    """The word nearest to the middle of the pieces of the words [begin, end]."""
    middle = (offsets[begin] + offsets[end]) / 2
    return min(range(begin, end + 1), key=lambda i: abs(offsets[i] - middle))


class TaggedCollator(Collator):
    """Windows to arrays: labels int64 [batch, length], IGNORED but at the first pieces of words that count."""

    def encodings(self, examples: Sequence[TaggedWindow], tell_cut: bool = True) -> list[Encoding]:
        room = free_window(self.encoder, self.max_length)
        encodings = []
        for window in examples:
            pieces = self.encoder.pieces_in(window.example.text, window.example.spans(window.start, window.end))
            row = list(chain.from_iterable(word[:room] for word in pieces))
            encodings.append(self.encoder.assemble(row))
            # Windows leave nothing out but the end of a word that is longer than a window.
            encodings[-1].truncated = len(row) >= room and max(map(len, pieces)) > room
        return encodings

    def arrays(self, examples: Sequence[TaggedWindow], encodings: Sequence[Encoding]) -> dict[str, np.ndarray]:
        batch = self.pad(encodings)
        if self.with_labels:
            labels = np.full(batch["input_ids"].shape, IGNORED, np.int64)
            for row, window in zip(labels, examples, strict=True):
                tags = window.example.tags
                assert tags is not None, "with_labels is for labelled rows"
                row[window.places] = tags[window.first : window.first + len(window.places)]
            batch["labels"] = labels
        return batch
