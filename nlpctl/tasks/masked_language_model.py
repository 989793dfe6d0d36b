"""Masked language model: words of plain text are hidden and predicted. Continues the pre-training of an encoder."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np

from nlpctl.config.schema import Recipe
from nlpctl.data.batches.collate import Batch, Collator, padded
from nlpctl.data.rows.corpus_rows import CorpusExample
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.text.encoder import Encoding, TextEncoder
from nlpctl.data.text.masking import NO_TARGET, NO_WORD, CorpusTokens, WholeWords, Window, mask_words
from nlpctl.errors import UserError
from nlpctl.models.families import Head
from nlpctl.tasks.base import Mistake, Task
from nlpctl.tasks.tallies import Tallies, make_tallies

if TYPE_CHECKING:  # an export is answered without Paddle
    import paddle

    from nlpctl.models.load import LoadedModel

EVALUATION_SEED = 20190703  # masks of an evaluation depend on this and on the row, on nothing else


class Guessed(NamedTuple):
    """The figures of a window's masked tokens: summed cross-entropy in nats, correct guesses, number of tokens.

    `window`: a checksum of the window's ids, on which it depends which of them are masked.
    """

    loss: float
    right: int
    tokens: int
    window: int


class Filled(NamedTuple):
    """Guesses for the masks of a window: probabilities and token ids, both [masks, n_best], best first."""

    probabilities: np.ndarray
    ids: np.ndarray


class MaskedLanguageModel(Task):
    """Outputs are those of `MaskedWords`. A prediction is a `Guessed` or, of text with masks to fill, a `Filled`."""

    label_names = ()
    masks_inputs = True
    graph_scores = False  # losses need the targets inside the graph
    output_names = ("probabilities", "word_ids")
    answer_keys = ("masks",)
    int8_agreement = 0.75  # one word of a whole vocabulary

    def __init__(self, recipe: Recipe, labels: LabelSet, thresholds: tuple[float, ...] | None = None):
        super().__init__(recipe, labels, thresholds)
        masking = recipe.masking
        dictionary = None if masking.dictionary is None else Path(masking.dictionary)
        self.whole_words = WholeWords(dictionary) if masking.whole_words else None

    # -- the network -------------------------------------------------------------------------

    @staticmethod
    def head(recipe: Recipe) -> Head:
        from nlpctl.models.masked_lm import MaskedWords, mixed

        build = functools.partial(mixed, MaskedWords)
        return Head("MaskedLM", adapt=build, labelled=False, predicts_words=True)

    @classmethod
    def load_trained(cls, recipe: Recipe, source: str | Path) -> LoadedModel:
        model = super().load_trained(recipe, source)
        model.network.n_best = min(recipe.decode.n_best, model.network.config.vocab_size)
        return model

    # -- from examples to batches ------------------------------------------------------------

    def features(self, example: CorpusExample, encoder: TextEncoder) -> Sequence[Window]:
        room = self.data.max_seq_length - encoder.overhead(pair=False)
        if room < 1:
            message = f"{self.data.max_seq_length} tokens leave no room for text besides the special tokens"
            raise UserError(message, where="data.max_seq_length", hint="set it to 16 or more")
        tokens = CorpusTokens(encoder, self.whole_words, room)
        return tokens.around_masks(example.text) if example.fill else tokens.windows(example.text)

    def collator(self, encoder: TextEncoder, *, labelled: bool) -> WindowCollator:
        self.tokenizer = encoder.tokenizer
        return WindowCollator(encoder, self.data.max_seq_length, with_labels=labelled)

    def apply_mask(self, batch: Batch, generator: np.random.Generator | None) -> Batch:
        """Replace words of each row; adds masked_positions and targets, int64 [batch, most masks of a row]."""
        masked_batch = {name: array for name, array in batch.items() if name != "word_ids"}
        hidden, positions, targets = [], [], []
        for ids, words in zip(batch["input_ids"], batch["word_ids"], strict=True):
            # Training draws new masks in every epoch; an evaluation must not depend on the batch a row is in.
            chance = generator if generator is not None else _chance_of(ids[words != NO_WORD])
            masked, places = mask_words(
                ids, words, chance, self.recipe.masking.probability, self.tokenizer.mask_token_id, self._other_ids
            )
            hidden.append(masked)
            positions.append(places)
            targets.append(ids[places])
        # At least one column, because the network cannot score an empty list of positions.
        most = max(1, *map(len, positions))
        masked_batch["input_ids"] = np.stack(hidden)
        masked_batch["masked_positions"] = padded(positions, most, 0)
        masked_batch["targets"] = padded(targets, most, NO_TARGET)
        return masked_batch

    @functools.cached_property
    def _other_ids(self) -> np.ndarray:
        """Candidate ids for random replacement: the vocabulary without special tokens."""
        return np.setdiff1d(np.arange(len(self.tokenizer)), self.tokenizer.all_special_ids)

    # -- from outputs to answers -------------------------------------------------------------

    def loss(
        self, network: paddle.nn.Layer, outputs: tuple[paddle.Tensor, ...], batch: Mapping[str, paddle.Tensor]
    ) -> paddle.Tensor:
        """The mean over the hidden tokens of the batch, as BERT was trained: long rows weigh more."""
        losses, _, counted = outputs
        return losses.sum() / counted.sum().clip(min=1.0)

    def predictions(self, outputs: tuple[np.ndarray, ...], features: Sequence[Window]) -> list[Guessed | Filled]:
        if len(outputs) == 2:
            probabilities, ids = outputs
            return [Filled(probabilities[i, : len(f.masks)], ids[i, : len(f.masks)]) for i, f in enumerate(features)]
        # Summed in float64: an evaluation adds up millions of losses.
        sums = [output.astype(np.float64).sum(-1) for output in outputs]
        return [
            Guessed(float(loss), int(right), int(tokens), crc32(window.ids.tobytes()))
            for loss, right, tokens, window in zip(*sums, features, strict=True)
        ]

    def report(self, examples: Sequence[CorpusExample], predictions: Sequence[Sequence[Guessed]]) -> dict[str, Any]:
        """Loss in nats per hidden token, perplexity e^loss, and the share of hidden tokens guessed right."""
        windows = [window for parts in predictions for window in parts]
        tokens = sum(window.tokens for window in windows)
        loss = sum(window.loss for window in windows) / max(tokens, 1)
        return {
            "rows": len(examples),
            "masked_tokens": tokens,
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),  # e^710 is beyond a float
            "masked_accuracy": sum(window.right for window in windows) / max(tokens, 1),
        }

    def tallies(self, examples: Sequence[CorpusExample], predictions: Sequence[Sequence[Guessed]]) -> Tallies:
        figures = [[window[:3] for window in windows] for windows in predictions]
        sums = np.array([np.sum(each, axis=0) if each else (0.0, 0, 0) for each in figures])
        names, masking = ("loss", "perplexity", "masked_accuracy"), self.recipe.masking
        # What is hidden depends on these, and on the ids of a window, which another vocabulary changes.
        asked = [
            (example.text, masking.probability, masking.whole_words, [window[2:] for window in windows])
            for example, windows in zip(examples, predictions, strict=True)
        ]
        return make_tallies("hidden_words", names, sums, sums[:, 1] == sums[:, 2], asked)

    def mistakes(self, examples: Sequence[CorpusExample], predictions: Sequence[Sequence[Guessed]]) -> list[Mistake]:
        """Texts of which not all hidden tokens are guessed; the size is the loss per hidden token."""
        mistakes = []
        for row, windows in enumerate(predictions):
            tokens, right = sum(window.tokens for window in windows), sum(window.right for window in windows)
            if right < tokens:
                loss = sum(window.loss for window in windows) / tokens
                mistakes.append(Mistake(row, loss, f"{tokens} hidden", f"{right} right, loss {loss:.2f}"))
        return mistakes

    def answer(self, example: CorpusExample, predictions: Sequence[Filled]) -> dict[str, Any]:
        """Per mask its place in the text, in characters, and the words that fit it, best first."""
        guesses = [guess for filled in predictions for guess in zip(*filled, strict=True)]
        places = re.finditer(re.escape(self.tokenizer.mask_token), example.text)
        return {"masks": [self._guess(*place.span(), *guess) for place, guess in zip(places, guesses, strict=True)]}

    def decision(self, example: CorpusExample, predictions: Sequence[Filled]) -> list[int]:
        """The best token of each mask; the order of those behind it does not count."""
        return [int(ids[0]) for filled in predictions for ids in filled.ids]

    def _guess(self, start: int, end: int, probabilities: np.ndarray, ids: np.ndarray) -> dict[str, Any]:
        tokens = self.tokenizer.convert_ids_to_tokens(ids.tolist())
        words = [self.tokenizer.convert_tokens_to_string([token]).strip() or token for token in tokens]
        guesses = [
            {"word": word, "probability": round(float(probability), 6)}
            for word, probability in zip(words, probabilities, strict=True)
        ]
        return {"start": start, "end": end, "words": guesses}


class WindowCollator(Collator):
    """Windows to input_ids, token_type_ids where the model takes them, and

    - with labels: word_ids, int64 [batch, longest], NO_WORD where nothing may be hidden;
    - without: masked_positions, int64 [batch, most masks of a window].
    """

    def encodings(self, examples: Sequence[Window], tell_cut: bool = True) -> list[Encoding]:
        encodings = [self.encoder.assemble(window.ids.tolist()) for window in examples]
        for encoding, window in zip(encodings, examples, strict=True):
            encoding.truncated = window.truncated
        return encodings

    def arrays(self, examples: Sequence[Window], encodings: Sequence[Encoding]) -> Batch:
        batch = self.pad(encodings)
        first, _ = self.encoder.starts(0, pair=False)
        if self.with_labels:
            rows = [[NO_WORD] * first + window.words.tolist() for window in examples]
            batch["word_ids"] = padded(rows, batch["input_ids"].shape[1], NO_WORD)
        else:
            rows = [[first + mask for mask in window.masks] for window in examples]
            batch["masked_positions"] = padded(rows, max(1, *map(len, rows)), 0)
        return batch


def _chance_of(ids: np.ndarray) -> np.random.Generator:
    """The generator of an evaluation. It depends on the text alone, not on its batch."""
    return np.random.default_rng([EVALUATION_SEED, crc32(ids.tobytes())])
