"""Features of question answering: windows over the context, with the question and the answer's position in each.

The window advances by `stride` pieces (data.doc_stride), as in PaddleNLP. In Hugging Face's libraries, stride is the
overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from nlpctl.data.batches.collate import Collator
from nlpctl.data.rows.question_rows import GoldAnswer, QuestionExample, least_context
from nlpctl.data.text.encoder import Encoding, TextEncoder
from nlpctl.data.text.piece_spans import Pieces
from nlpctl.errors import UserError

NULL_POSITION = 0  # of the first special token, [CLS]: start and end where the window holds no answer
_SHOWN = 60  # characters of a question that a message shows


@dataclass(frozen=True, eq=False, slots=True)
class Window:
    """Pieces `begin` to `end` of the context with the question before them.

    `first` and `last` are the pieces where the answer begins and ends, counted in the context; None if they are not in
    this window. `earlier`: how many `places` the example's windows before this one have together. Windows of one
    context share its arrays.
    """

    example: QuestionExample
    earlier: int
    question: np.ndarray  # int32 [pieces of the question]
    row_start: int  # place of the window's first piece of the context in the row that the network reads
    context: Pieces
    begin: int
    end: int
    first: int | None
    last: int | None

    @property
    def byte_length(self) -> int:
        """In pieces, which is what batches are sorted by in the end."""
        return len(self.question) + self.end - self.begin

    @property
    def places(self) -> np.ndarray:
        """Where an answer may begin or end in the row that the network reads: at [CLS], which stands for no answer in
        this window, and at the pieces of the context; int [1 + pieces]."""
        return np.r_[NULL_POSITION, self.row_start : self.row_start + self.end - self.begin]


def window_ranges(length: int, free: int, stride: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of the windows of `free` pieces over a context of `length`; together they cover it.

    A stride above `free` counts as `free`, so that no piece is left out. A context without pieces has one
    empty window.
    """
    begin = 0
    while True:
        end = min(begin + free, length)
        yield begin, end
        if end == length:
            return
        begin += min(stride, free)


def question_windows(
    example: QuestionExample, question: Pieces, row_start: int, context: Pieces, free: int, stride: int
) -> list[Window]:
    """The windows of an example, whose texts have these pieces. `free`: pieces of the context that fit next to the
    question, at least 1.

    The answer is marked in every window that holds it whole. One that is in no window whole has its first
    piece marked in the windows that hold that, its last piece likewise: decoding joins them.
    """
    ranges = list(window_ranges(len(context), free, stride))
    first, last = gold_pieces(context, example.answers or ())
    # An answer longer than the overlap may be whole in no window at all.
    split = not any(_within(first, one) and _within(last, one) for one in ranges)
    windows: list[Window] = []
    earlier = 0
    for one in ranges:
        has_first, has_last = _within(first, one), _within(last, one)
        marks_first, marks_last = (has_first, has_last) if split else (has_first and has_last,) * 2
        marked = first if marks_first else None, last if marks_last else None
        windows.append(Window(example, earlier, question.ids, row_start, context, *one, *marked))
        earlier += 1 + one[1] - one[0]
    return windows


def _within(piece: int | None, window: tuple[int, int]) -> bool:
    return piece is not None and window[0] <= piece < window[1]


def gold_pieces(context: Pieces, answers: Sequence[GoldAnswer]) -> tuple[int, int] | tuple[None, None]:
    """First and last piece of the answer to be learned; None, None if there is none to point at.

    That is the first of `answers` that begins and ends where pieces do; where none does (a person marked
    "4" in "34"), the pieces that the first one touches.
    """
    touched = [span for answer in answers if (span := _pieces_of(context, answer)) is not None]
    exact = (span for span, is_exact in touched if is_exact)
    return next(exact, touched[0][0] if touched else (None, None))


def _pieces_of(context: Pieces, answer: GoldAnswer) -> tuple[tuple[int, int], bool] | None:
    """((first, last) piece that `answer` touches, whether its ends are theirs); None if it touches none."""
    if answer.start is None:
        return None
    start, end = answer.start, answer.start + len(answer.text)
    # side=right: a piece that ends where the answer starts does not touch it.
    first = int(np.searchsorted(context.spans[:, 1], start, side="right"))
    last = int(np.searchsorted(context.spans[:, 0], end, side="left")) - 1
    if first > last:
        return None
    return (first, last), context.spans[first, 0] == start and context.spans[last, 1] == end


def free_window(encoder: TextEncoder, length: int, max_length: int, text: str) -> int:
    """The number of context pieces that fit next to the question `text` of `length` pieces. UserError for too few."""
    free, least = max_length - length - encoder.overhead(pair=True), least_context(max_length)
    if free < least:
        enough = next(size for size in count(max_length) if free + size - max_length >= least_context(size))
        raise UserError(
            f"the question {_quoted(text)} has {length} tokens and leaves too little room for its context in "
            f"{max_length}: {max(free, 0)} of at least {least}",
            where="data.max_seq_length",
            hint=f"set it to {enough} at the very least, better to 384; or shorten the question",
        )
    return free


def check_stride(free: int, stride: int, text: str) -> None:
    """UserError if windows over `free` pieces cannot move on by `stride` without a gap. `text`: the question."""
    if stride > free:
        raise UserError(
            f"the question {_quoted(text)} leaves {free} tokens of the window to its context, fewer than the window "
            f"moves on ({stride})",
            where="data.doc_stride",
            hint=f"raise data.max_seq_length, or set it to {free} or less (half of that lets windows overlap)",
        )


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


class WindowCollator(Collator):
    """Windows to padded arrays. With labels, in places of the row:

    start_positions, end_positions int64 [batch]: the answer's first and last piece, or [CLS]
    places float32 [batch, length]: 1 where an answer may begin or end, which are [CLS] and the context
    """

    def encodings(self, examples: Sequence[Window], tell_cut: bool = True) -> list[Encoding]:
        return [
            self.encoder.assemble(window.question.tolist(), window.context.ids[window.begin : window.end].tolist())
            for window in examples
        ]

    def arrays(self, examples: Sequence[Window], encodings: Sequence[Encoding]) -> dict[str, np.ndarray]:
        batch = self.pad(encodings)
        if self.with_labels:
            shifts = [window.row_start - window.begin for window in examples]
            batch["start_positions"] = _positions(shifts, [window.first for window in examples])
            batch["end_positions"] = _positions(shifts, [window.last for window in examples])
            batch["places"] = np.zeros(batch["input_ids"].shape, np.float32)
            for row, window in zip(batch["places"], examples, strict=True):
                row[window.places] = 1
        return batch


def _positions(shifts: Sequence[int], pieces: Sequence[int | None]) -> np.ndarray:
    places = [NULL_POSITION if piece is None else shift + piece for shift, piece in zip(shifts, pieces, strict=True)]
    return np.array(places, np.int64)
