"""events.jsonl is read whatever a killed run or a full disk left of its last line."""

from __future__ import annotations

from pathlib import Path

from nlpctl.runtime.event_log import EventLog


def test_a_line_cut_inside_a_character_is_passed_over(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.append("log", 1, loss=0.5)
    log.append("bad_step", 2, rows=["房间.tsv:1"])
    whole = log.path.read_bytes()
    log.path.write_bytes(whole[: whole.index("间".encode()) + 1])
    assert [event["step"] for event in log.read()] == [1]
    log.forget_after(1)
    log.append("log", 2, loss=0.4)
    assert [event["step"] for event in log.read()] == [1, 2]


def test_line_ends_of_unicode_do_not_end_an_event(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.append("bad_step", 2, rows=["a\u2028b\x85c.tsv:1"])
    log.forget_after(2)
    assert [event["rows"] for event in log.read()] == [["a\u2028b\x85c.tsv:1"]]
