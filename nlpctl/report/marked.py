"""Text whose parts are shaded by their contribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nlpctl.report.html import Html, element, joined

STRONGEST = 75  # percent of the colour, for the part that contributes most


@dataclass(frozen=True)
class Part:
    """A part of a text, what it contributes, and whether it follows the one before without a blank."""

    text: str
    value: float
    joined: bool


def marked_text(parts: Sequence[Part], most: float) -> Html:
    """The text; blue speaks for, orange against, the stronger the nearer to `most`. Pointing at a part tells its value.
    """
    made = []
    for part in parts:
        share = round(min(abs(part.value) / most, 1.0) * STRONGEST) if most else 0
        style = f"background:color-mix(in srgb,var(--c{0 if part.value > 0 else 1}) {share}%,transparent)"
        span = element("span", part.text, style=style if share else None, title=f"{part.value:+.4f}")
        made.append(span if part.joined else joined(" ", span))
    return element("p", *made, class_="marked")
