"""docs/recipes.md says what the schema says."""

from __future__ import annotations

import re

import pytest

from nlpctl.config import reference
from nlpctl.config.keys import all_keys
from nlpctl.config.load import load_recipe
from nlpctl.config.managed import REFUSED

pytestmark = pytest.mark.skipif(not reference.TARGET.parent.is_dir(), reason="docs/ is only in a checkout")


def test_the_document_is_up_to_date() -> None:
    assert reference.TARGET.read_text(encoding="utf-8") == reference.reference(), (
        "run python -m nlpctl.config.reference"
    )


def test_check_notices_a_change(tmp_path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(reference, "TARGET", tmp_path / "recipes.md")
    monkeypatch.setattr("sys.argv", ["reference", "--check"])
    assert reference.main() == 1 and "out of date" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["reference"])
    assert reference.main() == 0
    monkeypatch.setattr("sys.argv", ["reference", "--check"])
    assert reference.main() == 0


def test_every_key_has_a_row_of_four_cells() -> None:
    rows = re.findall(r"^\| `([a-z_.0-9]+)` \|.*$", reference.reference(), flags=re.M)
    assert set(rows) == set(all_keys()) - set(REFUSED)
    for line in reference.reference().splitlines():
        if line.startswith("| `"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 5, line


def test_the_example_of_the_introduction_loads(tmp_path) -> None:
    example = re.search(r"```yaml\n(.*?)```", reference.INTRO, flags=re.S)[1]
    (tmp_path / "recipe.yaml").write_text(example, encoding="utf-8")
    assert load_recipe(tmp_path / "recipe.yaml", purpose="apply").training.learning_rate == 3e-5
