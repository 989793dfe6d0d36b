"""Lists of names in messages."""

from __future__ import annotations

import pytest

from nlpctl.names import and_more


@pytest.mark.parametrize(
    ("count", "shown"), [(0, ""), (1, "n0"), (2, "n0, n1"), (3, "n0, n1 and 1 more"), (1234, "n0, n1 and 1,232 more")]
)
def test_a_long_list_is_cut(count, shown):
    assert and_more([f"n{number}" for number in range(count)], 2) == shown
