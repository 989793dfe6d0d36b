"""Findings of an audit as one HTML page on which a person ticks what is to be applied.

The only page with a script: it writes the ticks into a file that the browser saves. Nothing is sent anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from nlpctl.datatools.corrections import CONFLICT, KINDS, OUTLIER, WRONG, Finding
from nlpctl.report.html import Html, element
from nlpctl.report.model import KeyFigures, Part, Place, Report, Section, Table, format_value, percent
from nlpctl.report.page import html_page

MOST = 2_000  # findings on the page; all are in findings.jsonl
_MOST_CHANGES = 20

_TITLES = {
    WRONG: "Labels that are probably wrong",
    CONFLICT: "The same text with another label",
    OUTLIER: "Texts that are like no others",
}
_LEADS = {
    WRONG: "By folds that did not see the row. A tick puts the proposed label in its place.",
    CONFLICT: "A tick puts the proposed label in its place; without one there is nothing to apply.",
    OUTLIER: "A tick leaves the row out.",
}
_SAVE = """
<p><button type="button" id="save">Save the ticks</button> writes ticked.jsonl; then:
<code>nlpctl data apply ticked.jsonl -o FOLDER</code></p>
<script type="application/json" id="findings">%s</script>
<script>
document.getElementById("save").onclick = function () {
  var lines = JSON.parse(document.getElementById("findings").textContent).map(function (finding, i) {
    var box = document.getElementById("tick" + i);
    if (box) { finding.apply = box.checked; }
    return JSON.stringify(finding) + "\\n";
  });
  var link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(lines, {type: "application/jsonl"}));
  link.download = "ticked.jsonl";
  link.click();
};
</script>
"""


def audit_page(
    findings: Sequence[Finding], rows: int, share: float, changes: Sequence[tuple[str, str, int]], name: str
) -> str:
    """The text of the page.

    `changes`: given, proposed, how often; `rows`: how many were audited; `share`: of these, those with wrong labels.
    """
    wrong = sum(finding.kind == WRONG for finding in findings)
    tiles = {"rows": rows, "probably wrong labels": wrong, "share of the rows": percent(share)}
    summary: list[Part] = [KeyFigures(tiles)]
    if changes:
        summary.append(Table(["given", "proposed", "times"], changes[:_MOST_CHANGES]))
    listed = findings[:MOST]
    if len(findings) > MOST:
        summary.append(f"The page shows the first {MOST:,} of {len(findings):,} findings; findings.jsonl has all.")
    sections = [Section("Summary", [*summary, _save(listed) if listed else "Nothing was found."])]
    sections += [Section(_TITLES[kind], list(_table(listed, kind))) for kind in KINDS]
    return html_page(Report(f"Audit of {name}", "Tick what is right, then save the ticks.", sections))


def _save(findings: Sequence[Finding]) -> Html:
    content = json.dumps([finding.to_json() for finding in findings], ensure_ascii=False)
    # A text of the data could end the script.
    return Html(_SAVE % content.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _table(findings: Sequence[Finding], kind: str) -> Iterator[Part]:
    chosen = [(i, each) for i, each in enumerate(findings) if each.kind == kind]
    if not chosen:
        return
    yield _LEADS[kind]
    rows = []
    for i, each in chosen:
        box = Html(f'<input type="checkbox" id="tick{i}"{" checked" if each.apply else ""}>')
        possible = each.edit is not None and (each.proposed is not None or kind == OUTLIER)
        last = [each.distance] if kind == OUTLIER else [_label(each.proposed), each.given_probability]
        other = [] if kind == OUTLIER else [_other(each)]
        rows.append([box if possible else "", Place(each.where), each.text, _label(each.given), *last, *other])
    last_names = ["distance"] if kind == OUTLIER else ["proposed", "probability of the given", "contradicts"]
    yield Table(["", "row", "text", "given", *last_names], rows)


def _other(finding: Finding) -> Html | str:
    if finding.other is None:
        return ""
    return element("span", element("span", finding.other, class_="place"), " ", _label(finding.other_label))


def _label(label: object) -> str:
    if isinstance(label, list):
        return " ".join(map(str, label))
    return "" if label is None else str(format_value(label))
