"""What an export writes of PaddleNLP's tokenizer for each of 67,000 characters, made once for all exports of a process.

It takes as long as the graph, and depends on the settings of PaddleNLP's BasicTokenizer alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nlpctl.data.text import stored_tokenizer

_write_anew = stored_tokenizer.stored_runs
_made: dict[tuple[type, str], Any] = {}


def _stored_runs(table: Mapping[int, str]) -> tuple[list[tuple[int, int]], dict[int, str]]:
    basic = getattr(table, "_basic", None)
    if basic is None:
        return _write_anew(table)
    key = (type(basic), repr(sorted(vars(basic).items())))
    if key not in _made:
        _made[key] = _write_anew(table)
    runs, others = _made[key]
    return list(runs), dict(others)


def share_characters() -> None:
    stored_tokenizer.stored_runs = _stored_runs


def make_usual_characters() -> None:
    """Those of a tokenizer for ERNIE or BERT, for all processes that are forked from this one. Imports PaddleNLP."""
    from paddlenlp.transformers.bert.tokenizer import BasicTokenizer

    from nlpctl.data.text.wordpiece import CharacterTable

    _stored_runs(CharacterTable(BasicTokenizer(do_lower_case=True)))
