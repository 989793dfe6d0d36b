"""Extractive question answering: the span of the answer in the context, or no answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.data.collate import Batch
from nlpctl.data.labels import LabelSet
from nlpctl.data.piece_spans import Pieces, read_pieces
from nlpctl.data.question_features import Window, WindowCollator, check_stride, free_window, question_windows
from nlpctl.data.question_rows import QuestionExample
from nlpctl.data.text_encoder import TextEncoder
from nlpctl.models.confidence import Calibration
from nlpctl.models.families import Head
from nlpctl.tasks.answer_spans import Candidate, WindowScores, best_answers, probabilities, window_scores
from nlpctl.tasks.base import Task
from nlpctl.tasks.confidence import DIGITS, Judged
from nlpctl.tasks.mistakes import Mistake
from nlpctl.tasks.squad_scores import Judgement, score, squad_report
from nlpctl.tasks.tallies import Tallies, tally

if TYPE_CHECKING:
    import paddle

NO_ANSWER = "(no answer)"  # for people
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
            unanswered = sum(not example.answers for example in examples)
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
        return question_windows(question, row_start, context, example.answers or (), free, self.data.doc_stride)

    def _context(self, text: str, encoder: TextEncoder) -> Pieces:
        """The pieces of a context. The last ones are kept: the questions of a paragraph follow each other."""
        last = self._last_context  # read once: another thread may keep another one meanwhile
        if last is None or last[:2] != (encoder, text):
            self._last_context = last = (encoder, text, read_pieces(text, encoder))
        return last[2]

    def collator(self, encoder: TextEncoder, *, labelled: bool) -> Callable[[Sequence[Window]], Batch]:
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
        scores = np.array([(*score(judged), 1.0) for judged in self._judged(examples, predictions)])
        contexts: dict[str, int] = {}
        groups = np.array([contexts.setdefault(example.context, len(contexts)) for example in examples])
        asked = [f"{example.question}\t{example.context}" for example in examples]
        return tally("means", ("em", "f1"), scores, scores[:, 0] == 1, asked, groups)

    def mistakes(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Sequence[WindowScores]]
    ) -> list[Mistake]:
        """Questions without an exact match; the size is what the F1 lacks to 1."""
        found = []
        for row, judged in enumerate(self._judged(examples, predictions)):
            exact, f1 = score(judged)
            if exact < 1:
                expected = " | ".join(dict.fromkeys(judged.gold)) or NO_ANSWER
                given = NO_ANSWER if judged.predicted is None else judged.predicted
                found.append(Mistake(row, 1 - f1, expected, given))
        return found

    def _judged(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Sequence[WindowScores]]
    ) -> list[Judgement]:
        return [
            Judgement(
                example.question,
                tuple(answer.text for answer in example.answers),
                _text(example, next(iter(self._best(windows)), None)),
            )
            for example, windows in zip(examples, predictions, strict=True)
        ]

    def answer(self, example: QuestionExample, predictions: Sequence[WindowScores]) -> dict[str, Any]:
        """The best candidate, and all of them under n_best. No answer is null; scores sum to 1 over n_best."""
        candidates = self._best(predictions)
        told = [
            {"answer": _text(example, one), "start": one.start, "end": one.end, "score": round(share, DIGITS)}
            for one, share in zip(candidates, self._shares(candidates), strict=True)
        ]
        first = told[0] if told else {"answer": None, "start": None, "end": None, "score": 0.0}
        return {**first, "n_best": told}

    def _shares(self, candidates: Sequence[Candidate]) -> list[float]:
        """Their probabilities, calibrated if the task is."""
        return probabilities(candidates, 1.0 if self.calibration is None else self.calibration.scales[0])

    def judged(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Sequence[WindowScores]]
    ) -> Judged:
        """The answer to each question, with its probability among the candidates; right is an exact match."""
        shares = [next(iter(self._shares(self._best(windows))), 0.0) for windows in predictions]
        right = [score(judged)[0] == 1 for judged in self._judged(examples, predictions)]
        return Judged("answers", np.array(shares, np.float64), np.array(right, bool), np.arange(len(examples)))

    def fit_calibration(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Sequence[WindowScores]]
    ) -> Calibration | None:
        """A temperature for the scores of the candidates, by whether the first of them is right."""
        from nlpctl.tasks.fit_confidence import fit_first

        right = self.calibrated(None).judged(examples, predictions).right
        found = [[candidate.score for candidate in self._best(windows)] for windows in predictions]
        return fit_first(found, right)

    def abstained(self, answer: dict[str, Any], least: float) -> dict[str, Any]:
        """The answer null; its score, which tells this from a question without an answer, and n_best stay."""
        return answer if answer["score"] >= least else {**answer, "answer": None, "start": None, "end": None}

    def decision(self, example: QuestionExample, predictions: Sequence[WindowScores]) -> str | None:
        """The answer's text; the order of the candidates behind it does not count."""
        return _text(example, next(iter(self._best(predictions)), None))

    def _best(self, windows: Sequence[WindowScores]) -> list[Candidate]:
        decode = self.recipe.decode
        return best_answers(windows, decode.n_best, decode.max_answer_length, decode.null_threshold)


def _text(example: QuestionExample, candidate: Candidate | None) -> str | None:
    if candidate is None or candidate.start is None:
        return None
    return example.context[candidate.start : candidate.end]
