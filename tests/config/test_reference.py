"""docs/recipes.md and docs/zh-CN/recipes.md say what the schema says."""

from __future__ import annotations

import re

import pytest
import yaml

from nlpctl.config import reference
from nlpctl.config.keys import SECTIONS, all_keys
from nlpctl.config.load import load_recipe
from nlpctl.config.refused_keys import REFUSED
from nlpctl.config.tasks import KNOWN_TASKS

pytestmark = pytest.mark.skipif(not reference.DOCS.is_dir(), reason="docs/ is only in a checkout")


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_documents_are_up_to_date(name: str) -> None:
    wanted = reference.reference(reference.WORDS[reference.PAGES[name]]())
    assert (reference.DOCS / name).read_text(encoding="utf-8") == wanted, "run python -m nlpctl.config.reference"


def test_check_notices_a_change(tmp_path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(reference, "DOCS", tmp_path)
    monkeypatch.setattr("sys.argv", ["reference", "--check"])
    assert reference.main() == 1 and "out of date" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["reference"])
    assert reference.main() == 0
    monkeypatch.setattr("sys.argv", ["reference", "--check"])
    assert reference.main() == 0
    (tmp_path / "zh-CN" / "recipes.md").write_text("", encoding="utf-8")
    assert reference.main() == 1 and "zh-CN" in capsys.readouterr().out


@pytest.mark.parametrize("name", reference.PAGES)
def test_every_key_has_a_row_of_four_cells(name: str) -> None:
    page = reference.reference(reference.WORDS[reference.PAGES[name]]())
    rows = re.findall(r"^\| `([a-z_.0-9]+)` \|.*$", page, flags=re.M)
    assert set(rows) == set(all_keys()) - set(REFUSED)
    for line in page.splitlines():
        if line.startswith("| `"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 5, line


def test_the_chinese_catalogue_has_every_key_and_no_other() -> None:
    words = yaml.safe_load(reference.CHINESE_WORDS.read_text(encoding="utf-8"))
    assert set(words["keys"]) == {reference.shared_entry(dotted) for dotted in set(all_keys()) - set(REFUSED)}
    assert set(words["refused"]) == set(REFUSED)
    assert set(words["sections"]) == set(SECTIONS)
    assert set(words["tasks"]) == {task.name for task in KNOWN_TASKS}


def test_the_chinese_catalogue_knows_the_words_of_every_type() -> None:
    chinese = reference.Chinese()
    left = {chinese.type_text(key) for key in all_keys().values() if re.search(r"[a-z] [a-z]", chinese.type_text(key))}
    assert not left


def test_every_choice_stands_in_the_chinese_reference_as_recipes_have_it() -> None:
    page = reference.reference(reference.Chinese())
    rows = dict(re.findall(r"^\| `([a-z_.0-9]+)` \| ([^|]*) \|", page, flags=re.M))
    for dotted, key in all_keys().items():
        if key.choices and dotted not in REFUSED:
            told = rows[dotted].partition("：")[2].removesuffix(" 或 null").split("、")
            assert tuple(told) == key.choices, dotted


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_introduction_tells_what_the_base_file_sets(name: str) -> None:
    base = yaml.safe_load((reference.DOCS.parent / "configs/base.yaml").read_text(encoding="utf-8"))
    introduction = reference.WORDS[reference.PAGES[name]]().intro
    told = re.search(r"^[^\n]*`configs/base\.yaml`.*?\n\n", introduction, flags=re.M | re.S)[0]
    settings = yaml.safe_load("\n".join(re.findall(r"`(\w+: [^`]+)`", told)))
    assert settings == {key: value for section in base.values() for key, value in section.items()}


def test_the_example_of_the_introduction_loads(tmp_path) -> None:
    example = re.search(r"```yaml\n(.*?)```", reference.INTRO, flags=re.S)[1]
    (tmp_path / "recipe.yaml").write_text(example, encoding="utf-8")
    assert load_recipe(tmp_path / "recipe.yaml", purpose="apply").training.learning_rate == 3e-5
