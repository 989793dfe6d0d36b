"""What a tagger answers with follows from its tags: parts of speech make words, entities alone make entities."""

from __future__ import annotations

import pytest

from nlpctl.data.readers.dictionaries import read_tags
from nlpctl.data.rows.tag_scheme import answers_words, entities_among, types_of


def of_types(*kinds):
    return [f"{mark}-{kind}" for kind in kinds for mark in "BI"] + ["O"]


@pytest.mark.parametrize(
    ("tags", "entities", "words"),
    [
        (of_types("PER", "LOC", "ORG"), ("PER", "LOC", "ORG"), False),
        (of_types("person", "organization", "gpe"), ("person", "organization", "gpe"), False),
        (of_types("n", "v", "nr", "vn", "PER"), ("PER",), True),
        (of_types("n", "nr", "ns"), ("n", "nr", "ns"), False),  # no verb: names by the codes of parts of speech
        (of_types("NOUN", "VERB", "NUM", "DATE"), ("DATE",), True),
        (of_types("NN", "VV", "NR", "GPE"), ("GPE",), True),
        (of_types("NNP", "VB", "VBZ"), (), True),
        (["B-PER", "I-PER"], ("PER",), True),  # nothing is outside
    ],
)
def test_by_the_tags(tags, entities, words):
    assert entities_among(types_of(tags)) == entities
    assert answers_words(tags, entities, bare_marks_are_words=False) is words


@pytest.mark.parametrize("task_says", [True, False])
def test_bare_marks_tell_neither_way(task_says):
    assert answers_words(["B", "I", "O"], (), task_says) is task_says


def test_lac_is_an_analyser_with_four_kinds_of_entity():
    from pathlib import Path

    import jieba

    tags = read_tags(Path(jieba.__file__).parent / "lac_small" / "tag.dic")
    found = entities_among(types_of(tags))
    assert found == ("PER", "LOC", "ORG", "TIME") and answers_words(tags, found, False)
