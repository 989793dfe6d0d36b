"""Explanations as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nlpctl.names import counted
from nlpctl.report.html import Html, element
from nlpctl.report.marked import Part, marked_text
from nlpctl.report.page import Section, folded, page, paragraph, table

if TYPE_CHECKING:
    from nlpctl.inference.explain import Explained, Token

STRONGEST = 5  # tokens listed per text
_METHODS = {
    "integrated_gradients": "The contributions are integrated gradients: their sum is the log odds of the label for "
    "the text minus those for a baseline, in which every token is replaced.",
    "occlusion": "The contribution of a token is what the log odds of the label lose when it is replaced.",
}


def explanations_page(rows: Sequence[Explained], name: str) -> str:
    """The text of the page; `name` says which model."""
    legend = marked_text([Part("supports the label", 1, True), Part("opposes the label", -1, False)], 1)
    told = [legend, *(_METHODS[method] for method in dict.fromkeys(row.method for row in rows))]
    told.append(
        "Log odds of 0 are a probability of 0.5; 2 is 0.88; 4 is 0.98. They are those of the network; the probability "
        "beside a label is that of answers, which calibration may have changed."
    )
    sections = [Section("How to read this", told), Section("Texts", [_row(*each) for each in enumerate(rows, 1)])]
    return page("Evidence for the label", f"{counted(len(rows), 'texts')}, explained for {name}", sections)


def _row(number: int, row: Explained) -> Html:
    most = max((abs(token.contribution) for token in row.tokens), default=0.0)
    return element(
        "article",
        element("h3", f"{number}. {row.label} ", element("span", f"{row.probability:.3f}", class_="faint")),
        marked_text([Part(token.text, token.contribution, token.joined) for token in row.tokens], most),
        *_lines(row),
        folded("all tokens", table(["token", "contribution"], [[_text(t), t.contribution] for t in row.tokens])),
    )


def _lines(row: Explained) -> Iterator[Html]:
    for side, tokens in zip(("For", "Against"), row.strongest(STRONGEST), strict=True):
        if tokens:
            yield paragraph(f"{side}: " + ", ".join(f"{token.text} {token.contribution:+.3g}" for token in tokens))
    found = row.explanation
    if found.baseline is not None:
        total = f"{found.baseline:+.3f} (baseline) {found.contributions.sum():+.3f} (contributions)"
        equation = f"Log odds {found.log_odds:+.3f} = {total} {-found.gap:+.3f} (not accounted for)"
        yield element("p", equation, class_="faint")


def _text(token: Token) -> Html:
    return element("span", token.text)
