"""Few-shot classification by prompting: a language model fills the mask of a template with the word of a label."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from nlpctl.config.prompt_template import parse_template
from nlpctl.config.schema import Recipe
from nlpctl.data.collate import Batch, Collator
from nlpctl.data.text_encoder import Encoding, TextEncoder
from nlpctl.data.text_rows import TextExample
from nlpctl.errors import UserError
from nlpctl.models.families import Head
from nlpctl.models.load import LoadedModel
from nlpctl.models.masked_lm import mixed
from nlpctl.models.prompt import LabelWords, PromptClassifier, PromptEncoder
from nlpctl.tasks.base import Task, Texts
from nlpctl.tasks.contrastive import ContrastiveClassification
from nlpctl.tasks.sequence_classification import SequenceClassification


class FewShotClassification(SequenceClassification):
    """Sequence classification whose logits [batch, labels] are those of the label words at the mask."""

    shortens = False
    needs_tokenizer = True

    @classmethod
    def of(cls, recipe: Recipe) -> type[Task]:
        return ContrastiveClassification if recipe.few_shot.method == "contrastive" else cls

    @staticmethod
    def head(recipe: Recipe) -> Head:
        return Head("MaskedLM", adapt=functools.partial(mixed, PromptClassifier), predicts_words=True)

    def build_model(self, texts: Texts | None) -> LoadedModel:
        model = super().build_model(texts)
        prefix = model.network.base_model_prefix
        untrained = [name for name in model.fresh if not name.startswith(f"{prefix}.pooler.")]
        if untrained:
            raise UserError(
                f"the model cannot predict words: {', '.join(untrained[:3])} are not in its weights",
                where=self.recipe.where("model"),
                hint="train it on plain text first (task: masked_language_model) and name that run here, or set "
                "few_shot.method: contrastive, for which a sentence encoder is enough",
            )
        parts = parse_template(self.recipe.prompt.template)
        PromptEncoder(parts, model.tokenizer, self.data.max_seq_length)  # is there room for text next to the template?
        return _with_words(model, self.recipe)

    @classmethod
    def load_trained(cls, recipe: Recipe, source: str | Path) -> LoadedModel:
        return _with_words(super().load_trained(recipe, source), recipe)

    def overhead(self, encoder: TextEncoder, pair: bool) -> int:
        parts = parse_template(self.recipe.prompt.template)
        return PromptEncoder(parts, encoder.tokenizer, self.data.max_seq_length).overhead

    def collator(self, encoder: TextEncoder, *, labelled: bool) -> Callable[[Sequence[TextExample]], Batch]:
        return PromptCollator(self.recipe, encoder, with_labels=labelled)


class PromptCollator(Collator):
    """Texts in the template, padded; labels where wanted."""

    def __init__(self, recipe: Recipe, encoder: TextEncoder, with_labels: bool):
        super().__init__(encoder, recipe.data.max_seq_length, with_labels)
        self.prompt = PromptEncoder(parse_template(recipe.prompt.template), encoder.tokenizer, self.max_length)

    def encodings(self, examples: Sequence[TextExample], tell_cut: bool = True) -> list[Encoding]:
        rows = [self.prompt.encode(example.text, example.text_pair) for example in examples]
        return [Encoding(ids, types if self.encoder.uses_token_types else [], cut) for ids, types, cut in rows]


def _with_words(model: LoadedModel, recipe: Recipe) -> LoadedModel:
    parts = parse_template(recipe.prompt.template)
    model.network.use_words(LabelWords(recipe.prompt.verbalizer, model.labels, parts, model.tokenizer))
    return model
