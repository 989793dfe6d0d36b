"""Where runs are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.errors import UserError
from nlpctl.runs.runs import find_runs, open_run


def test_runs_are_found_whatever_their_folders_are_called(tmp_path: Path) -> None:
    wanted = [tmp_path / name for name in ("a", "logs/b", "model/lstm/c")]
    for run in [*wanted, tmp_path / ".hidden/d", tmp_path / "a/checkpoints/e"]:
        run.mkdir(parents=True)
        for name in ("manifest.json", "recipe.yaml"):
            (run / name).write_text("")
    assert list(find_runs(tmp_path)) == wanted


def test_a_mistyped_run_is_looked_for_beside_it_only(tmp_path: Path) -> None:
    for name in ("outputs/first", "deep/below/second"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "manifest.json").write_text("{}")
        (tmp_path / name / "recipe.yaml").write_text("")
    with pytest.raises(UserError) as near:
        open_run(tmp_path / "outputs" / "frist")
    assert f"did you mean {tmp_path / 'outputs' / 'first'}?" in str(near.value.problems[0].hint)
    with pytest.raises(UserError) as far:
        open_run(tmp_path / "secnod")  # there is no tmp_path / "second"
    assert "did you mean" not in str(far.value.problems[0].hint)
    with pytest.raises(UserError, match="no run here"):
        open_run(tmp_path / "gone" / "first")
