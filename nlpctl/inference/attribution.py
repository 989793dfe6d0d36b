"""What each token of a text contributes to a label, by integrated gradients or by occlusion.

The explained quantity is the log odds of the label, log p / (1 - p). Unlike a probability near 1, it does not
saturate. For two labels it is the difference of their logits.

Integrated gradients (Sundararajan, Taly and Yan, 2017) follow a straight line in the space of word embeddings, from a
baseline, the text with every token replaced, to the text itself, and integrate each token's gradient. With enough steps
the contributions add up to the log odds of the text minus those of the baseline (completeness). Occlusion replaces one
token at a time; its contribution is the loss of log odds. These contributions have no meaningful sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import paddle

from nlpctl.data.batches.collate import Batch
from nlpctl.data.text.own_tokenizer import OwnTokenizer
from nlpctl.data.text.units import UnitTokenizer, special_ids
from nlpctl.data.text.word_spans import WORD_BEGINS, is_ideograph
from nlpctl.errors import UserError
from nlpctl.models.hooks import hooked
from nlpctl.tasks.base import as_tuple
from nlpctl.upstream.input_gradient import differentiable

Method = Literal["integrated_gradients", "occlusion"]
Baseline = Literal["pad", "mask", "unk"]
Score = Callable[[paddle.Tensor], paddle.Tensor]  # logits [rows, labels] to log odds of the label [rows]

STEPS = 32  # initial number; doubled until completeness holds
MOST_STEPS = 1024
TOLERANCE = 0.05  # relative to the difference that the contributions should add up to
NEGLIGIBLE = 1e-3  # a gap in log odds that needs no further steps
BATCH = 32  # rows per batch
GRADIENT = 2  # passes forward, in the time of which one with its gradient is computed: 2.2 of 6 layers of 384
WORD_GOES_ON = "##"  # how WordPiece writes what does not begin a word


@dataclass(frozen=True)
class Explanation:
    """`contributions` float64 [tokens], 0 for special tokens; `log_odds` of the text and of the baseline, the latter
    None for occlusion; `steps`: points on the way from the baseline, or texts with a token replaced."""

    contributions: np.ndarray
    log_odds: float
    baseline: float | None
    steps: int

    @property
    def gap(self) -> float:
        """The gap in completeness, in log odds; 0 for occlusion, which has no completeness."""
        return 0.0 if self.baseline is None else float(self.contributions.sum() - (self.log_odds - self.baseline))

    @property
    def passes(self) -> int:
        """Passes forward of one row that the explanation took, gradients included."""
        # The points are doubled until they suffice: first STEPS, then twice as many, ..., then `steps`.
        return self.steps if self.baseline is None else GRADIENT * (2 * self.steps - STEPS)

    @property
    def complete(self) -> bool:
        """Whether the contributions are complete within TOLERANCE."""
        if self.baseline is None:
            return True
        return abs(self.gap) <= max(TOLERANCE * abs(self.log_odds - self.baseline), NEGLIGIBLE)


@dataclass(frozen=True)
class Token:
    """A token for display; `joined`: no space before it. `contribution` is in log odds.

    `unknown`: the vocabulary has no such token, and `text` is what the text says.
    """

    text: str
    contribution: float
    joined: bool
    unknown: bool = False

    def to_json(self) -> dict[str, Any]:
        more = {"unknown": True} if self.unknown else {}
        return {"token": self.text, "contribution": round(self.contribution, 6), **more}


@dataclass(frozen=True)
class Explained:
    """A row, the model's answer, and the tokens that support or oppose `label`.

    `probability`: that of `label`, as answers give it: calibrated, if the model is; the log odds are not.
    """

    row: dict[str, Any]
    answer: dict[str, Any]
    label: str
    probability: float
    method: str
    tokens: tuple[Token, ...]
    explanation: Explanation

    def strongest(self, most: int) -> tuple[list[Token], list[Token]]:
        """The tokens that support the label most, and those that oppose it most."""
        ranked = sorted(self.tokens, key=lambda token: -abs(token.contribution))
        chosen = [token for token in ranked if token.contribution > 0], [t for t in ranked if t.contribution < 0]
        return chosen[0][:most], chosen[1][:most]

    def to_json(self) -> dict[str, Any]:
        sums = self.explanation
        explained: dict[str, Any] = {"label": self.label, "method": self.method, "log_odds": round(sums.log_odds, 6)}
        if sums.baseline is not None:
            explained |= {"baseline_log_odds": round(sums.baseline, 6), "gap": round(sums.gap, 6), "steps": sums.steps}
        explained["tokens"] = [token.to_json() for token in self.tokens]
        return {**self.row, **self.answer, "explained": explained}


class Explainer:
    """Explains the answers of a classifier, one text at a time.

    `tokenizer` defines the special tokens, which are never replaced, and the replacement token.
    """

    def __init__(self, network: paddle.nn.Layer, tokenizer: Any, method: Method, baseline: Baseline | None = None):
        """`baseline` None means padding for integrated gradients, whose embedding is zero in most networks. For
        occlusion it means the mask if the network has one and the text has none, else the unknown token. UserError if
        there is no mask."""
        network.eval()
        self.network = network
        self.method = method
        self.embedding: Any = word_embedding(network) if method == "integrated_gradients" else None
        self.ids = replacements(tokenizer)
        if baseline is not None and baseline not in self.ids:
            raise UserError("the network has no mask token", where="@[baseline]", hint="use pad or unk")
        self.baseline = baseline
        self.special = sorted(special_ids(tokenizer))

    def explain(self, batch: Batch, score: Score) -> Explanation:
        """The contributions of the tokens of one row; `batch`: the network's inputs, arrays [1, length]."""
        ids = batch["input_ids"][0]
        content = ~np.isin(ids, self.special)
        replacement = self._replacement(ids)
        if self.method == "occlusion":
            return self._occlusion(batch, content, replacement, score)
        return self._integrated(batch, content, replacement, score)

    def _replacement(self, ids: np.ndarray) -> int:
        """The id that replaces a token of this text."""
        mask_taken = "mask" in self.ids and self.ids["mask"] in ids  # the mask position of a prompt template
        if self.baseline == "mask" and mask_taken:
            hint = "use @[baseline=unk] or pad"
            raise UserError("the mask token is part of the template", where="@[baseline]", hint=hint)
        if self.baseline is not None:
            return self.ids[self.baseline]
        if self.method == "integrated_gradients":
            return self.ids["pad"]
        return self.ids["unk" if mask_taken or "mask" not in self.ids else "mask"]

    # -- occlusion ---------------------------------------------------------------------------

    @paddle.no_grad()
    def _occlusion(self, batch: Batch, content: np.ndarray, replacement: int, score: Score) -> Explanation:
        places = np.flatnonzero(content)
        whole = score(self._logits(batch)).numpy().astype(np.float64)[0]
        contributions = np.zeros(len(content))
        for start in range(0, len(places), BATCH):
            part = places[start : start + BATCH]
            without = score(self._logits(self._occluded(batch, part, replacement))).numpy()
            contributions[part] = whole - without.astype(np.float64)
        return Explanation(contributions, float(whole), None, len(places))

    def _occluded(self, batch: Batch, places: np.ndarray, replacement: int) -> Batch:
        """One row per position, with the token there replaced.

        Networks expect padding only at the end. So with padding as replacement, the token is deleted and the row
        padded.
        """
        rows = _repeated(batch, len(places))
        if replacement != self.ids["pad"]:
            rows["input_ids"][np.arange(len(places)), places] = replacement
            return rows
        for name, array in rows.items():
            padding = replacement if name == "input_ids" else 0
            rows[name] = np.stack([np.append(np.delete(array[0], at), padding) for at in places])
        return rows

    def _logits(self, batch: Batch) -> paddle.Tensor:
        return as_tuple(self.network(**{name: paddle.to_tensor(array) for name, array in batch.items()}))[0]

    # -- integrated gradients ----------------------------------------------------------------

    def _integrated(self, batch: Batch, content: np.ndarray, replacement: int, score: Score) -> Explanation:
        ids = batch["input_ids"]
        assert self.embedding is not None, "only occlusion does without"
        with paddle.no_grad():
            text = self.embedding(paddle.to_tensor(ids)).astype("float32")
            start = self.embedding(paddle.to_tensor(np.where(content, replacement, ids))).astype("float32")
        way = text - start
        ends = self._along(batch, start, way, np.array([0.0, 1.0]), score)[0]
        steps = STEPS
        while True:
            # Gauss-Legendre quadrature: far fewer points than Riemann sums for the same error on a smooth path.
            points, weights = np.polynomial.legendre.leggauss(steps)
            _, mean = self._along(batch, start, way, (points + 1) / 2, score, weights=weights / 2)
            contributions = (mean * way[0].numpy().astype(np.float64)).sum(-1)
            explanation = Explanation(contributions, float(ends[1]), float(ends[0]), steps)
            if explanation.complete or 2 * steps > MOST_STEPS:
                return explanation
            steps *= 2

    def _along(
        self,
        batch: Batch,
        start: paddle.Tensor,
        way: paddle.Tensor,
        shares: np.ndarray,
        score: Score,
        *,
        weights: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log odds float64 [points] at `shares` of the path, and the sum of their gradients by `weights`, float64
        [length, size]; without weights no gradient is computed, and the sum is 0."""
        scores, total = [], np.zeros(way.shape[1:])
        for first in range(0, len(shares), BATCH):
            part = shares[first : first + BATCH]
            embedded = start + way * paddle.to_tensor(part.astype("float32")).reshape([-1, 1, 1])
            embedded.stop_gradient = weights is None
            with self._embeddings_are(embedded), differentiable(self.network) as also:
                # The ids do not matter here, only their number: the hook replaces the embeddings.
                values = score(self._logits(_repeated(batch, len(part))))
                scores.append(values.numpy().astype(np.float64))
                if weights is None:
                    continue
                slopes = paddle.grad(values.sum(), [embedded, *also], allow_unused=True)[0]
                total += np.einsum("p,pls->ls", weights[first : first + BATCH], slopes.numpy().astype(np.float64))
        return np.concatenate(scores), total

    def _embeddings_are(self, embedded: paddle.Tensor) -> Any:
        """Inside the context, the word embeddings are `embedded`, whatever the ids are."""
        return hooked([self.embedding.register_forward_post_hook(lambda layer, inputs, output: embedded)])


def word_embedding(network: Any) -> paddle.nn.Embedding:
    """The word embedding layer. UserError if the network has none."""
    embedding = network.base_model.get_input_embeddings()
    if not isinstance(embedding, paddle.nn.Embedding):
        kind = type(network).__name__
        raise UserError(f"{kind} has no layer of word embeddings", where="MODEL", hint="use @[method=occlusion]")
    return embedding


def replacements(tokenizer: Any) -> dict[str, int]:
    """Name -> id of the possible replacements: pad, unk, and mask if the tokenizer has one."""
    ids = {"pad": tokenizer.pad_token_id, "unk": tokenizer.unk_token_id}
    if tokenizer.mask_token_id is not None:
        ids["mask"] = tokenizer.mask_token_id
    return ids


def tokens_of(
    ids: np.ndarray,
    contributions: np.ndarray,
    tokenizer: Any,
    special: Sequence[int],
    unknown: Mapping[int, str] = MappingProxyType({}),
) -> list[Token]:
    """The tokens of a row, without the special ones before and after its text.

    `unknown`: place -> what the text says where the vocabulary has no token (data/text/piece_spans.py).
    """
    ordinary = np.flatnonzero(~np.isin(ids, special))
    if not len(ordinary):
        return []
    first, last = int(ordinary[0]), int(ordinary[-1]) + 1
    read = tokenizer.readable if isinstance(tokenizer, OwnTokenizer) else tokenizer.convert_ids_to_tokens
    forms = read(ids[first:last].tolist())
    marked = any(form.startswith(WORD_BEGINS) for form in forms)
    characters = isinstance(tokenizer, UnitTokenizer) and tokenizer.settings.unit == "characters"
    tokens: list[Token] = []
    for place, (form, contribution) in enumerate(zip(forms, contributions[first:last].tolist(), strict=True), first):
        text = unknown.get(place) or form.removeprefix(WORD_GOES_ON).lstrip("".join(WORD_BEGINS)) or form
        goes_on = characters or (not form.startswith(WORD_BEGINS) if marked else form.startswith(WORD_GOES_ON))
        beside = is_ideograph(text[0]) or (tokens and is_ideograph(tokens[-1].text[-1]))
        tokens.append(Token(text, contribution, bool(not tokens or goes_on or beside), place in unknown))
    return tokens


def _repeated(batch: Batch, rows: int) -> Batch:
    """The one row of `batch`, `rows` times."""
    return {name: np.repeat(array, rows, axis=0) for name, array in batch.items()}
