"""Lexical analysis: word segmentation with parts of speech and entity types, by tagging characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from nlpctl.data.tag_scheme import OUTSIDE, UNTYPED, Span
from nlpctl.data.tagged_rows import TaggedExample
from nlpctl.tasks.token_classification import TokenClassification


class LexicalAnalysis(TokenClassification):
    """Token classification over characters that answers with words; scored by its words with a tag other than O."""

    answer_keys = ("words",)

    def answer(self, example: TaggedExample, predictions: Sequence[np.ndarray]) -> dict[str, Any]:
        """Words in order, with character offsets into the text: text[start:end] is the word.

        Words cover the whole text except white space and invisible characters between them. A stretch outside tagged
        words becomes a word with the tag O. With a tag set of bare marks (pure segmentation), tagged words have the
        tag null. A word that is a term of decode.terms also has the term's id and link.
        """
        words = with_outside(self._entities(example, np.concatenate(predictions)), example)
        return {
            "words": [
                {
                    "text": example.text[word.start : word.end],
                    "tag": None if word.type == UNTYPED else word.type,
                    "start": word.start,
                    "end": word.end,
                }
                | self._known(example.text, word)
                for word in words
            ]
        }


def with_outside(tagged: Sequence[Span], example: TaggedExample) -> list[Span]:
    """`tagged` (in order, in characters of the text) and what lies between, where units touch joined under O."""
    covered = {i for span in tagged for i in range(span.start, span.end)}
    units = zip(example.bounds[::2], example.bounds[1::2], strict=True)
    outside = [unit for unit in units if not covered.intersection(range(*unit)) and example.text[slice(*unit)].strip()]
    starts = [0, *(i for i, ((_, end), (start, _)) in enumerate(pairwise(outside), 1) if end != start), len(outside)]
    runs = [outside[a:b] for a, b in pairwise(starts) if a < b]
    return sorted([*tagged, *(Span(OUTSIDE, run[0][0], run[-1][1]) for run in runs)], key=lambda span: span.start)
