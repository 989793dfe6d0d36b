"""Matching by recorded and by counted names."""

from __future__ import annotations

import numpy as np
import pytest

from nlpctl.convert.match import Candidate, Matcher, TargetParameter
from nlpctl.convert.names import by_counted_name, by_recorded_name
from nlpctl.convert.variables import StaticVariable

SHAPES = {"bert.word.weight": (9, 4), "bert.fc.weight": (4, 4), "bert.fc.bias": (4,), "head.weight": (4, 2)}
INTERNAL = ("embedding_0.w_0", "linear_0.w_0", "linear_0.b_0", "linear_1.w_0")


def make_matcher(*variables: StaticVariable) -> Matcher:
    parameters = [
        TargetParameter((name,), (name.removeprefix("bert."),), shape, "float32", internal)
        for (name, shape), internal in zip(SHAPES.items(), INTERNAL, strict=True)
    ]
    return Matcher(parameters, {each.name: each for each in variables}, "bert")


def variable(name: str, shape: tuple[int, ...], structured: str | None = None, dtype: str = "float32"):
    return StaticVariable(name, np.zeros(shape, dtype), structured)


def matched(matcher: Matcher) -> dict[str, str]:
    return {each.parameter.name: each.candidate.static[0] for each in matcher.result().matches}


def recorded(prefix: str) -> list[StaticVariable]:
    return [variable(f"v{i}", shape, prefix + name) for i, (name, shape) in enumerate(SHAPES.items())]


@pytest.mark.parametrize("prefix", ["", "model.", "a.b."])
def test_recorded_names_with_what_the_exported_layer_put_before_them(prefix):
    matcher = make_matcher(*recorded(prefix))
    by_recorded_name(matcher)
    result = matcher.result()
    assert matched(matcher) == {name: f"v{i}" for i, name in enumerate(SHAPES)} and not result.missing
    how = {each.candidate.how for each in result.matches}
    assert how == {f"recorded name, without {prefix!r}" if prefix else "recorded name"}


def test_recorded_names_of_a_bare_encoder():
    matcher = make_matcher(variable("v", (4, 4), "fc.weight"))
    by_recorded_name(matcher)
    assert matched(matcher) == {"bert.fc.weight": "v"}


def test_two_encoders_under_one_layer_are_an_ambiguity():
    """And what a map has chosen of one is not mixed with the other."""
    towers = {
        tower: [variable(f"{tower}_{i}", shape, f"{tower}.{name}") for i, (name, shape) in enumerate(SHAPES.items())]
        for tower in ("query", "title")
    }
    matcher = make_matcher(*towers["query"], *towers["title"])
    by_recorded_name(matcher)
    result = matcher.result()
    assert not result.matches and len(result.ambiguities) == 4
    assert result.ambiguities[0].candidates == ("query_0", "title_0")
    assert result.ambiguities[0].why.endswith("recorded name, without 'query.', recorded name, without 'title.'")

    matcher = make_matcher(*towers["query"], *towers["title"])
    matcher.propose([Candidate((f"query_{i}",), (name,), "map") for i, name in enumerate(list(SHAPES)[:-1])])
    by_recorded_name(matcher)
    (ambiguity,) = matcher.result().ambiguities
    assert ambiguity.candidates == ("query_3", "title_3")


def test_an_encoder_below_two_layers_has_one_candidate_per_parameter():
    """Each of its parameters is known with the encoder's prefix and without."""
    matcher = make_matcher(*recorded("model.")[:3])
    by_recorded_name(matcher)
    assert len(matched(matcher)) == 3 and not matcher.result().ambiguities


def counted(shift: int, *, without: tuple[str, ...] = ()) -> list[StaticVariable]:
    shapes = dict(zip(INTERNAL, SHAPES.values(), strict=True))
    found = []
    for name, shape in shapes.items():
        kind, number = name.split(".")[0].rsplit("_", 1)
        if name not in without:
            found.append(variable(f"{kind}_{int(number) + shift}.{name.split('.')[1]}", shape))
    return found


@pytest.mark.parametrize("shift", [0, 37])
def test_names_of_the_counter_also_where_it_did_not_begin_at_0(shift):
    matcher = make_matcher(*counted(shift))
    by_counted_name(matcher)
    result = matcher.result()
    assert not result.missing and not result.unused
    assert {each.candidate.how for each in result.matches} == {
        f"parameter name, counted from {shift} on" if shift else "parameter name"
    }
    assert matched(matcher)["head.weight"] == f"linear_{1 + shift}.w_0"


def test_numbers_beyond_the_network_s_are_not_guessed_at():
    """linear_0 to linear_2 for a network with two: nothing says which is which."""
    matcher = make_matcher(*counted(0), variable("linear_2.w_0", (4, 4)))
    by_counted_name(matcher)
    assert "bert.fc.weight" not in matched(matcher) and matched(matcher)["bert.word.weight"] == "embedding_0.w_0"
    assert any("kind linear do not agree" in note for note in matcher.result().notes)


def test_shapes_that_differ_below_the_head_make_the_names_worthless():
    changed = [variable("linear_0.w_0", (4, 5)), *[each for each in counted(0) if each.name != "linear_0.w_0"]]
    matcher = make_matcher(*changed)
    by_counted_name(matcher)
    assert matched(matcher) == {"bert.word.weight": "embedding_0.w_0"}


def test_an_encoder_with_more_layers_than_the_source_is_not_filled_from_its_beginning():
    """linear_0 of a source without linear_1 may be another layer."""
    matcher = make_matcher(*counted(0, without=("linear_0.w_0", "linear_0.b_0")))
    by_counted_name(matcher)
    assert matched(matcher) == {"bert.word.weight": "embedding_0.w_0"}


def test_a_head_of_another_width_is_a_mismatch_and_the_rest_is_found():
    matcher = make_matcher(*counted(0, without=("linear_1.w_0",)), variable("linear_1.w_0", (4, 7)))
    by_counted_name(matcher)
    (mismatch,) = matcher.result().mismatches
    assert mismatch.parameter.name == "head.weight" and mismatch.shape == (4, 7)
    assert mismatch.reason == "shape [4, 7] where the network has [4, 2]" and len(matched(matcher)) == 3


def test_integers_do_not_become_weights():
    matcher = make_matcher(variable("q", (4, 4), "bert.fc.weight", "int8"))
    by_recorded_name(matcher)
    assert [each.reason for each in matcher.result().mismatches] == ["type int8 where the network has float32"]


def test_two_candidates_of_one_way_are_an_ambiguity_and_no_later_way_decides_it():
    one, other = variable("linear_0.w_0", (4, 4), "bert.fc.weight"), variable("b", (4, 4), "fc.weight")
    matcher = make_matcher(one, other)
    by_recorded_name(matcher)
    by_counted_name(matcher)
    (ambiguity,) = matcher.result().ambiguities
    assert ambiguity.candidates == ("linear_0.w_0", "b") and "2 candidates" in ambiguity.why
    assert not matcher.result().matches


def test_an_earlier_way_wins():
    matcher = make_matcher(variable("a", (4, 4)), variable("linear_0.w_0", (4, 4), "bert.fc.weight"))
    matcher.propose([Candidate(("a",), ("bert.fc.weight",), "map")])
    by_recorded_name(matcher)
    assert matched(matcher) == {"bert.fc.weight": "a"}
    assert [each.name for each in matcher.result().unused] == ["linear_0.w_0"]


def test_a_number_of_thousands_of_digits_counts_nothing():
    matcher = make_matcher(variable(f"linear_{'9' * 5000}.w_0", (4, 4)))
    by_counted_name(matcher)
    assert not matched(matcher)
