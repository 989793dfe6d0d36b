"""scripts/chaos.py, which stops commands at random moments, with few stops."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "chaos.py"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["train", "predict", "export", "index", "split"])
def test_stopped_in_every_way(tmp_path, command):
    words = [sys.executable, SCRIPT, "--kills", "4", "--only", command, "--folder", tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0 and re.search(r"; 0 failed", done.stdout), done.stdout + done.stderr


def test_a_difference_would_be_found(tmp_path, monkeypatch):
    """One byte, one value, a file too many or too few, a cut file, and what was left behind; times do not count."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import chaos

    (export,) = [each for each in chaos.SCENARIOS if each.name == "export"]
    made, reference = tmp_path / "here" / "out" / "export", tmp_path / "reference" / "export" / "out" / "export"
    for folder, seconds in ((made, 1), (reference, 2)):
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(b"graph")
        (folder / "export.json").write_text(json.dumps({"rows": 4, "seconds": seconds}))
    run = chaos.Chaos(tmp_path, None)
    assert run._differing(export) == [] and run._damaged(export) == []

    (made / "model.onnx").write_bytes(b"grap")
    (made / "export.json").write_text('{"rows": 5}')
    (made / "more").touch()
    (made.parent / ".staging-export-abcd_123").mkdir()
    assert run._differing(export) == [
        "export/more is left behind", ".staging-export-abcd_123 is left behind", "export/export.json: differs in .rows",
        "export/model.onnx: differs",
    ]  # fmt: skip
    assert [each.partition(":")[0] for each in run._damaged(export)] == [
        "export/export.json", "export/model.onnx", "export/more is not of an uninterrupted command"
    ]  # fmt: skip
    assert run._told_wrong(chaos.Harm("SIGTERM", 0.1), chaos.Ended(1, "", "error: internal error", False))
    assert not run._told_wrong(chaos.Harm("ENOSPC", 0.1), chaos.Ended(2, "", "error: x: No space left", False))


@pytest.mark.parametrize(
    "words, told",
    [
        (["--only", "trian"], "no scenario trian; there are train,"),
        (["--campaign", "3"], "--campaign is for one scenario"),
    ],
)
def test_nothing_begins_without_a_known_scenario(words, told, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import chaos

    monkeypatch.setattr(sys, "argv", ["chaos.py", *words])
    monkeypatch.setattr(chaos, "server", None)
    with pytest.raises(SystemExit):
        chaos.main()
    assert told in capsys.readouterr().err


def test_what_chaos_looks_for_does_not_end_it(tmp_path, monkeypatch):
    """A manifest that is cut, and a command that hangs."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import chaos

    run, train = chaos.Chaos(tmp_path, None), chaos.SCENARIOS[0]
    manifest = run.here / train.output / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"state": "fini')
    assert not run._finished(train) and run._damaged(train) == ["run/manifest.json is cut"]

    monkeypatch.setattr(chaos.command_lines, "SECONDS", 0.2)
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as hanging:
        ended = run._end(hanging)
        hanging.kill()
    assert run._told_wrong(chaos.Harm("SIGKILL", 0.1), ended) == ["exit -14: did not end within 0.2 s"]
