"""Decodes start and end logits into answers: candidates of each window, then the best of all windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nlpctl.data.question_features import NULL_POSITION, Window


@dataclass(frozen=True, slots=True)
class Candidate:
    """The answer context[start:end] with its score, the sum of two logits. None, None: no answer."""

    start: int | None
    end: int | None
    score: float


@dataclass(frozen=True, eq=False, slots=True)
class WindowScores:
    """The retained scores of a window, of bounded size. Pieces are counted in the context, not in the window.

    `spans` int32 [n, 4] are the window's best answers: first piece, last piece, and their offsets in the
    text, start and end. `firsts` int32 [n, 2] are its best beginnings by themselves (piece, start), `lasts` its
    best ends (piece, end), for answers that lie across two windows. Scores are float32 [n].
    """

    begin: int
    end: int
    null_score: float
    spans: np.ndarray
    span_scores: np.ndarray
    firsts: np.ndarray
    first_scores: np.ndarray
    lasts: np.ndarray
    last_scores: np.ndarray


def window_scores(
    window: Window, start_logits: np.ndarray, end_logits: np.ndarray, n_best: int, longest: int
) -> WindowScores:
    """The best candidates of one window. Logits are [length]; `longest`: the maximum answer length in pieces."""
    places = window.context.spans[window.begin : window.end]
    row = slice(window.row_start, window.row_start + len(places))
    starts, ends = start_logits[row].astype(np.float32), end_logits[row].astype(np.float32)
    firsts, lasts = _highest(starts, n_best), _highest(ends, n_best)
    spans, scores = _best_spans(starts, ends, n_best, longest)
    return WindowScores(
        window.begin,
        window.end,
        float(start_logits[NULL_POSITION]) + float(end_logits[NULL_POSITION]),
        np.column_stack([spans + window.begin, places[spans[:, 0], 0], places[spans[:, 1], 1]]),
        scores,
        np.column_stack([firsts + window.begin, places[firsts, 0]]),
        starts[firsts],
        np.column_stack([lasts + window.begin, places[lasts, 1]]),
        ends[lasts],
    )


def _best_spans(starts: np.ndarray, ends: np.ndarray, count: int, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` best (first, last) with first <= last < first + longest: int32 [n, 2], float32 [n].

    All pairs are looked at, not only those of the best starts and ends, so there is an answer in any window
    that holds text.
    """
    width = min(longest, len(starts))
    if width == 0:
        return np.empty((0, 2), np.int32), np.empty(0, np.float32)
    # -inf behind the end gives every start the same number of candidate ends, so that one array holds all pairs.
    padded = np.concatenate([ends, np.full(width - 1, -np.inf, np.float32)])
    sums = (starts[:, None] + np.lib.stride_tricks.sliding_window_view(padded, width)).ravel()
    chosen = _highest(sums, count)
    # A short window may have fewer pairs than `count`; the rest are the -inf from above.
    chosen = chosen[np.isfinite(sums[chosen])]
    first, more = np.divmod(chosen, width)
    return np.stack([first, first + more], axis=1).astype(np.int32), sums[chosen]


def _highest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` highest values, the highest first, the earlier one where two are equal; int32."""
    if len(values) > count:
        # Equal values at the edge are all kept until they are sorted, so that the choice does not depend on chance.
        edge = np.partition(values, len(values) - count)[len(values) - count]
        indices = np.flatnonzero(values >= edge)
    else:
        indices = np.arange(len(values))
    return indices[np.argsort(-values[indices], kind="stable")][:count].astype(np.int32)


def best_answers(
    windows: Sequence[WindowScores], n_best: int, longest: int, null_threshold: float | None
) -> list[Candidate]:
    """From the windows of one question, in order: at most `n_best` answers, the one to give first.

    `null_threshold` None: a question always has an answer (but none where the context has no text). Else "no
    answer" is among the candidates, and comes first where its score, the lowest over the windows as in SQuAD
    2.0, exceeds the best answer's by more than the threshold.
    """
    found: dict[tuple[int, int], float] = {}
    for place, score in _all_places(windows, longest):
        # Overlapping windows score the same answer in different contexts; the most certain one counts, as in BERT's
        # script.
        found[place] = max(score, found.get(place, score))
    # Ties go to the earlier answer, so that the order does not depend on the order of windows.
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:n_best]
    answers = [Candidate(start, end, score) for (start, end), score in ranked]
    if null_threshold is None:
        return answers
    null = Candidate(None, None, min(window.null_score for window in windows))
    if not answers or null.score - answers[0].score > null_threshold:
        return [null, *answers][:n_best]
    below = 1 + sum(answer.score >= null.score for answer in answers[1:])
    return [*answers[:below], null, *answers[below:]][:n_best]


def _all_places(windows: Sequence[WindowScores], longest: int) -> Iterator[tuple[tuple[int, int], float]]:
    """((start, end), score) of every candidate; overlapping windows repeat some."""
    for window in windows:
        for (_, _, start, end), score in zip(window.spans.tolist(), window.span_scores.tolist(), strict=True):
            yield (start, end), score
    if len(windows) > 1:
        yield from _joined(windows, longest)


def _joined(windows: Sequence[WindowScores], longest: int) -> Iterator[tuple[tuple[int, int], float]]:
    """Answers that begin in one window, end in another, and that no window holds whole.

    If one window holds the whole answer, its own score for it is used instead.
    """
    firsts = np.concatenate([window.firsts for window in windows])
    lasts = np.concatenate([window.lasts for window in windows])
    first_scores = np.concatenate([window.first_scores for window in windows])
    last_scores = np.concatenate([window.last_scores for window in windows])
    # Of the windows that hold a first piece, the last one reaches the furthest.
    reaches = np.array([window.end for window in windows])[
        np.searchsorted([window.begin for window in windows], firsts[:, 0], side="right") - 1
    ]
    length = lasts[None, :, 0] - firsts[:, None, 0]
    # The last condition drops what one window holds whole: its own score for the pair is a joint one.
    wanted = (length >= 0) & (length < longest) & (lasts[None, :, 0] >= reaches[:, None])
    for i, j in zip(*np.nonzero(wanted), strict=True):
        yield (int(firsts[i, 1]), int(lasts[j, 1])), float(first_scores[i] + last_scores[j])


def probabilities(candidates: Sequence[Candidate], scale: float = 1.0) -> list[float]:
    """Softmax of the scores times `scale`: the probabilities of the candidates."""
    if not candidates:
        return []
    # float64, and relative to the largest: exp of a logit beyond 709 overflows.
    scores = np.array([candidate.score for candidate in candidates], np.float64)
    shares = np.exp((scores - scores.max()) * scale)
    return (shares / shares.sum()).tolist()
