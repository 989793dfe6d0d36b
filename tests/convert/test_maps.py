"""Name maps: what their patterns mean, what their steps do, and every way in which one can be wrong."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from nlpctl.convert.maps import built_in_map, built_in_names, match_rule, parse_step, read_map, run_steps
from nlpctl.errors import UserError


def map_of(tmp_path: Path, text: str):
    file = tmp_path / "map.yaml"
    file.write_text(text, encoding="utf-8")
    return read_map(file)


def places(tmp_path: Path, text: str, *names: str) -> list[tuple]:
    found = map_of(tmp_path, text)
    return [(each.static, each.dygraph) for rule in found.rules
            for each in match_rule(rule, found.prefixes, names, "bert")]  # fmt: skip


def test_a_word_in_braces_is_a_number(tmp_path):
    text = "rules:\n- static: layer_{n}_fc.w_0\n  dygraph: 'encoder.{n}.weight'\n"
    expected = [(("layer_3_fc.w_0",), ("encoder.3.weight",)), (("layer_12_fc.w_0",), ("encoder.12.weight",))]
    assert places(tmp_path, text, "layer_3_fc.w_0", "layer_x_fc.w_0", "layer_12_fc.w_0", "layer_1_fcxw_0") == expected


def test_a_star_is_anything_and_is_carried_over(tmp_path):
    text = "rules:\n- static: model.*.w\n  dygraph: '{encoder}.*.weight'\n"
    assert places(tmp_path, text, "model.a.b.w", "other.a.w") == [(("model.a.b.w",), ("bert.a.b.weight",))]


def test_prefixes_stand_before_all_names_of_a_rule(tmp_path):
    text = "prefixes: ['@HUB_*@']\nrules:\n- static: ['a_{n}', 'b_{n}']\n  dygraph: x.{n}\n"
    names = ("@HUB_m@a_1", "@HUB_m@b_1", "@HUB_o@a_2", "@HUB_m@b_2", "a_3", "b_3")
    expected = [(("a_3", "b_3"), ("x.3",)), (("@HUB_m@a_1", "@HUB_m@b_1"), ("x.1",))]
    assert places(tmp_path, text, *names) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "a map is a mapping with a list of rules"),
        ("rules: []\nruls: []", "unknown key 'ruls'"),
        ("rules:\n- static: a", "map.yaml:2: a rule has the keys static, dygraph"),
        ("rules:\n- {static: a, dygraph: b, step: []}", "map.yaml:2: a rule has the keys"),
        ("rules:\n- {static: a, dygraph: []}", "dygraph is a name or a list of names"),
        ("rules:\n- {static: 'a_{n}', dygraph: 'b_{m}'}", "'b_{m}' has a placeholder that 'a_{n}' has not"),
        ("rules:\n- {static: 'a_{n}_{n}', dygraph: b}", "has {n} twice"),
        ("rules:\n- {static: a, dygraph: b, steps: [transpos]}", "no step 'transpos' .did you mean 'transpose'"),
        ("rules:\n- {static: a, dygraph: b, steps: [{split: 3}]}", "split cannot take 3"),
        ("rules:\n- {static: a, dygraph: b, steps: transpose}", "steps is a list"),
        ("extends: bertt\nrules: []", "there is no map 'bertt' .did you mean 'bert'"),
        ("rules: [a: b", "not valid YAML"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        map_of(tmp_path, text)


def test_every_built_in_map_can_be_read():
    names = built_in_names()
    assert {"bert", "ernie", "roberta", "lac"} <= set(names)
    assert all(built_in_map(name).rules for name in names)
    assert [rule.dygraph for rule in built_in_map("ernie").rules if rule.static == ("task_embedding",)]
    with pytest.raises(UserError, match="there is no map 'erni'.*did you mean 'ernie'"):
        built_in_map("erni")


ROOT = Path(__file__).resolve().parents[2]

A = np.arange(12, dtype="float32").reshape(3, 4)


def run(steps: list, *arrays: np.ndarray, targets=()) -> list[np.ndarray]:
    return run_steps([parse_step(step, "map.yaml:3") for step in steps], arrays, targets)


def assert_are(found: list[np.ndarray], *expected: np.ndarray) -> None:
    assert [each.tolist() for each in found] == [each.tolist() for each in expected]


def test_each_step():
    assert_are(run(["transpose"], A), A.T)
    assert_are(run([{"transpose": [0, 1]}], A), A)
    assert_are(run([{"reshape": [2, -1]}], A), A.reshape(2, 6))
    assert_are(run([{"reshape": "target"}], A, A, targets=[(4, 3), (12,)]), A.reshape(4, 3), A.reshape(12))
    assert_are(run([{"split": {"axis": 1, "parts": 2}}], A), A[:, :2], A[:, 2:])
    assert_are(run([{"split": {"axis": 0, "sizes": [1, -1]}}], A), A[:1], A[1:])
    assert_are(run([{"concatenate": 1}], A, A + 1), np.concatenate([A, A + 1], 1))
    assert_are(run([{"stack": 0}], A, A + 1), np.stack([A, A + 1]))
    assert_are(run(["add"], A, A.reshape(12)), A + A)
    assert_are(run([{"reorder": [1, 0]}], A, A + 1), A + 1, A)
    assert_are(run([{"pad": [4, 4]}], A), np.vstack([A, np.zeros((1, 4))]))


def test_fused_query_key_and_value():
    fused = np.arange(24, dtype="float32").reshape(2, 12)
    found = run([{"split": {"axis": 1, "parts": 3}}], fused)
    assert_are(found, fused[:, :4], fused[:, 4:8], fused[:, 8:])


@pytest.mark.parametrize(
    ("step", "shapes"),
    [
        ({"reshape": [5, -1]}, [(3, 4)]),
        ({"split": {"axis": 1, "parts": 3}}, [(3, 4)]),
        ({"split": {"axis": 0, "sizes": [1, 1]}}, [(3, 4)]),
        ({"concatenate": 0}, [(3, 4), (3, 5)]),
        ({"stack": 0}, [(3, 4), (4, 3)]),
        ("add", [(3, 4), (3, 5)]),
        ({"reorder": [0, 2]}, [(3, 4), (3, 4)]),
        ({"pad": [2, 4]}, [(3, 4)]),
        ({"transpose": [0, 2]}, [(3, 4)]),
        ({"split": {"axis": 7, "parts": 2}}, [(3, 4)]),
    ],
)
def test_a_step_that_does_not_fit_names_the_line_and_the_shapes(step, shapes):
    with pytest.raises(UserError, match=r"map.yaml:3: \w+ does not fit arrays of shape \[3, 4\]"):
        run([step], *[np.zeros(shape, "f4") for shape in shapes])


def test_the_map_that_the_documentation_works_through_is_the_built_in_one(tmp_path):
    page = (ROOT / "docs" / "convert-static.md").read_text(encoding="utf-8").partition("### Worked through: LAC")[2]
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page, flags=re.M | re.S)
    shown = map_of(tmp_path, "rules:\n" + "".join(block.removeprefix("rules:\n") for block in blocks)).rules

    def content(rule):
        return rule.static, rule.dygraph, [step.plain() for step in rule.steps]

    assert len(shown) == 7
    built_in = [content(rule) for rule in built_in_map("lac").rules]
    assert [content(rule) for rule in shown if content(rule) not in built_in] == []


def test_a_pad_larger_than_everything_is_told_at_its_line():
    with pytest.raises(UserError, match="map.yaml:3") as told:
        run_steps([parse_step({"pad": [10**12, 8]}, "map.yaml:3")], [np.zeros((2, 8))], [(4, 8)])
    assert "larger than" in str(told.value)
    assert run_steps([parse_step({"pad": [4, 8]}, "map.yaml:3")], [np.ones((2, 8))], [(4, 8)])[0].sum() == 16
