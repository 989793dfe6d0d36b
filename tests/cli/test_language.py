"""Pages in Chinese, each with all that it may hold: no English sentence is left, and what programs read is the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml
from chinese import COMMAND, SENTENCE, assert_chinese, sentences
from made_runs import WORDS, make_run

from nlpctl.config.load import Override, load_recipe
from nlpctl.datatools.audit import Audit, audit_page
from nlpctl.datatools.corrections import CONFLICT, OUTLIER, WRONG, Finding, Target
from nlpctl.experiments.learning_curve import curve_page, fit, learning_curve_result
from nlpctl.experiments.repeats_report import repeats_page, spreads
from nlpctl.experiments.series import Series, SeriesRun
from nlpctl.experiments.study import FAILED, FINISHED, PRUNED, TrialRecord
from nlpctl.experiments.sweep_result import SweepResult, sweep_page
from nlpctl.inference.attribution import Explained, Explanation, Token
from nlpctl.inference.explain import explanations_page
from nlpctl.report import language
from nlpctl.report.chinese import CHINESE
from nlpctl.report.language import in_language
from nlpctl.runs.runs import differences, open_all, open_run
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.intervals import Comparison, Paired
from nlpctl.ui.pages import answered_section, compare_page, index_page, problem_page, try_section

TEXTS = {"text": "房间很吵"}
WRONG_ROW = {"where": "/data/dev.tsv:7", "texts": TEXTS, "expected": "差评", "given": "好评", "size": 0.9}
MISTAKES = {"split": "dev", "rows": 10, "wrong": 3, "worst": [WRONG_ROW, {**WRONG_ROW, "given": "(no label)"}]}
WEAK = {"rows": 12, "score": 0.5, "interval": [0.25, 0.75], "above": -0.125, "above_interval": [-0.5, 0]}
SLICED_BY = {"label": [{**WEAK, "name": "差评"}], "length": [{**WEAK, "name": "1 to 12 characters"}]}
LEFT_OUT = {"left_out": {"label": 3}}


@pytest.fixture(autouse=True)
def everything_has_its_chinese(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails if something is said in Chinese that is English still, wherever it comes from."""
    missing: set[str] = set()

    class Noting(dict[str, str]):
        def __contains__(self, text: object) -> bool:
            known = super().__contains__(text)
            if not known and language.language() == "zh" and SENTENCE.search(COMMAND.sub("", str(text))):
                missing.add(str(text))
            return known

    monkeypatch.setattr(language, "CHINESE", Noting(language.CHINESE))
    yield
    assert not missing


def filled(made: Callable[..., RunDirectory], name: str) -> RunDirectory:
    """A run whose report has every section."""
    keys = ("evaluation_strategy=epoch", "save_strategy=epoch", "load_best_model_at_end=true")
    settings = (f"training.seed={len(name)}", *(f"training.{each}" for each in keys))
    run = made(name, *settings, f"data.dev={__file__}", dev=0.75)
    log = EventLog(run.events_file)
    log.append("log", 12, loss=0.2, learning_rate=1e-4, interval_samples_per_second=30.0)
    for step, loss in ((4, 0.5), (8, 0.4), (12, 0.6)):
        log.append("evaluate", step, eval_loss=loss, eval_accuracy=0.5 + step / 100)
    log.append("save", 12, checkpoint="checkpoint-12", best="checkpoint-8")
    for event in ("out_of_memory", "stalled", "bad_step", "not_learning", "useless"):
        log.append(event, 9)
    figures = {"precision": 0.5, "recall": 0.0, "f1": 0.5, "support": 5}
    bins = [[0.6, 0.5, 4], [0.9, 1.0, 6]]
    coverage = [{"min_confidence": 0.5, "coverage": 0.9, "precision": 0.8}]
    confidence = {"of": "rows", "reliability": bins, "before": {"reliability": bins, "ece": 0.2}, "coverage": coverage}
    report = {"rows": 10, "accuracy": 0.8, "intervals": {"accuracy": [0.5, 0.9]}, "ece": 0.1, "confidence": confidence}
    report |= {"labels": {"好评": figures, "差评": figures}, "confusion": [[3, 2], [0, 5]]}
    report |= {"levels": {"1": {"labels": 2, "micro_f1": 0.5, "macro_f1": 0.5}}}
    run.metrics_file.write_text(json.dumps({"dev": report}))
    run.mistakes_file.write_text(json.dumps(MISTAKES))
    run.slices_file.parent.mkdir()
    run.slices_file.write_text(json.dumps({"split": "dev", "score": "accuracy", "by": SLICED_BY, **LEFT_OUT}))
    seconds = {"data": 30.0, "compute": 60.0, "log": 20.0, "evaluate": 80.0, "save": 40.0}
    run.update_manifest(
        skipped_rows={"train": {"total": 3}},
        truncated_rows={"rows": 288, "truncated": 2, "unread": 0.8424},
        parameters={"total": 1234},
        device="gpu:0",
        time={"seconds": seconds, "longest_wait": 30.0, "steps": 12},
    )
    return run


def test_the_report_of_a_run(nlpctl, made) -> None:
    run = filled(made, "first")
    assert nlpctl("report", run.path, "--language", "zh").code == 0
    chinese = run.report_file.read_text(encoding="utf-8")
    assert_chinese(chinese)
    assert language.language() == "en"  # the option was for that command
    assert nlpctl("report", run.path).code == 0
    english = run.report_file.read_text(encoding="utf-8")
    assert '<html lang="en">' in english and len(sentences(english)) > 20
    assert "Slices not in the table: 3." in english and "未列入表中的切片：3 个" in chinese
    assert "(no label)" in english and "（无标签）" in chinese
    assert "of 288 training rows looked at 2 are longer" in english and "2 行更长" in chinese
    sections = [re.findall(r"<h2>(.*?)</h2>", page) for page in (chinese, english)]
    assert len(sections[0]) == len(sections[1]) == 10
    ended = nlpctl("report", run.path, "--language", "fr")
    assert ended.code == 2 and "--language: there are no pages in 'fr'" in ended.err


@pytest.mark.parametrize("state", ["failed", "interrupted", "pruned", "killed", "running"])
def test_a_run_that_is_not_finished(nlpctl, made, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The locale decides where no option does."""
    run = made("ended")
    error = "RunFailed: 不收敛" if state == "failed" else None
    if state == "killed":  # its process is gone
        run.update_manifest(state="running", pid=2**22 + 1, error=None)
    else:
        run.update_manifest(state=state, error=error)
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert nlpctl("report", run.path).code == 0
    assert_chinese(run.report_file.read_text(encoding="utf-8"))
    listed = nlpctl("runs", "ls", run.path.parent)
    assert listed.out.split()[:2] == ["运行", "状态"] and state not in listed.out
    assert json.loads(nlpctl("runs", "ls", run.path.parent, "--json").out)["result"][0]["state"] == state


def test_the_lists_of_runs(nlpctl, made) -> None:
    runs = [filled(made, name) for name in ("first", "second")]
    records = [open_run(run.path) for run in runs]
    with in_language("zh"):
        pages = [
            index_page(runs[0].path.parent, *open_all(runs[0].path.parent)),
            index_page(Path("outputs"), [], []),
            problem_page("没有这次运行"),
            compare_page(["first", "second"], differences(records), {"dev": paired(), "test": "行不同"}),
        ]
        for keys, answer in (((), None), (("text",), {"label": "好评"})):
            assert sentences(try_section("first", keys, {}).title) == []
            parts = [*try_section("first", keys, {}).parts, *answered_section(answer).parts]
            assert sentences("<!DOCTYPE html>" + "".join(map(str, parts[:2]))) == []
    for page in pages:
        assert_chinese(page)


def english_heads(printed: str) -> list[str]:
    """The heads of tables that have a Chinese name."""
    heads = [above for above, below in pairwise(printed.splitlines()) if re.fullmatch("-+(  -+)*", below)]
    return [head for line in heads for head in re.split("  +", line) if CHINESE.get(head, head) != head]


def test_tables_of_commands(nlpctl, made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of what is made of a model: each command that prints one."""
    from nlpctl.models.find import find_trained_model

    recipe = make_run(tmp_path, "sequence_classification")
    model = find_trained_model(recipe)
    recipe_file, export = tmp_path / "recipe.yaml", tmp_path / "export"
    (tmp_path / "texts.txt").write_text("bed\nthe view\n", encoding="utf-8")
    runs = [filled(made, name).path for name in ("first", "second")]
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    commands = [
        ("recipe", "ls"),
        ("recipe", "flags"),
        ("data", "show", recipe_file, "-n", "1"),
        ("data", "split", recipe_file, "-o", tmp_path / "split"),
        ("data", "next", recipe.run_dir, tmp_path / "texts.txt", "-n", "2"),
        ("params", "ls", recipe_file),
        ("params", "set", model, "--value", "classifier.bias=3", "-o", tmp_path / "other"),
        ("params", "diff", model, tmp_path / "other"),
        ("export", model, "-o", export, "--timing", "0", "--rows", "4"),
        ("convert-static", export, "--to", model, "--plan", "-o", tmp_path / "map.yaml"),
        ("convert-static", export, "--to", model, "-o", tmp_path / "converted"),
        ("runs", "diff", *runs),
    ]
    printed = []
    for words in commands:
        ended = nlpctl(*words)
        assert ended.code == 0, ended.err
        english = [each for each in sentences(ended.out) if not set(each.split()) <= set(WORDS)]  # those are texts
        assert (english, english_heads(ended.out)) == ([], []), words
        printed.append(ended.out)
    assert "逐行比较" in printed[-1]
    for page in (export / "report.md", tmp_path / "converted" / "conversion.md"):
        assert sentences(page.read_text(encoding="utf-8")) == []


def test_the_last_lines_of_commands(nlpctl, made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written, and what to do with it."""
    rows = "".join(f"{text}\t{'好评' if i % 2 else '差评'}\n" for i, text in enumerate(SOME))
    (tmp_path / "train.tsv").write_text(f"text\tlabel\n{rows}", encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("task: sequence_classification\nmodel: {from_scratch: {}}\ndata: {train: train.tsv}\n")
    run = made("cleaned", dev=0.5)
    for folder in (run.checkpoints / "checkpoint-4", run.checkpoints / "checkpoint-8", run.model):
        folder.mkdir(parents=True)
        (folder / "model_state.pdparams").write_text(folder.name)
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    for words, told in (
        (("data", "split", recipe, "-o", tmp_path / "parts"), "写在配方的 data 下：\n"),
        (("data", "inspect", recipe, "--html", tmp_path / "page.html"), f"页面：{tmp_path / 'page.html'}\n"),
        (("runs", "clean", run.path), "没有删除任何文件；--yes 会删除列出的这些\n"),
    ):
        ended = nlpctl(*words)
        assert ended.code == 0 and told in ended.err, ended.err


def test_names_of_users_are_not_translated(nlpctl, made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made("named")
    values = yaml.safe_load(run.recipe_file.read_text(encoding="utf-8"))
    values["model"] = {"name_or_path": str(tmp_path / "labels")}
    run.recipe_file.write_text(yaml.safe_dump(values), encoding="utf-8")
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert "  labels  " in nlpctl("runs", "ls", run.path.parent).out
    assert re.search("^模型： +labels$", nlpctl("runs", "show", run.path).out, flags=re.M)


def test_the_counts_beside_scores_are_no_names(nlpctl, made, monkeypatch: pytest.MonkeyPatch) -> None:
    run = filled(made, "counted")
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    shown = [line.split() for line in nlpctl("runs", "show", run.path).out.splitlines()]
    assert ["划分", "行数", "accuracy", "ece"] in shown and ["标签", "precision", "recall", "f1", "数量"] in shown


def paired() -> Paired:
    return Paired({"accuracy": Comparison(0.5, 0.75, 0.25, (-0.1, 0.5), 0.2)}, 10, 3, 1, 0.5)


ODD = ["The cafÃ© 关门了", "看\u200b不见", "！！！", "好", "一<br />二", "一\r二", "哈" * 20, "房间干净", "房间干净"]
SOME = [f"第{i}家酒店的房间{'很干净' if i % 2 else '太吵了'}，服务员{i}号态度不错" for i in range(60)]


def test_the_data_of_a_recipe(nlpctl, tmp_path: Path) -> None:
    texts = [*SOME, *ODD, "На улице хорошая погода", "很" + "长" * 4000]
    lines = [f"{text}\t{'好评' if i % 4 else '差评'}\n" for i, text in enumerate(texts)] + ["没有标签\t\n"]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "".join(lines).replace("\r", "\\r"), encoding="utf-8")
    (tmp_path / "dev.tsv").write_text("text\tlabel\n" + "".join(lines[:9]) + "又一家\t好评 \n", encoding="utf-8")
    doubtful = '{"text": "一\\r二三", "label": "差评"}\n'
    (tmp_path / "test.jsonl").write_text(doubtful, encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    data = "{train: train.tsv, dev: dev.tsv, test: test.jsonl, max_seq_length: 16}"
    recipe.write_text(f"task: sequence_classification\nmodel: {{from_scratch: {{}}}}\ndata: {data}\n")
    page = tmp_path / "data.html"
    ended = nlpctl("data", "inspect", recipe, "--estimate", "--html", page, "--language", "zh")
    assert ended.code == 0 and "可疑的行：" in ended.out
    bad = "label is empty"  # a message of an error, which is quoted
    assert [each for each in sentences(ended.out) if each not in bad] == []
    assert_chinese(page.read_text(encoding="utf-8"))
    results = [nlpctl("data", "inspect", recipe, "--estimate", "--json", *more) for more in ((), ("--language", "zh"))]
    assert results[0].out == results[1].out


def test_an_explanation() -> None:
    tokens = (Token("很", 0.5, True), Token("吵", -0.75, True))
    rows = []
    for method, baseline in (("integrated_gradients", -0.15), ("occlusion", None)):
        explanation = Explanation(np.array([0.5, -0.75]), -0.4, baseline, 32)
        rows.append(Explained({"text": "很吵"}, {}, "好评", 0.4, method, tokens, explanation))
    with in_language("zh"):
        assert_chinese(explanations_page(rows, "outputs/quickstart"))
    assert len(sentences(explanations_page(rows, "outputs/quickstart"))) > 5


def test_an_audit(tmp_path: Path) -> None:
    findings = [
        Finding(WRONG, "train.tsv:3", "房间很吵", "好评", "差评", 0.1, 0.9),
        Finding(CONFLICT, "train.tsv:4", "房间很吵", "好评", other="train.tsv:7 (train)", other_label=["差评"]),
        Finding(OUTLIER, "train.tsv:5", "电池", "好评", distance=0.9),
    ]
    for found in (findings, [], findings * 700):
        with in_language("zh"):
            useless = {"fold-1": "f1 is 0"}
            audit = Audit(tmp_path, 10, found, "accuracy", {"fold-1": 0.5}, useless, [])
            assert_chinese(audit_page(audit, "outputs/folds"))
    at = Target("train.jsonl", "", 1, "spans", False, "spans")
    spans = [[{"start": 0, "end": end, "label": "name", "text": "张三李"[:end]}] for end in (3, 2)]
    found = [replace(each, given=spans[0], proposed=spans[1], edit=at, rows=2) for each in findings]
    with in_language("zh"):
        page = audit_page(Audit(tmp_path, 10, found, "f1", {"fold-1": 0.5}, {}, []), "outputs/folds")
        assert_chinese(page.partition("<script")[0])
        assert "勾选" in page and "房间很吵（2 行）" in page
        assert "name，边界不同" in page and "名称" not in page  # a label is not translated


def test_several_trainings(tmp_path: Path, recipe: Path) -> None:
    """The pages of a sweep, of folds and of a learning curve."""
    space = {"training.learning_rate": "{log: [1e-5, 1e-4]}", "training.seed": "[1, 2]"}
    searched = load_recipe(recipe, [Override(f"search.space.{key}", axis, "--set") for key, axis in space.items()])
    states = [(FINISHED, 0.75), (FINISHED, 0.5), (PRUNED, None), (FAILED, None)]
    tried = {"training.learning_rate": 3e-5}
    trials = tuple(TrialRecord(i, tried, state, score, 3.0, "") for i, (state, score) in enumerate(states))
    series = Series(searched, range(30), tmp_path, [SeriesRun("fold-1", 3), SeriesRun("fold-2", 3)], False)
    metrics = {each.name: {"dev": {"accuracy": 0.5}} for each in series.members}
    pages: list[Callable[[], str]] = [lambda: repeats_page(series, metrics, spreads(metrics), [15, 15])]
    for against in (None, Comparison(0.5, 0.75, 0.25, (-0.1, 0.5), 0.2), Comparison(0.5, 0.75, 0.25, (0.1, 0.5), 0.01)):
        importance = {} if against is None else {"training.learning_rate": 1.0}
        found = (searched.search, trials, trials[:2], importance, against, {"accuracy": 0.75})
        result = SweepResult(tmp_path, "accuracy", True, *found)
        pages.append(lambda result=result: sweep_page(result, "", ""))
    (tmp_path / "recipe.yaml").write_text("", encoding="utf-8")
    for gain in (0.3, 0.0):
        sizes = (20, 40, 80, 160)
        values = [[1 - 0.2 - gain * size**-0.5 - noise for noise in (0.0, 0.001)] for size in sizes]
        curve = fit(sizes, values)
        scored = [(size, ["a", "b"], each) for size, each in zip(sizes, values, strict=True)]
        found = learning_curve_result(tmp_path, "dev", "accuracy", 160, scored, curve)
        pages.append(lambda found=found, curve=curve: curve_page(found, curve))
    for page in pages:
        with in_language("zh"):
            assert_chinese(page())
