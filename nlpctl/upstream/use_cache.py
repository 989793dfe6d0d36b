"""The config key use_cache, which changes the return type of a classifier."""

from __future__ import annotations

from typing import Any


def without_use_cache(config: Any) -> Any:
    """Switch off `use_cache`, which Hugging Face writes into the config of every encoder.

    PaddleNLP 2.8.1, transformers/bert/modeling.py:420: with `use_cache: true` BertModel adds a cache
    to its outputs in eval mode, and BertForSequenceClassification returns a tuple instead of the
    logits. Test: tests/upstream/test_use_cache.py.
    """
    config.use_cache = False
    return config
