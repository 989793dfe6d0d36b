"""Loads jieba once per process and word list, without its log messages."""

from __future__ import annotations

import functools
import logging
from typing import Any


@functools.cache
def load_jieba(kept_whole: tuple[str, ...] = ()) -> Any:
    """A private jieba segmenter; loading takes 0.6 s. Words added to jieba's global one would affect other code.

    `kept_whole`: words that it keeps whole besides those of its dictionary.
    """
    import jieba

    # Its loading messages would go to stderr, between progress bars.
    jieba.setLogLevel(logging.WARNING)
    segmenter = jieba.Tokenizer()
    # Otherwise the dictionary is read with the first text, in the middle of a timed or forked section.
    segmenter.initialize()
    for word in kept_whole:
        segmenter.add_word(word)
    return segmenter
