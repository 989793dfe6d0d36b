"""Two runs of a recipe in two processes write the same bytes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

BILSTM = """\
extends: recipe.yaml
model:
  from_scratch: {architecture: bilstm, hidden_size: 16, embedding_size: 16, dropout: 0.2, intermediate_size: 512}
  config: null
"""
RECIPES = ("recipe.yaml", "same_bilstm.yaml")


def digests(run: Path) -> dict[str, str]:
    """SHA-256 of every file of model and checkpoints, but the trainer's state, which holds times, and its sum."""
    files = [path for folder in ("model", "checkpoints") for path in (run / folder).rglob("*") if path.is_file()]
    return {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.name not in ("trainer_state.json", "checksums.json")
    }


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.slow
def test_two_processes_write_the_same_bytes(work, recipe, monkeypatch):
    """With dropout, two threads, and what Python draws anew in each process (hashes of text) drawn differently."""
    (work / "same_bilstm.yaml").write_text(BILSTM)
    name, found = recipe.removesuffix(".yaml"), []
    for i in (1, 2):
        monkeypatch.setenv("PYTHONHASHSEED", str(i))
        words = ("--deterministic", "--threads", "2", "--num_train_epochs", "2")
        run = work.train(f"{name}-{i}", *words, recipe=recipe)
        found.append((digests(run), json.loads((run / "metrics.json").read_text())))
    (first, scores), (second, other_scores) = found
    weights = [name for name in first if name.endswith(("model_state.pdparams", "optimizer.pdopt"))]
    assert len(weights) >= 5, "two checkpoints with their optimizer, and the model"
    assert first == second and scores == other_scores

    other = work.train(f"{name}-other", *words, "--seed", "7", recipe=recipe)
    assert {name for name, digest in digests(other).items() if digest != first[name]} >= set(weights)
