"""What each token of a text contributes to a label, by integrated gradients or by occlusion.

What is explained is the log odds of the label, log p / (1 - p): what speaks for it against all others. It does not
saturate, as a probability near 1 does, and for two labels it is the difference of their logits.

Integrated gradients (Sundararajan, Taly and Yan, 2017) go in a straight line from a baseline, the text with every token
replaced, to the text itself, in the space of word embeddings, and add up what each token's embedding contributes on the
way. The contributions add up to log odds of the text minus log odds of the baseline (completeness), as far as the steps
are fine enough. Occlusion replaces one token at a time: what the log odds lose is its contribution; these do not add up
to anything in particular.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import paddle

from nlpctl.data.collate import Batch
from nlpctl.data.units import UnitTokenizer, special_ids
from nlpctl.data.word_spans import is_ideograph
from nlpctl.errors import UserError
from nlpctl.tasks.base import as_tuple
from nlpctl.upstream.input_gradient import differentiable

Method = Literal["integrated_gradients", "occlusion"]
Baseline = Literal["pad", "mask", "unk"]
Score = Callable[[paddle.Tensor], paddle.Tensor]  # logits [rows, labels] to log odds of the label [rows]

STEPS = 32  # to begin with; doubled until completeness holds
MOST_STEPS = 1024
TOLERANCE = 0.05  # of the difference that the contributions are to add up to
NEGLIGIBLE = 1e-3  # a difference of log odds that is not worth a step more
BATCH = 32  # rows at a time
WORD_BEGINS, WORD_GOES_ON = ("Ġ", "▁"), "##"  # how tokenizers write pieces of words


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
        """How far the contributions are from adding up, in log odds; 0 for occlusion, which does not claim to."""
        return 0.0 if self.baseline is None else float(self.contributions.sum() - (self.log_odds - self.baseline))

    @property
    def complete(self) -> bool:
        """Whether they add up, within TOLERANCE."""
        if self.baseline is None:
            return True
        return abs(self.gap) <= max(TOLERANCE * abs(self.log_odds - self.baseline), NEGLIGIBLE)


@dataclass(frozen=True)
class Token:
    """A token as people read it; `joined`: no blank stands before it. `contribution` is in log odds."""

    text: str
    contribution: float
    joined: bool


@dataclass(frozen=True)
class Explained:
    """A row, what the model answers, and the tokens that speak for `label` or against it."""

    row: dict[str, Any]
    answer: dict[str, Any]
    label: str
    method: str
    tokens: tuple[Token, ...]
    explanation: Explanation

    @property
    def probability(self) -> float:
        """Of `label`."""
        return 1 / (1 + float(np.exp(-self.explanation.log_odds)))

    def strongest(self, most: int) -> tuple[list[Token], list[Token]]:
        """The tokens that speak for the label most, and those that speak against it."""
        ranked = sorted(self.tokens, key=lambda token: -abs(token.contribution))
        chosen = [token for token in ranked if token.contribution > 0], [t for t in ranked if t.contribution < 0]
        return chosen[0][:most], chosen[1][:most]

    def to_json(self) -> dict[str, Any]:
        found = self.explanation
        told: dict[str, Any] = {"label": self.label, "method": self.method, "log_odds": round(found.log_odds, 6)}
        if found.baseline is not None:
            told |= {"baseline_log_odds": round(found.baseline, 6), "gap": round(found.gap, 6), "steps": found.steps}
        tokens = [{"token": token.text, "contribution": round(token.contribution, 6)} for token in self.tokens]
        return {**self.row, **self.answer, "explained": {**told, "tokens": tokens}}


class Explainer:
    """Explains what a classifier says of one text after the other.

    `tokenizer` tells the special tokens, which are never replaced, and what stands for a token that is.
    """

    def __init__(self, network: paddle.nn.Layer, tokenizer: Any, method: Method, baseline: Baseline | None = None):
        """`baseline` None takes the padding for integrated gradients, whose embedding is zero in most networks; for
        occlusion the mask where the network knows one and the text has none, else the unknown token. UserError where
        there is no mask."""
        network.eval()
        self.network = network
        self.method = method
        self.embedding = word_embedding(network) if method == "integrated_gradients" else None
        self.ids = replacements(tokenizer)
        if baseline is not None and baseline not in self.ids:
            raise UserError("the network has no mask token", where="--baseline", hint="take pad or unk")
        self.baseline = baseline
        self.special = sorted(special_ids(tokenizer))

    def explain(self, batch: Batch, score: Score) -> Explanation:
        """The contributions of the tokens of one row: `batch` as the network takes it, arrays [1, length]."""
        ids = batch["input_ids"][0]
        content = ~np.isin(ids, self.special)
        replacement = self._replacement(ids)
        if self.method == "occlusion":
            return self._occlusion(batch, content, replacement, score)
        return self._integrated(batch, content, replacement, score)

    def _replacement(self, ids: np.ndarray) -> int:
        """The id that stands for a replaced token of this text."""
        mask_taken = "mask" in self.ids and self.ids["mask"] in ids  # the gap of a template
        if self.baseline == "mask" and mask_taken:
            hint = "take --baseline unk or pad"
            raise UserError("the mask token is a part of the template", where="--baseline", hint=hint)
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
        """A row per place, with the token there replaced.

        Networks know padding at the end only: a token that is to be padding is taken out, and one is added there.
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
        with paddle.no_grad():
            text = self.embedding(paddle.to_tensor(ids)).astype("float32")
            start = self.embedding(paddle.to_tensor(np.where(content, replacement, ids))).astype("float32")
        way = text - start
        ends = self._along(batch, start, way, np.array([0.0, 1.0]), score, gradients=False)[0]
        steps = STEPS
        while True:
            points, weights = np.polynomial.legendre.leggauss(steps)
            _, mean = self._along(batch, start, way, (points + 1) / 2, score, weights=weights / 2)
            contributions = (mean * way[0].numpy().astype(np.float64)).sum(-1)
            found = Explanation(contributions, float(ends[1]), float(ends[0]), steps)
            if found.complete or 2 * steps > MOST_STEPS:
                return found
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
        gradients: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log odds float64 [points] where `shares` of the way are gone, and the weighted sum of their gradients
        float64 [length, size]."""
        scores, total = [], np.zeros(way.shape[1:])
        for first in range(0, len(shares), BATCH):
            part = shares[first : first + BATCH]
            embedded = start + way * paddle.to_tensor(part.astype("float32")).reshape([-1, 1, 1])
            embedded.stop_gradient = not gradients
            with self._embeddings_are(embedded), differentiable(self.network) as also:
                found = score(self._logits(_repeated(batch, len(part))))
                scores.append(found.numpy().astype(np.float64))
                if not gradients:
                    continue
                slopes = paddle.grad(found.sum(), [embedded, *also], allow_unused=True)[0]
                total += np.einsum("p,pls->ls", weights[first : first + BATCH], slopes.numpy().astype(np.float64))
        return np.concatenate(scores), total

    def _embeddings_are(self, embedded: paddle.Tensor) -> Any:
        """While the body runs, the words' embeddings are `embedded`, whatever the ids are."""
        return _Hooked(self.embedding, lambda layer, inputs, output: embedded)


class _Hooked:
    """A forward hook for the time of a `with`."""

    def __init__(self, layer: paddle.nn.Layer, hook: Callable[..., Any]):
        self._handle = layer.register_forward_post_hook(hook)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: Any) -> None:
        self._handle.remove()


def word_embedding(network: Any) -> paddle.nn.Embedding:
    """The layer that turns ids into vectors. UserError where the network has none."""
    embedding = network.base_model.get_input_embeddings()
    if not isinstance(embedding, paddle.nn.Embedding):
        kind = type(network).__name__
        raise UserError(f"{kind} has no layer of word embeddings", where="MODEL", hint="take --method occlusion")
    return embedding


def replacements(tokenizer: Any) -> dict[str, int]:
    """Name -> id of what can stand for a token: pad, unk, and mask where the tokenizer has one."""
    ids = {"pad": tokenizer.pad_token_id, "unk": tokenizer.unk_token_id}
    if not isinstance(tokenizer, UnitTokenizer) and tokenizer.mask_token_id is not None:
        ids["mask"] = tokenizer.mask_token_id
    return ids


def tokens_of(ids: np.ndarray, contributions: np.ndarray, tokenizer: Any, special: Sequence[int]) -> list[Token]:
    """The tokens of a row, without the special ones before and after its text."""
    text = np.flatnonzero(~np.isin(ids, special))
    if not len(text):
        return []
    first, last = int(text[0]), int(text[-1]) + 1
    forms = tokenizer.convert_ids_to_tokens(ids[first:last].tolist())
    marked = any(form.startswith(WORD_BEGINS) for form in forms)
    characters = isinstance(tokenizer, UnitTokenizer) and tokenizer.settings.unit == "characters"
    found: list[Token] = []
    for form, contribution in zip(forms, contributions[first:last].tolist(), strict=True):
        text = form.removeprefix(WORD_GOES_ON).lstrip("".join(WORD_BEGINS)) or form
        goes_on = characters or (not form.startswith(WORD_BEGINS) if marked else form.startswith(WORD_GOES_ON))
        beside = is_ideograph(text[0]) or (found and is_ideograph(found[-1].text[-1]))
        found.append(Token(text, contribution, bool(not found or goes_on or beside)))
    return found


def _repeated(batch: Batch, rows: int) -> Batch:
    """The one row of `batch`, `rows` times."""
    return {name: np.repeat(array, rows, axis=0) for name, array in batch.items()}
