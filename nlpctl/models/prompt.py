"""Few-shot classification: a language model fills the mask of a template with the word of a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import paddle
import paddle.nn.functional as F

from nlpctl.config.prompt_template import Part, mask_length
from nlpctl.data.text.own_tokenizer import OwnTokenizer
from nlpctl.data.text.spelled_tokens import SpelledTokens
from nlpctl.errors import Problem, UserError
from nlpctl.models.masked_lm import AtPositions
from nlpctl.names import and_more
from nlpctl.upstream.prompt import encode, make_template, make_verbalizer
from nlpctl.upstream.tokenizer_pickle import PickledTokenizer


class PromptClassifier(AtPositions):
    """Mixed in before a ...ForMaskedLM class: scores of labels instead of words."""

    def use_words(self, words: LabelWords) -> None:
        """Sets the words that stand for the labels. Call it before the first forward."""
        self.words = words
        for name, tensor in words.tensors.items():  # a static graph only takes tensors that the network owns
            self.register_buffer(name, tensor, persistable=False)

    def forward(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None) -> paddle.Tensor:
        """Scores of the labels [batch, labels]; every row has the masks of the template."""
        words = self.words
        # nonzero lists positions row by row, so reshape puts the masks of a row together; every row has as many.
        masks = paddle.nonzero(input_ids == words.mask_id)[:, 1]
        return words.scores(self.scores_at(masks.reshape([-1, words.length]), input_ids, token_type_ids))


class LabelWords:
    """The words of the labels, in the order of the labels."""

    def __init__(self, verbalizer: Mapping[str, Any], labels: Sequence[str], parts: list[Part], tokenizer: Any):
        """UserError, key by key: a label without a word, a word that the vocabulary lacks or that has not as many
        pieces as the gap of the template, two labels with one word."""
        self.length = mask_length(parts)
        self.mask_id: int = tokenizer.mask_token_id
        # A vocabulary of words with blanks before them, such as RoBERTa's, has another word behind a blank.
        blank = " " if any("mask" in part and "add_space" in part for part in parts) else ""
        words = _words(verbalizer, labels)
        plain = {"add_special_tokens": False, "return_token_type_ids": False}
        ids = [list(tokenizer.encode(blank + word, **plain)["input_ids"]) for word in words]
        _check_words(words, ids, labels, self.length, tokenizer.unk_token_id)
        self.tensors: dict[str, paddle.Tensor]
        if self.length == 1:
            self._verbalizer = make_verbalizer([blank + word for word in words], tokenizer)
            self.tensors = {f"verbalizer_{name}": tensor for name, tensor in self._verbalizer.named_buffers()}
        else:
            self._ids = paddle.to_tensor(ids)
            self.tensors = {"word_piece_ids": self._ids}

    def scores(self, logits: paddle.Tensor) -> paddle.Tensor:
        """[batch, labels] from the logits of the gap [batch, length, vocabulary].

        One token: the logit of the word, of several pieces their mean. More: the sum over the tokens of the log
        probability of the word's piece there.
        """
        if self.length == 1:
            return self._verbalizer.process_outputs(logits)
        log_probabilities = F.log_softmax(logits, axis=-1)
        return sum(log_probabilities[:, i].index_select(self._ids[:, i], axis=-1) for i in range(self.length))


class PromptEncoder:
    """Encodes texts in a prompt template as token ids. Can be pickled. `overhead`: the tokens around the texts."""

    def __init__(self, parts: Sequence[Part], tokenizer: Any, max_length: int):
        """UserError if the template alone fills the window."""
        self._parts, self._tokenizer, self._max_length = parts, tokenizer, max_length
        self._template = make_template(parts, tokenizer, max_length)
        self._as_text = SpelledTokens(tokenizer).as_text
        # Measured with a window that cuts nothing; + 1 for at least one token of text.
        self.overhead = len(encode(make_template(parts, tokenizer, 10_000), {"text": "", "text_pair": ""})[0])
        needed = self.overhead + 1
        if needed > max_length:
            raise UserError(
                f"the template takes {needed - 1} tokens, which leaves no room for text in {max_length}",
                where="data.max_seq_length",
                hint=f"set it to {max(2 * needed, 16)} or more, or shorten prompt.template",
            )

    def encode(self, text: str, text_pair: str | None) -> tuple[list[int], list[int], bool]:
        """input_ids and token_type_ids of one row, and whether text was cut: what is beyond the window, of the template
        nothing."""
        return encode(self._template, {"text": self._as_text(text), "text_pair": self._as_text(text_pair or "")})

    def __reduce__(self) -> tuple:
        whole = isinstance(self._tokenizer, OwnTokenizer)
        packed = self._tokenizer if whole else PickledTokenizer.pack(self._tokenizer)
        return _unpacked, (self._parts, packed, self._max_length)


def _unpacked(parts: Sequence[Part], packed: PickledTokenizer | OwnTokenizer, max_length: int) -> PromptEncoder:
    tokenizer = packed if isinstance(packed, OwnTokenizer) else packed.unpack()
    return PromptEncoder(parts, tokenizer, max_length)


def _words(verbalizer: Mapping[str, Any], labels: Sequence[str]) -> list[str]:
    hint = f"the labels are {and_more(labels, 10)}"
    problems = [
        Problem(f"no word for the label {label!r}", "prompt.verbalizer", f"add {label}: WORD; {hint}")
        for label in labels
        if label not in verbalizer
    ]
    problems += [
        Problem("there is no such label", f"prompt.verbalizer.{name}", hint)
        for name in verbalizer
        if name not in labels
    ]
    if problems:
        raise UserError(problems=problems)
    return [str(verbalizer[label]).strip() for label in labels]


def _check_words(
    words: Sequence[str], ids: Sequence[list[int]], labels: Sequence[str], length: int, unknown: int
) -> None:
    problems = []
    for i, (word, label, pieces) in enumerate(zip(words, labels, ids, strict=True)):
        where = f"prompt.verbalizer.{label}"
        if not pieces or unknown in pieces:
            problems.append(Problem(f"the model's vocabulary has no word {word!r}", where, "use a more common word"))
        elif length > 1 and len(pieces) != length:
            message = f"{word!r} is {len(pieces)} tokens, but the mask of the template is {length}"
            problems.append(Problem(message, where, "all words need that many, or set prompt.template's 'length'"))
        elif pieces in ids[:i]:
            other = labels[list(ids).index(pieces)]
            problems.append(Problem(f"{word!r} is also the word of {other!r}", where, "use a different word per label"))
    if problems:
        raise UserError(problems=problems)
