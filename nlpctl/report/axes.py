"""Parts shared by all plots: axis ticks, the frame of a plot, text widths, legends."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nlpctl.report.html import Html, element, joined
from nlpctl.report.style import COLOURS

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
        return [low]
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
