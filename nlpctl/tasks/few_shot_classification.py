"""Few-shot classification by prompting: a language model fills the mask of a template with the word of a label."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nlpctl import console
from nlpctl.config.prompt_template import Part, parse_template
from nlpctl.config.schema import Recipe
from nlpctl.data.batches.collate import Collator
from nlpctl.data.rows.examples import FeatureList
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.data.text.encoder import Encoding, TextEncoder
from nlpctl.errors import UserError
from nlpctl.models.families import Head
from nlpctl.tasks.base import Task, Texts
from nlpctl.tasks.sequence_classification import SequenceClassification

if TYPE_CHECKING:  # an export of a contrastive one is answered without Paddle
    import paddle

    from nlpctl.models.load import LoadedModel


class FewShotClassification(SequenceClassification):
    """Sequence classification whose logits [batch, labels] are those of the label words at the mask."""

    shortens = False

    @classmethod
    def class_for(cls, recipe: Recipe) -> type[Task]:
        return ContrastiveClassification if recipe.few_shot.method == "contrastive" else cls

    @staticmethod
    def head(recipe: Recipe) -> Head:
        from nlpctl.models.masked_lm import mixed
        from nlpctl.models.prompt import PromptClassifier

        return Head("MaskedLM", adapt=functools.partial(mixed, PromptClassifier), predicts_words=True)

    def build_model(self, texts: Texts | None) -> LoadedModel:
        from nlpctl.models.prompt import PromptEncoder

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
        parts = _template(self.recipe)
        PromptEncoder(parts, model.tokenizer, self.data.max_seq_length)  # is there room for text next to the template?
        return _with_words(model, self.recipe)

    @classmethod
    def load_trained(cls, recipe: Recipe, source: str | Path) -> LoadedModel:
        return _with_words(super().load_trained(recipe, source), recipe)

    def overhead(self, encoder: TextEncoder, pair: bool) -> int:
        from nlpctl.models.prompt import PromptEncoder

        parts = _template(self.recipe)
        return PromptEncoder(parts, encoder.tokenizer, self.data.max_seq_length).overhead

    def collator(self, encoder: TextEncoder, *, labelled: bool) -> PromptCollator:
        return PromptCollator(self.recipe, encoder, with_labels=labelled)


class PromptCollator(Collator):
    """Texts in the template, padded; labels where wanted."""

    def __init__(self, recipe: Recipe, encoder: TextEncoder, with_labels: bool):
        from nlpctl.models.prompt import PromptEncoder

        super().__init__(encoder, recipe.data.max_seq_length, with_labels)
        self.prompt = PromptEncoder(_template(recipe), encoder.tokenizer, self.max_length)

    def encodings(self, examples: Sequence[TextExample], tell_cut: bool = True) -> list[Encoding]:
        rows = [self.prompt.encode(example.text, example.text_pair) for example in examples]
        return [Encoding(ids, types if self.encoder.uses_token_types else [], cut) for ids, types, cut in rows]


def _template(recipe: Recipe) -> list[Part]:
    """The parts of prompt.template."""
    assert recipe.prompt.template is not None, "config/checks.py asks for it"
    return parse_template(recipe.prompt.template)


def _with_words(model: LoadedModel, recipe: Recipe) -> LoadedModel:
    from nlpctl.models.prompt import LabelWords

    parts = _template(recipe)
    model.network.use_words(LabelWords(recipe.prompt.verbalizer, model.labels, parts, model.tokenizer))
    return model


# -- method: contrastive ----------------------------------------------------------------------------------------------
#
# A sentence encoder (SetFit: Tunstall et al., 2022, arXiv:2209.11055).
#
#     rows -> pairs with equal and different labels -> cosine loss -> encoder
#     rows -> vectors of the encoder -> logistic regression -> the linear layer of the network
#
# Gradients train the encoder alone. The linear layer is fitted anew whenever the network is scored or saved, so every
# checkpoint is a whole classifier, and nothing after training knows how it was trained.

_AT_ONCE = 32  # texts per batch when the head is fitted


class ContrastiveClassification(SequenceClassification):
    """Scores and answers are those of sequence classification. A training feature is a RowPair, any other a row."""

    fitted_layers = ("classifier",)

    @staticmethod
    def head(recipe: Recipe) -> Head:
        from nlpctl.models.two_tower import sentence_classifier

        few_shot = recipe.few_shot
        build = functools.partial(sentence_classifier, pooling=few_shot.pooling, layers=few_shot.layers)
        return Head("Model", adapt=build)

    def collect_statistics(self, examples: Sequence[TextExample]) -> None:
        super().collect_statistics(examples)
        counts = self._label_counts(examples)
        missing = [name for name, count in zip(self.labels.names, counts, strict=True) if count == 0]
        if missing:
            message = f"no training row has the label {missing[0]!r}"
            raise UserError(message, self.recipe.where("data.train"), "add rows with it, or remove it from data.labels")
        if len(self.labels) < 2:
            hint = "add rows with another label"
            raise UserError("all training rows have the same label", self.recipe.where("data.train"), hint)
        self.rows = examples

    def constant_loss(self, examples: Sequence[TextExample]) -> float | None:
        return None  # of pairs, `loss` compares cosines

    def training_cut(self, examples: Sequence[TextExample], encoder: TextEncoder) -> PairDraw:
        return PairDraw(examples, self.recipe.few_shot.pairs, self.recipe.training.seed)

    def training_features(self, examples: Sequence[TextExample], encoder: TextEncoder) -> FeatureList:
        pairs = super().training_features(examples, encoder)
        console.note(f"{len(examples):,} training rows give {len(pairs):,} pairs per epoch")
        return pairs

    def collator(self, encoder: TextEncoder, *, labelled: bool) -> RowPairCollator:
        return RowPairCollator(encoder, self.data.max_seq_length, with_labels=labelled)

    def loss(
        self, network: paddle.nn.Layer, outputs: tuple[paddle.Tensor, ...], batch: Mapping[str, paddle.Tensor]
    ) -> paddle.Tensor:
        """Of rows, the cross entropy of their labels; of pairs, `cosine_loss`."""
        if batch["labels"].ndim == 1:
            return super().loss(network, outputs, batch)
        import paddle

        return cosine_loss(paddle.concat(outputs), batch["labels"].T.flatten())

    def fit_layers(self, network: paddle.nn.Layer, encoder: TextEncoder) -> None:
        """Fit the linear layer to the vectors of the training rows."""
        vectors = self._vectors(network, encoder)
        weights = None if self.weights is None else dict(enumerate(self.weights))
        labels = [row.label for row in self.rows if row.label is not None]  # training rows have one
        weight, bias = logistic_regression(vectors, labels, weights)
        network.classifier.weight.set_value(weight.astype(np.float32))
        network.classifier.bias.set_value(bias.astype(np.float32))

    def _vectors(self, network: paddle.nn.Layer, encoder: TextEncoder) -> np.ndarray:
        """Unit vectors [rows, width] of the training rows."""
        import paddle

        collate = Collator(encoder, self.data.max_seq_length, with_labels=False)
        was_training, vectors = network.training, []
        network.eval()
        for start in range(0, len(self.rows), _AT_ONCE):
            batch = collate.collate(self.rows[start : start + _AT_ONCE])
            inputs = {name: paddle.to_tensor(array) for name, array in batch.items()}
            with paddle.no_grad():
                vectors.append(network.vectors(inputs["input_ids"], inputs.get("token_type_ids")).numpy())
        if was_training:
            network.train()
        return np.concatenate(vectors)


@dataclass(frozen=True, slots=True)
class RowPair:
    """Two training rows to compare."""

    first: TextExample
    second: TextExample

    @property
    def byte_length(self) -> int:
        """By which batches are sorted: the longer of the two decides how wide they are padded."""
        return max(self.first.byte_length, self.second.byte_length)


class PairDraw:
    """Draws the pairs of one row after the other, a function of the seed and of the rows."""

    def __init__(self, rows: Sequence[TextExample], pairs: int, seed: int):
        """`pairs`: how many of each kind a row gets."""
        self._rows = rows
        self._pairs = pairs
        self._random = np.random.default_rng([seed, len(rows)])
        self._of: defaultdict[int | None, list[TextExample]] = defaultdict(list)
        self._places: defaultdict[int, list[int]] = defaultdict(list)  # data.balance repeats a row
        for row in rows:
            self._places[id(row)].append(len(self._of[row.label]))
            self._of[row.label].append(row)

    def __call__(self, row: TextExample) -> list[RowPair]:
        """`pairs` pairs of `row` with rows of its label, itself only if there is no other, and as many with others, if
        there are."""
        alike, drawn = self._of[row.label], []
        for _ in range(self._pairs):
            drawn.append(RowPair(row, self._alike(row, alike)))
            if len(alike) < len(self._rows):
                drawn.append(RowPair(row, self._different(row, len(alike))))
        return drawn

    def _alike(self, row: TextExample, alike: Sequence[TextExample]) -> TextExample:
        own = self._places[id(row)]
        if len(own) == len(alike):
            return row
        place = int(self._random.integers(len(alike) - len(own)))
        for each in own:
            place += place >= each
        return alike[place]

    def _different(self, row: TextExample, alike: int) -> TextExample:
        place = int(self._random.integers(len(self._rows) - alike))
        for label, rows in self._of.items():
            if label == row.label:
                continue
            if place < len(rows):
                return rows[place]
            place -= len(rows)
        raise AssertionError("there is a row with another label")


class RowPairCollator(Collator):
    """Rows as in sequence classification; of pairs both texts, each padded apart, and their labels int64 [pairs, 2]."""

    def encodings(self, examples: Sequence[TextExample | RowPair], tell_cut: bool = True) -> list[Encoding]:
        rows = [row.first if isinstance(row, RowPair) else row for row in examples]
        return super().encodings(rows, tell_cut)

    def arrays(self, examples: Sequence[TextExample | RowPair], encodings: Sequence[Encoding]) -> dict[str, np.ndarray]:
        pairs = [each for each in examples if isinstance(each, RowPair)]
        if not pairs:  # a batch holds rows or pairs
            return super().arrays(examples, encodings)
        batch = self.pad(encodings)
        second = self.pad(super().encodings([pair.second for pair in pairs], tell_cut=False))
        batch |= {name.replace("input", "pair").replace("token", "pair"): array for name, array in second.items()}
        batch["labels"] = np.array([(pair.first.label, pair.second.label) for pair in pairs], np.int64)
        return batch


def cosine_loss(vectors: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """The mean squared distance of cosines to 1 for texts of equal and 0 for texts of different labels.

    All pairs of texts of the batch count, those with equal labels as much as those with different ones. `vectors`: unit
    vectors float32 [texts, width]; `labels`: int64 [texts].
    """
    import paddle

    with paddle.amp.auto_cast(enable=False):
        cosines = paddle.matmul(vectors, vectors, transpose_y=True)
    equal = (labels.unsqueeze(0) == labels.unsqueeze(1)).astype("float32")
    other = 1 - paddle.eye(len(labels))  # than itself
    squares = (cosines - equal) ** 2
    return (_mean(squares, equal * other) + _mean(squares, 1 - equal)) / 2


def _mean(values: paddle.Tensor, counted: paddle.Tensor) -> paddle.Tensor:
    """The mean of the values where `counted` is 1, not 0; 0 if it is 1 nowhere."""
    return (values * counted).sum() / counted.sum().clip(min=1.0)


def logistic_regression(
    vectors: np.ndarray, labels: Sequence[int], class_weight: Mapping[int, float] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Weights [width, labels] and biases [labels] whose softmax is scikit-learn's, with its L2 penalty (C = 1).

    `vectors`: [rows, width]; `labels`: every one of 0 ... n - 1 at least once. The same bits for the same rows.
    """
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1.0, max_iter=1000, class_weight=class_weight)
    model.fit(vectors.astype(np.float64), labels)
    weight, bias = model.coef_, model.intercept_
    if len(weight) == 1:  # two labels: the logit of the second, half of it for each
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    return weight.T, bias
