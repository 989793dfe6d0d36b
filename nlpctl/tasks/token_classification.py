"""Token classification: recognises entities in a text by a tag per word, or cuts it into words with their tags."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import NO_ENTITY
from nlpctl.data.batches.tagged_features import IGNORED, TaggedCollator, TaggedWindow, tagged_windows
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.tag_scheme import OUTSIDE, UNTYPED, Span, TagScheme, answers_words, detect_scheme, wanted_entities
from nlpctl.data.rows.tagged_rows import TaggedExample, in_characters
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.models.calibration import Calibration
from nlpctl.models.families import Head
from nlpctl.models.viterbi import logarithms, marginals, path_steps, viterbi
from nlpctl.tasks.base import Mistake, Task
from nlpctl.tasks.confidence import DIGITS, Confidences, log_odds, scales_and_shifts, sigmoid
from nlpctl.tasks.sequence_classification import softmax
from nlpctl.tasks.tallies import Tallies, make_tallies
from nlpctl.tasks.term_dictionary import TermDictionary

if TYPE_CHECKING:
    import paddle
    from scipy.sparse import csr_matrix


class TagPath(NamedTuple):
    """`tags` int32 [words], and how probable its parts are, float32 [words, 3], as `path_steps` (models/viterbi.py)."""

    tags: np.ndarray
    steps: np.ndarray


# The prediction of a window: int32 [words], the tags of the words that it answers for; where confidence is asked for,
# a TagPath.
WindowTags = np.ndarray | TagPath


class TokenClassification(Task):
    """Outputs are logits [batch, length, tags], with a CRF also its transitions.

    A feature is a window of a sentence, a prediction its WindowTags. The tags decide what the answer holds
    (data/rows/tag_scheme.py): the entities of a text, or all its words.
    """

    answer_keys = ("entities",)
    bare_marks_are_words = False  # whether tags without a type, such as B and I, cut a text into words

    int8_agreement = 0.75  # all entities of a text have to be the same

    def __init__(self, recipe: Recipe, labels: LabelSet, thresholds: tuple[float, ...] | None = None):
        super().__init__(recipe, labels, thresholds)
        if recipe.model.head == "crf":
            self.output_names = ("emissions", "transitions")
        self.scheme = detect_scheme(labels.names, "the label set")
        self.entity_types = wanted_entities(recipe, labels.names)
        self.in_words = answers_words(labels.names, self.entity_types, self.bare_marks_are_words)
        self.answer_keys = ("words",) if self.in_words else ("entities",)
        terms = recipe.decode.terms
        self.terms = None if terms is None else TermDictionary.from_file(Path(terms))
        self._follows = follows(self.scheme, labels.names)

    @staticmethod
    def head(recipe: Recipe) -> Head:
        if recipe.model.head != "crf":
            return Head("TokenClassification")
        from nlpctl.models.crf import with_crf

        return Head("TokenClassification", adapt=with_crf)

    def features(self, example: TaggedExample, encoder: TextEncoder) -> Sequence[TaggedWindow]:
        return tagged_windows(example, encoder, self.data.max_seq_length, self.data.doc_stride)

    def collator(self, encoder: TextEncoder, *, labelled: bool) -> TaggedCollator:
        return TaggedCollator(encoder, self.data.max_seq_length, with_labels=labelled)

    def loss(
        self, network: paddle.nn.Layer, outputs: tuple[paddle.Tensor, ...], batch: Mapping[str, paddle.Tensor]
    ) -> paddle.Tensor:
        """The mean over the rows of the mean over a row's words."""
        labels = batch["labels"]
        if self.recipe.model.head == "crf":
            from nlpctl.models.crf import crf_loss

            emissions, transitions = outputs
            return crf_loss(emissions, transitions, labels).mean()
        import paddle.nn.functional as F

        losses = F.cross_entropy(outputs[0], labels, reduction="none", ignore_index=IGNORED).reshape(labels.shape)
        # Per row first: a token-wise mean over the batch would weigh rows by their length, and parts of a batch
        # differently.
        return (losses.sum(1) / (labels != IGNORED).astype(losses.dtype).sum(1)).mean()

    def constant_loss(self, examples: Sequence[TaggedExample]) -> float | None:
        """With the tags' shares of each row, since every row counts alike; a CRF has no such figure."""
        if self.recipe.model.head == "crf":
            return None
        shares = np.zeros(len(self.labels))
        for example in examples:
            tags = np.asarray(example.tags)
            shares += np.bincount(tags, minlength=len(shares)) / max(len(tags), 1)
        shares = shares[shares > 0] / shares.sum()
        return float(-(shares * np.log(shares)).sum())

    def predictions(
        self, outputs: tuple[np.ndarray, ...], features: Sequence[TaggedWindow]
    ) -> list[np.ndarray] | list[TagPath]:
        chains = [logits[window.places] for logits, window in zip(outputs[0], features, strict=True)]
        crf = self.recipe.model.head == "crf"
        paths = viterbi(chains, outputs[1]) if crf else [chain.argmax(-1) for chain in chains]
        tags = [path.astype(np.int32) for path in paths]
        if not (self.measures or self._gives_confidence):
            return tags
        steps = path_steps(chains, outputs[1], paths, self._follows) if crf else map(self._steps, chains, paths)
        return [TagPath(path, parts.astype(np.float32)) for path, parts in zip(tags, steps, strict=True)]

    @property
    def _gives_confidence(self) -> bool:
        """Whether answers give the confidence of an entity."""
        return self.calibration is not None or self.recipe.inference.min_confidence is not None

    def _steps(self, chain: np.ndarray, path: np.ndarray) -> np.ndarray:
        """As `path_steps`, of words that are tagged one by one."""
        shares = softmax(chain)
        first = shares[np.arange(len(path)), path]
        return logarithms(first, first[1:], (shares[1:] * self._follows[path[:-1]]).sum(-1))

    def probabilities(self, outputs: tuple[np.ndarray, ...], features: Sequence[TaggedWindow]) -> list[np.ndarray]:
        """With a CRF, those of each word's tag over all paths."""
        chains = [logits[window.places] for logits, window in zip(outputs[0], features, strict=True)]
        if self.recipe.model.head == "crf":
            return marginals(chains, outputs[1])
        return [softmax(chain) for chain in chains]

    def prediction_from(self, probabilities: np.ndarray) -> np.ndarray:
        return probabilities.argmax(-1).astype(np.int32)

    def labelled_answers(
        self, examples: Sequence[TaggedExample], predictions: Sequence[Sequence[WindowTags]]
    ) -> list[dict[str, Any]]:
        """With the tag of every word."""
        names = self.labels.names
        return [
            {"tags": [names[tag] for tag in predicted_tags(parts)], **answer}
            for parts, answer in zip(predictions, self.answers(examples, predictions), strict=True)
        ]

    def report(self, examples: Sequence[TaggedExample], predictions: Sequence[Sequence[WindowTags]]) -> dict[str, Any]:
        """Scores of entities, after the term dictionary; accuracy is that of the tags as the network gives them."""
        gold, predicted, right, words = [], [], 0, 0
        for example, parts in zip(examples, predictions, strict=True):
            tags = predicted_tags(parts)
            gold.append(self._gold(example))
            predicted.append(self._entities(example, tags))
            right += int((tags == np.array(example.tags)).sum())
            words += len(tags)
        report = entity_report(gold, predicted)
        labels = report.pop("labels")
        return {**report, "accuracy": right / words, "words": words, "labels": labels}

    def tallies(self, examples: Sequence[TaggedExample], predictions: Sequence[Sequence[WindowTags]]) -> Tallies:
        rows, right, asked = [], [], []
        for example, parts in zip(examples, predictions, strict=True):
            tags = predicted_tags(parts)
            gold, given = self._gold(example), self._entities(example, tags)
            rows.append((gold, given, int((tags == np.array(example.tags)).sum()), len(tags)))
            right.append(set(gold) == set(given))
            asked.append((example.text, [(span.type, span.start, span.end) for span in gold]))
        types, columns = entity_columns(rows)
        return make_tallies("entities", types, columns, right, asked)

    def mistakes(self, examples: Sequence[TaggedExample], predictions: Sequence[Sequence[WindowTags]]) -> list[Mistake]:
        """Texts of which entities are missed or wrong; expected and given are those that the other lacks."""
        mistakes = []
        for row, (example, parts) in enumerate(zip(examples, predictions, strict=True)):
            gold = set(self._gold(example))
            given = set(self._entities(example, predicted_tags(parts)))
            if gold != given:
                missed, wrong = _format_spans(example, gold - given), _format_spans(example, given - gold)
                mistakes.append(Mistake(row, float(len(gold ^ given)), missed, wrong))
        return mistakes

    def answer(self, example: TaggedExample, predictions: Sequence[WindowTags]) -> dict[str, Any]:
        """Entities or words in order, with character offsets into the text: text[start:end] is the entity or word.

        Words cover the whole text except white space and invisible characters between them. A stretch outside tagged
        words becomes a word with the tag O. With a tag set of bare marks (pure segmentation), tagged words have the
        tag null. An entity or word that is a term of decode.terms also has what the file says of it: id, link, and the
        term itself where an alias is written.
        """
        text, spans = example.text, self._entities(example, predicted_tags(predictions))
        sure = self._confidences(example, predictions) if self._gives_confidence else None
        if self.in_words:
            return {"words": [self._word(text, span, sure) for span in with_outside(spans, example)]}
        return {"entities": [self._entity(text, span, sure) for span in spans]}

    def _entity(self, text: str, span: Span, sure: Mapping[Span, float] | None) -> dict[str, Any]:
        covered = text[span.start : span.end]
        return {
            "type": span.type,
            **_offsets(span),
            "text": covered,
            **_confidence_entry(span, sure),
            **self._known(text, span),
        }

    def _word(self, text: str, span: Span, sure: Mapping[Span, float] | None) -> dict[str, Any]:
        tag = None if span.type == UNTYPED else span.type
        known = {**_confidence_entry(span, sure), **self._known(text, span)}
        return {"text": text[span.start : span.end], "tag": tag, **_offsets(span), **known}

    def abstain(self, answer: dict[str, Any], least: float) -> dict[str, Any]:
        """Without the entities that are less sure. Words all stay, since they cover the text, with the tag null.

        A term of decode.terms is sure: whoever wrote the file says so.
        """
        (key,) = self.answer_keys
        if not self.in_words:
            return {key: [each for each in answer[key] if _is_sure(each, least)]}
        return {key: [each if _is_sure(each, least) else {**each, "tag": None} for each in answer[key]]}

    def confidences(
        self, examples: Sequence[TaggedExample], predictions: Sequence[Sequence[WindowTags]]
    ) -> Confidences | None:
        """The entities found, or the words with a tag other than O; right are those in the same place and of the same
        type. Terms of decode.terms are not among them."""
        if predictions and not isinstance(predictions[0][0], TagPath):
            return None
        decisions = [
            (sure, span in gold, row)
            for row, (example, parts) in enumerate(zip(examples, predictions, strict=True))
            for gold in [set(self._gold(example))]
            for span, sure in self._confidences(example, parts, outside=False).items()
        ]
        sure, right, rows = zip(*decisions, strict=True) if decisions else ((), (), ())
        kinds = np.float64, bool, np.int64
        arrays = [np.array(each, kind) for each, kind in zip((sure, right, rows), kinds, strict=True)]
        return Confidences("words" if self.in_words else "entities", *arrays)

    def fit_calibration(
        self, examples: Sequence[TaggedExample], predictions: Sequence[Sequence[WindowTags]]
    ) -> Calibration | None:
        """Of the probability that an entity is right, by its type."""
        from nlpctl.tasks.calibration import fit_logistic

        plain, types = self.calibrated(None), self._types()
        decisions = plain.confidences(examples, predictions)
        if decisions is None:
            return None
        kinds = [span.type for example, parts in zip(examples, predictions, strict=True)
                 for span in plain._confidences(example, parts, outside=False)]  # fmt: skip
        groups = np.array([types.index(kind) for kind in kinds], np.int64)
        return fit_logistic(log_odds(decisions.confidence), decisions.right, groups, types, decisions.rows)

    def _types(self) -> list[str]:
        """The types of the tag set, in the order of the labels."""
        return list(dict.fromkeys(kind for mark, kind in map(self.scheme.split, self.labels.names) if mark != OUTSIDE))

    def _confidences(
        self, example: TaggedExample, predictions: Sequence[WindowTags], *, outside: bool = True
    ) -> dict[Span, float]:
        """How probable each entity of the answer is, and with `outside` each stretch outside of them; not those that
        are terms of decode.terms, which the file decides. What a term leaves of an entity is as probable as the whole.

        That an entity is there, of this type and from this first word to this last one: the product of what the words
        need for it, and of the next word not going on with it. Where windows meet, their words count as independent.
        """
        # Logarithms [words, 3]: of the word's tag, of it after the tag before it, of any tag that does not go on with
        # that one (models/viterbi.py).
        paths = [part for part in predictions if isinstance(part, TagPath)]
        assert len(paths) == len(predictions), "confidence needs the steps of each path"
        steps = np.concatenate([path.steps for path in paths]).astype(np.float64)
        spans = self._tagged(example, predicted_tags(predictions))
        given = with_outside(spans, example) if outside and self.in_words else spans
        if not given:
            return {}
        # Spans are in characters here; the first word of each is the one that begins where it does.
        bounds = np.asarray(example.bounds)
        starts = np.searchsorted(bounds[::2], [span.start for span in given])
        ends = np.searchsorted(bounds[1::2], [span.end for span in given])  # the last word of each
        # The first word has its tag, each further one has its tag after the one before: a difference of running sums.
        sums = np.array([0.0, *accumulate(steps[:, 1].tolist())])
        last = np.append(steps[1:, 2], 0.0)[ends]
        odds = np.exp(np.minimum(steps[starts, 0] + sums[ends + 1] - sums[starts + 1] + last, 0.0))
        if self.calibration is not None:
            types = self._types()
            scales, shifts = scales_and_shifts(self.calibration, types)
            kinds = np.array([types.index(span.type) if span.type in types else -1 for span in given])
            known = kinds >= 0  # what lies outside was not fitted
            odds[known] = sigmoid(log_odds(odds[known]) * scales[kinds[known]] + shifts[kinds[known]])
        sure = dict(zip(given, odds.tolist(), strict=True))
        return sure if self.terms is None else self._after_terms(self.terms, example, spans, sure, outside)

    def _after_terms(
        self,
        terms: TermDictionary,
        example: TaggedExample,
        entities: Sequence[Span],
        sure: Mapping[Span, float],
        outside: bool,
    ) -> dict[Span, float]:
        """`sure`, of each span of the tags, for what the terms leave of these: a part has the number of its whole."""
        matched = {(term.start, term.end) for term in terms.matches(example.text)}
        left = terms.apply(example.text, entities)
        left = with_outside(left, example) if outside and self.in_words else left
        wholes, starts = list(sure.values()), [span.start for span in sure]
        return {
            span: wholes[bisect_right(starts, span.start) - 1] for span in left if (span.start, span.end) not in matched
        }

    def _known(self, text: str, span: Span) -> dict[str, Any]:
        """What the term dictionary says of an entity besides its type."""
        return {} if self.terms is None else self.terms.known(text, span)

    def _entities(self, example: TaggedExample, tags: np.ndarray) -> list[Span]:
        """The entities of the answer: those of the tags, overridden by the term dictionary."""
        spans = self._tagged(example, tags)
        return spans if self.terms is None else self.terms.apply(example.text, spans)

    def _gold(self, example: TaggedExample) -> list[Span]:
        """The entities of a labelled example, in characters."""
        return example.entities(self.scheme, self.labels.names)

    def _tagged(self, example: TaggedExample, tags: Sequence[int] | np.ndarray) -> list[Span]:
        """The entities of tag ids, in characters."""
        return in_characters(example.bounds, self.scheme, [self.labels.names[tag] for tag in tags])


def predicted_tags(predictions: Sequence[WindowTags]) -> np.ndarray:
    """int32 [words]: the tags of an example, from the predictions for its windows."""
    return np.concatenate([part.tags if isinstance(part, TagPath) else part for part in predictions])


def follows(scheme: TagScheme, names: Sequence[str]) -> np.ndarray:
    """bool [tags, tags]: whether the second tag goes on with the entity of the first one."""
    split = [scheme.split(name) for name in names]
    return np.array([[m in "IE" and before in "BI" and kind == other for m, kind in split] for before, other in split])


def with_outside(tagged: Sequence[Span], example: TaggedExample) -> list[Span]:
    """`tagged` (in order, in characters of the text) and what lies between, where units touch joined under O."""
    covered = {i for span in tagged for i in range(span.start, span.end)}
    units = zip(example.bounds[::2], example.bounds[1::2], strict=True)
    outside = [unit for unit in units if not covered.intersection(range(*unit)) and example.text[slice(*unit)].strip()]
    starts = [0, *(i for i, ((_, end), (start, _)) in enumerate(pairwise(outside), 1) if end != start), len(outside)]
    runs = [outside[a:b] for a, b in pairwise(starts) if a < b]
    return sorted([*tagged, *(Span(OUTSIDE, run[0][0], run[-1][1]) for run in runs)], key=lambda span: span.start)


def _offsets(span: Span) -> dict[str, Any]:
    return {"start": span.start, "end": span.end}


def _confidence_entry(span: Span, sure: Mapping[Span, float] | None) -> dict[str, Any]:
    """The confidence of an entity as an answer has it; null for what the tags do not say, such as a term."""
    if sure is None:
        return {}
    return {"confidence": round(sure[span], DIGITS) if span in sure else None}


def _is_sure(answer: Mapping[str, Any], least: float) -> bool:
    return answer["confidence"] is None or answer["confidence"] >= least


def _format_spans(example: TaggedExample, spans: set[Span]) -> str:
    """The entities in order, for people."""
    ordered = sorted(spans, key=lambda span: (span.start, span.end))
    return ", ".join(f"{span.type} {example.text[span.start : span.end]}".strip() for span in ordered) or NO_ENTITY


# -- scores -----------------------------------------------------------------------------------------------------------
#
# An entity is correct if its type and both boundaries match exactly, as in seqeval.


def entity_report(gold: Sequence[Sequence[Span]], predicted: Sequence[Sequence[Span]]) -> dict[str, Any]:
    """Precision, recall and F1 over all entities (micro), averaged over types (macro, weighted), and per type.

    gold[i] and predicted[i] are the entities of sentence i. Types are those that occur in either. A ratio with
    denominator 0 is 0. Equal to seqeval's default mode with zero_division=0.
    """
    expected: Counter[str] = Counter()
    given: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for true, guessed in zip(gold, predicted, strict=True):
        expected.update(span.type for span in true)
        given.update(span.type for span in guessed)
        right.update(span.type for span in set(true) & set(guessed))
    types = sorted(expected | given)
    per_type = {kind: _figures(right[kind], given[kind], expected[kind]) for kind in types}
    overall = _figures(right.total(), given.total(), expected.total())
    support = expected.total()
    return {
        "rows": len(gold),
        "precision": overall["precision"],
        "recall": overall["recall"],
        "f1": overall["f1"],
        "macro_f1": _ratio(sum(figures["f1"] for figures in per_type.values()), len(types)),
        "weighted_f1": _ratio(sum(figures["f1"] * figures["support"] for figures in per_type.values()), support),
        "entities": support,
        "labels": per_type,
    }


def entity_columns(
    rows: Sequence[tuple[Sequence[Span], Sequence[Span], int, int]],
) -> tuple[list[str], csr_matrix]:
    """The types of entities, and the columns of the tallies "entities" (tallies.py).

    `rows`: of each sentence the entities expected and found, the number of right tags, and that of its words.
    """
    from scipy.sparse import lil_matrix

    types = sorted({span.type for gold, given, *_ in rows for span in [*gold, *given]})
    place = {kind: i for i, kind in enumerate(types)}
    columns = lil_matrix((len(rows), 3 * len(types) + 2))
    for row, (gold, given, right_tags, words) in enumerate(rows):
        for third, spans in enumerate((set(gold) & set(given), given, gold)):
            for span in spans:
                columns[row, third * len(types) + place[span.type]] += 1
        columns[row, -2], columns[row, -1] = right_tags, words
    return types, columns.tocsr()


def _figures(right: int, given: int, expected: int) -> dict[str, Any]:
    precision, recall = _ratio(right, given), _ratio(right, expected)
    f1 = _ratio(2 * precision * recall, precision + recall)
    return {"precision": precision, "recall": recall, "f1": f1, "support": expected}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
