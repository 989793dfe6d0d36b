"""Runs to export, made without training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made_runs import make_run

from nlpctl.config.schema import Recipe


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A run that tells three labels apart."""
    return make_run(tmp_path_factory.mktemp("classifier"), "sequence_classification")


@pytest.fixture
def made_run(tmp_path: Path) -> Callable[..., Recipe]:
    """`made_run(task, architecture, head)`: a run in a folder of its own."""
    return lambda *words: make_run(tmp_path, *words)
