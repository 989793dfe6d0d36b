"""What is told before anything is made."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from scored import scored, speeds_of

from nlpctl.compress import compress
from nlpctl.compress.plan import CompressRequest, parse_strategy
from nlpctl.compress.refusals import (
    refuse_engines,
    refuse_missing_files,
    refuse_sure_of_user_score,
    refuse_unscorable,
    refuse_ways,
    refuse_without_dev,
    warn_unread,
)
from nlpctl.compress.report import report
from nlpctl.compress.result import CompressResult
from nlpctl.compress.scores import USER_SCORE, Failure, Metric
from nlpctl.compress.selection import Objective
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.schema import Recipe
from nlpctl.engines.choice import Machine
from nlpctl.errors import RunFailed, UserError
from nlpctl.export.strategies import Ptq
from nlpctl.runtime.machine import CpuInfo

TASK = "sequence_classification"

CPU = CpuInfo("AuthenticAMD", "an older one", ("avx2",))
OLDER = Machine(CPU, "cpu", onnxruntime=True, onnxruntime_gpu=True, gpu_bf16=True, tensorrt=False)


def request(recipe: Recipe, text: str | None = None) -> CompressRequest:
    """That of a command with these strategies; None: those of the recipe."""
    chains = parse_strategy(text or recipe.compression.strategy)
    return CompressRequest(recipe, "outputs/run/model", chains, Path("outputs/small"))


@pytest.fixture
def recipe(tmp_path):
    def make(strategy: str, *flags: Override) -> Recipe:
        for name in ("train.tsv", "dev.tsv"):
            (tmp_path / name).write_text("text\tlabel\na\tx\nb\ty\n")
        text = "task: sequence_classification\ndata: {train: train.tsv, dev: dev.tsv, test: test.tsv}\n"
        (tmp_path / "recipe.yaml").write_text(text)
        return load_recipe(tmp_path / "recipe.yaml", (Override("compression.strategy", strategy, "-"), *flags), "apply")

    return make


def test_files_that_will_be_read_are_there(recipe, tmp_path):
    with pytest.raises(UserError, match="test.tsv does not exist"):
        refuse_missing_files(request(recipe("ort-dynamic")))
    (tmp_path / "test.tsv").write_text("text\tlabel\na\tx\n")
    given = recipe("ort-dynamic,ptq")
    (tmp_path / "train.tsv").unlink()
    refuse_missing_files(request(given, "ort-dynamic"))  # reads no training rows
    with pytest.raises(UserError, match="train.tsv does not exist"):
        refuse_missing_files(request(given, "ptq"))
    words = Override("compression.prune_embeddings", "true", "--prune_embeddings")
    with pytest.raises(UserError, match="train.tsv does not exist"):
        fewer = load_recipe(tmp_path / "recipe.yaml", (words,), "apply")
        refuse_missing_files(request(fewer, "ort-dynamic"))


@pytest.mark.parametrize("key", ["inference.engine", "inference.precision"])
def test_a_way_to_run_is_no_flag_of_compress(recipe, key):
    value = {"inference.engine": "paddle", "inference.precision": "int8"}[key]
    with pytest.raises(UserError, match="every engine and precision of this machine is compared") as told:
        refuse_ways(request(recipe("ort-dynamic", Override(key, value, f"--{key}"))))
    assert told.value.problems[0].where == f"--{key} ({key})"
    refuse_ways(request(recipe("ort-dynamic")))


def test_a_score_of_the_users_own_is_never_sure(recipe, tmp_path):
    flags = [Override("compression.sure", "0.9", "--sure"), Override("compression.evaluate", "mine:score", "--set")]
    given = recipe("ort-dynamic", *flags)
    with pytest.raises(UserError, match="cannot be resampled") as told:
        refuse_sure_of_user_score(request(given))
    assert told.value.problems[0].where == "--sure (compression.sure)"


def test_what_cannot_be_compared_is_told_before_anything_is_made(recipe):
    given = recipe("ort-dynamic")
    with pytest.raises(UserError, match="no dev data"):
        refuse_without_dev(request(dataclasses.replace(given, data=dataclasses.replace(given.data, dev=()))))
    with pytest.raises(UserError, match="cannot be scored"):
        refuse_unscorable(request(dataclasses.replace(given, task="masked_language_model")), None)
    refuse_without_dev(request(given))
    refuse_unscorable(request(given), None)


@pytest.mark.parametrize(
    ("part", "hint"),
    [
        ("dynabert+ptq", "use --strategy dynabert+ort-dynamic"),
        ("qat", "use --strategy ort-dynamic"),
        ("ort-dynamic,ptq", "use --strategy ort-dynamic"),
        ("ort-static,ptq", "use --strategy ort-static,ort-dynamic"),
        ("ptq+embeddings,embeddings", "use --strategy ort-dynamic,embeddings"),
        ("dynabert+bf16", "use --strategy dynabert"),
        ("bf16", "use --strategy ort-dynamic,ort-static"),
    ],
)
def test_a_machine_that_does_not_compute_natively(recipe, monkeypatch, part, hint):
    monkeypatch.setattr("nlpctl.engines.choice.this_machine", lambda _: OLDER)
    refuse_engines(request(recipe("dynabert,distill+ort-static,ort-dynamic")), SimpleNamespace(device="cpu"))
    with pytest.raises(UserError, match="does not compute in (int8|bf16) natively") as told:
        refuse_engines(request(recipe(part)), SimpleNamespace(device="cpu"))
    assert told.value.problems[0].hint == hint


def test_a_machine_without_onnxruntime_is_told_to_install_it(recipe, monkeypatch):
    machine = dataclasses.replace(OLDER, onnxruntime=False)
    monkeypatch.setattr("nlpctl.engines.choice.this_machine", lambda _: machine)
    with pytest.raises(UserError) as told:
        refuse_engines(request(recipe("ptq")), SimpleNamespace(device="cpu"))
    assert told.value.problems[0].hint.startswith("leave ptq out; or pip install onnxruntime")


def test_a_card_is_told_how_to_go_on(recipe, monkeypatch):
    monkeypatch.setattr("nlpctl.engines.choice.this_machine", lambda _: dataclasses.replace(OLDER, device="gpu:0"))
    with pytest.raises(UserError) as told:
        refuse_engines(request(recipe("dynabert+ptq")), SimpleNamespace(device="gpu"))
    assert "on a GPU" in str(told.value) and "--device cpu" in told.value.problems[0].hint


def test_beside_qat_the_type_of_activations_is_its_own(recipe):
    flag = Override("compression.activation_quantize_type", "moving_average_abs_max", "--activation_quantize_type")
    for text in ("ptq,qat", "ptq"):
        given = recipe(text, flag)
        alone = pytest.raises(UserError, match="no effect on calibration") if text == "ptq" else nullcontext()
        with alone:
            Ptq().refuse_settings(given, request(given).strategies)


def test_what_fails_on_test_does_not_cost_the_table():
    def fails(_):
        raise RunFailed("out of memory")

    command = SimpleNamespace(failures={}, scorer=SimpleNamespace(on_test=fails))
    best = scored("original+ort-dynamic", 0.88, 2.0)
    assert compress._Compression.score_on_test(command, best) is None
    assert command.failures == {"test": (Failure(best.candidate, f"{best.choice_name} on test", "out of memory"),)}


def test_all_scores_of_the_users_function_are_reported(tmp_path):
    row = scored("original", 0.88)
    row = dataclasses.replace(row, report={**row.report, USER_SCORE: {"f1": 0.9, "recall": 0.8}})
    metric, speeds = Metric("f1", own=True), speeds_of([row])
    result = CompressResult(tmp_path, (row,), (), metric, Objective(), row, row, None, speeds, TASK)
    (entry,) = report(result, "outputs/run")["rows"]
    assert entry["report"]["compression.evaluate.f1"] == 0.9 and entry["report"]["compression.evaluate.recall"] == 0.8


def test_a_card_trains_for_8_bits(recipe, monkeypatch):
    """Its graph is made in the same folder with --device cpu."""
    monkeypatch.setattr("nlpctl.engines.choice.this_machine", lambda _: dataclasses.replace(OLDER, device="gpu:0"))
    refuse_engines(request(recipe("dynabert+qat")), SimpleNamespace(device="gpu"))


@pytest.mark.parametrize(
    ("strategy", "hard", "told"),
    [("distill", 0.0, True), ("distill", 0.5, False), ("distill,qat", 0.0, False), ("ptq", 0.0, False)],
)
def test_a_loss_that_nothing_weighs_is_told(recipe, capsys, strategy, hard, told):
    given = {"compression.criterion": "my_losses:mine", "distillation.hard": str(hard)}
    of_the_recipe = [Override(name, text, "recipe.yaml:3") for name, text in given.items()]
    warn_unread(request(recipe(strategy, *of_the_recipe)))
    assert ("distill weights it" in capsys.readouterr().err) is told


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        ("ort-dynamic", ["--set distillation.hard", "--num_train_epochs", "--set optimizer.layer_decay"]),
        ("dynabert", ["--set distillation.hard"]),
        ("ort-dynamic,distill", []),
    ],
)
def test_flags_of_a_training_that_there_is_not_are_told(recipe, capsys, strategy, told):
    given = {
        "distillation.hard": ("0.5", "--set distillation.hard"),
        "training.num_train_epochs": ("2", "--num_train_epochs"),
        "optimizer.layer_decay": ("0.9", "--set optimizer.layer_decay"),
        "training.learning_rate": ("1e-3", "recipe.yaml:3"),  # it may be for other strategies
        "training.per_device_eval_batch_size": ("4", "--per_device_eval_batch_size"),
        "training.seed": ("7", "--seed"),
        "training.metric_for_best_model": ("macro_f1", "--metric_for_best_model"),
        "training.output_dir": ("outputs/run", "--output_dir"),
        "training.disable_tqdm": ("true", "--disable_tqdm"),
    }
    warn_unread(request(recipe(strategy, *(Override(key, *each) for key, each in given.items()))))
    warnings = [line for line in capsys.readouterr().err.splitlines() if "has no effect" in line]
    assert sorted(line.partition("warning: ")[2].partition(" has")[0] for line in warnings) == sorted(told)


def test_a_flag_of_several_keys_is_told_once(recipe, capsys):
    student = Override("distillation.model.from_scratch", "{architecture: bilstm, unit: words}", "--set student")
    warn_unread(request(recipe("ptq", student)))
    assert capsys.readouterr().err.count("--set student has no effect: it applies to distill") == 1


def test_nothing_of_it_imports_paddle(recipe, tmp_path):
    """Threads, device and flags are set before Paddle is imported, which is after these refusals."""
    recipe("ort-dynamic")
    code = """
import sys
from nlpctl.compress.strategies import strategies
from nlpctl.config.load import load_recipe
from nlpctl.errors import NlpctlError
recipe = load_recipe("recipe.yaml", (), "apply")
for strategy in strategies().values():
    try:
        strategy.refuse_settings(recipe, ())
    except NlpctlError:
        pass
print([name for name in ("paddle", "paddlenlp") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
