"""The JSON documents in folders of an earlier version: each is read by its class, and written again as it was."""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.compress.costs import StepTimes
from nlpctl.compress.plan import CompressionPlan
from nlpctl.compress.scores import StoredRow
from nlpctl.compress.timing import StoredRounds
from nlpctl.config.task_file import TaskFile
from nlpctl.documents import Document
from nlpctl.experiments.series import SeriesFile
from nlpctl.experiments.sweep import SweepFile
from nlpctl.inference.index_folder import IndexManifest
from nlpctl.inference.predict import PartialNote
from nlpctl.inference.shard_folder import PartNote, ShardPlan
from nlpctl.models.calibration import Calibration
from nlpctl.models.export_folder import ExportManifest
from nlpctl.models.folder import LabelsFile
from nlpctl.models.model_manifest import ModelManifest
from nlpctl.runs.run_files import MistakesFile, SlicesFile
from nlpctl.runtime.run_directory import MetricsFile, RunManifest
from nlpctl.training.checkpoints import CheckpointSums, ReachedParameters, SavedTrainerState

ARCHIVE = Path(__file__).with_name("old_folders.tar.xz")
BY_NAME: dict[str, type[Document]] = {
    "calibration.json": Calibration,
    "checksums.json": CheckpointSums,
    "export.json": ExportManifest,
    "labels.json": LabelsFile,
    "last-round.json": StoredRounds,
    "metrics.json": MetricsFile,
    "mistakes.json": MistakesFile,
    "reached_parameters.json": ReachedParameters,
    "series.json": SeriesFile,
    "slices.json": SlicesFile,
    "sweep.json": SweepFile,
    "task.json": TaskFile,
    "times.json": StepTimes,
    "trainer_state.json": SavedTrainerState,
}
# Files of one name, known by an entry
BY_ENTRY: dict[str, dict[str, type[Document]]] = {
    "manifest.json": {"state": RunManifest, "kind": ModelManifest, "dim": IndexManifest},
    "plan.json": {"settings": CompressionPlan, "shard_rows": ShardPlan},
}


def kind_of(file: Path, content: Any) -> type[Document] | None:
    if file.name in BY_ENTRY:
        kinds = [kind for entry, kind in BY_ENTRY[file.name].items() if entry in content]
        return kinds[-1]
    if file.name.endswith(".partial.json"):
        return PartialNote
    if file.name.startswith("part-"):
        return PartNote
    if file.parent.name == "scores" and "found" in content:
        return StoredRow
    return BY_NAME.get(file.name)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    return place


def test_each_is_read_and_written_again_as_it_was(folders, tmp_path):
    seen: Counter[type[Document]] = Counter()
    for file in sorted(folders.rglob("*.json")):
        before = json.loads(file.read_text(encoding="utf-8"))
        kind = kind_of(file, before)
        if kind is None:
            continue
        seen[kind] += 1
        document = kind.load(file)
        if kind is SweepFile:  # only read: it names the entries that a later call needs
            continue
        again = tmp_path / "again.json"
        document.save(again)
        written = json.loads(again.read_text(encoding="utf-8"))
        if kind is StoredRounds:
            del before["samples"]  # which only that version needed
        if kind is StoredRow:
            assert written["found"].pop("embedding_mb") is None  # of which that version knew nothing
        assert written == before, file
        # PaddleNLP sorts the entries of its own document.
        assert kind in (SavedTrainerState, StoredRow, StoredRounds) or again.read_bytes() == file.read_bytes(), file
    every = {*BY_NAME.values(), *(kind for kinds in BY_ENTRY.values() for kind in kinds.values())}
    assert seen.keys() == every | {PartialNote, PartNote, StoredRow}
