"""What other programs take while something is timed, by the clocks of the system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nlpctl.runtime.contention import Contention, Spent, spent


@pytest.mark.parametrize(
    ("threads", "by_all", "by_this", "share"),
    [
        (2, 20.0, 20.0, 0.0),  # on 2 cores, in 10 seconds
        (2, 20.0, 19.0, 0.05),
        (2, 20.0, 12.0, 0.4),
        (1, 20.0, 10.0, 0.0),  # the other core is another program's, and is not wanted
        (1, 15.0, 0.0, 0.5),
        (4, 20.0, 10.0, 0.5),  # more threads than cores cannot have more than these
        (2, 40.0, 2.0, 1.0),  # what a hyper-thread does counts as much as a core
        (2, 9.0, 10.0, 0.0),  # the clocks of the system are coarser than those of a process
    ],
)
def test_the_share_that_others_took(threads: int, by_all: float, by_this: float, share: float) -> None:
    clocks = iter([Spent(100.0, 50.0, 5.0), Spent(110.0, 50.0 + by_all, 5.0 + by_this)])
    assert Contention(threads, lambda: next(clocks), cores=2).share() == pytest.approx(share)


def test_where_the_system_does_not_tell() -> None:
    assert Contention(2, lambda: None).share() == 0.0
    assert Contention(2, lambda: Spent(1.0, 1.0, 1.0)).share() == 0.0  # no time has passed


def test_the_clocks_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the processors that this process may use, without those that wait; what a host took counts."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2})
    (tmp_path / "proc").mkdir()
    assert spent(tmp_path) is None
    lines = ("cpu  9 9 9 9 9 9 9", "cpu0 100 20 3 7777 555 4 5 8 66 1", "cpu1 9 9 9 9 9 9 9", "cpu2 60 0 0 1 0 0 0")
    (tmp_path / "proc/stat").write_text("\n".join(lines))
    assert spent(tmp_path).by_all == 200 / os.sysconf("SC_CLK_TCK")
    (tmp_path / "proc/stat").write_text("cpu0 none\n")
    assert spent(tmp_path) is None
    found = spent()
    assert found is None or found.by_all >= found.by_this > 0
