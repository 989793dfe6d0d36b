"""scripts/check_gpu.sh, with stand-ins for a card; what it finds on one, nobody has seen yet."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"

pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="scripts/ is only in a checkout")


@pytest.fixture
def check_gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import check_gpu

    return check_gpu


def test_no_step_ends_the_check(check_gpu, tmp_path, monkeypatch, capsys):
    def hangs(bench):
        bench.run([sys.executable, "-c", "import time; time.sleep(600)"])

    def breaks(bench):
        bench.run([sys.executable, "-c", "import sys; sys.exit('the reason')"])

    def leaves_out(bench):
        bench.needed("export")

    def passes(bench):
        return {"scores": {"dev": 0.9}}

    def raises(bench):
        raise KeyError("x")

    every = (hangs, breaks, leaves_out, raises, passes)
    steps = {each.__name__: (each, 0.5 if each is hangs else 60) for each in every}
    monkeypatch.setattr(check_gpu, "STEPS", steps)
    arguments = argparse.Namespace(device="cpu", epochs=1, torch_python=None, output=tmp_path, minutes=1)
    started = time.monotonic()
    outcomes = check_gpu.check(check_gpu.Bench(arguments), list(steps))
    assert time.monotonic() - started < 120
    assert [each.status for each in outcomes] == ["failed", "failed", "left out", "failed", "passed"]
    assert outcomes[0].reason.startswith("no end within the time of this step")
    assert "the reason" in outcomes[1].reason and "KeyError" in outcomes[3].reason
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert [step["name"] for step in report["steps"]] == list(steps) and report["machine"]["versions"]["paddlenlp"]
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "## breaks failed" in page and '| passes | passed | 0 | {"scores": {"dev": 0.9}} |' in page


def test_the_time_of_the_whole_check_is_limited(check_gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(check_gpu, "STEPS", {"late": (lambda bench: {}, 30)})
    arguments = argparse.Namespace(device="cpu", epochs=1, torch_python=None, output=tmp_path, minutes=0)
    (outcome,) = check_gpu.check(check_gpu.Bench(arguments), ["late"])
    assert (outcome.status, outcome.reason) == ("left out", "the time of the check was over: --minutes")


@pytest.mark.slow
def test_it_runs_with_stand_ins_for_a_card(tmp_path):
    command = ["bash", SCRIPTS / "check_gpu.sh", "--device", "cpu", "--epochs", "1", "--minutes", "60"]
    command += ["--output", tmp_path / "check"]
    environ = {**os.environ, "NLPCTL_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=tmp_path)
    report = json.loads((tmp_path / "check" / "report.json").read_text(encoding="utf-8"))
    told = {step["name"]: (step["status"], step["reason"]) for step in report["steps"]}
    assert done.returncode == 0, told
    left_out = {name for name, (status, _) in told.items() if status == "left out"}
    assert left_out == {"out of memory"}, told
