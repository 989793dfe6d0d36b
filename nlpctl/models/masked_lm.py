"""Masked language models: PaddleNLP's ...ForMaskedLM, with logits at the masked positions only.

The stock networks compute logits [batch, length, vocabulary] of every token: half a gigabyte for 32 sentences of 128
tokens. Only the masked tokens matter, about one in seven.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import paddle
import paddle.nn.functional as F

from nlpctl.data.text.masking import NO_TARGET
from nlpctl.errors import UserError
from nlpctl.models.families import ADDED, ENCODERS
from nlpctl.models.huggingface_layout import LAYOUTS

# PaddleNLP's layer that turns hidden states into scores, by the encoder's prefix. ELECTRA's lacks the last step.
# nlpctl's own language models have a method for it, `score_words`.
_HEADS = {"bert": "cls", "ernie": "cls", "roberta": "lm_head", "electra": "generator_predictions"}


class AtPositions:
    """Mixed in before a ...ForMaskedLM class; see `mixed`."""

    if TYPE_CHECKING:  # what the other class has
        _sub_layers: dict[str, Any]
        base_model_prefix: str
        get_input_embeddings: Any
        generator_lm_head_bias: paddle.Tensor
        register_buffer: Any
        score_words: Any

    def scores_at(
        self, positions: paddle.Tensor, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None
    ) -> paddle.Tensor:
        """Logits [batch, m, vocabulary] at `positions`, int64 [batch, m]."""
        encoder = self._sub_layers[self.base_model_prefix]
        outputs = encoder(input_ids) if token_type_ids is None else encoder(input_ids, token_type_ids=token_type_ids)
        hidden = outputs[0] if isinstance(outputs, tuple | list) else outputs  # in a static graph it is no Tensor
        batch, length, width = hidden.shape
        first = paddle.arange(batch).unsqueeze(-1) * length
        chosen = paddle.gather(hidden.reshape([-1, width]), (first + positions).reshape([-1]))
        if hasattr(self, "score_words"):
            scores = self.score_words(chosen)
        else:
            scores = self._sub_layers[_HEADS[self.base_model_prefix]](chosen)
        # PaddleNLP's generator head ends with the transform; its ForMaskedLM does the product with the table itself.
        if self.base_model_prefix == "electra":
            table = self.get_input_embeddings().weight
            scores = paddle.matmul(scores, table, transpose_y=True) + self.generator_lm_head_bias
        return scores.reshape([batch, positions.shape[1], -1])


class MaskedWords(AtPositions):
    """Guesses words; trained by their cross-entropy."""

    n_best = 5  # how many guesses are given for a mask

    def forward(
        self,
        input_ids: paddle.Tensor,
        token_type_ids: paddle.Tensor | None = None,
        masked_positions: Any = None,
        targets: paddle.Tensor | None = None,
    ) -> Any:
        """Predicts the tokens at `masked_positions`, int64 [batch, m], padded with any position.

        With `targets` (the right ids, int64 [batch, m], padded with NO_TARGET): three float tensors
        [batch, m]: the cross-entropy in nats, whether the best guess is right, whether there is a target.
        Without: the n_best probabilities and the ids of their tokens, both [batch, m, n_best].
        """
        scores = self.scores_at(masked_positions, input_ids, token_type_ids)
        if targets is None:
            return paddle.topk(F.softmax(scores, axis=-1), self.n_best)
        counted = (targets != NO_TARGET).astype(scores.dtype)
        loss = F.cross_entropy(scores, targets, ignore_index=NO_TARGET, reduction="none")
        right = (scores.argmax(-1) == targets).astype(scores.dtype)
        return loss.reshape(targets.shape), right, counted


def mixed(mixin: type, network_class: Any) -> type:
    """`network_class` (BertForMaskedLM, ...) with the methods of `mixin`: the same parameters, the same name.

    The name matters: save_pretrained writes it into config.json, where PaddleNLP must find its own.
    """
    prefix = network_class.base_model_prefix
    if not hasattr(network_class, "score_words") and prefix not in _HEADS:
        known = (*_HEADS, *ADDED.values(), *(LAYOUTS[each].model_type for each in ENCODERS.values()))
        raise UserError(
            f"masked language models of the family {prefix!r} are not known to nlpctl",
            where="model",
            hint=f"use a model of {', '.join(known)}",
        )
    return type(network_class.__name__, (mixin, network_class), {"__module__": network_class.__module__})
