"""Which rows look wrong, and which do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nlpctl.data.inspection.rows import InspectedRow
from nlpctl.data.inspection.suspicious import MANY_ROWS, odd_rows, oddities, script
from nlpctl.report.language import later


def kinds(seen: Callable[..., InspectedRow], *passages: str) -> list[str]:
    return [odd.kind for odd in oddities(seen(*passages))]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("房间很\ufffd\ufffd净", "broken characters"),
        ("锟斤拷锟斤拷的酒店", "broken characters"),
        ("The cafÃ© was closed", "broken characters"),
        ("it doesnâ€™t matter", "broken characters"),
        ("好酒店".encode().decode("latin-1"), "broken characters"),
        ("房间".encode().decode("cp1252", "replace"), "broken characters"),
        ("a\u200bb and more", "invisible characters"),
        ("bell\x07 rings", "invisible characters"),
        ("！！！……？", "no letter or digit"),
        ("👍👍", "no letter or digit"),
        ("好", "a single character"),
        ("line one<br />line two", "markup"),
        ("Tom &amp; Jerry", "markup"),
        ("one\rtwo", "carriage returns"),
        ("哈" * 20, "repeats itself"),
        ("buy now and save money! " * 20, "repeats itself"),
    ],
)
def test_odd_texts(seen: Callable[..., InspectedRow], text: str, kind: str) -> None:
    assert kind in kinds(seen, text)


@pytest.mark.parametrize(
    "text",
    [
        "房间很干净，前台也热情。",
        "a < b and c > d, R&D; AT&T",
        "Café, naïve, Ångström, Àéîõü — “quoted”",
        "哈哈哈哈，太好了！！！",
        "他说：“不，不，不！”于是我们走了。",
        "👨‍👩‍👧 came along",
        "tabs\tand\nnew\r\nlines",
        "The quick brown fox jumps over the lazy dog, and then it sleeps in the warm sun until the evening comes.",
        "un café…” dit-il, à « Paris », SÃO PAULO, 20 °C, £5",
    ],
)
def test_ordinary_texts(seen: Callable[..., InspectedRow], text: str) -> None:
    assert kinds(seen, text) == []


def test_the_text_around_a_finding_is_shown(seen: Callable[..., InspectedRow]) -> None:
    odd = next(
        odd
        for odd in oddities(seen("一二三四五六七八九十" * 10 + "<br>" + "甲乙丙丁戊己庚辛壬癸" * 30))
        if odd.kind == "markup"
    )
    assert odd.details == "<br> at character 101"
    assert "十<br>甲" in odd.excerpt and odd.excerpt.startswith("…") and len(odd.excerpt) < 200


def test_each_kind_is_told_once_per_row(seen: Callable[..., InspectedRow]) -> None:
    assert kinds(seen, "a<br>b", "c<br>d") == ["markup"]


def test_doubts_of_the_task_are_told(seen: Callable[..., InspectedRow]) -> None:
    row = seen("same", "same", doubts=((later("both texts are the same"), ""),))
    assert [odd.kind for odd in oddities(row)] == ["both texts are the same"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("房间很干净 wifi", "Han"),
        ("very clean rooms", "Latin"),
        ("очень чистые номера", "Cyrillic"),
        ("とてもきれいな部屋でした", "Japanese"),
        ("매우 깨끗한 방", "Hangul"),
        ("12:30", None),
    ],
)
def test_script(text: str, expected: str | None) -> None:
    assert script(text) == expected


def many(seen: Callable[..., InspectedRow], count: int) -> list[InspectedRow]:
    return [seen(f"房间很干净，第{i}次入住", tokens=10 + i % 20) for i in range(count)]


def test_a_row_in_another_script(seen: Callable[..., InspectedRow]) -> None:
    rows = [*many(seen, 4 * MANY_ROWS), seen("очень чистые номера", tokens=12)]
    ((row, odd),) = odd_rows(rows, limit=128)
    assert (row, odd.kind) == (rows[-1], "another script")
    assert "Cyrillic; 1 of 201 rows" in odd.details


def test_a_row_that_is_far_too_long(seen: Callable[..., InspectedRow]) -> None:
    rows = [*many(seen, 4 * MANY_ROWS), seen("房间很干净", tokens=4000)]
    assert [(row.tokens, odd.kind) for row, odd in odd_rows(rows, limit=128)] == [(4000, "far too long")]
    assert list(odd_rows(rows, limit=4096)) == []


def test_few_rows_have_no_outliers(seen: Callable[..., InspectedRow]) -> None:
    assert list(odd_rows([*many(seen, 5), seen("very clean rooms", tokens=4000)], limit=16)) == []
    assert list(odd_rows([], limit=16)) == []
