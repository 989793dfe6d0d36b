"""The quickstart reviews: what the generator writes, balanced, and not to be solved by memory or by counting words."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from nlpctl.config.load import load_recipe

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "recipes" / "quickstart"
SPLITS = ("train", "dev", "test")


@pytest.fixture(scope="module")
def generator() -> Iterator:
    sys.path.insert(0, str(ROOT / "scripts"))
    import make_quickstart_data

    yield make_quickstart_data
    sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture(scope="module")
def made(generator):
    return generator.build()[0]


def committed(split: str) -> list[tuple[str, str]]:
    header, *lines = (FOLDER / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "text\tlabel"
    return [tuple(line.split("\t")) for line in lines]


@pytest.mark.parametrize("split", SPLITS)
def test_the_files_are_what_the_generator_writes(split: str, generator, made) -> None:
    assert (FOLDER / f"{split}.tsv").read_bytes() == generator.as_tsv(made[split]).encode()


@pytest.mark.parametrize(("split", "rows"), [("train", 4000), ("dev", 500), ("test", 500)])
def test_sizes_and_shares(split: str, rows: int) -> None:
    labels = Counter(label for _, label in committed(split))
    assert labels == {"好评": rows * 6 // 10, "差评": rows * 4 // 10}


def test_no_text_occurs_twice() -> None:
    texts = [re.sub(r"\W", "", text) for split in SPLITS for text, _ in committed(split)]
    assert len(texts) == len(set(texts)) == 5000


def test_the_longest_review_fits_the_recipe() -> None:
    recipe = load_recipe(FOLDER / "quickstart.yaml")
    longest = max(len(text) for split in SPLITS for text, _ in committed(split))
    assert longest + 2 <= recipe.data.max_seq_length  # one token a character, [CLS] and [SEP]


@pytest.mark.parametrize("split", ["dev", "test"])
def test_deciding_pairings_are_new_their_parts_are_known(split: str, made) -> None:
    known = {pairing.key for row in made["train"] for pairing in row.pairings}
    aspects, words = {aspect for aspect, _ in known}, {word for _, word in known}
    for row in made[split]:
        assert row.deciding.key not in known
        assert row.deciding.aspect in aspects and row.deciding.word in words


def test_dev_and_test_share_no_deciding_pairing(made) -> None:
    dev, test = ({row.deciding.key for row in made[split]} for split in ("dev", "test"))
    assert not dev & test
    assert min(len(dev), len(test)) > 80


@pytest.mark.parametrize("split", ["dev", "test"])
def test_part_of_the_frames_is_new(split: str, made) -> None:
    known = {row.frame for row in made["train"]}
    share = sum(row.frame not in known for row in made[split]) / len(made[split])
    assert 0.3 < share < 0.5


def pairings_in(text: str, aspects: list[str], words: list[str]) -> set[tuple[str, str]]:
    """(aspect, word) of every clause, read from the text alone; a clause without aspect speaks of the last one."""
    found, aspect = set(), None
    for clause in re.split("[，。]", text):
        named = [name for name in aspects if name in clause]
        ending = re.sub("[了的]$", "", clause)
        word = next((word for word in words if ending.endswith(word)), None)
        aspect = named[0] if named else aspect
        if word and aspect:
            found.add((aspect, word))
    return found


@pytest.mark.parametrize("split", ["dev", "test"])
def test_the_texts_themselves_show_new_pairings(split: str, generator) -> None:
    pairings = generator.all_pairings()
    aspects = sorted({pairing.aspect for pairing in pairings}, key=len, reverse=True)
    words = sorted({pairing.word for pairing in pairings}, key=len, reverse=True)
    known = set().union(*(pairings_in(text, aspects, words) for text, _ in committed("train")))
    assert len(known) > 500
    new = [pairings_in(text, aspects, words) - known for text, _ in committed(split)]
    assert all(new), "a row without any pairing that train lacks"


def naive_bayes_accuracy(split: str) -> float:
    """Accuracy of Bernoulli naive Bayes over characters, with add-one smoothing."""
    rows, counts = Counter(), {"好评": Counter(), "差评": Counter()}
    for text, label in committed("train"):
        rows[label] += 1
        counts[label].update(set(text))

    def score(text: str, label: str) -> float:
        prior = math.log(rows[label])
        return prior + sum(math.log((counts[label][c] + 1) / (rows[label] + 2)) for c in set(text))

    answers = committed(split)
    return sum(max(counts, key=lambda name: score(text, name)) == label for text, label in answers) / len(answers)


@pytest.mark.parametrize("split", ["dev", "test"])
def test_counting_characters_is_hardly_better_than_the_majority(split: str, record_property) -> None:
    accuracy = naive_bayes_accuracy(split)
    record_property("naive_bayes_accuracy", accuracy)
    assert 0.5 < accuracy < 0.7  # 0.60 for the majority; the quickstart model must be far above both
