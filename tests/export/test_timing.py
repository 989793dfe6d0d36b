"""The engines of an export are timed when it is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.engines.speeds import conditions
from nlpctl.export import scores_and_speeds as timing
from nlpctl.export.scores_and_speeds import time_graphs
from nlpctl.models.engine_speeds import EngineSpeeds
from nlpctl.models.export_folder import ExportManifest, Graph
from nlpctl.runtime.process import ProcessSetup

SETUP = ProcessSetup("cpu", threads=2, rank=0, world_size=1)
GRAPHS = (Graph("paddle", "fp32", ("a", "b")), Graph("onnx", "fp32", ("c",)))
MANIFEST = ExportManifest("sequence_classification", (), (), 64, GRAPHS, 256, "", {})


@pytest.mark.parametrize("others", [0.1, 0.5])
def test_a_busy_machine_is_told_and_kept(monkeypatch, capsys, others):
    found = EngineSpeeds(conditions(SETUP), {"paddle fp32": {8: 5.0}, "onnxruntime fp32": {8: 7.0}}, {}, others)
    monkeypatch.setattr(timing, "time_choices", lambda *_: found)
    assert time_graphs(Path("export"), MANIFEST, SETUP, {8: []}, 20.0) == found
    told = "warning: the engines were timed while other programs took 50% of the processors" in capsys.readouterr().err
    assert told == (others == 0.5)
