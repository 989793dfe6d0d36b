"""Words of lexical analysis: what they cover, and that their offsets are exact whatever the tags say."""

from __future__ import annotations

import json
import random
import unicodedata
from array import array
from dataclasses import replace

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.load import load_recipe
from nlpctl.config.schema import DataSection
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.tag_scheme import Span
from nlpctl.data.rows.tagged_rows import LexicalRows, TaggedExample
from nlpctl.errors import UserError
from nlpctl.tasks.base import make_task
from nlpctl.tasks.token_classification import with_outside

DIFFICULT = (" ", "\u3000", "\t", "\u200b", "\u0301", "Ａ１", "，", "𠀀", "1949", "NBA", "İ",
             "👍\U0001f3fd", "\U0001f468\u200d\U0001f469", "\U0001f1e8\U0001f1f3", "1\ufe0f\u20e3")  # fmt: skip


def task_for(tmp_path, *labels):
    (tmp_path / "train.conll").touch()
    (tmp_path / "recipe.yaml").write_text(
        "task: lexical_analysis\nmodel: {from_scratch: {architecture: bigru}}\ndata: {train: train.conll}\n"
    )
    return make_task(load_recipe(tmp_path / "recipe.yaml"), LabelSet(labels))


def words_of(task, text, tags):
    example = LexicalRows(DataSection()).read({"text": text}, None)
    ids = np.array([task.labels.id(tag) for tag in tags], np.int32)
    return [(word["text"], word["tag"]) for word in task.answer(example, [ids])["words"]]


def test_outside_is_joined_up_to_white_space(tmp_path):
    task = task_for(tmp_path, "n-B", "n-I", "v-B", "v-I", "O")
    tags = ["O", "O", "n-B", "n-I", "v-B", "O", "O", "O", "n-B"]
    assert words_of(task, "是，北 京去ab\u3000c我", tags) == [
        ("是，", "O"), ("北 京", "n"), ("去", "v"), ("ab", "O"), ("c", "O"), ("我", "n")
    ]  # fmt: skip
    assert words_of(task, "ab", ["O", "O"]) == [("ab", "O")]
    assert words_of(task, "ab", ["n-B", "n-B"]) == [("a", "n"), ("b", "n")]


def test_bare_marks_give_words_without_tags(tmp_path):
    task = task_for(tmp_path, "B", "I", "E", "S", "O")
    assert words_of(task, "我去火车站", ["S", "S", "B", "I", "E"]) == [("我", None), ("去", None), ("火车站", None)]


def test_a_tagger_of_entities_answers_with_entities(tmp_path):
    tags = ("B-LOC", "I-LOC", "O")
    task = task_for(tmp_path, *tags)
    example = LexicalRows(DataSection()).read({"text": "去北京"}, None)
    found = task.answer(example, [np.array([2, 0, 1], np.int32)])
    assert found == {"entities": [{"type": "LOC", "start": 1, "end": 3, "text": "北京"}]}
    assert task.answer_keys == ("entities",)
    asked = replace(task.recipe, decode=replace(task.recipe.decode, entity_types=()))
    assert set(make_task(asked, LabelSet(tags)).answer(example, [np.array([2, 0, 1], np.int32)])) == {"words"}
    asked = replace(task.recipe, decode=replace(task.recipe.decode, entity_types=("LOK",)))
    with pytest.raises(UserError, match="no tag has the type 'LOK' \\(did you mean 'LOC'\\?\\)"):
        make_task(asked, LabelSet(tags))


def test_entities_are_scored_alone(tmp_path):
    task = task_for(tmp_path, "n-B", "v-B", "PER-B", "PER-I", "O")
    row = {"tokens": list("张三去学"), "tags": ["PER-B", "PER-I", "v-B", "n-B"]}
    tagged = LexicalRows(DataSection()).read(row, task.labels)
    report = task.report([tagged], [[np.array([2, 3, 0, 1], np.int32)]])
    assert report["entity_f1"] == 1.0 and report["f1"] == pytest.approx(1 / 3)


def test_white_space_tokens_of_a_file_are_no_words():
    example = TaggedExample("我 去", array("i", (0, 1, 1, 2, 2, 3)), None, in_words=True)
    assert with_outside([], example) == [Span("O", 0, 1), Span("O", 2, 3)]


def test_plain_text_is_cut_into_characters_whatever_data_unit_says():
    example = LexicalRows(DataSection(unit="words")).read({"text": "1949年 e\u0301a"}, None)
    assert example.words() == ["1", "9", "4", "9", "年", "e\u0301", "a"]


@pytest.mark.parametrize("scheme", ["prefix", "suffix"])
def test_offsets_on_2000_sentences(shared_data, tmp_path, scheme):
    kinds = ("n", "PER", "v")
    tags = [f"{mark}-{kind}" if scheme == "prefix" else f"{kind}-{mark}" for kind in kinds for mark in "BI"]
    task = task_for(tmp_path, *tags, "O")
    chance = random.Random(scheme)
    files = [(shared_data / name / "dev.tsv").read_text(encoding="utf-8") for name in ("chnsenticorp", "sst2")]
    texts = [line.split("\t")[0] for file in files for line in file.split("\n")[1:]]
    texts = [text for text in texts * 2 if text.strip()][:2000]
    assert len(texts) == 2000
    rows, words = LexicalRows(DataSection()), 0
    for text in texts:
        for _ in range(chance.randrange(7)):
            place = chance.randrange(len(text) + 1)
            text = text[:place] + chance.choice(DIFFICULT) + text[place:]
        example = rows.read({"text": text}, None)
        half = len(example) // 2  # as if read in two windows
        ids = np.array(chance.choices(range(len(task.labels)), k=len(example)), np.int32)
        answer = json.loads(json.dumps(task.answer(example, [ids[:half], ids[half:]])))
        end = 0
        for word in answer["words"]:
            assert end <= word["start"] < word["end"] and text[word["start"] : word["end"]] == word["text"]
            assert between(text[end : word["start"]])
            end = word["end"]
        assert between(text[end:])
        words += len(answer["words"])
    assert words > 20_000


def between(text):
    """Whether there is nothing in `text` that ought to be in a word."""
    return all(character.isspace() or unicodedata.category(character) in ("Cc", "Cf") for character in text)
