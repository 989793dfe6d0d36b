"""The reports of a compression: what stands in the table, in which order, and what is marked."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from scored import rounds_of, scored, speeds_of

from nlpctl.compress.report import CompressResult, markdown, report, summary, tables, too_few_rows, write_reports
from nlpctl.compress.scores import Failure, Metric, TestScore
from nlpctl.compress.selection import Objective, select


@pytest.fixture
def result(tmp_path) -> CompressResult:
    reference = scored("original", 0.880, difference=0.0, agreement=1.0)
    folder = str(tmp_path / "candidates" / "width-0.75+ptq")
    int8 = {"precision": "int8", "method": "ptq", "size_mb": 20.0}
    best = scored("width-0.75+ptq", 0.876, 4.2, single=2.5, folder=folder, difference=None, **int8)
    wrong = scored("width-0.5+ptq", 0.850, 6.0, **int8)
    network = scored("width-0.75", 0.879, 1.4)
    rows = (reference, best, network, wrong)
    failures = (Failure("student", "", "no <text>\nto learn from"), Failure("original+qat", "paddle int8", "died"))
    test = TestScore(1821, 0.8874, 0.8852, 0.981)
    speeds = speeds_of(rows, rounds_of(rows, {}, {}, {}, {"width-0.75+ptq": 0.8}, {"width-0.75+ptq": 0.6}))
    return CompressResult(tmp_path, rows, failures, Metric("accuracy"), Objective(), reference, best, test, speeds)


def lines(result: CompressResult) -> list[dict[str, list[str]]]:
    """Of each table the lines by candidate, without marks."""
    return [{line[0].lstrip("*! "): line for line in table.rows} for table, _ in tables(result)]


def test_a_line_of_the_table(result):
    first, _ = tables(result)[0]
    of_all, split, more = lines(result)
    best = of_all["width-0.75+ptq"]
    assert best == [
        *("* width-0.75+ptq", "paddle int8 (ptq)", "0.8760", "-0.40"),
        *("250", "2.50", "2.00-2.50", "2,100", "4.20", "3.36-4.20"),  # batch 1, batch 32
        *("20.0", "99.50%"),
    ]
    heads = ["candidate", "engine", "accuracy", "points", "samples/s, 1", "times", "spread", "samples/s, 32"]
    assert first.columns == [*heads, "times", "spread", "disk MB", "alike"]
    assert of_all["width-0.5+ptq"][0] == "! width-0.5+ptq"
    assert of_all["original"][:4] == ["original", "paddle fp32", "0.8800", "+0.00"]
    assert split["width-0.75+ptq"][-4:] == ["4.20", "1.00", "3.00", "1.40"]  # engine, precision, compression
    assert split["width-0.5+ptq"][-3:] == ["-"] * 3  # nobody ran the fp32 graph of its network
    assert more["width-0.75+ptq"][2:] == ["-", "400", "47.6", "700", "-"]


def test_how_sure_the_loss_is(result):
    drops = tuple(0.4 + (step - 100) / 100 for step in range(201))  # -0.6 to 1.4 points
    best = replace(result.best, drops=drops)
    result = replace(result, best=best, rows=tuple(best if row == result.best else row for row in result.rows))
    assert lines(result)[2]["width-0.75+ptq"][2] == "-1.35 to +0.55"
    told = "200 dev rows cannot tell a loss of 0.5 points from chance; it takes about 722."
    assert too_few_rows(result) == told and told in markdown(result, "outputs/run", {"cores": 2})
    rows = report(result, "outputs/run", "sequence_classification")["rows"]
    entry = next(row for row in rows if row["drop_interval"])
    assert entry["name"] == best.name and "drops" not in entry
    assert too_few_rows(replace(result, objective=Objective(1.0))) == ""


def test_the_page_for_reading(result):
    text = markdown(result, "outputs/run", {"cores": 2})
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0] for line in table[2:5]] == ["| ! width-0.5+ptq", "| * width-0.75+ptq", "| width-0.75"]
    assert len({line.count("|") for line in table[:6]}) == 1
    assert "- student: no <text> to learn from" in text
    assert "| width-0.75+ptq, paddle int8 (ptq) | 0.8852 | -0.22 | 98.10% |" in text
    assert "4.20 times (3.36-4.20) at batch 32 the samples/s of the fastest uncompressed" in text
    assert (
        "batch 32 4.20 = 1.00 x 3.00 x 1.40." in text and "uncompressed model that decides alike: paddle fp32" in text
    )
    assert "0.40 points below" in text and "20.0 MB in place of 80.0" in text


def test_what_programs_read(result):
    write_reports(result, "outputs/run", "sequence_classification")
    content = json.loads((result.folder / "report.json").read_text())
    assert content["best"] == "width-0.75+ptq, paddle int8 (ptq)" and content["reference"] == "original, paddle fp32"
    rows = {row["name"]: row for row in content["rows"]}
    best = rows[content["best"]]
    assert best["folder"] == "candidates/width-0.75+ptq" and best["drop"] == pytest.approx(0.4) and best["allowed"]
    assert best["speeds"][1]["times"] == pytest.approx(4.2) and best["report"] == {"rows": 200, "accuracy": 0.876}
    assert best["speeds"][1]["low"] == pytest.approx(3.36) and content["last_rounds"] == 5
    assert content["baselines"] == {"1": "original, paddle fp32", "32": "original, paddle fp32"}
    assert content["indistinct"] == [content["best"]]
    assert not rows["width-0.5+ptq, paddle int8 (ptq)"]["allowed"]
    assert [failure["candidate"] for failure in content["failures"]] == ["student", "original+qat"]
    assert content["test"]["chosen"] == 0.8852 and content["conditions"]["cores"] >= 1
    page = (result.folder / "report.html").read_text()
    assert page.count("<svg") == 2 and page.count("<circle") == 8
    assert "best: width-0.75+ptq" in page and "no &lt;text&gt;" in page and "0.5 points below the uncompressed" in page
    assert (result.folder / "report.md").read_text().startswith("# Compression of outputs/run")


def test_nothing_was_better_and_there_is_no_test_data(result):
    alone = CompressResult(
        result.folder,
        (result.reference,),
        (),
        result.metric,
        result.objective,
        result.reference,
        result.reference,
        None,
        speeds_of([result.reference]),
    )
    assert "uncompressed model in paddle fp32" in summary(alone)
    assert report(alone, "run", "sequence_classification")["test"] is None
    text = markdown(alone, "run", {})
    assert "On test" not in text and "Not in the table" not in text


def test_rows_that_nothing_tells_apart_are_named(result):
    """The untouched network in bf16 is as fast as the narrow one in 8 bits, so it is taken."""
    bf16 = scored("original", 0.879, 4.2, single=2.5, precision="bf16")
    rows = (*result.rows, bf16)
    best = select(rows, result.reference, result.metric, result.objective, speeds_of(rows))
    assert best == bf16
    text = markdown(replace(result, rows=rows, best=best, speeds=speeds_of(rows)), "run", {})
    assert "No candidate is better than the uncompressed model in paddle bf16." in text
    assert "Neither speed nor score tells it from width-0.75+ptq, paddle int8 (ptq)." in text
    assert "compared with the uncompressed model alone, at a time of its own" in text
