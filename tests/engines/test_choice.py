"""What may run an export: by its graphs, by the machine, by the recipe."""

from __future__ import annotations

import dataclasses

import pytest

from nlpctl.config.schema import InferenceSection
from nlpctl.engines.choice import Machine, all_choices, allowed_choices, check_engine, runnable
from nlpctl.errors import UserError
from nlpctl.models.export_folder import Check, Chosen, DevScores, ExportManifest, Graph
from nlpctl.runtime.machine import CpuInfo

MODERN = CpuInfo("GenuineIntel", "Xeon", ("avx2", "avx512f", "avx512_vnni", "avx512_bf16"))
OLD = CpuInfo("GenuineIntel", "Core", ("avx2",))


def machine(
    cpu=MODERN, device="cpu", onnxruntime=True, onnxruntime_gpu=False, gpu_bf16=True, tensorrt=False
) -> Machine:
    return Machine(cpu, device, onnxruntime, onnxruntime_gpu, gpu_bf16, tensorrt)


def checks(engine, **agreements):
    return tuple(Check(engine, precision, 0.1, agreement) for precision, agreement in agreements.items())


PADDLE = Graph("paddle", "fp32", ("model.pdmodel", "model.pdiparams"), checks=checks("paddle", fp32=1.0, bf16=0.995))
PADDLE_INT8 = Graph("paddle", "int8", ("q.pdmodel", "q.pdiparams"), "ptq", checks("paddle", int8=0.97))
ONNX = Graph("onnx", "fp32", ("model.onnx",), checks=checks("onnxruntime", fp32=1.0))
DYNAMIC = Graph("onnx", "int8", ("d.onnx",), "dynamic", checks("onnxruntime", int8=0.993))
STATIC = Graph("onnx", "int8", ("s.onnx",), "static")  # the machine that exported it could not run it
CARD, CARD_TRT = machine(device="gpu:0"), machine(device="gpu:0", onnxruntime_gpu=True, tensorrt=True)
TRT = {"tensorrt": True}
ORT = {"engine": "onnxruntime"}
INT8 = {"precision": "int8"}
OF_PADDLE = ["paddle fp32", "paddle bf16", "paddle int8 (ptq)"]
ALL = (PADDLE, PADDLE_INT8, ONNX, DYNAMIC, STATIC)


def manifest(*graphs: Graph, chosen: Chosen | None = None) -> ExportManifest:
    return ExportManifest("sequence_classification", (), (), 64, graphs, 256, "", {}, chosen)


def names(found) -> list[str]:
    return [choice.name for choice in found]


def test_names_tell_all_choices_of_an_export_apart():
    found = names(all_choices(manifest(*ALL)))
    assert len(set(found)) == len(found) == 7
    assert "onnxruntime int8 (dynamic)" in found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (machine(), [*OF_PADDLE, "onnxruntime fp32", "onnxruntime int8 (dynamic)"]),
        (machine(OLD), ["paddle fp32", "onnxruntime fp32", "onnxruntime int8 (dynamic)"]),
        (machine(onnxruntime=False), OF_PADDLE),
        (machine(device="gpu:0"), ["paddle fp32", "paddle bf16", "paddle fp16"]),
        (machine(device="gpu:0", gpu_bf16=False), ["paddle fp32", "paddle fp16"]),
    ],
)
def test_what_a_machine_can_run(given, expected):
    assert names(runnable(manifest(PADDLE, PADDLE_INT8, ONNX, DYNAMIC), given)) == expected


def test_onnxruntime_runs_on_a_card_where_it_can():
    found = runnable(manifest(ONNX, DYNAMIC), machine(device="gpu:0", onnxruntime_gpu=True))
    assert names(found) == ["onnxruntime fp32"]


def test_a_card_that_paddle_cannot_use_is_for_onnxruntime():
    card = dataclasses.replace(machine(device="gpu:0", onnxruntime_gpu=True), paddle=False)
    assert names(runnable(manifest(PADDLE, ONNX), card)) == ["onnxruntime fp32"]
    told = r"no Paddle that can use this card is installed\n  -> use --engine onnxruntime"
    with pytest.raises(UserError, match=told):
        allowed_choices(manifest(PADDLE, ONNX), InferenceSection(engine="paddle"), card)


def test_auto_takes_what_decided_alike():
    found = allowed_choices(manifest(*ALL), InferenceSection(), machine())
    assert names(found.choices) == ["paddle fp32", "paddle bf16", "onnxruntime fp32", "onnxruntime int8 (dynamic)"]
    assert [(choice.name, reason) for choice, reason in found.left_out] == [
        ("paddle int8 (ptq)", "decided 97.00% of the rows like the network"),
        ("onnxruntime int8 (static)", "was not compared with the network when it was exported"),
    ]


def test_the_bound_of_auto_is_the_recipes():
    found = allowed_choices(manifest(*ALL), InferenceSection(min_agreement=0.9), machine())
    assert "paddle int8 (ptq)" in names(found.choices)
    found = allowed_choices(manifest(*ALL), InferenceSection(min_agreement=1.0), machine())
    assert names(found.choices) == ["paddle fp32", "onnxruntime fp32"]


def test_a_score_on_dev_decides_where_the_export_knows_it():
    scores = {"paddle bf16": 0.8949, "paddle int8 (ptq)": 0.8951, "onnxruntime int8 (dynamic)": 0.90}
    known = dataclasses.replace(manifest(*ALL), dev=DevScores("accuracy", 872, False, 0.9, scores))
    found = allowed_choices(known, InferenceSection(min_agreement=1.0), machine())
    taken = ["paddle fp32", "paddle int8 (ptq)", "onnxruntime fp32", "onnxruntime int8 (dynamic)"]
    assert names(found.choices) == taken
    assert [(choice.name, reason) for choice, reason in found.left_out] == [
        ("paddle bf16", "scored 0.51 points worse than fp32 on 872 rows of dev (accuracy)"),
        ("onnxruntime int8 (static)", "was not compared with the network when it was exported"),
    ]
    found = allowed_choices(known, InferenceSection(max_drop=0.0), machine())
    assert names(found.choices) == ["paddle fp32", "onnxruntime fp32", "onnxruntime int8 (dynamic)"]
    rising = dataclasses.replace(known.dev, falling=True)
    assert rising.drop("paddle bf16") == -0.51 and rising.drop("onnxruntime int8 (static)") is None


def test_what_is_asked_for_is_taken_however_it_did():
    found = allowed_choices(manifest(*ALL), InferenceSection(engine="paddle", precision="int8"), machine())
    assert names(found.choices) == ["paddle int8 (ptq)"]
    found = allowed_choices(manifest(*ALL), InferenceSection(engine="onnxruntime", precision="int8"), machine())
    assert names(found.choices) == ["onnxruntime int8 (dynamic)"]  # the static one was not compared
    found = allowed_choices(manifest(*ALL), InferenceSection(precision="int8"), machine())
    assert names(found.choices) == ["onnxruntime int8 (dynamic)"]  # faster or not, Paddle's did not decide alike
    found = allowed_choices(manifest(PADDLE_INT8, STATIC), InferenceSection(precision="int8"), machine())
    assert names(found.choices) == ["paddle int8 (ptq)", "onnxruntime int8 (static)"]


def test_tensorrt_is_given_fp32_and_fp16_graphs_of_paddle():
    fp16 = Graph("paddle", "fp32", PADDLE.files, checks=checks("paddle", fp32=1.0, bf16=1.0, fp16=1.0))
    found = allowed_choices(manifest(fp16, ONNX), InferenceSection(tensorrt=True), CARD_TRT)
    assert names(found.choices) == ["paddle fp32", "paddle fp16"]


def test_an_engine_leaves_its_precisions():
    found = allowed_choices(manifest(*ALL), InferenceSection(engine="paddle"), machine())
    assert names(found.choices) == ["paddle fp32", "paddle bf16"]


@pytest.mark.parametrize(
    ("graphs", "inference", "given", "where", "message", "hint"),
    [
        (ALL, {"engine": "dygraph"}, machine(), "engine", "an export has graphs only", "model folder"),
        ((PADDLE,), ORT, machine(), "engine", "this export holds paddle graphs", "--format onnx"),
        ((ONNX,), {"engine": "paddle"}, machine(), "engine", "this export holds onnx graphs", "--format paddle"),
        ((PADDLE,), {"precision": "int8"}, machine(), "precision", "no int8 graph", "--precision int8"),
        ((ONNX, PADDLE_INT8), ORT | {"precision": "int8"}, machine(), "precision", "int8 graph for onnxruntime", ""),
        (ALL, ORT, machine(onnxruntime=False), "engine", "not installed", "pip install onnxruntime"),
        ((ONNX,), {}, machine(onnxruntime=False), "engine", "not installed", "pip install onnxruntime"),
        (ALL, {"precision": "bf16"}, machine(OLD), "precision", "(Core) does not compute in bf16 natively", "fp32"),
        ((PADDLE_INT8,), {"precision": "int8"}, machine(OLD), "precision", "avx512_vnni", "compress the model again"),
        ((PADDLE, PADDLE_INT8), INT8, machine(OLD), "precision", "overflow", "use --precision fp32, or export"),
        ((DYNAMIC,), {}, CARD_TRT, "precision", "int8 on a GPU", "use --device cpu"),
        (ALL, INT8, machine(OLD, onnxruntime=False), "precision", "would overflow", "pip install onnxruntime, and use"),
        (ALL, {"precision": "fp16"}, machine(), "precision", "does not compute in fp16 on a CPU", "fp32 or bf16"),
        (ALL, ORT | {"precision": "bf16"}, machine(), "precision", "in bf16 on a CPU", "fp32 or int8"),
        (ALL, {"precision": "int8"}, machine(device="gpu:0"), "precision", "int8 on a GPU", "fp16"),
        (ALL, ORT, machine(device="gpu:0"), "engine", "has no CUDA", "onnxruntime-gpu"),
        (ALL, {"precision": "bf16"}, machine(device="gpu:0", gpu_bf16=False), "precision", "capability 8.0", "fp16"),
        (ALL, TRT, machine(), "tensorrt", "NVIDIA GPUs only", "--device gpu"),
        (ALL, TRT, CARD, "tensorrt", "built without TensorRT", "false"),
        (ALL, TRT | ORT, CARD_TRT, "tensorrt", "not with ONNX Runtime", "--engine paddle"),
        (ALL, TRT | {"precision": "bf16"}, CARD_TRT, "tensorrt", "not used with bf16 graphs", "fp32 or fp16"),
        ((ONNX,), TRT, CARD_TRT, "engine", "paddle runs paddle graphs; this export holds onnx", "--format paddle"),
        ((PADDLE_INT8,), {}, machine(), "precision", "paddle int8 (ptq) decided 97.00%", "--precision int8"),
    ],
)
def test_what_cannot_run_is_refused(graphs, inference, given, where, message, hint):
    with pytest.raises(UserError) as error:
        allowed_choices(manifest(*graphs), InferenceSection(**inference), given)
    (problem,) = error.value.problems
    assert problem.where == f"inference.{where}"
    assert message in problem.message
    assert hint in problem.hint


def test_what_no_export_could_give_is_refused_before_there_is_one():
    for each in (machine(), machine(OLD)):
        check_engine(InferenceSection(engine="onnxruntime", precision="int8"), each)
    check_engine(InferenceSection(engine="onnxruntime"), machine())
    with pytest.raises(UserError, match="does not compute in bf16 on a CPU"):
        check_engine(InferenceSection(engine="onnxruntime", precision="bf16"), machine())
    with pytest.raises(UserError, match="not installed"):
        check_engine(InferenceSection(engine="onnxruntime"), machine(onnxruntime=False))


CHOSEN = Chosen("paddle", "int8")


def test_auto_takes_what_an_export_says_was_chosen_however_it_decided():
    found = allowed_choices(manifest(*ALL, chosen=CHOSEN), InferenceSection(), machine())
    assert names(found.choices) == ["paddle int8 (ptq)"] and found.left_out == ()
    found = allowed_choices(manifest(*ALL, chosen=CHOSEN), InferenceSection(engine="paddle"), machine())
    assert names(found.choices) == ["paddle int8 (ptq)"]


def test_what_is_asked_for_goes_before_what_was_chosen():
    asked = InferenceSection(engine="onnxruntime", precision="int8")
    assert names(allowed_choices(manifest(*ALL, chosen=CHOSEN), asked, machine()).choices) == [
        "onnxruntime int8 (dynamic)"
    ]
    asked = InferenceSection(precision="bf16")
    assert names(allowed_choices(manifest(*ALL, chosen=CHOSEN), asked, machine()).choices) == ["paddle bf16"]


def test_a_machine_that_cannot_run_what_was_chosen_takes_what_else_there_is():
    found = allowed_choices(manifest(PADDLE, chosen=Chosen("paddle", "bf16")), InferenceSection(), machine(OLD))
    assert names(found.choices) == ["paddle fp32"]
    with pytest.raises(UserError, match="does not compute in int8"):
        allowed_choices(manifest(PADDLE_INT8, chosen=CHOSEN), InferenceSection(), machine(OLD))
