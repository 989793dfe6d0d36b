"""Near duplicates against the answer of comparing every pair."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from nlpctl.data.near_duplicates import (
    CROWD,
    aligned_similarity,
    jaccard,
    letters_of,
    near_duplicates,
    near_rows,
    row_key,
)

WORDS = "room staff dirty clean breakfast station noise friendly price view pool lift towel garden window".split()
HAN = "酒店房间服务早餐位置干净价格前台热情交通方便安静设施陈旧态度推荐下次入住环境不错地铁门口停车免费"


def sentences(count: int, seed: int) -> list[str]:
    """Random sentences in English and Chinese, every third an altered copy of an earlier one."""
    chance = random.Random(seed)
    made: list[str] = []
    while len(made) < count:
        if len(made) % 3 == 2:
            copy = list(chance.choice(made))
            for _ in range(chance.randint(1, 2)):
                copy[chance.randrange(len(copy))] = chance.choice("xyz")
            made.append("".join(copy))
        elif chance.random() < 0.5:
            made.append(" ".join(chance.choices(WORDS, k=chance.randint(5, 30))))
        else:
            made.append("".join(chance.choices(HAN, k=chance.randint(15, 90))))
    return made


def exact_jaccard(first: str, second: str, length: int) -> float:
    a, b = ({text[i : i + length] for i in range(len(text) - length + 1)} for text in (first, second))
    return len(a & b) / len(a | b)


@pytest.mark.parametrize("threshold", [0.7, 0.8, 0.9])
def test_finds_what_comparing_every_pair_finds(threshold: float) -> None:
    texts = sentences(150, seed=int(threshold * 10))
    every = {(i, j) for i, j in combinations(range(len(texts)), 2) if jaccard(texts[i], texts[j]) >= threshold}
    found = near_duplicates(texts, threshold)
    assert len(every) > 10
    assert {(i, j) for i, j, _ in found} <= every
    assert len(found) >= 0.95 * len(every)
    assert all(similarity >= threshold for _, _, similarity in found)
    assert [similarity for *_, similarity in found] == sorted((s for *_, s in found), reverse=True)


@pytest.mark.parametrize(
    ("first", "second", "length"),
    [
        ("the room was clean and the staff friendly", "the room was clean and the staff unfriendly", 5),
        ("酒店的位置很好房间也干净", "酒店的位置不好房间也干净", 3),
        ("one text", "quite another text of all", 5),
    ],
)
def test_similarity_is_the_share_of_common_ngrams(first: str, second: str, length: int) -> None:
    assert jaccard(first, second) == pytest.approx(exact_jaccard(first, second, length))
    assert jaccard(first, first) == 1.0


def test_short_texts_are_not_compared() -> None:
    assert near_duplicates(["很好", "很好的", "不好"] * 5, 0.5) == []
    assert jaccard("ab", "ab") == 1.0 and jaccard("", "") == 1.0 and jaccard("ab", "cd") == 0.0


def test_a_crowd_of_variants_stays_linked() -> None:
    """Of more rows than are compared each with each, every one is near to one before it."""
    base = "the breakfast was good and the room was large and quiet and the staff were friendly "
    texts = [base * 2 + str(i) for i in range(5 * CROWD)]
    linked = {j for _, j, _ in near_duplicates(texts, 0.8)}
    assert linked == set(range(1, len(texts)))


def test_every_row_of_a_crowd_with_equal_letters_is_linked_with_one_before_it() -> None:
    base = "the breakfast was good and the room was large and quiet"
    rows = [(base + "!" * i,) for i in range(3 * CROWD)]
    assert {j for _, j, _ in near_rows(rows, 0.8)} == set(range(1, len(rows)))
    # Of another text that is near, too.
    both = [*rows, *((base + " too" + "!" * i,) for i in range(3 * CROWD))]
    first, second = set(range(len(rows))), set(range(len(rows), len(both)))
    across = {(i, j) for i, j, _ in near_rows(both, 0.8) if i in first and j in second}
    assert {i for i, _ in across} == first and {j for _, j in across} == second


def test_pairs_beyond_a_crowd_with_one_text_near_and_the_other_equal_are_found() -> None:
    question, count = "how long does the battery of this telephone last when it is charged", 2 * CROWD
    answers = [f"{i} hours" for i in range(count)]  # too short for n-grams
    rows = [(question, each) for each in answers] + [(question + "s", each) for each in reversed(answers)]
    found = {(i, j) for i, j, _ in near_rows(rows, 0.8)}
    assert {(i, 2 * count - 1 - i) for i in range(count)} <= found


def test_texts_are_the_same_but_for_case_width_and_blanks() -> None:
    assert row_key(["Ｃａｆｅ\u0301　１０，  ﾃﾚﾋﾞ"]) == row_key(["CAFÉ 10, テレビ"])
    assert len({row_key([text]) for text in ("x² here", "x2 here", "दिन", "दान", "a+b", "a-b")}) == 6


def test_many_marks_are_no_work() -> None:
    """The square of their number would be minutes."""
    marks = "-" * 200_000
    assert letters_of(f"a{marks}b") == "a-b" and letters_of(f"a{marks}好") == "a好"


def test_the_same_input_gives_the_same_pairs() -> None:
    texts = sentences(120, seed=3)
    assert near_duplicates(texts, 0.8) == near_duplicates(texts, 0.8)
    assert near_duplicates([], 0.8) == [] and near_duplicates(["a lonely text of some length"], 0.8) == []


def test_rows_are_near_in_all_of_their_texts_in_any_order() -> None:
    """As comparing every pair of rows in both orders finds; rows share texts, and every third is an altered copy."""
    chance, texts = random.Random(5), sentences(120, seed=5)
    rows = [(texts[chance.randrange(40)], texts[i + 40]) for i in range(60)]
    for i in range(0, 60, 3):
        first, second = rows[i + 1]
        altered = second[:-1] + "x"
        rows[i] = (altered, first) if i % 2 else (first, altered)
    every = set()
    for (i, one), (j, other) in combinations(enumerate(rows), 2):
        straight = min(jaccard(one[0], other[0]), jaccard(one[1], other[1]))
        mirrored = min(jaccard(one[0], other[1]), jaccard(one[1], other[0]))
        if max(straight, mirrored) >= 0.8:
            every.add((i, j))
    found = {(i, j) for i, j, _ in near_rows(rows, 0.8)}
    assert len(every) >= 15 and found <= every and len(found) >= 0.95 * len(every)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("今天天气很好我们去公园玩", "今天天气很好，我们去公园玩", True),
        ("周末全家人去爬山看日出拍照", "周末，全家人去爬山……看日出 拍照！", True),
        ("我用 iPhone 拍照", "我用iPhone拍照。", True),
        ("3月5日，见", "3月5日见", True),
        ("映画はとても、よかった", "映画はとてもよかった", True),
        ("I can't go", "I cant go", True),
        ("a well-known man", "a well known man", True),
        ("by e-mail", "by email", True),
        ("the U.S. team", "the US team", True),
        ("a well-known man", "a wellknown man", True),
        ("e-mail isn't sent", "e mail isnt sent", True),
        ("re-use the well-known", "reuse the well known", True),
        ("a well -- known man", "a well-known man", True),
        ("it is 1.5 m", "it is 15 m", False),
        ("now here", "nowhere", False),
        ("the rapist came", "therapist came", False),
        ("see you at 10 a.m. and later", "see you at 10 am, and later", True),
        ("第1，2名", "第12名", False),
        ("我去。", "我来。", False),
        ("यह दिन अच्छा", "यह दान अच्छा", False),  # vowel signs
        ("ฉันมีบ้าน", "ฉันมาบ้าน", False),
        ("เสื้อตัวนี้", "เสือตัวนี้", False),
        ("看了电影 😀", "看了电影 😡", False),
        ("I write C++ today", "I write C# today", False),
        ("it is -5 degrees", "it is 5 degrees", False),
        ("气温-5度", "气温5度", False),
        ("10² people", "102 people", False),
        ("it is (-5) today", "it is −5, today", True),
        ("好的～谢谢", "好的，谢谢", True),
        ("a {covid}-19 test", "a covid 19 test", True),
    ],
)
def test_texts_that_differ_in_marks_and_blanks_only(first: str, second: str, same: bool) -> None:
    """Short ones too, and beside another text that is near, for rows that are read in either order."""
    assert ((0, 1, 1.0) in near_rows([(first,), (second,)], 0.8)) == same
    long = "the breakfast was good and the room was large and quiet and the staff were friendly"
    assert bool(list(near_rows([(first, long), (long + "!", second)], 0.8))) == same
    assert bool(list(near_rows([(first, long), (long + "er", second)], 0.8))) == same
    assert (aligned_similarity((first,), (second,)) == 1.0) == same
