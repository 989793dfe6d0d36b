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
