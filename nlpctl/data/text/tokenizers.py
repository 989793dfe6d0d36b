"""Chooses the encoder of a tokenizer: PaddleNLP's own, the fast one if it gives equal ids, or the unit encoder."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from nlpctl import console
from nlpctl.data.text.encoder import Encoding, TextEncoder, longest_first
from nlpctl.data.text.own_tokenizer import OwnTokenizer
from nlpctl.data.text.stored_tokenizer import (
    FILE,
    StoredTokenizer,
    read_stored_tokenizer,
    write_stored_tokenizer,
)
from nlpctl.data.text.wordpiece import WordPiece, character_table, unsupported_reason
from nlpctl.errors import UserError
from nlpctl.upstream.tokenizer_call import call_of
from nlpctl.upstream.tokenizer_pickle import PickledTokenizer

# What a tokenizer can trip over: case with and without a partner, accents in both forms, marks that reorder,
# symbols and full-width forms, invisible characters, special tokens whole, nested and broken, long words.
PROBES = (
    "",
    " \t\n",
    "这家酒店¥３００～５００，性价比～还行！！",
    "房间 is GREAT,but WiFi太慢:-( 5★",
    "unbelievable Playfulness o'clock don't 3.14 1,000",
    "Café Cafe\u0301 naïve ÅNGSTRÖM Ǆ ß ẞ ﬁ",
    "İstanbul ISPARTA ı ΟΔΟΣ ΣΑΣ. ς",
    "カﾞ がギ 한국어 \u1112\u1161\u11ab नमस्ते กำ",
    "\U0001d158\U0001d165\U0001d16e a\u302e\u0301b",
    "[MASK] [mask] x[CLS]y[SEP] [UNK][PAD] [MA\u200bSK] [ MASK ]",
    "a\u200bb\u00adc\ufeffd\u0000e\ufffdf\u2028g\u3000h\u00a0i\x0bj\x85k",
    "豈更\U0002f800𠀀〇々〆ー㈱①Ⅳ㎏",
    "~$+<=>^`| ≠ ≮ ; · ′ « ¿ § ² º µ Ø ŋ Ʊ",
    "👍🏽👨‍👩‍👧 \U0001f1e8\U0001f1f3 \ue000 \u0378",
    "x" * 100 + " " + "x" * 101 + " " + "中" * 40,
)
_PROBE_LENGTHS = (12, 1000)


class PaddleTextEncoder(TextEncoder):
    """PaddleNLP's own tokenizer, any class; what a text spells of special tokens is text."""

    kind = "paddlenlp"

    def __init__(self, tokenizer: Any):
        super().__init__(tokenizer)
        self._call = call_of(tokenizer)
        # PaddleNLP says this whenever a pair is cut, though nobody asked for the overflow.
        warnings.filterwarnings("ignore", message="Be aware, overflowing tokens are not returned")

    def _encode(
        self, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int, tell_cut: bool
    ) -> list[Encoding]:
        texts = list(map(self.spelled.as_text, texts))
        pairs = None if pairs is None else list(map(self.spelled.as_text, pairs))
        batch = self._call(
            texts,
            pairs,
            max_length=max_length,
            truncation=True,
            return_token_type_ids=self.uses_token_types,
            return_attention_mask=False,
            return_overflowing_tokens=pairs is None,  # of pairs PaddleNLP refuses to tell
            verbose=False,
        )
        # The tokenizer returns no types for models that take none; empty lists keep the rows aligned.
        rows = batch["input_ids"]
        types = batch["token_type_ids"] if self.uses_token_types else [[] for _ in rows]
        if pairs is None:
            truncated = [count > 0 for count in batch["num_truncated_tokens"]]
        elif not tell_cut:  # tokenising again takes as long
            truncated = [False] * len(rows)
        else:  # only a row that fills the window can have been cut
            truncated = [
                len(ids) >= max_length and self._tokens(text) + self._tokens(pair) + self._overhead[True] > max_length
                for ids, text, pair in zip(rows, texts, pairs, strict=True)
            ]
        return [Encoding(*row) for row in zip(rows, types, truncated, strict=True)]

    def _tokens(self, text: str) -> int:
        return len(self.tokenizer.tokenize(text))

    def _word(self, word: str) -> list[int]:
        return self.tokenizer.convert_tokens_to_ids(self.tokenizer.tokenize(self.spelled.as_text(word)))

    def __reduce__(self) -> tuple:
        return _rebuild, (type(self), PickledTokenizer.pack(self.tokenizer))


class FastTextEncoder(TextEncoder):
    """The same ids for WordPiece tokenizers, several times faster; see wordpiece.py."""

    kind = "fast"

    def __init__(self, tokenizer: Any):
        super().__init__(tokenizer)
        self._wordpiece = WordPiece(tokenizer, self.spelled)
        self._cls, self._sep = tokenizer.cls_token_id, tokenizer.sep_token_id

    def _encode(
        self, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int, tell_cut: bool
    ) -> list[Encoding]:
        if pairs is None:
            return [self._single(text, max_length) for text in texts]
        return [self._pair(text, pair, max_length) for text, pair in zip(texts, pairs, strict=True)]

    def _word(self, word: str) -> list[int]:
        return self._wordpiece.ids(word, len(word) + 1)

    def _single(self, text: str, max_length: int) -> Encoding:
        room = max_length - 2
        pieces = self._wordpiece.ids(text, room + 1)  # one more than is kept shows whether there are more
        ids = [self._cls, *pieces[:room], self._sep]
        return Encoding(ids, [0] * len(ids) if self.uses_token_types else [], len(pieces) > room)

    def _pair(self, text: str, pair: str, max_length: int) -> Encoding:
        room = max_length - 3
        # Each text needs at most `room` pieces whatever the other one is, so long texts are not tokenised to their
        # ends; one more shows whether it is cut.
        first, second = self._wordpiece.ids(text, room + 1), self._wordpiece.ids(pair, room + 1)
        keep_first, keep_second = longest_first(len(first), len(second), room)
        ids = [self._cls, *first[:keep_first], self._sep, *second[:keep_second], self._sep]
        types = [0] * (keep_first + 2) + [1] * (keep_second + 1) if self.uses_token_types else []
        return Encoding(ids, types, len(first) + len(second) > room)

    def __reduce__(self) -> tuple:
        tokenizer = self.tokenizer.full if isinstance(self.tokenizer, StoredTokenizer) else self.tokenizer
        return _rebuild, (type(self), PickledTokenizer.pack(tokenizer))


def build_encoder(tokenizer: Any, mode: Literal["auto", "fast", "paddlenlp"]) -> TextEncoder:
    """The encoder for a tokenizer: PaddleNLP's PretrainedTokenizer, or one of nlpctl's own.

    One of its own has one encoder, and so has a StoredTokenizer. Otherwise "auto" takes the fast encoder if the
    tokenizer's class is supported and both give equal ids for PROBES; else PaddleNLP's own. "paddlenlp" always takes
    the latter. "fast" raises UserError instead of falling back.
    """
    if isinstance(tokenizer, OwnTokenizer):
        return tokenizer.encoder()
    if isinstance(tokenizer, StoredTokenizer):  # compared when it was stored
        return FastTextEncoder(tokenizer)
    slow = PaddleTextEncoder(tokenizer)
    if mode == "paddlenlp":
        return slow
    reason = unsupported_reason(tokenizer)
    if reason is None:
        fast = FastTextEncoder(tokenizer)
        difference = first_difference(fast, slow)
        if difference is None:
            return fast
        reason = f"it differs from PaddleNLP's tokenizer on {difference!r}"
        console.note(f"the fast tokenizer is not used: {reason}")
    if mode == "fast":
        raise UserError(f"no fast tokenizer: {reason}", where="data.tokenizer", hint="set it to auto, or to paddlenlp")
    return slow


def store_tokenizer(folder: Path, encoder: TextEncoder) -> None:
    """Write the tokenizer of a fast encoder into an export, if what is read back gives equal ids for PROBES.

    Not if its ids have gaps: PaddleNLP's own files serve such an export.
    """
    if encoder.kind != "fast" or isinstance(encoder.tokenizer, StoredTokenizer):
        return
    tokenizer = encoder.tokenizer
    ids = sorted(tokenizer.wordpiece_tokenizer.vocab.token_to_idx.values())
    if ids != list(range(len(ids))):  # a repeated line in vocab.txt leaves a gap; the file numbers pieces by place
        return
    characters: Any = encoder.characters
    write_stored_tokenizer(folder, tokenizer, characters)
    stored = read_stored_tokenizer(folder, lambda: tokenizer, character_table)
    if stored is None or first_difference(FastTextEncoder(stored), encoder) is not None:
        (folder / FILE).unlink()


def first_difference(fast: TextEncoder, slow: TextEncoder) -> str | None:
    """The first probe that the two encode differently, alone or as a pair with the next; None if equal.

    Words that were added to the vocabulary (model.add_tokens) are probed too, the first and the last of them.
    """
    added = list(slow.tokenizer.get_added_vocab())
    inside = [f"{word} {word.upper()}x{word}中{word}¥" for word in (*added[:10], *added[10:][-10:])]
    probes = (*PROBES, *inside)
    for length in _PROBE_LENGTHS:
        for pairs in (None, [*probes[1:], probes[0]]):
            rows = zip(probes, fast.encode(probes, pairs, length), slow.encode(probes, pairs, length), strict=True)
            for text, got, expected in rows:
                if got != expected:
                    return text
    return None


def _rebuild(kind: type[TextEncoder], packed: PickledTokenizer) -> TextEncoder:
    return kind(packed.unpack())
