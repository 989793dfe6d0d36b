"""Config keys that change the return type of a network."""

from __future__ import annotations

from typing import Any

# How a caller wants the outputs. Hugging Face writes them into config.json beside what the network is.
OUTPUT_KEYS = ("use_cache", "return_dict", "output_hidden_states", "output_attentions")


def with_plain_outputs(config: Any) -> Any:
    """Switch off OUTPUT_KEYS: a classifier returns its logits.

    PaddleNLP 2.8.1, transformers/bert/modeling.py:415 to 420: where the call does not say otherwise, the config does,
    so with one of them BertForSequenceClassification returns a tuple or a dict; with use_cache, which Hugging Face
    writes everywhere, in eval mode only. Test: tests/upstream/test_plain_outputs.py.
    """
    for key in OUTPUT_KEYS:
        setattr(config, key, False)
    return config
