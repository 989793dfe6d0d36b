"""data.tag_map: which learnt tag a tag of the data starts as."""

from __future__ import annotations

import pytest

from nlpctl.errors import UserError
from nlpctl.models.extend import learnt_tags

LAC = ("n-B", "n-I", "PER-B", "PER-I", "LOC-B", "LOC-I", "O")


def test_types_are_carried_whatever_the_style_and_scheme():
    new = ("B-PERSON", "E-PERSON", "I-PERSON", "S-PERSON", "B-GPE", "E-GPE", "B-LOC", "E-LOC", "O")
    assert learnt_tags({"PERSON": "PER", "GPE": "LOC", "LOC": "LOC"}, new, LAC) == {
        "B-PERSON": "PER-B", "E-PERSON": "PER-I", "I-PERSON": "PER-I", "S-PERSON": "PER-B",
        "B-GPE": "LOC-B", "E-GPE": "LOC-I", "B-LOC": "LOC-B", "E-LOC": "LOC-I",
    }  # fmt: skip


def test_an_entry_may_name_whole_tags():
    assert learnt_tags({"B-A": "n-B"}, ("B-A", "I-A", "O"), LAC) == {"B-A": "n-B"}


@pytest.mark.parametrize(
    ("tag_map", "message"),
    [
        ({"PERSN": "PER"}, "no tag of the data has the type 'PERSN' (did you mean 'PERSON'?)"),
        ({"PERSON": "PRE"}, "no tag of the model has the type 'PRE' (did you mean 'PER'?)"),
        ({"PER": "PERSON"}, "write the data's first: {PERSON: PER}"),
    ],
)
def test_what_names_nothing_is_an_error(tag_map, message):
    with pytest.raises(UserError) as caught:
        learnt_tags(tag_map, ("B-PERSON", "I-PERSON", "O"), LAC)
    assert message in str(caught.value) and str(caught.value).startswith("data.tag_map: ")


def test_a_model_without_tags():
    with pytest.raises(UserError, match="has no tags"):
        learnt_tags({"PERSON": "PER"}, ("B-PERSON", "O"), None)
    assert learnt_tags({}, ("B-PERSON", "O"), None) == {}


def test_a_model_that_was_trained_with_the_map_has_the_names_of_the_data():
    assert learnt_tags({"PERSON": "PER"}, ("B-PERSON", "O"), ("B-PERSON", "I-PERSON", "O")) == {}
