"""Findings of an audit on files of spans, and on rows that are copies of each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nlpctl.config.load import load_recipe
from nlpctl.datatools.audit import Audit, _Auditor, audit_page, format_label, format_text
from nlpctl.datatools.corrections import WRONG, Finding, apply_findings, read_findings, write_findings
from nlpctl.errors import UserError
from nlpctl.experiments.held_out import HeldOutProbabilities
from nlpctl.experiments.series import read_rows

pytest.importorskip("cleanlab")
FILLER = [f"第{i}家店在{name}市" for i, name in enumerate("北南东西中上下左右前后内外大小高")]


def span(sentence: str, covered: str, label: str = "address", **more: Any) -> dict[str, Any]:
    start = sentence.index(covered)
    return {"start": start, "end": start + len(covered), "label": label, **more}


def found(folder: Path, rows: list[dict[str, Any]], answers: dict[str, list[Any]], **data: Any) -> list[Finding]:
    """Findings on `rows`, in which models that are sure answer `answers`, by text, and elsewhere what is labelled."""
    kind = data.pop("kind", "jsonl")
    file = folder / f"train.{kind}"
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    file.write_text(lines if kind == "jsonl" else json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    values = {"task": "token_classification", "data": {"train": str(file), "unit": "characters", **data}}
    recipe = load_recipe(values, (), "apply")
    read = read_rows(recipe)
    names, shares, held, ends = read.labels.names, [], [], []
    for row, example in zip(read.read.rows, read.examples(range(len(read))), strict=True):
        tags = list(row.values["tags"])
        if (spans := answers.get(example.text)) is not None:
            tags = ["O"] * len(example)
            for each in spans:
                inside = [i for i, (one, _) in enumerate(example.spans()) if each["start"] <= one < each["end"]]
                tags[inside[0] : inside[-1] + 1] = [f"B-{each['label']}"] + [f"I-{each['label']}"] * (len(inside) - 1)
        for tag in tags:
            shares.append([0.96 if name == tag else 0.04 / (len(names) - 1) for name in names])
        ends.append(len(shares))
        held.append({"where": f"{row.source}:{row.line}", "tags": tags})
    probabilities = HeldOutProbabilities(np.array(shares, np.float32), np.array(ends))
    findings, _ = _Auditor(recipe, read, probabilities, held).findings()
    return [each for each in findings if each.kind == WRONG]  # short texts are outliers besides


def right_rows() -> list[dict[str, Any]]:
    """Rows with addresses and names, of which models are right."""
    rows = [{"text": text, "spans": [span(text, text[-2:])]} for text in FILLER]
    return rows + [{"text": f"{text}，老王", "spans": [span(text, text[-2:]), span(f"{text}，老王", "老王", "name")]}
                   for text in FILLER]  # fmt: skip


def applied(folder: Path, findings: list[Finding], **changes: Any) -> str:
    write_findings(folder / "findings.jsonl", findings)
    done = apply_findings(folder / "findings.jsonl", folder / "out", first=len(findings), overwrite=True, **changes)
    (copy,) = done.files.values()
    return copy.read_text(encoding="utf-8")


def test_spans_are_corrected_in_their_lines(tmp_path: Path) -> None:
    other, ends, lacking, more = "他叫李四", "去瑞县 拉萨街12号", "叫王五", "好的"
    wrong = [
        {"id": 7, "text": other, "spans": [span(other, "李四", "address", text="李四", by="x")], "meta": {"a": [1]}},
        {"text": ends, "spans": [span(ends, "瑞县", by="x"), span(ends, "12", "name")]},
        {"text": lacking, "spans": []},
        {"text": more, "spans": [span(more, "好")]},
    ]
    answers = {
        other: [span(other, "李四", "name")],
        ends: [span(ends, "瑞县 拉萨街"), span(ends, "12", "name")],
        lacking: [span(lacking, "王五", "name")],
        more: [],
    }
    findings = found(tmp_path, [*right_rows(), *wrong], answers)
    assert len(findings) == 4 and all(each.edit is not None for each in findings)
    texts = {each.text: (format_label(each.given), format_label(each.proposed)) for each in findings}
    assert texts == {
        "他叫[李四]": ("address: 李四", "name: 李四"),
        "去[瑞县 拉萨街]12号": ("address: 瑞县", "address: 瑞县 拉萨街"),
        "叫[王五]": ("", "name: 王五"),
        "[好]的": ("address: 好", ""),
    }
    lines = [json.loads(line) for line in applied(tmp_path, findings).splitlines()]
    assert lines[:-4] == right_rows()
    assert lines[-4:] == [
        {**wrong[0], "spans": [span(other, "李四", "name", text="李四", by="x")]},
        {"text": ends, "spans": [span(ends, "瑞县 拉萨街"), span(ends, "12", "name")]},
        {"text": lacking, "spans": [span(lacking, "王五", "name")]},
        {"text": more, "spans": []},
    ]
    dropped = applied(tmp_path, findings, drop=True).splitlines()
    assert [json.loads(line) for line in dropped] == right_rows()


def test_arrays_invisible_characters_and_texts_without_annotation(tmp_path: Path) -> None:
    """Positions are those of the file, whatever is left out of the words or of the rows."""
    text = "他\u200b叫 \u200b李四"
    rows = [{"text": "没有", "label": "3"}, *right_rows(), {"text": text, "spans": [span(text, "李四")]}]
    findings = found(tmp_path, rows, {text: [span(text, "李四", "name")]}, kind="json")
    rows[-1] = {"text": text, "spans": [span(text, "李四", "name")]}
    assert json.loads(applied(tmp_path, findings)) == rows


def test_copies_are_one_finding(tmp_path: Path) -> None:
    text, sure = "他叫李四", {"他叫李四": [span("他叫李四", "李四", "name")]}
    copies = [{"text": text, "spans": [span(text, "李四")]}] * 30
    findings = found(tmp_path, [*right_rows(), *copies], sure)
    assert [(each.rows, len(each.copies or ())) for each in findings] == [(30, 29)]
    assert format_text(findings[0]) == "他叫[李四] (30 rows)"
    audit = Audit(tmp_path, 62, findings, "f1", {"fold-1": 0.5}, {}, [])
    assert audit.counts == {"wrong label": 1} and audit.share("wrong label") == 30 / 62
    assert audit.changes == [("address", "name", 1)]
    lines = [json.loads(line) for line in applied(tmp_path, findings).splitlines()]
    assert lines == [*right_rows(), *[{"text": text, "spans": sure[text]}] * 30]
    assert read_findings(tmp_path / "findings.jsonl") == findings


def test_what_cannot_be_applied_has_no_box(tmp_path: Path) -> None:
    text = "他叫李四"
    rows = [{"tokens": list(row["text"]), "tags": ["O"] * len(row["text"])} for row in right_rows()]
    for row in rows:
        kind = "name" if row["tokens"][-1] == "王" else "address"
        row["tags"][-2:] = [f"B-{kind}", f"I-{kind}"]
    rows.append({"tokens": list(text), "tags": ["O", "O", "B-name", "I-name"]})
    findings = found(tmp_path, rows, {text: [span(text, "李四")]})
    assert findings
    for possible in (True, False):
        shown = [each if possible else Finding(each.kind, each.where, each.text, "a", "b") for each in findings]
        page = audit_page(Audit(tmp_path, 9, shown, "f1", {"fold-1": 0.5}, {}, []), "folds")
        assert ("ticked.jsonl" in page, "Tick what" in page, "A tick" in page, "checkbox" in page) == (possible,) * 4
        assert possible == ("can only be corrected where they come from" not in page)


def test_texts_are_as_they_stand_there_and_say_where_they_are_cut(tmp_path: Path) -> None:
    text = "北京市海淀区中关村大街27号院1959室 的李四在Rome 2019年开了一家非常好的饭店"
    rows = [*right_rows(), {"text": text, "spans": [span(text, "李四")]}]
    findings = found(tmp_path, rows, {text: [span(text, "李四", "name")]}, unit="words")
    assert findings[0].text == "…区中关村大街27号院1959室 的[李四]在Rome 2019年开了一家非常好的…"


@pytest.mark.parametrize(
    ("proposed", "message"),
    [
        ([{"start": 1, "end": 9, "label": "name"}], "no such spans can be here: bad span: 1 to 9 of a text of 4"),
        ([{"start": 2, "end": 4, "label": "name", "text": "他"}], "'李四', not '他'"),
        ([{"start": 0, "end": 3, "label": "x"}, {"start": 2, "end": 4, "label": "y"}], "x at 0 to 3 overlaps y at 2"),
        ([{"start": "a", "end": 3, "label": "x"}], "are not positions"),
        ([{"start": 0, "label": "x"}], "a span of proposed needs start, end and label"),
        (["O"], "proposed is no list of spans"),
        ([{"start": 0, "end": 3, "label": " "}], "proposed is blank"),
    ],
)
def test_what_a_text_cannot_have(tmp_path: Path, proposed: Any, message: str) -> None:
    text = "他叫李四"
    findings = found(tmp_path, [*right_rows(), {"text": text, "spans": [span(text, "李四")]}], {text: []})
    line = findings[0].to_json() | {"apply": True, "proposed": proposed}
    (tmp_path / "ticked.jsonl").write_text(json.dumps(line), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        apply_findings(tmp_path / "ticked.jsonl", tmp_path / "out")
    stale = findings[0].to_json() | {"apply": True, "given": [{"start": 0, "end": 1, "label": "name"}]}
    (tmp_path / "ticked.jsonl").write_text(json.dumps(stale), encoding="utf-8")
    with pytest.raises(UserError, match="not what its finding says"):
        apply_findings(tmp_path / "ticked.jsonl", tmp_path / "out")
