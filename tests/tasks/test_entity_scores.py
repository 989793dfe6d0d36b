import random

import pytest
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

from nlpctl.data.rows.tag_scheme import Span, TagScheme
from nlpctl.tasks.token_classification import entity_report

TYPES = ("PER", "LOC", "ORG")
MARKS = {"BIO": "BI", "BIOES": "BIES", "BMES": "BMES"}


def random_tags(draw, marks, style, sentences):
    pool = ["O", *(f"{mark}-{kind}" for kind in TYPES for mark in MARKS[marks])]
    turn = (lambda tag: tag) if style == "prefix" else (lambda tag: tag if tag == "O" else f"{tag[2:]}-{tag[0]}")
    gold = [[draw.choice(pool) for _ in range(draw.randrange(1, 12))] for _ in range(sentences)]
    # Half of the tags are right, so that entities are found too.
    guess = [[tag if draw.random() < 0.6 else draw.choice(pool) for tag in tags] for tags in gold]
    return [[turn(tag) for tag in tags] for tags in gold], [[turn(tag) for tag in tags] for tags in guess]


def known(sentences, style):
    """The tags with seqeval's marks: it has no M."""
    if style == "prefix":
        return [["I" + tag[1:] if tag[0] == "M" else tag for tag in tags] for tags in sentences]
    return [[tag[:-1] + "I" if tag[-2:] == "-M" else tag for tag in tags] for tags in sentences]


@pytest.mark.parametrize("style", ["prefix", "suffix"])
@pytest.mark.parametrize("marks", MARKS)
def test_figures_are_those_of_seqeval(marks, style):
    """1,000 sentences of each scheme, in sets of ten so that rare figures (nothing found, one type) occur too."""
    draw, scheme = random.Random(f"{marks} {style}"), TagScheme(marks, style)
    scored = 0
    for _ in range(100):
        gold, guess = random_tags(draw, marks, style, 10)
        report = entity_report([scheme.entities(tags) for tags in gold], [scheme.entities(tags) for tags in guess])
        theirs = known(gold, style), known(guess, style)
        options = {"suffix": style == "suffix", "zero_division": 0}
        assert report["precision"] == pytest.approx(precision_score(*theirs, **options), abs=1e-12)
        assert report["recall"] == pytest.approx(recall_score(*theirs, **options), abs=1e-12)
        for name, average in (("f1", "micro"), ("macro_f1", "macro"), ("weighted_f1", "weighted")):
            assert report[name] == pytest.approx(f1_score(*theirs, average=average, **options), abs=1e-12)
        per_type = precision_recall_fscore_support(*theirs, average=None, **options)
        for kind, *figures in zip(sorted(report["labels"]), *per_type, strict=True):
            assert list(report["labels"][kind].values()) == pytest.approx(figures, abs=1e-12)
        scored += report["f1"] > 0
    assert scored > 50


def test_nothing_to_divide_by():
    empty = entity_report([[]], [[]])
    assert empty == {
        "rows": 1, "precision": 0.0, "recall": 0.0, "f1": 0.0, "macro_f1": 0.0, "weighted_f1": 0.0, "entities": 0,
        "labels": {},
    }  # fmt: skip
    report = entity_report([[Span("A", 0, 1)], []], [[Span("A", 0, 1)], [Span("B", 0, 2)]])
    assert (report["precision"], report["recall"], report["macro_f1"]) == (0.5, 1.0, 0.5)
    assert report["labels"]["B"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
