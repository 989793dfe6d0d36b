"""Extractive question answering: the span of the answer in the context, or no answer."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import NO_ANSWER
from nlpctl.data.batches.question_features import (
    NULL_POSITION,
    Window,
    WindowCollator,
    check_stride,
    free_window,
    question_windows,
)
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.question_rows import QuestionExample
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.piece_spans import Pieces, read_pieces
from nlpctl.data.text.word_spans import is_ideograph
from nlpctl.models.calibration import Calibration
from nlpctl.models.families import Head
from nlpctl.tasks.base import Mistake, Task
from nlpctl.tasks.confidence import DIGITS, Confidences
from nlpctl.tasks.tallies import Tallies, make_tallies

if TYPE_CHECKING:
    import paddle


_IMPOSSIBLE = 1e4  # subtracted from the logits of positions where no answer can be


class QuestionAnswering(Task):
    """Outputs are start and end logits, both [batch, length]; labels see WindowCollator.

    A feature is one window over the context, a prediction its retained scores.
    """

    label_names = ("start_positions", "end_positions", "places")
    output_names = ("start_logits", "end_logits")
    answer_keys = ("answer", "start", "end", "score", "n_best")
    int8_agreement = 0.75  # both ends have to be the same

    def __init__(self, recipe: Recipe, labels: LabelSet, thresholds: tuple[float, ...] | None = None):
        super().__init__(recipe, labels, thresholds)
        self._last_context: tuple[TextEncoder, str, Pieces] | None = None

    @staticmethod
    def head(recipe: Recipe) -> Head:
        return Head("QuestionAnswering", labelled=False)

    def check_data(self, split: str, examples: Sequence[QuestionExample], encoder: TextEncoder) -> None:
        """The longest question decides. Only training refuses a stride above the free window: it would learn less."""
        questions = {example.question for example in examples}
        lengths = {question: len(read_pieces(question, encoder)) for question in questions}
        # Ties by text, so that the message names the same question in every run.
        longest = max(lengths, key=lambda question: (lengths[question], question))
        free = free_window(encoder, lengths[longest], self.data.max_seq_length, longest)
        if split == "train":
            check_stride(free, self.data.doc_stride, longest)
            unanswered = sum(example.answers == () for example in examples)  # None: not asked for
            if unanswered and self.recipe.decode.null_threshold is None:
                console.note(
                    f"{unanswered:,} of {len(examples):,} training questions have no answer, but every question will "
                    "be given one: set decode.null_threshold (0.0) to let the model say that there is none"
                )

    def features(self, example: QuestionExample, encoder: TextEncoder) -> Sequence[Window]:
        question = read_pieces(example.question, encoder)
        free = free_window(encoder, len(question), self.data.max_seq_length, example.question)
        context = self._context(example.context, encoder)
        _, row_start = encoder.starts(len(question), pair=True)
        assert row_start is not None, "of a pair"
        return question_windows(example, question, row_start, context, free, self.data.doc_stride)

    def _context(self, text: str, encoder: TextEncoder) -> Pieces:
        """The pieces of a context. The last ones are kept: the questions of a paragraph follow each other."""
        last = self._last_context  # read once: another thread may keep another one meanwhile
        if last is None or last[:2] != (encoder, text):
            self._last_context = last = (encoder, text, read_pieces(text, encoder))
        return last[2]

    def collator(self, encoder: TextEncoder, *, labelled: bool) -> WindowCollator:
        return WindowCollator(encoder, self.data.max_seq_length, with_labels=labelled)

    def loss(
        self, network: paddle.nn.Layer, outputs: tuple[paddle.Tensor, ...], batch: Mapping[str, paddle.Tensor]
    ) -> paddle.Tensor:
        """Mean of the cross entropies of start and end, over the places where an answer can be."""
        import paddle.nn.functional as F

        closed = (1 - batch["places"]) * _IMPOSSIBLE
        losses = [
            F.cross_entropy(logits.astype("float32") - closed, batch[name])
            for logits, name in zip(outputs, ("start_positions", "end_positions"), strict=True)
        ]
        return (losses[0] + losses[1]) / 2

    def predictions(self, outputs: tuple[np.ndarray, ...], features: Sequence[Window]) -> list[WindowScores]:
        decode = self.recipe.decode
        return [
            window_scores(window, starts, ends, decode.n_best, decode.max_answer_length)
            for window, starts, ends in zip(features, *outputs, strict=True)
        ]

    def report(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Sequence[WindowScores]]
    ) -> dict[str, Any]:
        return squad_report(self._judged(examples, predictions))

    def tallies(self, examples: Sequence[QuestionExample], predictions: Sequence[Sequence[WindowScores]]) -> Tallies:
        """The questions about one context depend on each other."""
        scores = np.array([(*squad_score(judged), 1.0) for judged in self._judged(examples, predictions)])
        contexts: dict[str, int] = {}
        groups = np.array([contexts.setdefault(example.context, len(contexts)) for example in examples])
        asked = [(each.question, each.context, [answer.text for answer in each.answers or ()]) for each in examples]
        return make_tallies("means", ("em", "f1"), scores, scores[:, 0] == 1, asked, groups)

    def mistakes(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Sequence[WindowScores]]
    ) -> list[Mistake]:
        """Questions without an exact match; the size is what the F1 lacks to 1."""
        mistakes = []
        for row, judged in enumerate(self._judged(examples, predictions)):
            exact, f1 = squad_score(judged)
            if exact < 1:
                expected = " | ".join(dict.fromkeys(judged.gold)) or NO_ANSWER
                given = NO_ANSWER if judged.predicted is None else judged.predicted
                mistakes.append(Mistake(row, 1 - f1, expected, given))
        return mistakes

    def _judged(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Sequence[WindowScores]]
    ) -> list[Judgement]:
        return [
            Judgement(
                example.question,
                tuple(answer.text for answer in example.answers or ()),
                _text(example, next(iter(self._best(windows)), None)),
            )
            for example, windows in zip(examples, predictions, strict=True)
        ]

    def answer(self, example: QuestionExample, predictions: Sequence[WindowScores]) -> dict[str, Any]:
        """The best candidate, and all of them under n_best. No answer is null; scores sum to 1 over n_best, or to less
        where the calibration leaves something for other answers."""
        candidates = self._best(predictions)
        n_best = [
            {"answer": _text(example, one), "start": one.start, "end": one.end, "score": round(share, DIGITS)}
            for one, share in zip(candidates, self._shares(candidates), strict=True)
        ]
        first = n_best[0] if n_best else {"answer": None, "start": None, "end": None, "score": 0.0}
        return {**first, "n_best": n_best}

    def _shares(self, candidates: Sequence[AnswerCandidate]) -> list[float]:
        """Their probabilities, calibrated if the task is."""
        if self.calibration is None:
            return probabilities(candidates)
        return probabilities(candidates, self.calibration.scales[0], self.calibration.shifts[0])

    def confidences(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Sequence[WindowScores]]
    ) -> Confidences:
        """The answer to each question, with its probability among the candidates; right is an exact match."""
        shares = [next(iter(self._shares(self._best(windows))), 0.0) for windows in predictions]
        right = [squad_score(judged)[0] == 1 for judged in self._judged(examples, predictions)]
        return Confidences("answers", np.array(shares, np.float64), np.array(right, bool), np.arange(len(examples)))

    def fit_calibration(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Sequence[WindowScores]]
    ) -> Calibration | None:
        """A temperature, and a shift, for the scores of the candidates, by whether the first of them is right."""
        from nlpctl.tasks.calibration import fit_first

        right = self.calibrated(None).confidences(examples, predictions).right
        scores = [[candidate.score for candidate in self._best(windows)] for windows in predictions]
        return fit_first(scores, right)

    def abstain(self, answer: dict[str, Any], least: float) -> dict[str, Any]:
        """The answer null; its score, which tells this from a question without an answer, and n_best stay."""
        return answer if answer["score"] >= least else {**answer, "answer": None, "start": None, "end": None}

    def decision(self, example: QuestionExample, predictions: Sequence[WindowScores]) -> str | None:
        """The answer's text; the order of the candidates behind it does not count."""
        return _text(example, next(iter(self._best(predictions)), None))

    def _best(self, windows: Sequence[WindowScores]) -> list[AnswerCandidate]:
        decode = self.recipe.decode
        return best_answers(windows, decode.n_best, decode.max_answer_length, decode.null_threshold)


def _text(example: QuestionExample, candidate: AnswerCandidate | None) -> str | None:
    if candidate is None or candidate.start is None:
        return None
    return example.context[candidate.start : candidate.end]


# -- decoding ---------------------------------------------------------------------------------------------------------
#
# From start and end logits to answers: candidates of each window, then the best of all windows.


@dataclass(frozen=True, slots=True)
class AnswerCandidate:
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
) -> list[AnswerCandidate]:
    """From the windows of one question, in order: at most `n_best` answers, the one to give first.

    `null_threshold` None: a question always has an answer (but none where the context has no text). Else "no
    answer" is among the candidates, and comes first where its score, the lowest over the windows as in SQuAD
    2.0, exceeds the best answer's by more than the threshold.
    """
    best_score: dict[tuple[int, int], float] = {}
    for place, score in _all_places(windows, longest):
        # Overlapping windows score the same answer in different contexts; the most certain one counts, as in BERT's
        # script.
        best_score[place] = max(score, best_score.get(place, score))
    # Ties go to the earlier answer, so that the order does not depend on the order of windows.
    ranked = sorted(best_score.items(), key=lambda item: (-item[1], item[0]))[:n_best]
    answers = [AnswerCandidate(start, end, score) for (start, end), score in ranked]
    if null_threshold is None:
        return answers
    null = AnswerCandidate(None, None, min(window.null_score for window in windows))
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


def probabilities(candidates: Sequence[AnswerCandidate], scale: float = 1.0, shift: float = 0.0) -> list[float]:
    """The probabilities of the candidates: the softmax of the scores times `scale`.

    `shift`, at most 0, is added to the log odds of the first: what is then missing to 1 is the probability of answers
    that are no candidates. The ratios of the candidates stay.
    """
    if not candidates:
        return []
    # float64, and relative to the largest: exp of a logit beyond 709 overflows.
    scores = np.array([candidate.score for candidate in candidates], np.float64)
    shares = np.exp((scores - scores.max()) * scale)
    return (shares / (shares[0] + math.exp(-shift) * shares[1:].sum())).tolist()


# -- scores -----------------------------------------------------------------------------------------------------------
#
# Exact match (EM) and F1, from 0 to 1, as defined by the data sets' own scripts.
#
# English: SQuAD's evaluate-v2.0.py. Lower case, without punctuation, articles and surplus white space; F1
# over the bag of words. Chinese: CMRC 2018's cmrc2018_evaluate.py. Lower case, without the punctuation it
# lists; F1 over the longest run that both have in common, Chinese characters and English words counting one
# each. Of several gold answers the best counts, for EM and F1 apart.
#
# A question is scored as Chinese when it has at least as many Chinese characters as words of other letters.

_LETTERS = re.compile(r"[^\W\d_]+")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII_PUNCTUATION = frozenset(string.punctuation)
_CMRC_PUNCTUATION = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")


@dataclass(frozen=True)
class Judgement:
    """One answered question: `gold` texts, empty where there is no answer; `predicted` None for no answer."""

    question: str
    gold: tuple[str, ...]
    predicted: str | None


def squad_report(judged: Sequence[Judgement]) -> dict[str, float | int]:
    """{"rows", "em", "f1"}: means over the questions."""
    scores = [squad_score(one) for one in judged]
    return {
        "rows": len(scores),
        "em": sum(em for em, _ in scores) / len(scores),
        "f1": sum(f1 for _, f1 in scores) / len(scores),
    }


def squad_score(judged: Judgement) -> tuple[float, float]:
    """(EM, F1) of one question. Where there is nothing to answer, or no answer is given, both are 0 or 1."""
    if is_chinese(judged.question):
        exact, f1, gold = cmrc_exact, cmrc_f1, judged.gold
    else:
        # As the script does: an answer that is nothing but punctuation and articles is no answer.
        exact, f1, gold = squad_exact, squad_f1, tuple(text for text in judged.gold if squad_words(text))
    if not gold or judged.predicted is None:
        right = float(not gold and not (judged.predicted and squad_words(judged.predicted)))
        return right, right
    return best(exact, gold, judged.predicted), best(f1, gold, judged.predicted)


def best(score_one: Callable[[str, str], float], gold: Iterable[str], predicted: str) -> float:
    return max(score_one(text, predicted) for text in gold)


def is_chinese(text: str) -> bool:
    characters = sum(map(is_ideograph, text))
    others = sum(not all(map(is_ideograph, run)) for run in _LETTERS.findall(text))
    return characters > 0 and characters >= others


def squad_words(text: str) -> list[str]:
    bare = "".join(character for character in text.lower() if character not in _ASCII_PUNCTUATION)
    return _ARTICLES.sub(" ", bare).split()


def squad_exact(gold: str, predicted: str) -> float:
    return float(squad_words(gold) == squad_words(predicted))


def squad_f1(gold: str, predicted: str) -> float:
    """Harmonic mean of precision and recall over the words that both have, each as often as it stands in both."""
    gold_words, words = squad_words(gold), squad_words(predicted)
    if not gold_words or not words:
        return float(gold_words == words)
    return _f1((Counter(gold_words) & Counter(words)).total(), len(gold_words), len(words))


def cmrc_exact(gold: str, predicted: str) -> float:
    return float(_without_punctuation(gold) == _without_punctuation(predicted))


def _without_punctuation(text: str) -> str:
    return "".join(character for character in text.lower().strip() if character not in _CMRC_PUNCTUATION)


def cmrc_f1(gold: str, predicted: str) -> float:
    """Harmonic mean of precision and recall of the longest common run of segments (substring, not subsequence)."""
    gold_segments, segments = cmrc_segments(gold), cmrc_segments(predicted)
    return _f1(_longest_common_run(gold_segments, segments), len(gold_segments), len(segments))


def cmrc_segments(text: str) -> list[str]:
    """Chinese characters one by one, what lies between them as English words; the script's punctuation is left out.

    As in the script, words that only its punctuation parts grow together: "co-op" is "coop".
    """
    segments: list[str] = []
    run = ""
    for character in text.lower().strip():
        if character in _CMRC_PUNCTUATION:
            continue
        # The range of the original script; ideographs of the extensions count as letters there, so they do here.
        if "\u4e00" <= character <= "\u9fa5":
            segments += [*treebank_words(run), character]
            run = ""
        else:
            run += character
    return segments + treebank_words(run)


def _longest_common_run(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest stretch of segments, without gaps, that stands in both."""
    longest, ending_before = 0, [0] * (len(second) + 1)
    for one in first:
        ending_here = [0] * (len(second) + 1)
        for j, other in enumerate(second):
            if one == other:
                ending_here[j + 1] = ending_before[j] + 1
        longest, ending_before = max(longest, *ending_here), ending_here
    return longest


def _f1(common: int, gold: int, predicted: int) -> float:
    if common == 0:
        return 0.0
    precision, recall = common / predicted, common / gold
    return 2 * precision * recall / (precision + recall)


# -- words of English, for CMRC 2018 ----------------------------------------------------------------------------------
#
# Penn Treebank tokenisation, which the scoring script of CMRC 2018 takes from NLTK.
#
# The rules are those of NLTK's word_tokenize (nltk/tokenize/destructive.py, Apache-2.0) for one sentence; the
# tests hold their results. Only what changes the count or the text of words is kept. NLTK first cuts text
# into sentences with a model that has to be downloaded; here a text is one sentence, so a full stop inside
# it stays with its word. Both sides of a comparison are cut alike.

# Applied in this order; every match is set apart by spaces.
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), made)
    for pattern, made in (
        # quotes that open
        ("([«“‘„]|`+)", r" \1 "),
        (r'^"', "``"),
        ("(``)", r" \1 "),
        (r"([ (\[{<])(\"|'{2})", r"\1 `` "),
        (r"(?i)(?<!\w)(')(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", r"\1 "),
        # punctuation
        (r"([^.])(\.)([\])}>\"' »”’]*)\s*$", r"\1 \2 \3 "),
        (r"([:,])(\D)", r" \1 \2"),
        (r"([:,])$", r" \1 "),
        (r"(\.{2,})", r" \1 "),
        (r"([;@#$%&])", r" \1 "),
        ("([\u2012-\u2015])", r" \1 "),
        (r"([?!])", r" \1 "),
        (r"([^'])' ", r"\1 ' "),
        (r"(\*)", r" \1 "),
        (r"([\]\[(){}<>])", r" \1 "),
        ("(--)", r" \1 "),
        # a space at each end lets the rules below see the first and the last word
        (r"(?s)\A(.*)\Z", r" \1 "),
        # quotes that close, and what hangs on a word: 's, n't, 'll
        ("([»”’])", r" \1 "),
        ("''", " '' "),
        ('"', " '' "),
        (r"\s+", " "),
        (r"([^' ])('[sSmMdD]|') ", r"\1 \2 "),
        (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
        # two words written as one
        (r"(?i)\b(can)(not)\b", r" \1 \2 "),
        (r"(?i)\b(d)('ye)\b", r" \1 \2 "),
        (r"(?i)\b(gim)(me)\b", r" \1 \2 "),
        (r"(?i)\b(gon)(na)\b", r" \1 \2 "),
        (r"(?i)\b(got)(ta)\b", r" \1 \2 "),
        (r"(?i)\b(lem)(me)\b", r" \1 \2 "),
        (r"(?i)\b(more)('n)\b", r" \1 \2 "),
        (r"(?i)\b(wan)(na)(?=\s)", r" \1 \2 "),
        (r"(?i) ('t)(is)\b", r" \1 \2 "),
        (r"(?i) ('t)(was)\b", r" \1 \2 "),
    )
)


def treebank_words(text: str) -> list[str]:
    """The words and punctuation marks of `text`, taken as one sentence."""
    if not text or text.isspace():
        return []
    # The order matters: later rules see the spaces that earlier ones have set.
    for pattern, made in _RULES:
        text = pattern.sub(made, text)
    return text.split()
