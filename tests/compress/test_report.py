"""The reports of a compression: what stands in the table, in which order, and what is marked."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from chinese import assert_chinese, sentences
from scored import rounds_of, scored, speeds_of

from nlpctl.compress.report import compress_page, report, tables, write_reports
from nlpctl.compress.result import CompressResult, alternatives_table, answer, reasons, too_few_rows
from nlpctl.compress.scores import CandidateScore, Failure, Metric, TestScore, Timed
from nlpctl.compress.selection import Objective, select
from nlpctl.report.language import in_language
from nlpctl.report.markdown import markdown_page
from nlpctl.report.page import html_page

TASK = "sequence_classification"


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
    metric = Metric("accuracy")
    return CompressResult(tmp_path, rows, failures, metric, Objective(), reference, best, test, speeds, TASK)


def markdown(result: CompressResult) -> str:
    return markdown_page(compress_page(result, "outputs/run", {"cores": 2}), aligned=True)


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
    assert more["width-0.75+ptq"][2:] == ["-", "4", "15.2", "700", "-", "-"]


def test_the_answer_comes_first_and_what_else_there_is(result):
    place = result.folder / "best"
    assert answer(result) == (
        f"Take {place}: width-0.75+ptq in paddle int8 (ptq). Against the original in its fastest engine it is 4.20 "
        "times as fast in batches of 32 and 2.50 times as fast with single texts; accuracy 0.8800 -> 0.8760 on dev, "
        "0.40 points worse; 20.0 MB in place of 80.0."
    )
    table = alternatives_table(result)
    assert table.columns == ["", "candidate", "engine", "accuracy (points)", "alike", "times as fast, 1",
                             "times as fast, 32", "MB"]  # fmt: skip
    assert table.rows == [
        ["take this, fastest, fastest with single texts, smallest", "width-0.75+ptq", "paddle int8 (ptq)",
         "0.8760 (-0.40)", "99.5%", "2.50", "4.20", "20.0"],
        ["most exact", "width-0.75", "paddle fp32", "0.8790 (-0.10)", "99.5%", "1.40", "1.40", "80.0"],
        ["original", "original", "paddle fp32", "0.8800 (+0.00)", "100.0%", "1.00", "1.00", "80.0"],
    ]  # fmt: skip
    assert reasons(result) == [
        "Why: of the rows that lose at most 0.5 points on dev it is the fastest in batches of 32.",
        "On test, which was not used for the choice (1,821 rows): accuracy 0.8852, the original 0.8874 (-0.22 points); "
        "98.1% decided alike.",
    ]


def test_in_chinese_no_english_sentence_is_left(result):
    drops = tuple(step / 50 for step in range(100))
    best = replace(result.best, drops=drops, embedding_mb=15.0)
    whole = replace(result, failures=result.failures[1:], best=best, prunable=True)
    timed = Timed("2026-11-27T08:00:00+00:00", 0.5, "vm")
    alone = {"best": replace(best, score=0.9), "speeds": replace(speeds_of(whole.rows), timed=timed)}
    changed = [
        whole,
        replace(whole, best=whole.reference, objective=Objective(0.05)),
        replace(whole, objective=Objective(target="latency"), **alone),
        replace(whole, objective=Objective(target="size")),
    ]
    for each in changed:
        with in_language("zh"):
            page = compress_page(each, "outputs/first", {"date": "2026-11-27"})
            assert_chinese(html_page(page))
            assert sentences(markdown_page(page)) == []
        assert len(sentences(markdown(each))) > 10


def test_a_model_of_no_use_is_told_first(result):
    """A candidate that answers like a useless model is perfect by all figures."""
    useless = {"rows": 36, "accuracy": 0.5, "micro_f1": 0.5,
               "labels": {"x": {"precision": 0.5, "recall": 1.0, "support": 18},
                          "y": {"precision": 0.0, "recall": 0.0, "support": 18}}}  # fmt: skip
    reason = "all 36 rows get the label 'x', and 18 have another one."
    for each, name in (("reference", "The original"), ("best", "width-0.75+ptq in paddle int8 (ptq)")):
        found = replace(result, failures=(), **{each: replace(getattr(result, each), report=useless)})
        assert reasons(found)[0] == f"{name} is of no use on dev, whatever the figures here: {reason}"
        assert reason in markdown(found) and "is of no use on dev" in html_page(compress_page(found, "run", {}))
        with in_language("zh"):
            assert_chinese(html_page(compress_page(found, "run", {})))
            assert "全部 36 行都被给出标签" in markdown(found)


def test_the_loss_of_the_best_is_told_with_its_interval(result):
    def told(*ends: float) -> str:
        drops = tuple(ends[0] + (ends[1] - ends[0]) * step / 200 for step in range(201))
        return answer(replace(result, best=replace(result.best, drops=drops)))

    assert "0.40 points worse, which may be chance (95 %: -1.35 to +0.55);" in told(-0.6, 1.4)
    assert "0.40 points worse (95 %: -0.68 to -0.12);" in told(0.1, 0.7)
    same = replace(result.best, score=0.880)
    assert "accuracy 0.8800 on dev, as before; 20.0 MB" in answer(replace(result, best=same))


def test_where_every_candidate_loses_too_much_the_nearest_is_named(result):
    strict = replace(result, objective=Objective(0.05), best=result.reference)
    assert "paddle fp32. No candidate that loses at most 0.05 points is clearly better" in answer(strict)
    assert "most_exact" not in strict.alternatives
    (nearest,) = [each for each in reasons(strict) if each.startswith("Every candidate")]
    assert nearest.startswith(
        "Every candidate loses more; the least width-0.75 in paddle fp32, 1.40 times as fast in batches of 32: "
    )
    assert nearest.endswith("0.1 allows it.")
    assert replace(strict, objective=Objective(0.1)).is_allowed(result.rows[2])


def test_speeds_that_tell_nothing_apart_are_named(result):
    """On a busy machine the best is the simplest row, however slow."""
    fast = scored("original+ptq", 0.88, 2.0, precision="int8", method="ptq")
    rows = (result.reference, fast)
    speeds = speeds_of(rows, rounds_of(rows, {}, {"original+ptq": 0.4}, {"original+ptq": 0.4}, {}, {}))
    best = select(rows, result.reference, result.metric, result.objective, speeds)
    busy = replace(result, rows=rows, best=best, speeds=speeds, test=None)
    assert best == result.reference and f"delete {result.folder / 'scores'} and run" in reasons(busy)[1]
    assert "tell 1.00 from 2.00 times" in reasons(busy)[1]


def test_a_large_embedding_is_told_with_what_was_not_tried(result):
    def told(row: CandidateScore, *others: CandidateScore, prunable: bool = True) -> list[str]:
        rows = (result.reference, row, *others)
        found = replace(result, best=row, rows=rows, speeds=speeds_of(rows), prunable=prunable)
        return [each for each in reasons(found) if "embedding of the vocabulary" in each]

    best = replace(result.best, embedding_mb=6.0)
    (sentence,) = told(best)
    assert sentence.startswith("6.0 of its 20.0 MB are the embedding of the vocabulary: ")
    assert "dynabert+ptq+embeddings" in sentence and "prune_embeddings" in sentence
    assert not told(replace(best, embedding_mb=5.9)) and not told(replace(best, embedding_mb=None))
    tables, words = scored("original+embeddings", 0.88), scored("fewer-words", 0.87)
    (sentence,) = told(best, tables)
    assert "+embeddings" not in sentence and "prune_embeddings" in sentence
    (sentence,) = told(best, words)
    assert "+embeddings" in sentence and "prune_embeddings" not in sentence
    assert not told(best, tables, words) and not told(best, tables, prunable=False)
    (sentence,) = told(replace(best, engine="onnxruntime", method="static"))  # has its table in 8 bits already
    assert "+embeddings" not in sentence


def test_the_latency_of_a_row_is_that_of_its_samples_per_second():
    """Under load the fastest batches of a row may be of a round that was not the usual one."""
    reference, other = scored("original", 0.88), scored("original+ptq", 0.88, 2.0, precision="int8", method="ptq")
    rows = (reference, other)
    last = rounds_of(rows, {}, {"original+ptq": 0.5}, {"original+ptq": 0.5}, {"original+ptq": 0.5}, {"original+ptq": 4})
    speed = speeds_of(rows, last).speed(other, 1)
    assert speed.times == pytest.approx(1.0)  # in most rounds; the fastest was eight times as fast
    assert speed.p50_ms * speed.samples_per_second == pytest.approx(1000)


def test_how_sure_the_loss_is(result):
    drops = tuple(0.4 + (step - 100) / 100 for step in range(201))  # -0.6 to 1.4 points
    best = replace(result.best, drops=drops)
    result = replace(result, best=best, rows=tuple(best if row == result.best else row for row in result.rows))
    assert lines(result)[2]["width-0.75+ptq"][2] == "-1.35 to +0.55"
    told = "200 dev rows cannot tell a loss of 0.5 points from chance; it takes about 722."
    assert too_few_rows(result) == told and told in markdown(result)
    rows = report(result, "outputs/run")["rows"]
    entry = next(row for row in rows if row["drop_interval"])
    assert entry["name"] == best.name and "drops" not in entry
    assert too_few_rows(replace(result, objective=Objective(1.0))) == ""


def test_the_page_for_reading(result):
    text = markdown(result)
    table = [line for line in text.partition("## All candidates")[2].splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0] for line in table[2:5]] == ["| ! width-0.5+ptq", "| * width-0.75+ptq", "| width-0.75"]
    assert len({line.count("|") for line in table[:6]}) == 1
    assert "- student: no <text> to learn from" in text
    assert text.splitlines()[2] == answer(result)
    assert "- On test, which was not used for the choice" in text
    assert "uncompressed model that decides alike: paddle fp32" in text


def test_what_programs_read(result):
    write_reports(result, "outputs/run")
    content = json.loads((result.folder / "report.json").read_text())
    assert content["best"] == "width-0.75+ptq, paddle int8 (ptq)" and content["reference"] == "original, paddle fp32"
    rows = {row["name"]: row for row in content["rows"]}
    best = rows[content["best"]]
    assert best["folder"] == "candidates/width-0.75+ptq" and best["drop"] == pytest.approx(0.4) and best["allowed"]
    assert best["speeds"][1]["times"] == pytest.approx(4.2) and best["report"] == {"rows": 200, "accuracy": 0.876}
    assert best["speeds"][1]["low"] == pytest.approx(3.36) and content["last_rounds"] == 5
    assert content["baselines"] == {"1": "original, paddle fp32", "32": "original, paddle fp32"}
    assert content["indistinct"] == [content["best"]]
    assert content["alternatives"]["smallest"] == content["best"]
    assert content["alternatives"]["most_exact"] == "width-0.75, paddle fp32"
    assert not rows["width-0.5+ptq, paddle int8 (ptq)"]["allowed"]
    assert [failure["candidate"] for failure in content["failures"]] == ["student", "original+qat"]
    assert content["test"]["chosen"] == 0.8852 and content["conditions"]["cores"] >= 1
    page = (result.folder / "report.html").read_text()
    assert page.count("<svg") == 2 and page.count("<circle") == 8
    assert "best: width-0.75+ptq" in page and "no &lt;text&gt;" in page and "0.5 points below the uncompressed" in page
    assert (result.folder / "report.md").read_text().startswith("# Compression of outputs/run")


def test_figures_are_of_the_day_and_the_machine_that_timed_them(result):
    """The same command, a month later and elsewhere, shows stored figures."""
    assert not {"date", "load", "machine"} & set(report(result, "run")["conditions"])  # of an earlier version
    assert "Timed on" not in markdown(result)
    dates = ("2026-10-02T08:00:00+00:00", "2026-10-03T08:00:00+00:00", "2026-10-01T08:00:00+00:00")
    timed = [Timed(date, load, f"vm-{load}") for load, date in enumerate(dates)]
    rows = [replace(row, timed=each) for row, each in zip(result.rows, (*timed[:2], None, None), strict=True)]
    last = replace(rounds_of(result.rows, {}, {}), timed=timed[2])
    for speeds, expected in ((speeds_of(rows), timed[1]), (speeds_of(rows, last), timed[2])):
        told = replace(result, rows=tuple(rows), reference=rows[0], best=rows[1], speeds=speeds)
        conditions = report(told, "run")["conditions"]
        assert [conditions[name] for name in ("date", "load", "machine")] == list(asdict(expected).values())
        assert f"Timed on {expected.machine}, one after the other" in markdown(told)


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
        TASK,
    )
    assert "the original in paddle fp32. No candidate" in answer(alone)
    assert report(alone, "run")["test"] is None
    text = markdown(alone)
    assert "On test" not in text and "Not in the table" not in text


def test_rows_that_nothing_tells_apart_are_named(result):
    """The untouched network in bf16 is as fast as the narrow one in 8 bits, so it is taken."""
    bf16 = scored("original", 0.879, 4.2, single=2.5, precision="bf16")
    rows = (*result.rows, bf16)
    best = select(rows, result.reference, result.metric, result.objective, speeds_of(rows))
    assert best == bf16
    text = markdown(replace(result, rows=rows, best=best, speeds=speeds_of(rows)))
    assert "the original in paddle bf16. No candidate that loses at most 0.5 points is clearly better." in text
    assert "it is the simplest that speed and score do not tell from the fastest in batches of 32." in text
    assert "Nor do they tell: width-0.75+ptq in paddle int8 (ptq). Simple is uncompressed, then" in text
    assert "vary too much" not in text
    assert "compared with the uncompressed model alone, at a time of its own" in text
