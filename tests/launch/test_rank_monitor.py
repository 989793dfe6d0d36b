"""Which exit code a command gets from those of its ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from nlpctl.launch.rank_monitor import RankStatus, run_ranks


class EndedRanks:
    """Ranks that have ended with `codes`, one second after the other: `Ranks` of rank_monitor.py."""

    poll_seconds = settle_seconds = 0.0

    def __init__(self, codes: Sequence[int]):
        self.codes = codes

    def start(self) -> None: ...

    def poll(self, ranks: Sequence[int]) -> Iterator[tuple[int, RankStatus]]:
        for rank in ranks:
            yield rank, RankStatus(b"", b"", self.codes[rank], float(len(self.codes) - rank), False, False)

    def interrupt(self) -> None: ...

    def stop(self) -> None: ...

    def place(self, rank: int) -> str:
        return f" on machine-{rank}"


@pytest.mark.parametrize(
    ("codes", "code", "said"),
    [
        ((0, 0), 0, ""),
        ((0, 1), 1, "error: process 1 of 2 on machine-1 failed (exit code 1)\n"),
        ((0, -9), 1, "error: process 1 of 2 on machine-1 failed (it was killed or crashed)\n"),
        ((2, 1), 2, ""),  # it has said why
        ((-9, 1), 1, "error: process 0 of 2 on machine-0 failed (it was killed or crashed)\n"),
    ],
)
def test_without_a_folder_of_logs_rank_0_tells_why_it_failed_itself(codes, code, said, capsys):
    assert run_ranks(EndedRanks(codes), 2, None) == code
    assert capsys.readouterr().err == said
