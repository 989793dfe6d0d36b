"""The last round of a compression, with stand-ins for the processes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from scored import scored

from nlpctl.compress import interleaved_timing as last_round
from nlpctl.compress.interleaved_timing import FEWEST, Field, field_of, groups, is_complete, play
from nlpctl.compress.relative_speed import read_last_round
from nlpctl.errors import RunFailed

REFERENCE = scored("original", 0.88, agreement=1.0)
BF16 = scored("original", 0.88, 2.0, precision="bf16")
INT8 = scored("original+ptq", 0.88, 3.0, precision="int8")
STUDENT = scored("student", 0.88, 4.0)
FIELD = Field((REFERENCE, BF16), (INT8, STUDENT))


class Process:
    """Answers a batch in a tenth of a second; dies after `passes` passes."""

    def __init__(self, name: str, told: list[str], passes: float):
        self.name, self.told, self.left = name, told, passes
        self.opened = SimpleNamespace(features=128)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def open(self):
        return self.opened

    def seconds(self, size: int, at_least: float) -> list[float]:
        assert at_least == last_round.TURN
        self.left -= 1
        if self.left < 0:
            raise RunFailed("its process ended", self.name)
        self.told.append(self.name)
        return [0.1] * (4 if size == 32 else 128)


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Plays with the rows of FIELD; `passes`: by candidate, after how many passes its process dies."""
    monkeypatch.setattr(last_round, "room_mb", lambda: 1e9)

    def call(key: str = "key", **passes: float):
        told: list[str] = []
        file = tmp_path / "last.json"
        kept = read_last_round(file, key)

        def opened(row):
            return Process(row.name, told, passes.get(row.candidate, 1e9))

        return play(FIELD, opened, file, key, kept), told

    return call


def test_every_row_has_its_turn_in_every_round(played):
    last, told = played()
    assert len(last.rounds) == FEWEST and is_complete(FIELD, last) and last.samples == 128
    assert all(set(round) == {row.name for row in FIELD.rows} for round in last.rounds)
    assert told[:4] == [row.name for row in FIELD.rows]
    second = told[8:12]  # by turns forwards and backwards
    assert second == told[:4][::-1]


def test_an_interrupted_last_round_goes_on(played, tmp_path):
    with pytest.raises(RunFailed, match="its process ended"):
        played(original=7)  # the warm-up, two rounds and a half
    kept = read_last_round(tmp_path / "last.json", "key")
    assert len(kept.rounds) == 2 and not is_complete(FIELD, kept)
    last, told = played()
    assert last.rounds[:2] == kept.rounds and len(last.rounds) == FEWEST
    assert len(told) == 2 * 4 * (1 + FEWEST - 2)


def test_a_row_that_dies_is_left_out(played, capsys):
    last, _ = played(student=6)
    assert len(last.rounds) == FEWEST and last.failed == (STUDENT.name,)
    assert [STUDENT.name in round for round in last.rounds] == [True] * 2 + [False] * (FEWEST - 2)
    assert "student, paddle fp32 is left out of the last round" in capsys.readouterr().err


@pytest.mark.parametrize("passes", [0, 6])
def test_a_row_that_failed_costs_no_more_rounds(played, tmp_path, passes):
    """The repeated command finds a complete last round; one that is interrupted goes on without the row."""
    last, _ = played(student=passes)
    assert is_complete(FIELD, last) and read_last_round(tmp_path / "last.json", "key") == last
    again, told = played(student=passes)
    assert again == last and told == []


def test_what_does_not_fit_into_memory_plays_in_groups():
    """Each row takes 700 MB; the uncompressed play in every group."""
    assert groups(FIELD, 1e9) == [FIELD.rows]
    assert groups(FIELD, 2200.0) == [(*FIELD.always, INT8), (*FIELD.always, STUDENT)]
    assert groups(FIELD, 100.0) == [(*FIELD.always, INT8), (*FIELD.always, STUDENT)]  # as few as there can be


def test_the_field(played):
    assert field_of([BF16, INT8, REFERENCE, STUDENT], REFERENCE, [REFERENCE]) == FIELD
    assert FIELD.seconds(128) > 4 * 6
