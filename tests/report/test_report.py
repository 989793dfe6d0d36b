"""Pages and plots: what is escaped, what is drawn where, what is left out."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

import pytest

from nlpctl.report.html import Html, element, escaped
from nlpctl.report.model import Figure, KeyFigures, Part, Report, Section, Table, format_moment, format_value, percent
from nlpctl.report.page import draw, html_page
from nlpctl.report.plots import (
    MOST_POINTS,
    Dot,
    bars,
    histogram,
    histogram_edges,
    lines,
    matrix,
    scatter,
    shortened,
    text_width,
    thinned,
    ticks,
)

VOID = {"meta"}


class Balance(HTMLParser):
    """Whether every element is closed, in order; and what the page would fetch."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [value for name, value in attrs if name in ("src", "href") and not value.startswith("#")]
        if tag in ("script", "link", "iframe", "img"):
            self.fetched.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def full_page() -> str:
    plots = [
        bars(["好评", "<b>"], {"train": [0.5, 0.5], "dev": [0.4, 0.6]}, "labels"),
        lines({"loss": [(0, 1.0), (1, 0.5)]}, "step", "loss", marks={"best": 1}),
        histogram({"train": [1, 2]}, [0, 10, 20], "tokens", marks={"max": 15}),
        matrix(["a", "b"], ["a", "b"], [[1, 2], [0, 4]]),
        scatter({"fp32": [Dot(1, 0.9, "original", "<first>")]}, "speed", "score", levels={"least": 0.88}),
    ]
    parts: list[Part] = [
        KeyFigures({"rows": 12345, "accuracy": 0.5}),
        Table(["text", "n"], [["<script>alert(1)</script>", 3]]),
        *map(Figure, plots),
    ]
    return html_page(Report("A & B", "lead", [Section("One", parts), Section("None", [])]))


def test_a_page_is_whole_and_fetches_nothing() -> None:
    text = full_page()
    balance = Balance(text)
    assert balance.open == []
    assert balance.fetched == []
    assert "@import" not in text and "url(" not in text


def test_what_users_write_is_text() -> None:
    text = full_page()
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "A &amp; B" in text
    assert "&lt;b&gt;" in text


def test_sections_without_parts_are_left_out() -> None:
    assert "<h2>One</h2>" in full_page() and "<h2>None</h2>" not in full_page()


@pytest.mark.parametrize(
    ("character", "seen"),
    [("\x00", "⟨U+0000⟩"), ("\u202e", "⟨U+202E⟩"), ("\u200b", "⟨U+200B⟩"), ("\ud83d", "⟨U+D83D⟩")],
)
def test_characters_that_cannot_be_seen_are_named(character: str, seen: str) -> None:
    assert escaped(f"a{character}b") == f"a{seen}b"
    assert escaped(f"a{character}b").encode("utf-8")


def test_html_is_escaped_once() -> None:
    inner = element("b", "1 < 2")
    assert element("p", inner + " & more") == "<p><b>1 &lt; 2</b> &amp; more</p>"
    assert isinstance(inner + "x", Html)


def test_attributes() -> None:
    made = element("text", "x", class_="c0", text_anchor="end", title=None, data='"')
    assert made == '<text class="c0" text-anchor="end" data="&quot;">x</text>'


def test_figures_as_people_read_them() -> None:
    assert [format_value(value) for value in (12345, 0.12345, True, "x")] == ["12,345", "0.1235", "yes", "x"]
    assert (percent(0.1234), percent(0.00001), percent(0.0), percent(1.0)) == ("12.3 %", "< 0.1 %", "0.0 %", "100.0 %")


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0, 97, [0, 20, 40, 60, 80]), (3, 3, [3]), (-1, 1, [-1, -0.5, 0, 0.5, 1])],
)
def test_ticks_are_round(low: float, high: float, wanted: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(wanted)


def test_a_long_label_is_shortened() -> None:
    assert shortened("好评", 100) == "好评"
    short = shortened("一个很长很长很长的标签", 80)
    assert short.endswith("…") and text_width(short) <= 80


def test_a_loss_of_nan_leaves_a_gap() -> None:
    drawn = lines({"loss": [(0, 2.0), (1, float("nan")), (2, 1.0), (3, 0.5)]}, "step", "loss")
    (path,) = re.findall(r'<path d="([^"]*)"', drawn)
    assert path.count("M") == 2 and path.count("L") == 1
    assert drawn.count("<circle") == 3
    assert lines({"loss": [(0, float("inf"))]}, "step", "loss") == ""
    assert ">4</text>" in lines({"loss": [(4, 0.5)]}, "step", "loss")  # a run of one logged step


def test_many_points_keep_their_peaks() -> None:
    points = [(float(i), 1.0) for i in range(100_000)]
    points[77_777] = (77_777.0, 50.0)
    points[500] = (500.0, float("nan"))
    kept = thinned(points)
    assert len(kept) <= MOST_POINTS * 1.5
    assert (77_777.0, 50.0) in kept
    assert kept[0] == points[0] and kept[-1] == points[-1]
    assert any(y != y for _, y in kept)


def test_bars_are_as_long_as_their_values() -> None:
    drawn = bars(["a", "b"], {"train": [10, 5]}, "rows")
    widths = [float(width) for width in re.findall(r'<rect x="[\d.]+" y="[\d.]+" width="([\d.]+)"', drawn)]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.01)
    assert bars([], {"train": []}, "rows") == ""


def test_a_histogram_shows_shares_of_each_series() -> None:
    drawn = histogram(
        {"train": [30, 10], "dev": [1, 3]}, [0, 10, 20], "tokens", marks={"max_seq_length": 12, "far": 99}
    )
    heights = [float(height) for height in re.findall(r'height="([\d.]+)" class="c0" opacity', drawn)]
    assert heights[0] == pytest.approx(3 * heights[1], rel=0.01)
    assert "max_seq_length" in drawn and "far" not in drawn
    assert drawn.count("<path") == 1


@pytest.mark.parametrize("highest", [0, 1, 7, 130, 99_999])
def test_bins_hold_everything(highest: int) -> None:
    edges = histogram_edges(highest)
    assert edges[0] == 0 and edges[-1] > highest
    assert len(edges) <= 85
    assert all(edge == int(edge) for edge in edges)


def test_a_matrix_shades_by_row() -> None:
    drawn = matrix(["a", "b"], ["a", "b"], [[3, 1], [0, 0]])
    assert re.findall(r"var\(--c0\) (\d+)%", drawn) == ["56", "19", "0", "0"]


def circles(plot: str) -> list[tuple[float, float, str]]:
    found = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="[\d.]+" class="(c\d)">', plot)
    return [(float(x), float(y), kind) for x, y, kind in found]


def test_dots_stand_where_their_values_are() -> None:
    series = {
        "fp32": [Dot(1, 0.90, "slow"), Dot(2, 0.88, "middle")],
        "int8": [Dot(4, 0.86, "fast", "best"), Dot(3, float("nan"), "broken")],
    }
    plot = scatter(series, "speed", "score", levels={"least": 0.87})
    (slow, middle, fast) = circles(plot)
    assert [kind for _, _, kind in (slow, middle, fast)] == ["c0", "c0", "c1"]
    assert middle[0] - slow[0] == pytest.approx((fast[0] - middle[0]) / 2, abs=0.1)
    assert slow[1] < middle[1] < fast[1]  # more is higher up
    assert fast[1] - middle[1] == pytest.approx(middle[1] - slow[1], abs=0.1)
    assert "broken" not in plot and ">best</text>" in plot and "fast: 0.86 at 4" in plot
    level = float(re.search(r'<line [^>]*y1="([\d.]+)"[^>]*class="mark"', plot)[1])
    assert level == pytest.approx((middle[1] + fast[1]) / 2, abs=0.1)
    assert circles(scatter({"a": [Dot(float("inf"), 1, "x")]}, "x", "y")) == []


def test_a_table_of_many_columns_may_be_wider_than_the_text() -> None:
    narrow, wide = (draw(Table(["a"] * columns, [["b"] * columns])) for columns in (8, 9))
    assert 'class="scroll"' in narrow and 'class="scroll wide"' in wide


def test_chinese_has_a_font_on_every_system() -> None:
    text = full_page()
    for family in ("Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", "WenQuanYi Zen Hei"):
        assert text.count(f'"{family}"') == 3  # text, places, recipes


def test_an_axis_that_counts_has_no_half_ones() -> None:
    def ends(plot: str) -> set[str]:
        return set(re.findall(r'text-anchor="middle">([0-9.]+)<', plot))

    assert ends(lines({"a": [(0, 0.25), (3, 0.75)]}, "trial", "score")) == {"0", "1", "2", "3"}
    assert ends(scatter({"a": [Dot(1, 0.2, "x"), Dot(2, 0.4, "y")]}, "run", "score")) == {"0", "1", "2"}
    assert "0.5" in ends(lines({"a": [(0, 0.25), (1.5, 0.75)]}, "epoch", "score"))


def test_times_are_those_of_this_machine_s_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CST-8")
    time.tzset()
    assert format_moment("2026-11-27T07:04:59+00:00") == "2026-11-27 15:04" and format_moment(None) is None
    monkeypatch.undo()
    time.tzset()
