"""A RoBERTa tagger as a static graph."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any


def translatable_forward(network: Any) -> Callable[..., Any]:
    """`network.forward`, or what computes the same from (input_ids, token_type_ids) and can become a static graph.

    paddlepaddle 2.6.2, jit/dy2static: of a `return` in an `if` inside another `if`, the condition is computed
    outside too. PaddleNLP 2.8.1, transformers/roberta/modeling.py:912 has one, so that RobertaForTokenClassification
    cannot be translated: "TypeError: object of type 'UndefinedVar' has no len()".
    Test: tests/upstream/test_tagger_graph.py.
    """
    if type(network).__name__ != "RobertaForTokenClassification":
        return network.forward
    return types.MethodType(_tag, network)


def _tag(self: Any, input_ids: Any, token_type_ids: Any = None) -> Any:
    return self.classifier(self.dropout(self.roberta(input_ids, token_type_ids=token_type_ids)[0]))
