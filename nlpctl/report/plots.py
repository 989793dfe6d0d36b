"""Plots as inline SVG: lines, scatter, bars, histograms and confusion matrices."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nlpctl.report.html import COLOURS, Html, element, joined
from nlpctl.report.language import say

# -- parts shared by all plots: axis ticks, the frame of a plot, text widths, legends --------------

Format = Callable[[float], str]
LEGEND_ROW = 20  # pixels
_CHARACTER = 7.6  # pixels of a half-width character at the size of `.plot text.name`


def text_width(text: str) -> float:
    """About how many pixels wide `text` is drawn; a Chinese character takes two places."""
    return sum(1.85 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text) * _CHARACTER


def shortened(text: str, width: float) -> str:
    """`text`, or as much of it as fits into `width` pixels."""
    if text_width(text) <= width:
        return text
    while text and text_width(text + "…") > width:
        text = text[:-1]
    return text + "…"


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers inside [low, high], about `wanted` of them: steps of 1, 2, 2.5 or 5 times a power of ten."""
    if not high > low:
        return [float(low)]  # a step is counted in whole numbers
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    # The tolerance keeps a tick that lies on the edge, such as 0.3 = 3 * 0.1 with a rounding error.
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    # i * step and not a running sum, whose rounding errors would grow.
    return [0.0 if i == 0 else i * step for i in range(first, last + 1)]


def short_number(value: float) -> str:
    """1,500 as 1.5k, 0.00003 as 3e-05, 12 as 12."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:g}M"
    if size >= 10_000:
        return f"{value / 1e3:g}k"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.3g}"


def short_percent(share: float) -> str:
    """A share as 12 %; below one percent with a decimal."""
    return f"{share * 100:.3g} %"


@dataclass(frozen=True)
class Frame:
    """The area of a plot, in pixels of its viewBox, and the values at its edges."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    width: float = 560
    height: float = 270
    left: float = 70
    right: float = 18
    top: float = 14
    bottom: float = 46
    whole: bool = False  # x counts something, such as steps: there is no half a step

    def x(self, value: float) -> float:
        low, high = self.x_range
        share = (value - low) / (high - low) if high > low else 0.5
        return round(self.left + share * (self.width - self.left - self.right), 2)

    def y(self, value: float) -> float:
        low, high = self.y_range
        share = (value - low) / (high - low) if high > low else 0.5
        return round(self.height - self.bottom - share * (self.height - self.top - self.bottom), 2)

    def axes(self, x_label: str, y_label: str, x_format: Format, y_format: Format) -> Html:
        """Grid lines, numbers and the names of both axes."""
        floor, end = self.height - self.bottom, self.width - self.right
        parts = []
        for value in ticks(*self.y_range):
            y = self.y(value)
            parts.append(element("line", x1=self.left, x2=end, y1=y, y2=y, class_="grid"))
            parts.append(element("text", y_format(value), x=self.left - 7, y=y + 4, text_anchor="end"))
        for value in ticks(*self.x_range, 7):
            if self.whole and not round(value, 9).is_integer():
                continue
            parts.append(element("text", x_format(value), x=self.x(value), y=floor + 17, text_anchor="middle"))
        parts.append(element("line", x1=self.left, x2=end, y1=floor, y2=floor, class_="axis"))
        parts.append(element("text", x_label, x=(self.left + end) / 2, y=self.height - 8, text_anchor="middle"))
        middle = (self.top + floor) / 2
        turned = f"rotate(-90 14 {middle})"
        parts.append(element("text", y_label, x=14, y=middle, text_anchor="middle", transform=turned))
        return joined(*parts)

    def mark(self, x: float, label: str) -> Html:
        """A dashed line from top to bottom at `x`, with its name next to it."""
        at, floor = self.x(x), self.height - self.bottom
        line = element("line", x1=at, x2=at, y1=self.top, y2=floor, class_="mark")
        near_end = at + text_width(label) + 8 > self.width - self.right
        anchor, shift = ("end", -6) if near_end else ("start", 6)
        return joined(line, element("text", label, x=at + shift, y=self.top - 3, text_anchor=anchor))

    def level(self, y: float, label: str) -> Html:
        """A dashed line from left to right at `y`, with its name above its right end."""
        at, end = self.y(y), self.width - self.right
        line = element("line", x1=self.left, x2=end, y1=at, y2=at, class_="mark")
        return joined(line, element("text", label, x=end, y=at - 5, text_anchor="end"))


def svg(width: float, height: float, label: str, *parts: Html) -> Html:
    """A plot that grows with the page up to its own size; `label` is read aloud."""
    style = f"max-width:{width:g}px"
    view = f"0 0 {width:g} {height:g}"
    return element("svg", *parts, class_="plot", viewBox=view, style=style, role="img", aria_label=label)


def legend(names: Sequence[str], left: float, width: float = 560) -> tuple[Html, float]:
    """Colours and their names, in rows from the top of a plot; and the pixels that they take.

    Nothing where there is a single one.
    """
    if len(names) < 2:
        return Html(""), 0
    parts, x, y = [], left, 17
    for number, name in enumerate(names):
        if x > left and x + 16 + text_width(name) > width:
            x, y = left, y + LEGEND_ROW
        parts.append(element("rect", x=x, y=y - 9, width=11, height=11, rx=2, class_=colour(number)))
        parts.append(element("text", name, x=x + 16, y=y, class_="name"))
        x += 36 + text_width(name)
    return joined(*parts), y + 9


def colour(number: int) -> str:
    """The class of the colour of the plot's series `number`."""
    return f"c{number % COLOURS}"


# -- the plots -------------------------------------------------------------------------------------

Point = tuple[float, float]
MOST_POINTS = 800  # of a line; more cannot be told apart on a screen


def lines(
    series: Mapping[str, Sequence[Point]],
    x_label: str,
    y_label: str,
    *,
    marks: Mapping[str, float] | None = None,
    x_range: tuple[float, float] | None = None,
) -> Html:
    """Curves over the same axis, such as loss over steps: name -> [(x, y), ...], x rising.

    A point that is not finite (a loss of NaN) leaves a gap. `marks`: name -> x of a dashed line.
    `x_range`: what the axis shows at least.
    """
    drawn = {name: thinned(points) for name, points in series.items()}
    finite = [point for points in drawn.values() for point in points if _is_finite(point)]
    if not finite:
        return Html("")
    marks = marks or {}
    xs = [x for x, _ in finite] + list(marks.values()) + list(x_range or ())
    names, above = legend(list(series), Frame.left)
    top = above + 14
    y_range = _padded([y for _, y in finite])
    frame = Frame((min(xs), max(xs)), y_range, top=top, height=256 + top, whole=_are_whole(xs))
    parts = [frame.axes(x_label, y_label, short_number, short_number), names]
    parts += [frame.mark(x, name) for name, x in marks.items()]
    for number, (name, points) in enumerate(drawn.items()):
        parts.append(element("path", d=_path(points, frame), class_=f"line {colour(number)}"))
        # Dots on every point of a long curve would hide it and make the file large.
        for x, y in points if len(points) <= 60 else ():
            if _is_finite((x, y)):
                hint = element("title", say("{}: {:.6g} at {} {}", name, y, x_label, short_number(x)))
                parts.append(element("circle", hint, cx=frame.x(x), cy=frame.y(y), r=3, class_=colour(number)))
    return svg(frame.width, frame.height, say("{} over {}", y_label, x_label), *parts)


def reliability(series: Mapping[str, Sequence[Sequence[float]]]) -> Html:
    """Reliability diagrams over each other: name -> [mean confidence, share of right decisions, decisions] of bins.

    The larger a dot, the more decisions; the dashed diagonal is honest.
    """
    names, above = legend(list(series), Frame.left, 380)
    top = above + 14
    frame = Frame((0.0, 1.0), (0.0, 1.0), top=top, width=380, height=310 + top)
    ends = {"x1": frame.x(0), "y1": frame.y(0), "x2": frame.x(1), "y2": frame.y(1)}
    parts = [frame.axes(say("confidence"), say("share right"), short_number, short_number), names]
    parts.append(element("line", **ends, class_="mark"))
    for number, (name, bins) in enumerate(series.items()):
        points = [(sure, right) for sure, right, _ in bins]
        parts.append(element("path", d=_path(points, frame), class_=f"line {colour(number)}"))
        total = sum(count for *_, count in bins) or 1
        for sure, right, count in bins:
            text = say("{}: {:.1%} of {:,} right at confidence {:.1%}", name, right, count, sure)
            hint = element("title", text)
            size = round(2.5 + 6 * math.sqrt(count / total), 2)
            parts.append(element("circle", hint, cx=frame.x(sure), cy=frame.y(right), r=size, class_=colour(number)))
    return svg(frame.width, frame.height, say("{} over {}", say("share right"), say("confidence")), *parts)


@dataclass(frozen=True)
class Dot:
    """One point of `scatter`. `name`: what it says when pointed at; `label`: what stands next to it, or ""."""

    x: float
    y: float
    name: str
    label: str = ""


def scatter(
    series: Mapping[str, Sequence[Dot]],
    x_label: str,
    y_label: str,
    *,
    y_format: Format = short_number,
    levels: Mapping[str, float] | None = None,
) -> Html:
    """Dots of several kinds, such as the score of candidates over their speed. `levels`: name -> y of a dashed line.

    A labelled dot is larger. Dots that are not finite are left out.
    """
    drawn = {name: [dot for dot in dots if _is_finite((dot.x, dot.y))] for name, dots in series.items()}
    drawn = {name: dots for name, dots in drawn.items() if dots}
    if not drawn:
        return Html("")
    every = [dot for dots in drawn.values() for dot in dots]
    levels = levels or {}
    names, above = legend(list(drawn), Frame.left)
    top = above + 14
    x_range, y_range = _padded([dot.x for dot in every]), _padded([*(dot.y for dot in every), *levels.values()])
    x_range, whole = (min(0.0, x_range[0]), x_range[1]), _are_whole(dot.x for dot in every)
    frame = Frame(x_range, y_range, top=top, height=300 + top, whole=whole)
    parts = [frame.axes(x_label, y_label, short_number, y_format), names]
    parts += [frame.level(y, name) for name, y in levels.items()]
    for number, dots in enumerate(drawn.values()):
        for dot in dots:
            hint = element("title", say("{}: {} at {}", dot.name, y_format(dot.y), short_number(dot.x)))
            radius = 7 if dot.label else 4.5
            parts.append(element("circle", hint, cx=frame.x(dot.x), cy=frame.y(dot.y), r=radius, class_=colour(number)))
    for place, dot in enumerate(sorted((dot for dot in every if dot.label), key=lambda dot: dot.x)):
        x, below = frame.x(dot.x), place % 2 == 0  # by turns below and above, since labels are longer than gaps
        near_end = x + text_width(dot.label) + 12 > frame.width
        anchor, shift = ("end", -9) if near_end else ("start", 9)
        y = frame.y(dot.y) + (20 if below else -9)
        parts.append(element("text", dot.label, x=x + shift, y=y, text_anchor=anchor, class_="name"))
    return svg(frame.width, frame.height, say("{} over {}", y_label, x_label), *parts)


def thinned(points: Sequence[Point]) -> Sequence[Point]:
    """Some MOST_POINTS points: both ends, the lowest and highest of each stretch, and where a gap is."""
    if len(points) <= MOST_POINTS:
        return points
    size = math.ceil(len(points) / (MOST_POINTS / 2))
    kept = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        finite = [point for point in stretch if _is_finite(point)]
        # One is enough to interrupt the line.
        broken = [point for point in stretch if not _is_finite(point)][:1]
        ends = {min(finite, key=_y), max(finite, key=_y)} if finite else set()
        kept += sorted([*ends, *broken], key=lambda point: point[0])
    return [points[0], *(point for point in kept if points[0][0] < point[0] < points[-1][0]), points[-1]]


def bars(
    names: Sequence[str],
    series: Mapping[str, Sequence[float]],
    label: str,
    *,
    value_format: Format = short_number,
) -> Html:
    """Horizontal bars: for each of `names` one bar per series."""
    if not names:
        return Html("")
    thick = 13 if len(series) > 1 else 17
    group = thick * len(series) + 11
    left = min(max(text_width(name) for name in names), 220) + 14
    colours, above = legend(list(series), left)
    top = above or 4
    texts = {name: [value_format(value) for value in values] for name, values in series.items()}
    right = max(text_width(text) for of_series in texts.values() for text in of_series) + 12
    width, height = 560.0, top + group * len(names) + 4
    most = max((value for values in series.values() for value in values), default=0) or 1
    parts = [colours]
    for row, name in enumerate(names):
        y = top + row * group
        cut, whole = shortened(name, left - 13), element("title", name)
        middle = y + thick * len(series) / 2 + 5
        parts.append(element("text", cut, whole, x=left - 8, y=middle, text_anchor="end", class_="name"))
        for number, (series_name, values) in enumerate(series.items()):
            length = round(max(values[row] / most * (width - left - right), 0), 2)
            text = texts[series_name][row]
            hint = f"{name}, {series_name}: {text}"
            at = y + number * thick
            parts.append(
                element("rect", element("title", hint), x=left, y=at, width=max(length, 1), height=thick - 2,
                        rx=2, class_=colour(number))
            )  # fmt: skip
            parts.append(element("text", text, x=left + length + 5, y=at + thick - 3))
    return svg(width, height, label, *parts)


def histogram(
    series: Mapping[str, Sequence[int]], edges: Sequence[float], x_label: str, *, marks: Mapping[str, float]
) -> Html:
    """Histograms: the share of each series in the bins between `edges`.

    The first series is drawn as columns, the others as steps over them. `marks`: name -> x of a dashed line.
    """
    totals = {name: sum(counts) for name, counts in series.items()}
    shares = {name: [count / totals[name] for count in counts] for name, counts in series.items() if totals[name]}
    if not shares:
        return Html("")
    names, above = legend(list(shares), Frame.left)
    top = above + 14
    highest = max(max(values) for values in shares.values())
    frame = Frame((edges[0], edges[-1]), (0.0, highest * 1.06), top=top, height=246 + top)
    parts = [frame.axes(x_label, say("share of rows"), short_number, short_percent), names]
    for number, (name, values) in enumerate(shares.items()):
        if number == 0:
            parts += _columns(series[name], values, edges, frame)
        else:
            parts.append(element("path", d=_steps(values, edges, frame), class_=f"line {colour(number)}"))
    inside = {name: x for name, x in marks.items() if edges[0] <= x <= edges[-1]}
    parts += [frame.mark(x, name) for name, x in inside.items()]
    return svg(frame.width, frame.height, say("{} over {}", say("share of rows"), x_label), *parts)


def matrix(rows: Sequence[str], columns: Sequence[str], counts: Sequence[Sequence[int]]) -> Html:
    """A table of counts whose cells are the darker, the larger their share of their row (a confusion matrix)."""
    body = []
    for name, values in zip(rows, counts, strict=True):
        total = sum(values) or 1
        cells = [
            element(
                "td", f"{value:,}" if value else "·", style=_shade(value / total), title=short_percent(value / total)
            )
            for value in values
        ]
        body.append(element("tr", element("th", name), *cells))
    head = element("tr", element("th", ""), *[element("th", name) for name in columns])
    made = element("table", element("thead", head), element("tbody", *body), class_="matrix")
    return element("div", made, class_="scroll")


def _shade(share: float) -> str:
    return f"background:color-mix(in srgb,var(--c0) {round(share * 75)}%,transparent)"


def _columns(counts: Sequence[int], shares: Sequence[float], edges: Sequence[float], frame: Frame) -> Iterable[Html]:
    floor = frame.y(0)
    for i, share in enumerate(shares):
        start, end, y = frame.x(edges[i]), frame.x(edges[i + 1]), frame.y(share)
        bin_ends = short_number(edges[i]), short_number(edges[i + 1])
        hint = say("{} to {}: {:,} rows, {}", *bin_ends, counts[i], short_percent(share))
        width, height = round(max(end - start - 1, 0.5), 2), round(floor - y, 2)
        yield element(
            "rect", element("title", hint), x=start, y=y, width=width, height=height, class_=colour(0), opacity=0.75
        )


def _steps(shares: Sequence[float], edges: Sequence[float], frame: Frame) -> str:
    points: list[Point] = []
    for i, share in enumerate(shares):
        points += [(edges[i], share), (edges[i + 1], share)]
    return _path(points, frame)


def _path(points: Iterable[Point], frame: Frame) -> str:
    """A line through the points, broken where one is not finite."""
    parts, pen_down = [], False
    for point in points:
        if not _is_finite(point):
            pen_down = False
            continue
        parts.append(f"{'L' if pen_down else 'M'}{frame.x(point[0])} {frame.y(point[1])}")
        pen_down = True
    return "".join(parts)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    """The range of an axis: from zero where the values come near to it, with a little room above."""
    low, high = min(values), max(values)
    if low == high:
        room = abs(low) * 0.1 or 1.0
        return low - room, high + room
    room = (high - low) * 0.05
    # An axis that begins just above zero would exaggerate small differences.
    bottom = 0.0 if 0 <= low < (high - low) * 0.5 else low - room
    return bottom, high + room


def _are_whole(values: Iterable[float]) -> bool:
    return all(float(value).is_integer() for value in values)


def _is_finite(point: Point) -> bool:
    return math.isfinite(point[0]) and math.isfinite(point[1])


def _y(point: Point) -> float:
    return point[1]


def histogram_edges(highest: float) -> list[float]:
    """Edges of about 40 round bins from 0 that hold everything up to `highest`."""
    marks = ticks(0, max(highest, 1), 40)
    step = max(marks[1] - marks[0], 1) if len(marks) > 1 else 1
    return [i * step for i in range(math.floor(highest / step) + 2)]
