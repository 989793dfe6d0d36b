"""Lexical analysis: word segmentation with parts of speech and entity types, by tagging characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nlpctl.config.schema import Recipe
from nlpctl.data.rows.tagged_rows import TaggedExample
from nlpctl.data.text.units import UnitTokenizer
from nlpctl.errors import UserError
from nlpctl.tasks.tallies import Tallies
from nlpctl.tasks.token_classification import TokenClassification, WindowTags, entity_report, predicted_tags


class LexicalAnalysis(TokenClassification):
    """Token classification over characters; scored by its words with a tag other than O, and by its entities alone."""

    answer_keys = ("words",)
    bare_marks_are_words = True

    @classmethod
    def adapt_tokenizer(cls, recipe: Recipe, tokenizer: Any) -> Any:
        """The tokenizer, without its replacements of characters where decode.replacements is off."""
        if recipe.decode.replacements:
            return tokenizer
        if not (isinstance(tokenizer, UnitTokenizer) and tokenizer.settings.replacements):
            message = "the tokenizer of this model replaces no characters"
            raise UserError(message, recipe.where("decode.replacements"), "remove the key")
        return UnitTokenizer(tokenizer.vocabulary, tokenizer.settings, as_written=True)

    def report(self, examples: Sequence[TaggedExample], predictions: Sequence[Sequence[WindowTags]]) -> dict[str, Any]:
        """As for token classification, with the F1 of the entities alone: entity_f1, 0 where no type is an entity."""
        report = super().report(examples, predictions)
        labels = report.pop("labels")
        kinds = set(self.entity_types)
        gold = [[span for span in self._gold(each) if span.type in kinds] for each in examples]
        predicted = [
            [span for span in self._entities(example, predicted_tags(parts)) if span.type in kinds]
            for example, parts in zip(examples, predictions, strict=True)
        ]
        return {**report, "entity_f1": entity_report(gold, predicted)["f1"], "labels": labels}

    def tallies(self, examples: Sequence[TaggedExample], predictions: Sequence[Sequence[WindowTags]]) -> Tallies:
        from scipy.sparse import hstack

        words = super().tallies(examples, predictions)
        types = len(words.names)
        chosen = np.isin(words.names, list(self.entity_types)).astype(float)
        thirds = [words.counts[:, i * types : (i + 1) * types] @ chosen[:, None] for i in range(3)]
        return replace(words, kind="words", counts=hstack([words.counts, *thirds], "csr"))
