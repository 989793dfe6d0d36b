"""PaddleNLP's prompt API (paddlenlp.prompt 2.8.1), used where it is right.

- template.py:336, :342: `parse_template_string` hands every {...} of a template to `eval`, so a recipe from a
  stranger runs code, and ends the process with exit code 0 where one is misspelt. It also loses the blank
  between words and the block behind them (:349). Here the parts come from config/prompt_template.py.
- prompt_tokenizer.py:203: a "[MASK]" inside the text counts as the template's: verbalizer.py:156 then cuts the
  batch into rows at the wrong places, or fails. Here texts come with blanks in it, so that it is text.
- verbalizer.py:83: labels are sorted by name, so the columns of the scores are not in the order they were
  given in. Here they are named by their position.
- verbalizer.py:261: the probabilities of several masks are multiplied as logarithms (mask_aggregate_type
  "product", the default), which makes two unlikely words a likely one; MaskedLMVerbalizer multiplies logits
  (:453), is never applied by process_outputs, and compares the words' lengths in characters (:435). So
  gaps of several tokens are scored in models/prompt.py.
- verbalizer.py:297: log(softmax + 1e-15) has no gradient where a word is very unlikely. post_log_softmax is off.

Test: tests/upstream/test_prompt.py.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from typing import Any


def make_template(parts: Sequence[Mapping[str, Any]], tokenizer: Any, max_length: int) -> Any:
    """A ManualTemplate of `parts`, which it would change."""
    from paddlenlp.prompt import ManualTemplate

    template = ManualTemplate(copy.deepcopy(list(parts)), tokenizer, max_length)
    template.prompt_tokenizer = _telling_cuts(template.prompt_tokenizer)
    return template


def _telling_cuts(tokenizer: Any) -> Any:
    """A prompt tokenizer whose result also says whether a part was cut ("truncated")."""
    told = threading.local()  # several threads of a service encode with one template

    class Telling(type(tokenizer)):  # type: ignore[misc]
        def __call__(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            return {**super().__call__(inputs), "truncated": told.cut}

        def _create_max_lengths_from_do_truncate(self, parts: list[list[int]], may_cut: list[bool]) -> list[int | None]:
            limits = super()._create_max_lengths_from_do_truncate(parts, may_cut)
            told.cut = any(
                limit is not None and limit < len(part) for part, limit in zip(parts, limits, strict=True)
            )
            return limits

    return Telling(tokenizer.tokenizer, tokenizer.max_length)


def encode(template: Any, texts: Mapping[str, str]) -> tuple[list[int], list[int], bool]:
    """input_ids and token_type_ids of the template filled with `texts`, and whether these were cut. The texts must not
    spell special tokens."""
    encoded = template.encode(dict(texts))
    return encoded["input_ids"], encoded["token_type_ids"], encoded["truncated"]


def make_verbalizer(words: Sequence[str], tokenizer: Any) -> Any:
    """A ManualVerbalizer whose scores, [batch, words], are in the order of `words`."""
    from paddlenlp.prompt import ManualVerbalizer

    # Zero-padded, so that sorting by name keeps the order of the numbers.
    digits = len(str(len(words)))
    named = {f"{position:0{digits}d}": word for position, word in enumerate(words)}
    return ManualVerbalizer(named, tokenizer, post_log_softmax=False)
