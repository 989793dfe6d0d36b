"""What each of several workers of this machine may use."""

from __future__ import annotations

from nlpctl.config.schema import RuntimeSection
from nlpctl.runtime.machine import physical_cores
from nlpctl.runtime.worker_slots import shares


def test_the_cores_are_divided_unless_somebody_has_said_how_many(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    runtime = RuntimeSection(device="cpu")
    assert [each.threads for each in shares(runtime, 2, needs_paddle=True)] == [max(1, physical_cores() // 2)] * 2
    assert [each.threads for each in shares(RuntimeSection(device="cpu", threads=3), 2, needs_paddle=True)] == [3, 3]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert [each.threads for each in shares(runtime, 3, needs_paddle=True)] == [None] * 3
