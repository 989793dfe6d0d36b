"""scripts/net.py: what it takes for a difference, and that it hears every process."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import net  # noqa: E402

TESTS = """
import subprocess, sys
from nlpctl import UserError

def test_here(tmp_path):
    UserError("is cut", f"{tmp_path}/rows.tsv:3", "add a tab")

def test_there():
    subprocess.run([sys.executable, "-c", "import nlpctl; nlpctl.UserError('no such key', 'data.tain')"], check=True)
"""


def test_each_line_that_differs_is_named(tmp_path, capsys):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        (folder / "help").mkdir(parents=True)
        (folder / "help" / "train.txt").write_text("a\n---\nb\n")
    assert net.compare(one, other) == 0
    (other / "help" / "train.txt").write_text("a\nc\n")
    (one / "help" / "gone.txt").write_text("")
    capsys.readouterr()
    assert net.compare(one, other) == 4
    told = capsys.readouterr().out
    assert f"help/gone.txt (only in {one})\nhelp/train.txt\n    ----\n    -b\n    +c\n" in told


def test_what_belongs_to_the_clock_is_a_sign(tmp_path):
    told = f"{tmp_path}/a  3 rows in 0.4 s, 7.5 rows/s\nx: 20.4 s so far\ntotal     1.5      100%\n"
    assert (
        net.with_signs(f"{told}2026-11-26T13:05:00+00:00", tmp_path)
        == "WORK/a  3 rows in # s, # rows/s\ntotal  #  #%\nTIME"
    )
    assert net.without_numbers("fp32 3.25, 12% of 1.05k.") == "fp32 #, #% of #."
    assert net.plain({"rows": 3, "seconds": 2, "versions": {"numpy": "1"}}) == {
        "rows": 3, "seconds": "#", "versions": {"numpy": "#"}
    }  # fmt: skip


def test_errors_of_every_process_are_heard(tmp_path):
    (tmp_path / "test_two.py").write_text(TESTS)
    assert net.errors(tmp_path / "found", [str(tmp_path / "test_two.py")]) == 0
    assert (tmp_path / "found" / "errors.txt").read_text().splitlines() == [
        '["UserError", "is cut", "DIR/rows.tsv:3", "add a tab"]', '["UserError", "no such key", "data.tain", ""]'
    ]  # fmt: skip
