"""Rows of question answering: a question, its context, and the reference answers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.data.rows.text_rows import checked_text
from nlpctl.data.text.word_spans import word_spans
from nlpctl.errors import UserError
from nlpctl.layout import JSON_LINES
from nlpctl.names import listed
from nlpctl.report.language import later

_FRAME = 3  # tokens around a question and its context, at the least: [CLS] and two [SEP]
_SHOWN = 30  # characters of an answer that a message shows


def least_context(max_length: int) -> int:
    """Tokens of a window of `max_length` that a question has to leave to its context: of fewer, a long context would
    make windows without number, each of which repeats the question."""
    return max(1, max_length // 16)


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """A reference answer: context[start:start + len(text)] is `text`, in characters.

    `start` None: a person's own words, which only the score uses.
    """

    text: str
    start: int | None


@dataclass(frozen=True, slots=True)
class QuestionExample:
    """A question about a context, with its reference answers.

    `id`: the name of the question in its file. `answers` is None if they are not wanted, () where the context
    holds none.
    """

    id: str | None
    question: str
    context: str
    answers: tuple[GoldAnswer, ...] | None

    @property
    def byte_length(self) -> int:
        return len(self.question.encode()) + len(self.context.encode())


class QuestionRows(TaskRows):
    """Rows of question answering: from SQuAD's json, or flat ones with question, context and answers.

    Answers are a list of {"text": ..., "answer_start": ...}, or {"text": [...], "answer_start": [...]} as in
    Hugging Face's data sets; none at all means that the context does not answer the question (SQuAD 2.0).
    `answer_start` counts characters from 0. As in CMRC 2018, -1 marks an answer that is no part of the
    context: it counts in the score, but one answer at least must be found.
    """

    endings = {".json": "squad", **dict.fromkeys(JSON_LINES, "jsonl")}
    in_windows = True

    @property
    def split_together(self) -> str:
        return self.data.columns.context

    def required(self, labelled: bool) -> tuple[str, ...]:
        columns = self.data.columns
        return (columns.question, columns.context, *((columns.answers,) if labelled else ()))

    def read(self, values: Mapping[str, Any], labels: LabelSet | None) -> QuestionExample:
        columns = self.data.columns
        question = self._checked_question(values[columns.question])
        context = checked_text(values[columns.context], "context")
        answers = None
        if labels is not None:
            answers = _read_answers(values[columns.answers], context)
            impossible = values.get("is_impossible")
            if impossible is True and answers:
                raise ValueError("contradiction: is_impossible is true, but there are answers")
            if impossible is False and not answers:
                raise ValueError("no answers: the list is empty, but is_impossible is false")
        name = values.get("id")
        return QuestionExample(None if name is None else str(name), question, context, answers)

    def _checked_question(self, value: Any) -> str:
        """The question. ValueError if it is too long; without a tokenizer, a word is at least one token."""
        question, longest = checked_text(value, "question"), self.data.max_seq_length
        room, tokens, or_more = longest - _FRAME - least_context(longest), 0, ""
        if self.encoder is not None:
            from nlpctl.data.text.piece_spans import read_pieces  # late: it loads the tokenizers

            room = longest - self.encoder.overhead(pair=True) - least_context(longest)
            tokens = len(read_pieces(question, self.encoder))
        elif len(question) > room:
            tokens, or_more = len(word_spans(question)), " or more"
        if tokens > room:
            raise ValueError(
                f"question too long: {tokens} tokens{or_more}, but data.max_seq_length ({longest}) has room for {room} "
                "next to the context"
            )
        return question

    def passages(self, example: QuestionExample) -> dict[str, str]:
        return {self.data.columns.question: example.question, self.data.columns.context: example.context}

    def label_names(self, example: QuestionExample, labels: LabelSet) -> tuple[str, ...]:
        return (later("answer") if example.answers else later("no answer"),)

    def target(self, example: QuestionExample) -> Hashable:
        return frozenset(answer.text for answer in example.answers or ())

    def input_columns(self, example: QuestionExample) -> dict[str, Any]:
        name = {} if example.id is None else {"id": example.id}
        return {**name, **self.passages(example)}

    def key(self, example: QuestionExample) -> Hashable:
        return example.question, example.context

    def unlabelled(self, example: QuestionExample) -> QuestionExample:
        return replace(example, answers=None)

    def with_answer(self, example: QuestionExample, answer: Mapping[str, Any], labels: LabelSet) -> QuestionExample:
        found = () if answer["answer"] is None else (GoldAnswer(answer["answer"], answer["start"]),)
        return replace(example, answers=found)

    def check_training(self, examples: Sequence[Any], labels: LabelSet, where: str) -> None:
        """UserError if no question has an answer."""
        if not any(example.answers for example in examples):
            hint = f"check data.columns.answers ({self.data.columns.answers}) and the training file"
            raise UserError(f"none of the {len(examples)} training questions has an answer", where=where, hint=hint)


def _read_answers(value: Any, context: str) -> tuple[GoldAnswer, ...]:
    answers = tuple(_read_answer(text, start, context) for text, start in _pairs(value))
    if answers and all(answer.start is None for answer in answers):
        raise ValueError(f"no answer in the context: {_quoted(answers[0].text)} is not part of it (answer_start -1)")
    return answers


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    """(text, answer_start) of each answer, unchecked."""
    if isinstance(value, Mapping):
        texts: Any = value.get("text")
        starts: Any = value.get("answer_start")
        if not _is_list(texts) or not _is_list(starts) or len(texts) != len(starts):
            raise ValueError('bad answers: expected {"text": [...], "answer_start": [...]}, both equally long')
        return list(zip(texts, starts, strict=True))
    if not _is_list(value):
        raise ValueError(f"bad answers: expected a list of objects, got {type(value).__name__}")
    for answer in value:
        if not isinstance(answer, Mapping) or not {"text", "answer_start"} <= answer.keys():
            got = f"the keys {listed(answer)}" if isinstance(answer, Mapping) else type(answer).__name__
            raise ValueError(f'bad answers: each needs "text" and "answer_start"; got {got}')
    return [(answer["text"], answer["answer_start"]) for answer in value]


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _read_answer(text: Any, start: Any, context: str) -> GoldAnswer:
    """The answer without white space at its ends, checked against the context."""
    text = checked_text(text, "answer")
    if isinstance(start, bool) or not isinstance(start, int) or start < -1:
        raise ValueError(f"bad answer_start: expected a number from 0, got {start!r}")
    stripped = text.strip()
    if start == -1:
        return GoldAnswer(stripped, None)
    if context[start : start + len(text)] == text:
        return GoldAnswer(stripped, start + text.index(stripped))
    position = context.find(text)
    if position < 0:
        raise ValueError(f"answer not in the context: {_quoted(text)}")
    there = _quoted(context[start : start + len(text)])
    raise ValueError(f"wrong answer_start: at {start} the context has {there}; {_quoted(text)} begins at {position}")


def _quoted(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."
