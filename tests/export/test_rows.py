"""Which rows an export is compared on."""

from __future__ import annotations

import dataclasses

import pytest

from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.sample_rows import require_rows, rows_for_int8, rows_to_compare, spread
from nlpctl.errors import UserError
from nlpctl.models.find import find_trained_model
from nlpctl.runtime.process import set_up_process


@pytest.fixture(scope="module")
def tokenizer(classifier):
    set_up_process(classifier)
    from nlpctl.tasks.base import task_class

    return task_class(classifier.task).load_trained(classifier, find_trained_model(classifier)).tokenizer


def rows(recipe, file=None, count=50, masked=False, tokenizer=None, **data):
    changed = dataclasses.replace(recipe.data, **data)
    return rows_to_compare(task_rows(recipe.task, changed), file, tokenizer, count, masked=masked)


def test_dev_first_then_train_then_the_vocabulary(classifier, tokenizer):
    found = rows(classifier, tokenizer=tokenizer)
    assert (found.origin, len(found.examples), found.real) == ("dev", 40, True)
    found = rows(classifier, tokenizer=tokenizer, dev=("/nowhere/dev.jsonl",))  # the run was copied without its data
    assert (found.origin, len(found.examples), found.real) == ("train", 20, True)
    found = rows(classifier, tokenizer=tokenizer, dev=(), train=())
    assert (found.origin, found.real) == ("words drawn from the vocabulary", False)
    texts = [example.text for example in found.examples]
    assert len(texts) > 40 and len(set(texts)) > 30 and any(len(text.split()) > 5 for text in texts)
    ids = [id for text in texts for id in tokenizer.ids(text)]
    assert len(set(ids)) > 50 and ids.count(tokenizer.unk_token_id) < len(ids) / 5


def test_graphs_in_8_bits_are_calibrated_on_train(classifier, tokenizer, tmp_path):
    """Whatever they are compared on."""
    file = tmp_path / "compared.tsv"
    file.write_text("text\nthe room\n", encoding="utf-8")

    def origin(**data: tuple[str, ...]) -> str:
        readers = task_rows(classifier.task, dataclasses.replace(classifier.data, **data))
        return rows_for_int8(readers, file, tokenizer, 50, masked=False).origin

    assert origin() == "train" and origin(train=("/nowhere/train.jsonl",)) == str(file)


def test_rows_of_all_of_a_file(classifier, tokenizer, tmp_path):
    """Which is often sorted by label."""
    file = tmp_path / "sorted.tsv"
    file.write_text("text\n" + "the room\n" * 100 + "the bed\n" * 100, encoding="utf-8")
    found = rows(classifier, file, count=8, tokenizer=tokenizer)
    assert [example.text for example in found.examples] == ["the room"] * 4 + ["the bed"] * 4
    assert spread("abcdef", 3) == ["a", "c", "e"] and spread("ab", 3) == ["a", "b"] and spread("", 3) == []


def test_a_file_needs_no_labels(classifier, tokenizer, tmp_path):
    file = tmp_path / "new.tsv"
    file.write_text("text\nthe room\nthe bed\n", encoding="utf-8")
    found = rows(classifier, file, tokenizer=tokenizer)
    assert [example.text for example in found.examples] == ["the room", "the bed"] and found.real
    file.write_text("text\n \n\t\n", encoding="utf-8")
    kind = task_rows(classifier.task, classifier.data)
    with pytest.raises(UserError, match="no row is usable"):
        require_rows(kind, file)
    with pytest.raises(UserError, match="new.csv does not exist"):
        require_rows(kind, tmp_path / "new.csv")


def test_a_word_of_every_text_is_masked(classifier, tokenizer):
    found = rows(classifier, tokenizer=tokenizer, masked=True)
    assert all(example.text.count("[MASK]") == 1 for example in found.examples)
