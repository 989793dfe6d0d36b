"""Plots as inline SVG: lines, scatter, bars, histograms and confusion matrices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nlpctl.report.axes import (
    Format,
    Frame,
    colour,
    legend,
    short_number,
    short_percent,
    shortened,
    svg,
    text_width,
    ticks,
)
from nlpctl.report.html import Html, element

Point = tuple[float, float]
MOST_POINTS = 800  # of a line; more cannot be told apart on a screen


def lines(
    series: Mapping[str, Sequence[Point]],
    x_label: str,
    y_label: str,
    *,
    marks: Mapping[str, float] | None = None,
    y_format: Format = short_number,
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
    frame = Frame((min(xs), max(xs)), _padded([y for _, y in finite]), top=top, height=256 + top)
    parts = [frame.axes(x_label, y_label, short_number, y_format), names]
    parts += [frame.mark(x, name) for name, x in marks.items()]
    for number, (name, points) in enumerate(drawn.items()):
        parts.append(element("path", d=_path(points, frame), class_=f"line {colour(number)}"))
        # Dots on every point of a long curve would hide it and make the file large.
        for x, y in points if len(points) <= 60 else ():
            if _is_finite((x, y)):
                told = element("title", f"{name}: {y:.6g} at {x_label} {short_number(x)}")
                parts.append(element("circle", told, cx=frame.x(x), cy=frame.y(y), r=3, class_=colour(number)))
    return svg(frame.width, frame.height, f"{y_label} over {x_label}", *parts)


def reliability(series: Mapping[str, Sequence[Sequence[float]]]) -> Html:
    """Reliability diagrams over each other: name -> [mean confidence, share of right decisions, decisions] of bins.

    The larger a dot, the more decisions; the dashed diagonal is honest.
    """
    names, above = legend(list(series), Frame.left, 380)
    top = above + 14
    frame = Frame((0.0, 1.0), (0.0, 1.0), top=top, width=380, height=310 + top)
    ends = {"x1": frame.x(0), "y1": frame.y(0), "x2": frame.x(1), "y2": frame.y(1)}
    parts = [frame.axes("confidence", "share right", short_number, short_number), names]
    parts.append(element("line", **ends, class_="mark"))
    for number, (name, bins) in enumerate(series.items()):
        points = [(sure, right) for sure, right, _ in bins]
        parts.append(element("path", d=_path(points, frame), class_=f"line {colour(number)}"))
        total = sum(count for *_, count in bins) or 1
        for sure, right, count in bins:
            told = element("title", f"{name}: {right:.1%} of {count:,} right at confidence {sure:.1%}")
            size = round(2.5 + 6 * math.sqrt(count / total), 2)
            parts.append(element("circle", told, cx=frame.x(sure), cy=frame.y(right), r=size, class_=colour(number)))
    return svg(frame.width, frame.height, "share right over confidence", *parts)


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
    frame = Frame((min(0.0, x_range[0]), x_range[1]), y_range, top=top, height=300 + top)
    parts = [frame.axes(x_label, y_label, short_number, y_format), names]
    parts += [frame.level(y, name) for name, y in levels.items()]
    for number, dots in enumerate(drawn.values()):
        for dot in dots:
            told = element("title", f"{dot.name}: {y_format(dot.y)} at {short_number(dot.x)}")
            radius = 7 if dot.label else 4.5
            parts.append(element("circle", told, cx=frame.x(dot.x), cy=frame.y(dot.y), r=radius, class_=colour(number)))
    for place, dot in enumerate(sorted((dot for dot in every if dot.label), key=lambda dot: dot.x)):
        x, below = frame.x(dot.x), place % 2 == 0  # by turns below and above, since labels are longer than gaps
        near_end = x + text_width(dot.label) + 12 > frame.width
        anchor, shift = ("end", -9) if near_end else ("start", 9)
        y = frame.y(dot.y) + (20 if below else -9)
        parts.append(element("text", dot.label, x=x + shift, y=y, text_anchor=anchor, class_="name"))
    return svg(frame.width, frame.height, f"{y_label} over {x_label}", *parts)


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
    hints: Mapping[str, Sequence[str]] | None = None,
) -> Html:
    """Horizontal bars: for each of `names` one bar per series. `hints`: what a bar says when pointed at."""
    if not names:
        return Html("")
    thick = 13 if len(series) > 1 else 17
    group = thick * len(series) + 11
    left = min(max(text_width(name) for name in names), 220) + 14
    colours, above = legend(list(series), left)
    top = above or 4
    told = {name: [value_format(value) for value in values] for name, values in series.items()}
    right = max(text_width(text) for texts in told.values() for text in texts) + 12
    width, height = 560.0, top + group * len(names) + 4
    most = max((value for values in series.values() for value in values), default=0) or 1
    parts = [colours]
    for row, name in enumerate(names):
        y = top + row * group
        full = element("title", name)
        text = shortened(name, left - 13)
        middle = y + thick * len(series) / 2 + 5
        parts.append(element("text", text, full, x=left - 8, y=middle, text_anchor="end", class_="name"))
        for number, (of, values) in enumerate(series.items()):
            length = round(max(values[row] / most * (width - left - right), 0), 2)
            hint = hints[of][row] if hints else f"{name}, {of}: {told[of][row]}"
            at = y + number * thick
            parts.append(
                element("rect", element("title", hint), x=left, y=at, width=max(length, 1), height=thick - 2,
                        rx=2, class_=colour(number))
            )  # fmt: skip
            parts.append(element("text", told[of][row], x=left + length + 5, y=at + thick - 3))
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
    parts = [frame.axes(x_label, "share of rows", short_number, short_percent), names]
    for number, (name, values) in enumerate(shares.items()):
        if number == 0:
            parts += _columns(series[name], values, edges, frame)
        else:
            parts.append(element("path", d=_steps(values, edges, frame), class_=f"line {colour(number)}"))
    inside = {name: x for name, x in marks.items() if edges[0] <= x <= edges[-1]}
    parts += [frame.mark(x, name) for name, x in inside.items()]
    return svg(frame.width, frame.height, f"share of rows over {x_label}", *parts)


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
        told = f"{short_number(edges[i])} to {short_number(edges[i + 1])}: {counts[i]:,} rows, {short_percent(share)}"
        width, height = round(max(end - start - 1, 0.5), 2), round(floor - y, 2)
        yield element(
            "rect", element("title", told), x=start, y=y, width=width, height=height, class_=colour(0), opacity=0.75
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


def _is_finite(point: Point) -> bool:
    return math.isfinite(point[0]) and math.isfinite(point[1])


def _y(point: Point) -> float:
    return point[1]


def histogram_edges(highest: float, bins: int = 40) -> list[float]:
    """Edges of about `bins` round bins from 0 that hold everything up to `highest`."""
    marks = ticks(0, max(highest, 1), bins)
    step = max(marks[1] - marks[0], 1) if len(marks) > 1 else 1
    return [i * step for i in range(math.floor(highest / step) + 2)]
