"""What pages say in Chinese: every text has its Chinese with the same places, and none is stale."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

import nlpctl
from nlpctl.config.library import shipped_recipes
from nlpctl.config.tasks import KNOWN_TASKS
from nlpctl.errors import UserError
from nlpctl.models.pretrained import ENTRIES, known_encoders
from nlpctl.report.chinese import CHINESE
from nlpctl.report.language import in_language, language, later, say, say_counted, say_names
from nlpctl.report.score_tables import confidence_tables

PACKAGE = Path(nlpctl.__file__).parent
# The texts in the arguments of a call of these; of `say_counted` a unit.
SAYING = {"say": slice(1), "later": slice(1), "say_each": slice(None), "say_counted": slice(1, None)}


@functools.cache
def sources() -> list[tuple[Path, ast.AST]]:
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "chinese.py"]
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in paths]


def said_texts() -> Iterator[tuple[str, str]]:
    """(file:line, English) of each text that is said where it stands."""
    for path, tree in sources():
        for node in ast.walk(tree):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            for given in node.args[SAYING[name]] if name in SAYING else ():
                for each in (given.body, given.orelse) if isinstance(given, ast.IfExp) else (given,):
                    if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value:
                        unit = "{:,} " if name == "say_counted" else ""
                        yield f"{path.relative_to(PACKAGE.parent)}:{each.lineno}", unit + each.value
    for recipe in shipped_recipes():
        yield str(recipe.path), recipe.title
    for encoder in known_encoders():
        yield ENTRIES.name, encoder.about


def test_every_text_has_its_chinese() -> None:
    missing = [f"{where}: {text!r}" for where, text in said_texts() if text not in CHINESE]
    assert not missing, "add these to nlpctl/report/chinese.py:\n" + "\n".join(missing)


NAMES = {"MB", "sha256", "SHA-256", "p", "nlpctl", "ok"}  # the same in every language
# A page per language, a table among messages, and what one process tells another.
IN_ENGLISH = {"config/reference.py", "training/run_setup.py", "launch/all_reduce.py"}


def unsaid(node: ast.AST) -> Iterator[ast.Constant]:
    """The texts in `node` that are not given to one of SAYING, but for keys of what is shown."""
    said = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SAYING
    if said or isinstance(node, ast.Compare):
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node
    for child in [node.value] if isinstance(node, ast.Subscript) else ast.iter_child_nodes(node):
        yield from unsaid(child)


def shown(function: ast.AST) -> Iterator[ast.AST]:
    """The heads and titles of the tables that `function` makes, what it writes to standard output, and what
    `nlpctl new` asks and gives as reasons."""
    for node in ast.walk(function):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if called == "Table":
            yield from [*node.args[:1], *node.args[2:], *(each.value for each in node.keywords if each.arg == "title")]
        elif called == "console.result":
            yield from node.args
        elif called in ("Match", "Question"):
            yield from node.args[1:2]
        elif called == "Preset":
            yield from node.args[2:]


def test_no_table_and_no_answer_is_in_english() -> None:
    """Heads and titles of tables, what is written to standard output beside them, questions and reasons are said where
    they stand, or where the name that they are given is set in the same function."""
    found = []
    for path, tree in sources():
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for function in () if path.relative_to(PACKAGE).as_posix() in IN_ENGLISH else functions:
            given = list(shown(function))
            names = {node.id for node in given if isinstance(node, ast.Name)}
            given += [
                node.value
                for node in ast.walk(function)
                if isinstance(node, ast.Assign | ast.AugAssign)
                for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
                if isinstance(target, ast.Name) and target.id in names
            ]
            for each in (text for node in given for text in unsaid(node)):
                if re.search(r"[A-Za-z]{2}", each.value) and each.value.strip() not in NAMES:
                    found.append(f"{path.relative_to(PACKAGE)}:{each.lineno}: {each.value!r}")
    assert not found, "give these to say or say_each:\n" + "\n".join(found)


def test_no_reason_of_a_task_is_in_english() -> None:
    presets = [(task.name, preset) for task in KNOWN_TASKS for preset in (*task.presets, *task.from_scratch)]
    assert [(name, preset.key) for name, preset in presets if preset.why and preset.why not in CHINESE] == []


def test_no_chinese_is_stale() -> None:
    nodes = (node for _, tree in sources() for node in ast.walk(tree))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    texts |= {text for _, text in said_texts()}
    texts |= {"Recipe", "Environment", "Data", "Scores"}  # the groups of `differences`, in capitals
    stale = [text for text in CHINESE if text not in texts]
    assert not stale, "these stand nowhere any more; take them out of nlpctl/report/chinese.py:\n" + "\n".join(stale)


def places(template: str) -> list[tuple[int, str, str | None]]:
    """The number, the format and the conversion of each place, in order of the numbers."""
    found = [field for field in Formatter().parse(template) if field[1] is not None]
    numbered = [(int(name or i), form or "", conversion) for i, (_, name, form, conversion) in enumerate(found)]
    return sorted(numbered, key=str)


def test_both_have_the_same_places() -> None:
    wrong = {english: chinese for english, chinese in CHINESE.items() if places(chinese) != places(english)}
    for chinese in CHINESE.values():
        if len({bool(name) for _, name, *_ in Formatter().parse(chinese) if name is not None}) > 1:
            wrong[chinese] = "numbers for all places, or for none"
    assert not wrong


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_TW.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": ""}, "zh"),
    ],
)
def test_the_locale_decides(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert language() == expected
    with in_language("zh" if expected == "en" else "en"):
        assert language() != expected
    with pytest.raises(UserError, match="there are no pages in 'fr'"), in_language("fr"):
        pass


def test_what_is_said() -> None:
    told = later("{} after {}, at word {}", later("the end"), "I-LOC", 3)
    with in_language("en"):
        assert say("{:,} bad rows of {} were skipped.", 1200, "train") == "1,200 bad rows of train were skipped."
        assert say_counted(1, "rows") == "1 row" and say_names("abcdef", 2) == "a, b and 4 more"
    with in_language("zh"):
        assert say("{:,} bad rows of {} were skipped.", 1200, "train") == "train 中有 1,200 个坏行被跳过。"
        assert say_counted(1, "rows") == "1 行" and say_names("abcdef", 2) == "a、b，另有 4 个"
        assert say(told) == "第 3 个词，I-LOC 之后是 结尾"
        assert say("a text of nobody {") == "a text of nobody {"
    assert json.dumps(told) == '"the end after I-LOC, at word 3"'


@pytest.mark.parametrize("what", ["rows", "entities", "words", "labels", "answers"])
def test_what_is_decided_has_a_name(what: str) -> None:
    """Of each task (Confidences.what), in the table of its confidence."""
    report = {"ece": 0.1, "confidence": {"of": what, "coverage": [], "reliability": []}}
    with in_language("zh"):
        (table,) = confidence_tables({"dev": report})
    assert re.findall("[a-z]{3,}", table.title + "".join(table.columns)) == ["dev"]
