"""Texts that spell a special token of the model, such as [SEP] or <mask>: it is text like any other.

PaddleNLP's tokenizers take it for the token itself, so that a text could end itself, or ask for what no reader of it
sees. Here [SEP] is read as the words [, SEP and ], in every task; question answering and tagging read words one by one
in any case. Tokens that were added for texts (model.add_tokens, additional_special_tokens) stay whole.
"""

from __future__ import annotations

import re
from typing import Any

from nlpctl.data.text.own_tokenizer import OwnTokenizer
from nlpctl.data.text.word_spans import word_spans

_NAMES = ("pad", "unk", "cls", "sep", "mask")
# Holds whatever a WordPiece tokenizer may drop from between two characters, and more, such as 。: no letters, digits,
# blanks or marks of ASCII.
_DROPPED = r"(?:[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|[^\w\s!-/:-@\[-`{-~]){0,8}?"
# Accents that stand behind the character that they belong to.
_MARKS = "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]*"


class SpelledTokens:
    """Breaks up what spells a special token of `tokenizer`. Can be pickled."""

    def __init__(self, tokenizer: Any):
        ids = [getattr(tokenizer, f"{name}_token_id", None) for name in _NAMES]
        if isinstance(tokenizer, OwnTokenizer):  # PaddleNLP counts those among them that were added for texts
            ids += tokenizer.all_special_ids
        self.tokens = frozenset(map(str, tokenizer.convert_ids_to_tokens([id for id in ids if id is not None])))
        dropped = _DROPPED if "wordpiece_tokenizer" in vars(tokenizer) else ""
        patterns = [_pattern(token, dropped) for token in sorted(self.tokens) if len(word_spans(token)) > 1]
        self._pattern = re.compile("|".join(patterns)) if patterns else None

    def as_text(self, text: str) -> str:
        """`text` with blanks between the words of what spells a special token, which so is none."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: " ".join(filter(None, match.groups())), text)


def _pattern(token: str, dropped: str) -> str:
    """A group for each word of `token`; together they hold the whole match, so that nothing of the text is lost."""
    first, *others = (dropped.join(map(re.escape, token[start:end])) for start, end in word_spans(token))
    return f"({first}{_MARKS})" + "".join(f"({dropped}{word}{_MARKS})" for word in others)
