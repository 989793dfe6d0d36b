"""Every family in Hugging Face's layout through the command line: trained, resumed, exported, compressed."""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path

import pytest
from small_tasks import CASES, write

ENCODERS = Path(__file__).parents[1] / "models" / "encoders"
FAMILIES = (
    "albert", "convbert", "deberta-v2", "deberta-v3", "distilbert", "modernbert", "mpnet", "nezha", "roformer",
    "xlm-roberta",
)  # fmt: skip
NO_DYNABERT = {
    "albert": "layers of ALBERT share their weights",
    "convbert": "heads of a HFConvBertModel cannot be removed",
    "mpnet": "heads of a HFMPNetModel cannot be removed",
}
MADE_BY = {
    "ptq": ["original+ptq-avg-32x16"],
    "ort-dynamic": ["original+ort-dynamic"],
    "ort-static": ["original+ort-static-32x16"],
    "qat": ["original+qat"],
    "distill": ["student"],
    "dynabert+ort-dynamic": ["width-0.5", "width-0.5+ort-dynamic"],
}  # from the strategy of a command to candidates
NO_WORDS = {"distilbert": "masked language models of the family 'distilbert' are not known"}


def recipe_of(work, task: str, family: str) -> str:
    """A recipe of small_tasks.py that starts from the small network of a family."""
    recipe = write(work.folder, task)
    text = re.sub(r"model: {.*}\n", f"model: {{name_or_path: {ENCODERS / family}}}\n", recipe.read_text(), count=1)
    text = text.replace("max_steps: 10", "max_steps: 6").replace("max_seq_length: 16", "max_seq_length: 32")
    named = recipe.with_name(f"{family}-{task}.yaml")
    named.write_text(text.replace("doc_stride: 5", "doc_stride: 8"), encoding="utf-8")
    return named.name


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_trained_killed_and_resumed(work, same_bits, family):
    """As much is drawn, and as often, whichever attention a family has."""
    recipe = recipe_of(work, "sequence_classification", family)
    whole = work.train(f"{family}-whole", recipe=recipe)
    killed = f"{family}-killed"
    words = ("train", recipe, "--set", f"training.output_dir={killed}")
    work.end(work.start(*words), (work / killed / "checkpoints" / "checkpoint-2").exists, signal.SIGKILL)
    work.train(killed, "--resume", recipe=recipe)
    assert same_bits(work / killed, whole)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "task",
    ["sequence_classification", "token_classification", "question_answering", "semantic_indexing",
     "masked_language_model"],
)  # fmt: skip
def test_tasks_and_engines(work, family, task):
    """Trained, exported to both engines in fp32 and int8, asked in each."""
    recipe, name = recipe_of(work, task, family), f"{family}-{task}"
    if task == "masked_language_model" and family in NO_WORDS:
        done = work.nlpctl("train", recipe, "--set", f"training.output_dir={name}")
        assert done.returncode == 2 and NO_WORDS[family] in done.stderr
        return
    run = work.train(name, recipe=recipe)
    done = work.nlpctl("export", run, "-o", f"{name}-export", "--precision", "fp32,int8", "--timing", "0")
    assert done.returncode == 0, done.stderr
    report = json.loads((work / f"{name}-export" / "report.json").read_text())
    checks = [check for graph in report["graphs"] for check in graph["checks"]]
    fp32 = [check for check in checks if check["precision"] == "fp32"]
    assert {check["engine"] for check in fp32} == {"paddle", "onnxruntime"}
    assert all(check["relative_difference"] <= 1e-4 and check["agreement"] == 1 for check in fp32), fp32
    int8 = {check["engine"] for check in checks if check["precision"] == "int8"}
    reasons = [each["reason"] for each in report["refused"]]
    assert all("changes too many decisions" in each for each in reasons), reasons  # as networks of so few steps may
    assert int8 == {"paddle", "onnxruntime"} or reasons, report
    for engine in ("paddle", "onnxruntime"):
        words = (f"{name}-export", f"{task}-test.jsonl", "--engine", engine, "--precision", "fp32")
        done = work.nlpctl("predict", *words)
        assert done.returncode == 0, done.stderr
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(answers) == 10
        for answer in answers:
            CASES[task][1](answer)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_compressed(work, family):
    """A strategy in each command, which has 300 seconds: its last round opens a process per row, of seconds each."""
    recipe = recipe_of(work, "sequence_classification", family)
    run = work.train(f"{family}-to-compress", recipe=recipe)
    made_by = dict(MADE_BY)
    if family in NO_DYNABERT:
        del made_by["dynabert+ort-dynamic"]
        refuses(work, run, "dynabert", NO_DYNABERT[family])
    if family == "albert":
        del made_by["distill"]
        refuses(work, run, "distill", "hf_albert has no layers that a student could take")
    folder = work / f"{family}-small"
    for strategy, names in made_by.items():
        words = ("--strategy", strategy, "--max-drop", "100", "--batch_sizes", "8", "--set", "data.test=null")
        words += ("--width_mult_list", "1/2") if "dynabert" in strategy else ()
        words += ("--algo_list", "avg") if strategy == "ptq" else ()
        done = work.nlpctl("compress", run, "-o", folder, *words)
        assert done.returncode == 0, done.stderr
        report = json.loads((folder / "report.json").read_text())
        assert report["failures"] == []
        assert {"original", *names} <= {row["candidate"] for row in report["rows"]}
        # The network is exported and scored once for all; what was made of it need not be timed with what comes next.
        for made in (*folder.glob("candidates/*"), *folder.glob("networks/*"), *folder.glob("exports/*")):
            if made.name != "original":
                shutil.rmtree(made)


def refuses(work, run: Path, strategy: str, why: str) -> None:
    done = work.nlpctl("compress", run, "-o", f"{run.name}-no", "--strategy", strategy)
    assert done.returncode == 2 and why in done.stderr, done.stderr
