"""A port for processes to meet at."""

from __future__ import annotations

import pytest

from nlpctl.errors import UserError
from nlpctl.runtime.ranks import free_port


def test_a_port_is_of_the_range_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT_RANGE", "41000:41999")
    assert 41000 <= free_port() <= 41999


@pytest.mark.parametrize("given", ["20000", "abc", "30000:20000", "70000:80000", "0:10", ""])
def test_what_is_no_range_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT_RANGE", given)
    with pytest.raises(UserError, match="no range of ports"):
        free_port()
