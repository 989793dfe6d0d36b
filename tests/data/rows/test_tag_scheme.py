import random
import re
import warnings

import pytest
from seqeval.metrics.sequence_labeling import get_entities

from nlpctl.data.rows.tag_scheme import _ALIKE, Span, TagScheme, detect_scheme
from nlpctl.errors import UserError

BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
BIOES = [*BIO, "E-PER", "S-PER", "E-LOC", "S-LOC"]
BILOU = [tag.replace("E-", "L-").replace("S-", "U-") for tag in BIOES]
BMES = ["O", *(f"{mark}-{kind}" for kind in ("PER", "LOC") for mark in "BMES")]


def turned(tags):
    """The same tags in suffix style."""
    return [tag if tag == "O" else f"{tag[2:]}-{tag[0]}" for tag in tags]


@pytest.mark.parametrize(
    ("tags", "marks", "style"),
    [
        (BIO, "BIO", "prefix"),
        (turned(BIO), "BIO", "suffix"),
        (BIOES, "BIOES", "prefix"),
        (turned(BIOES), "BIOES", "suffix"),
        (BMES, "BMES", "prefix"),
        (turned(BMES), "BMES", "suffix"),
        (BILOU, "BILOU", "prefix"),
        (turned(BILOU), "BILOU", "suffix"),
        (["B", "M", "E", "S"], "BMES", "bare"),
        (["B", "I", "L", "U", "O"], "BILOU", "bare"),
        (["U-PER", "O"], "BILOU", "prefix"),
        (["L-B", "L-I", "O"], "BIO", "suffix"),  # L is a type here
        (["B-U", "I-U", "B-L"], "BIO", "prefix"),
        (["O", "B", "I"], "BIO", "bare"),
        (["P-B", "P-I", "T-B", "T-I", "A1-B", "A1-I", "O"], "BIO", "suffix"),  # waybills
        (["B-I", "I-I", "O"], "BIO", "prefix"),  # either way
        (["S-B", "S-I", "PER-B", "PER-I"], "BIO", "suffix"),  # S is a type here
        (["I-PER", "O"], "BIO", "prefix"),  # IOB1 data may have no B
        (["S-PER", "O"], "BIOES", "prefix"),
        (["B-a-b", "I-a-b", "O"], "BIO", "prefix"),
        (["B-人物", "I-人物"], "BIO", "prefix"),
    ],
)
def test_detection(tags, marks, style):
    assert detect_scheme(tags, "tags") == TagScheme(marks, style)


@pytest.mark.parametrize(
    ("tags", "told"),
    [
        (["O"], "no entities"),
        (["B-PER", "PER-I", "O"], "mixed"),
        (["B-PER", "I", "O"], "mixed"),
        (["B-PER", "I-PER", "M-LOC", "E-LOC"], "I (BIO, BIOES) and M (BMES)"),
        ([*BIO, "E-PER", "S-PER"], "the mark E (of 'PER'), but none that ends 'LOC'"),
        (["B-PER", "I-PER", "S-PER"], "none that ends 'PER'"),
        (["B_PER", "I_PER"], "'B_PER', 'I_PER': no mark"),
        (["B-PER", "U-PER", "E-PER"], "L and U (BILOU) and E, S or M"),
        ([*BIO, "L-PER", "U-PER"], "the mark L (of 'PER'), but none that ends 'LOC'"),
        (["B-PER", "X-PER"], "'X-PER': no mark"),
        (["o", "B-PER"], "'o': no mark"),
        (["B-", "I-"], "'B-', 'I-': no mark"),
        (["-B", "O"], "'-B': no mark"),
    ],
)
def test_refused(tags, told):
    with pytest.raises(UserError) as caught:
        detect_scheme(tags, "labels.txt")
    problem = caught.value.problems[0]
    assert told in problem.message and problem.where == "labels.txt" and problem.hint


@pytest.mark.parametrize("style", ["prefix", "suffix", "bare"])
@pytest.mark.parametrize("marks", ["BIO", "BIOES", "BMES", "BILOU"])
def test_entities_are_those_of_seqeval(marks, style):
    pool = {"BIO": BIO, "BIOES": BIOES, "BMES": BMES, "BILOU": BILOU}[marks]
    pool = [tag[0] for tag in pool] if style == "bare" else turned(pool) if style == "suffix" else pool
    scheme = TagScheme(marks, style)
    draw = random.Random(f"{marks} {style}")
    found = 0
    for _ in range(1000):
        tags = draw.choices(pool, k=draw.randrange(1, 20))
        # seqeval knows M neither, nor L and U in this mode; they are I, E and S in all but name.
        known = [tag if "-" in tag else _ALIKE.get(tag, tag) for tag in tags]
        known = [re.sub(r"^[MLU](?=-)|(?<=-)[MLU]$", lambda mark: _ALIKE[mark[0]], tag) for tag in known]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            expected = [(kind, start, end + 1) for kind, start, end in get_entities(known, style == "suffix")]
        assert scheme.entities(tags) == expected, tags
        found += len(expected)
    assert found > 1000


def test_ill_formed_sequences():
    scheme = TagScheme("BIO", "prefix")
    assert scheme.entities([]) == []
    assert scheme.entities(["I-PER", "I-LOC", "O", "I-LOC"]) == [("PER", 0, 1), ("LOC", 1, 2), ("LOC", 3, 4)]
    assert scheme.entities(["B-PER", "B-PER", "I-PER"]) == [("PER", 0, 1), ("PER", 1, 3)]


@pytest.mark.parametrize("marks", ["BIO", "BIOES", "BMES", "BILOU"])
def test_tags_are_written_as_they_are_read(marks):
    spans = [("PER", 0, 1), ("LOC", 1, 4), ("PER", 5, 7)]
    for style in ("prefix", "suffix"):
        scheme = TagScheme(marks, style)
        tags = scheme.tags([Span(*span) for span in spans], 8)
        assert scheme.entities(tags) == spans and scheme.first_break(tags) is None
    assert TagScheme("BILOU", "prefix").tags([Span("X", 0, 1), Span("X", 1, 4)], 4) == ["U-X", "B-X", "I-X", "L-X"]
