"""Lengths in tokens."""

from __future__ import annotations

import pytest

from nlpctl.data.inspection.lengths import EstimatedTokens, measure, row_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("房间很干净。", 6),
        ("a clean room", 3),
        ("it's", 3),
        ("WiFi很快!", 4),
        ("incomprehensibility", 3),
        ("friendly", 1),
        ("friendlier", 2),
        ("", 0),
    ],
)
def test_estimate(text: str, tokens: int) -> None:
    assert EstimatedTokens().count(text) == tokens


def test_texts_read_together_are_added_up() -> None:
    assert row_tokens(["a b c"], EstimatedTokens(), together=True) == 5
    assert row_tokens(["a b c", "d e"], EstimatedTokens(), together=True) == 8
    assert row_tokens(["a b c", "d e"], EstimatedTokens(), together=False) == 5


def test_percentiles_are_lengths_that_hold_that_share_of_rows() -> None:
    lengths = measure(list(range(1, 101)), limit=90)
    assert lengths.percentiles == {50: 50, 90: 90, 95: 95, 99: 99}
    assert (lengths.longest, lengths.longer, lengths.mean) == (100, 10, 50.5)
    assert measure([7], limit=7).percentiles == {50: 7, 90: 7, 95: 7, 99: 7}
    assert measure([7], limit=7).longer == 0
