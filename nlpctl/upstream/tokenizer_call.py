"""DistilBertTokenizer and MPNetTokenizer of PaddleNLP 2.8.1, whose __call__ has the arguments of an older version.

The one takes no max_length, and passes what it takes by position to parameters of other names; the other takes no
verbose. They do nothing else, so the call of the base class stands in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any


def call_of(tokenizer: Any) -> Callable[..., Any]:
    """The call of a PretrainedTokenizer that takes max_length and verbose."""
    from paddlenlp.transformers.tokenizer_utils_base import PretrainedTokenizerBase

    parameters = inspect.signature(tokenizer.__call__).parameters
    if {"max_length", "verbose"} <= parameters.keys() or "kwargs" in parameters:
        return tokenizer
    return partial(PretrainedTokenizerBase.__call__, tokenizer)
