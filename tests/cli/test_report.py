"""`nlpctl report`, on run directories as training leaves them."""

from __future__ import annotations

import json
import re

from scored import scored, speeds_of

from nlpctl.compress.report import write_reports
from nlpctl.compress.result import CompressResult
from nlpctl.compress.scores import Metric
from nlpctl.compress.selection import Objective
from nlpctl.config.recipe_of import recipe_of
from nlpctl.models.model_manifest import write_model_sums
from nlpctl.runtime.event_log import EventLog
from nlpctl.training.run_setup import TrainOptions, open_run

TASK = "sequence_classification"

MISTAKES = {
    "split": "dev", "rows": 10, "wrong": 2,
    "worst": [
        {"where": "/data/dev.tsv:7", "texts": {"text": "<script>alert(1)</script>"}, "expected": "pos (0.01)",
         "given": "neg (0.99)", "size": 0.99},
        {"where": None, "texts": {"text": "x" * 2000}, "expected": "neg", "given": "pos", "size": 0.5},
    ],
}  # fmt: skip

WEAK = {"name": "<neg>", "rows": 12, "score": 0.5, "interval": [0.25, 0.75], "above": -0.125}
WEAK |= {"above_interval": [-0.5, 0]}
SLICES = {"split": "dev", "score": "accuracy", "by": {"label": [WEAK]}}


def scores(names, confusion):
    figures = {"precision": 0.5, "recall": 0.0, "f1": 0.5, "support": 5}
    return {"rows": 10, "accuracy": 0.8, "labels": {name: figures for name in names}, "confusion": confusion}


def sections(page: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", page)


def plots(page: str) -> list[str]:
    return re.findall(r'aria-label="(.*?)"', page)


def text_of(run) -> str:
    return run.report_file.read_text(encoding="utf-8")


def test_the_page_of_a_finished_run(nlpctl, made, tmp_path):
    best = ("evaluation_strategy=epoch", "save_strategy=epoch", "load_best_model_at_end=true")
    run = made("first", *(f"training.{each}" for each in best), f"data.dev={tmp_path}/train.tsv", dev=0.75)
    log = EventLog(run.events_file)
    log.append("log", 12, loss=float("nan"), learning_rate=1e-4, interval_samples_per_second=30.0)
    for step, loss in ((4, 0.5), (8, 0.4), (12, 0.6)):
        log.append("evaluate", step, eval_loss=loss, eval_accuracy=0.5 + step / 100)
    log.append("save", 12, checkpoint="checkpoint-12", best="checkpoint-8")
    log.append("out_of_memory", 9, batch_size=2)
    run.metrics_file.write_text(json.dumps({"dev": scores(["pos", "neg"], [[3, 2], [0, 5]])}))
    run.mistakes_file.write_text(json.dumps(MISTAKES))
    run.update_manifest(skipped_rows={"train": {"total": 3}}, parameters={"total": 1234})

    ended = nlpctl("report", run.path)
    assert (ended.code, ended.out) == (0, f"{run.report_file}\n")
    assert ended.err.count("\n") == 1 and f"nlpctl eval {run.path} --by label" in ended.err  # an older run
    page = text_of(run)
    assert sections(page) == ["Summary", "Curves", "Scores", "Confusions", "Worst errors", "Recipe", "Manifest"]
    titles = ("loss", "scores on dev", "learning rate", "rows per second")
    assert plots(page) == [f"{title} over step" for title in titles]
    assert "script>alert" not in page.replace("&lt;script&gt;alert", "") and "<script" not in page
    assert not re.search(r"\b(src|href)=\"(?!#)", page) and "url(" not in page
    assert ">dev.tsv:7<" in page and "x" * 300 not in re.sub(r'title="x+"', "", page)
    warned = ("3 bad rows of train were skipped", "out of memory at step 9", "lowest at step 8")
    assert "is optimistic, and so is its interval" not in page  # there are no intervals
    figures = ("1,234", "task: sequence_classification", "2 of 10 rows of dev", "&quot;pid&quot;")
    for told in (*warned, "is predicted correctly", *figures):
        assert told in page, told
    assert "<b>8</b><span>step of the model, chosen by accuracy on dev</span>" in page
    assert ">·<" in page  # no row of neg was taken for pos


def test_slices_stand_in_the_page(nlpctl, made):
    run = made("sliced", dev=0.75)
    report = {"rows": 12, "accuracy": 0.75, "intervals": {"accuracy": [0.5, 0.9]}}
    run.metrics_file.write_text(json.dumps({"dev": report}))
    run.slices_file.parent.mkdir()
    run.slices_file.write_text(json.dumps(SLICES))
    ended = nlpctl("report", run.path)
    assert (ended.code, ended.err) == (0, "")
    page = text_of(run)
    assert "is optimistic, and so is its interval" in page
    assert "Slices" in sections(page) and "dev, by label" in page and "The accuracy of some rows of dev" in page
    for cell in ("&lt;neg&gt;", "0.250 to 0.750", "-0.1250", "-0.5000 to +0.0000"):
        assert f">{cell}<" in page, cell
    by_length = [{**WEAK, "name": name} for name in ("12", "{} to <7>", "1 to 12 characters")]
    run.slices_file.write_text(json.dumps({**SLICES, "by": {"length": by_length}}))
    assert nlpctl("report", run.path, "--language", "zh").code == 0
    page = text_of(run)
    for cell in ("12", "{} to &lt;7&gt;", "1 至 12 个字符"):
        assert f">{cell}<" in page, cell
    for damage in ("[", "{}", json.dumps({**SLICES, "by": {"label": [{**WEAK, "rows": float("inf")}]}})):
        run.slices_file.write_text(damage)
        ended = nlpctl("report", run.path)
        assert ended.code == 0 and "slices.json: cannot be read" in ended.err
        assert "Slices" not in sections(text_of(run))


def test_a_run_that_has_only_begun(nlpctl, made):
    run = made("begun")
    run.events_file.unlink()
    assert nlpctl("report", run.path).code == 0
    assert sections(text_of(run)) == ["Summary", "Recipe", "Manifest"]


def test_a_run_that_failed(nlpctl, made):
    run = made("failed")
    run.update_manifest(state="failed", error="RunFailed: the loss is <NaN>")
    assert nlpctl("report", run.path).code == 0
    assert "The run failed: RunFailed: the loss is &lt;NaN&gt;" in text_of(run)
    assert sections(text_of(run)) == ["Summary", "Curves", "Recipe", "Manifest"]


def test_a_score_that_falls_has_a_plot_of_its_own(nlpctl, made):
    run = made("language", "task=masked_language_model")
    EventLog(run.events_file).append("evaluate", 8, eval_perplexity=70.0, eval_masked_accuracy=0.3)
    run.metrics_file.write_text(json.dumps({"dev": {"perplexity": 70.0}}))
    run.mistakes_file.write_text(json.dumps({"split": "dev", "rows": 4, "wrong": 0, "worst": []}))
    assert nlpctl("report", run.path).code == 0
    page = text_of(run)
    assert plots(page) == ["loss over step", "masked_accuracy on dev over step", "perplexity on dev over step"]
    assert "None of the 4 rows of dev." in page and "Confusions" not in page


def test_of_many_labels_the_confusions_are_listed(nlpctl, made):
    names = [f"label{i}" for i in range(30)]
    confusion = [[5 if i == j else 2 if (i, j) == (3, 4) else 0 for j in range(30)] for i in range(30)]
    run = made("many")
    run.metrics_file.write_text(json.dumps({"test": scores(names, confusion)}))
    assert nlpctl("report", run.path).code == 0
    page = text_of(run)
    table = page[page.index("most frequent confusions") :]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", table)[:4]
    assert cells == ["label3", "label4", "2", "28.6 %"]


def test_where_it_is_written(nlpctl, made, tmp_path):
    run, file = made("first", dev=0.5), tmp_path / "page.html"
    assert nlpctl("report", run.path, "-o", file).out == f"{file}\n"
    assert not run.report_file.exists() and "Run first" in file.read_text(encoding="utf-8")
    again = nlpctl("report", run.path, "-o", file)
    assert again.code == 2 and "the output file exists" in again.err
    assert nlpctl("report", run.path, "-o", file, "--overwrite").code == 0
    assert nlpctl("report", run.path).code == nlpctl("report", run.path).code == 0  # the run's own is replaced
    other = nlpctl("report", run.path, "-o", tmp_path / "page.json")
    assert other.code == 2 and "the report is a page, not .json" in other.err and not (tmp_path / "page.json").exists()
    assert "this is a folder" in nlpctl("report", run.path, "-o", tmp_path).err


def test_what_cannot_be_read_is_told(nlpctl, made, tmp_path):
    run = made("first", dev=0.5)
    for text in ("[1]", "{"):
        run.mistakes_file.write_text(text)
        ended = nlpctl("report", run.path)
        assert ended.code == 0 and "mistakes.json: cannot be read" in ended.err
        assert "mistakes.json: cannot be read" in text_of(run) and "Worst errors" not in sections(text_of(run))
    ended = nlpctl("report", tmp_path)
    assert ended.code == 2 and "there is no run here" in ended.err


def test_the_page_of_a_run_that_was_compressed(nlpctl, made, tmp_path):
    run = made("compressed")
    reference = scored("original", 0.88)
    best = scored("original+ptq", 0.876, 4.2, precision="int8", method="ptq", size_mb=20.0)
    rows, folder = (reference, best, scored("width-0.5", 0.8, 1.5)), run.path / "compress"
    speeds, metric = speeds_of(rows), Metric("accuracy")
    result = CompressResult(folder, rows, (), metric, Objective(), reference, best, None, speeds, TASK)
    write_reports(result, str(run.path))
    assert nlpctl("report", run.path).code == 0
    page = text_of(run)
    assert "Compression" in sections(page) and "the best of 3 candidates" in page
    assert "original+ptq, paddle int8 (ptq)" in page and ">4.20<" in page and "width-0.5" not in page

    run.report_file.unlink()
    with open_run(recipe_of(run.path), run, TrainOptions(resume=True), None, device="cpu", processes=1):
        pass  # the rest of a training
    assert "the best of 3 candidates" in text_of(run)

    run.model.mkdir(exist_ok=True)
    (folder / "plan.json").write_text(json.dumps({"sha256": {"model_state.pdparams": "of the old weights"}}))
    (run.model / "model_state.pdparams").write_bytes(b"new")
    write_model_sums(run.model)
    assert nlpctl("report", run.path).code == 0
    page = text_of(run)
    assert "the best of 3 candidates" not in page and "before it was trained again" in page
    (folder / "plan.json").unlink()

    (folder / "report.json").write_text('{"rows": []}')
    ended = nlpctl("report", run.path)
    assert ended.code == 2 and "compress/report.json" in ended.err.replace("\n", "")


def test_a_device_is_written_into(nlpctl, made, device):
    run, null, full = made("first"), device("null"), device("full")
    for words in ((), ("--overwrite",)):
        assert nlpctl("report", run.path, "-o", null, *words).code == 0
        done = nlpctl("report", run.path, "-o", full, *words)
        assert done.code == 2 and "No space left on device" in done.err and "--overwrite" not in done.err
    assert null.is_char_device() and full.is_char_device()
