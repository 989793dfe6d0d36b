"""Where runs are found."""

from __future__ import annotations

from pathlib import Path

from nlpctl.runners.runs import find_runs


def test_runs_are_found_whatever_their_folders_are_called(tmp_path: Path) -> None:
    wanted = [tmp_path / name for name in ("a", "logs/b", "model/lstm/c")]
    for run in [*wanted, tmp_path / ".hidden/d", tmp_path / "a/checkpoints/e"]:
        run.mkdir(parents=True)
        for name in ("manifest.json", "recipe.yaml"):
            (run / name).write_text("")
    assert list(find_runs(tmp_path)) == wanted
