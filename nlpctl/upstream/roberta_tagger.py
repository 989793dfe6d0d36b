"""A RoBERTa tagger that Paddle can translate to a static graph."""

from __future__ import annotations

import functools
from typing import Any


@functools.cache
def translatable(network_class: type) -> type:
    """`network_class`, or in the place of PaddleNLP's RobertaForTokenClassification one that computes the same.

    PaddleNLP 2.8.1, transformers/roberta/modeling.py:912: its forward returns from an `if` inside another `if`; for a
    static graph Paddle 2.6.2 (jit/dy2static) computes the inner condition outside too ("TypeError: object of type
    'UndefinedVar' has no len()"). Test: tests/upstream/test_roberta_tagger.py.
    """
    if network_class.__name__ != "RobertaForTokenClassification":
        return network_class

    class RobertaForTokenClassification(network_class):
        def forward(self, input_ids: Any, token_type_ids: Any = None) -> Any:
            hidden = self.roberta(input_ids, token_type_ids=token_type_ids)[0]
            return self.classifier(self.dropout(hidden))

    return RobertaForTokenClassification
