"""Whole conversions of networks that Paddle 2.x exported, in one process."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import paddle
import pytest
import yaml
from paddle.static import InputSpec

from nlpctl.convert.convert_static import ConversionFailed, ConversionRequest, convert_static, plan_static
from nlpctl.convert.proof import Compared, Proof
from nlpctl.convert.report import markdown, proof_text
from nlpctl.convert.targets import find_target
from nlpctl.errors import UserError
from nlpctl.models.calibration import Calibration
from nlpctl.models.folder import calibrate_model, read_description, tune_labels
from nlpctl.models.source import WEIGHTS
from nlpctl.models.weights import read_weights_file

OWN = {"vocab_size": 9, "embedding_size": 4, "hidden_size": 4}
SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def exports(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import static_exports

    return static_exports


@pytest.fixture
def original(exports, tmp_path):
    return exports.make_original(tmp_path / "model", "Ernie", "SequenceClassification", seed=2)


def save(forward: Callable | paddle.nn.Layer, folder: Path, *, info: bool, names=("input_ids",)) -> Path:
    """paddle.jit.save into `folder`."""
    specs = [InputSpec([None, None], "int64", name) for name in names]
    static = paddle.jit.to_static(forward, input_spec=specs, full_graph=True)
    paddle.jit.save(static, str(folder / "model"), input_spec=specs)
    if not info:
        (folder / "model.pdiparams.info").unlink()
    return folder


def random_network(class_name: str, **sizes) -> paddle.nn.Layer:
    network = find_target(class_name, None).build(sizes)
    random = np.random.default_rng(0)
    for parameter in network.parameters():
        parameter.set_value(random.normal(0, 0.5, parameter.shape).astype("float32"))
    network.eval()
    return network


def converted(output: Path) -> dict[str, np.ndarray]:
    return dict(read_weights_file(output / WEIGHTS).arrays)


def assert_same(output: Path, expected: dict[str, np.ndarray]) -> None:
    arrays = converted(output)
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)


def state(network: paddle.nn.Layer) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in network.state_dict().items()}


@pytest.mark.parametrize("info", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize(
    "class_name",
    ["BiLSTMForSequenceClassification", "TextCNNForSequenceClassification", "BiGRUForTokenClassificationWithCrf"],
)
def test_nlpctl_s_own_networks(tmp_path, class_name, info):
    """Recurrent layers name each parameter twice; it counts once."""
    network = random_network(class_name, **OWN)
    source = save(network.forward, tmp_path / "export", info=info)
    done = convert_static(ConversionRequest(str(source), class_name, config=OWN), tmp_path / "out")
    assert_same(tmp_path / "out", state(network))
    assert done.report.parameters == len(network.parameters()) and done.report.proof.holds
    assert set(done.report.ways) == {"recorded name" if info else "parameter name"}


def test_names_of_a_stranger_add_no_rules_to_the_map_of_a_plan(tmp_path):
    network = random_network("TextCNNForSequenceClassification", **OWN)
    forged = [f"x{end}- static: y{end}  dygraph: classifier.bias{end}#" for end in ("\n", "\r", "\x85", "\u2028")]
    counted = {parameter.name: parameter.numpy() for parameter in network.parameters()}
    np.savez(tmp_path / "s.npz", **counted, **dict.fromkeys(forged, np.zeros(2)))
    request = ConversionRequest(str(tmp_path / "s.npz"), "TextCNNForSequenceClassification", config=OWN)
    report = plan_static(request, tmp_path / "map.yaml")
    assert report.complete and sorted(row.variable for row in report.unused) == sorted(forged)
    rules = yaml.safe_load((tmp_path / "map.yaml").read_text(encoding="utf-8"))["rules"]
    assert [rule["static"] for rule in rules] == [row.variables[0] for row in report.matched]


def test_what_is_told_to_end_leaves_nothing(tmp_path):
    """SIGTERM once the archive is unpacked, in a process of its own, with Paddle freshly imported."""
    told = (
        "import os, signal, sys; from nlpctl.cli.app import main; from nlpctl.convert import source\n"
        "source.walk = lambda folder: os.kill(os.getpid(), signal.SIGTERM)\n"
        "print(main(sys.argv[1:]), main([*sys.argv[1:], '--plan']))"
    )
    with tarfile.open(tmp_path / "s.tar", "w") as archive:
        archive.add(__file__, "a")
    (tmp_path / "temporary").mkdir()
    words = ["convert-static", str(tmp_path / "s.tar"), "--to", "ErnieModel", "-o", str(tmp_path / "x")]
    environ = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    done = subprocess.run([sys.executable, "-c", told, *words], env=environ, capture_output=True, text=True)
    assert done.stdout.split() == ["130", "130"], done.stderr
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "s.tar", tmp_path / "temporary"]


def test_an_export_of_a_process_that_had_built_other_networks(exports, original, tmp_path):
    paddle.nn.Linear(2, 2)
    late = find_target(str(original.model), None)
    with paddle.utils.unique_name.guard():
        for size in (3, 4, 5):
            paddle.nn.Linear(size, size), paddle.nn.LayerNorm(size)
        config = original.network.config
        network = type(original.network)(config)
    network.set_state_dict(original.network.state_dict())
    network.eval()
    source = save(network.forward, tmp_path / "export", info=False, names=exports.INPUTS)
    done = convert_static(ConversionRequest(str(source), late.name), tmp_path / "out")
    assert_same(tmp_path / "out", dict(original.parameters))
    assert set(done.report.ways) == {"parameter name", "parameter name, counted from 3 on"}


class Service(paddle.nn.Layer):
    """What people export: the network inside a layer of their own, which ends in probabilities."""

    def __init__(self, network: paddle.nn.Layer):
        super().__init__()
        self.model = network

    def forward(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor) -> paddle.Tensor:
        return paddle.nn.functional.softmax(self.model(input_ids, token_type_ids))


def test_a_network_inside_another_layer_that_ends_in_a_softmax(exports, original, tmp_path):
    service = Service(original.network)
    service.eval()
    source = save(service, tmp_path / "export", info=True, names=exports.INPUTS)
    done = convert_static(ConversionRequest(str(source), str(original.model)), tmp_path / "out")
    assert_same(tmp_path / "out", dict(original.parameters))
    assert done.report.ways == {"recorded name, without 'model.'": done.report.parameters}
    assert [each.of for each in done.report.proof.outputs] == ["softmax"] and done.report.proof.holds


def npz(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    np.savez(folder / "variables.npz", **arrays)
    return folder / "variables.npz"


def test_half_precision_is_widened_and_other_values_are_refused(original, tmp_path):
    arrays = {value.name: value.numpy() for value in original.network.state_dict().values()}
    halves = {name: array.astype("float16") for name, array in arrays.items()}
    done = convert_static(ConversionRequest(str(npz(tmp_path, halves)), str(original.model)), tmp_path / "out")
    written = converted(tmp_path / "out")
    assert all(array.dtype == np.float32 for array in written.values())
    assert {row.dtype for row in done.report.matched} == {"float16"}
    expected = original.parameters["classifier.weight"].astype("float16").astype("float32")
    np.testing.assert_array_equal(written["classifier.weight"], expected)

    arrays["linear_0.w_0"] = arrays["linear_0.w_0"].copy()
    arrays["linear_0.w_0"][0, 0] = np.nan
    with pytest.raises(UserError, match="linear_0.w_0 holds NaN"):
        convert_static(ConversionRequest(str(npz(tmp_path, arrays)), str(original.model)), tmp_path / "nan")
    quantised = {**arrays, "linear_0.w_0": np.zeros((16, 16), "int8")}
    with pytest.raises(ConversionFailed, match="type int8 where the network has float32"):
        convert_static(ConversionRequest(str(npz(tmp_path, quantised)), str(original.model)), tmp_path / "nan")
    assert not (tmp_path / "nan").exists()


def test_fused_query_key_and_value_by_a_map(original, tmp_path):
    arrays = dict(original.parameters)
    for layer in range(2):
        stem = f"ernie.encoder.layers.{layer}.self_attn."
        for kind in ("weight", "bias"):
            parts = [arrays.pop(f"{stem}{role}_proj.{kind}") for role in "qkv"]
            fused = np.concatenate(parts, axis=-1)
            arrays[f"qkv.{layer}.{kind}"] = fused.T if kind == "weight" else fused
    text = "rules:\n"
    for kind, steps in (
        ("weight", "[transpose, {split: {axis: 1, parts: 3}}]"),
        ("bias", "[{split: {axis: 0, parts: 3}}]"),
    ):
        text += f"- static: qkv.{{n}}.{kind}\n  dygraph:\n"
        text += "".join(f"  - ernie.encoder.layers.{{n}}.self_attn.{role}_proj.{kind}\n" for role in "qkv")
        text += f"  steps: {steps}\n"
    text += "- static: ernie.*\n  dygraph: ernie.*\n- static: classifier.*\n  dygraph: classifier.*\n"
    (tmp_path / "map.yaml").write_text(text)
    request = ConversionRequest(str(npz(tmp_path, arrays)), str(original.model), map_name=str(tmp_path / "map.yaml"))
    done = convert_static(request, tmp_path / "out")
    assert_same(tmp_path / "out", dict(original.parameters))
    assert done.report.ways == {"map": done.report.parameters}
    assert "| transpose, split {'axis': 1, 'parts': 3} |" in markdown(done.report)


def test_a_rule_of_one_s_own_map_has_to_name_what_exists(original, tmp_path):
    source = npz(tmp_path, dict(original.parameters))
    request = ConversionRequest(str(source), str(original.model), map_name=str(tmp_path / "map.yaml"))
    for rule, message in (
        ("{static: classifier.weigth, dygraph: classifier.weight}", "no variable 'classifier.weigth' .did you mean"),
        ("{static: classifier.weight, dygraph: clasifier.weight}", "no parameter 'clasifier.weight' .did you mean"),
        ("{static: classifier.weight, dygraph: [classifier.weight, classifier.bias]}", "1 arrays for 2 parameters"),
    ):
        (tmp_path / "map.yaml").write_text(f"rules:\n- {rule}\n")
        with pytest.raises(UserError, match=message):
            convert_static(request, tmp_path / "out")


def test_labels_and_vocabulary_make_it_a_model_that_answers(exports, original, tmp_path):
    source = npz(tmp_path, {value.name: value.numpy() for value in original.network.state_dict().values()})
    (tmp_path / "labels.txt").write_text("a\nb\nc\nd\ne\n")
    request = ConversionRequest(str(source), str(original.model / "config.json"))
    bare = convert_static(request, tmp_path / "bare")
    assert (bare.task, bare.usable) == (None, False)
    given = dataclasses.replace(request, labels=tmp_path / "labels.txt", vocabulary=original.model / "vocab.txt")
    done = convert_static(given, tmp_path / "out")
    assert (done.task, done.usable) == ("sequence_classification", True)
    assert json.loads((tmp_path / "out" / "labels.json").read_text())["labels"] == list("abcde")
    card = json.loads((tmp_path / "out" / "task.json").read_text())
    assert card["trained"] and card["data"]["max_seq_length"] == 64  # what the positions reach
    (tmp_path / "labels.txt").write_text("a\nb\n")
    with pytest.raises(ConversionFailed, match=r"shape \[16, 5\] where the network has \[16, 2\]"):
        convert_static(given, tmp_path / "wrong")


def test_calibration_and_thresholds_stay_with_the_weights_that_they_were_fitted_to(original, tmp_path):
    (tmp_path / "labels.txt").write_text("a\nb\nc\nd\ne\n")
    arrays = {value.name: value.numpy() for value in original.network.state_dict().values()}
    plain = ConversionRequest(str(npz(tmp_path, arrays)), str(original.model), labels=tmp_path / "labels.txt")
    model = convert_static(plain, tmp_path / "calibrated").output
    calibrate_model(model, Calibration("temperature", (2.0,), (0.0,)))
    tune_labels(model, tuple("abcde"), (0.1, 0.2, 0.3, 0.4, 0.5))

    def kept(request: ConversionRequest) -> bool:
        done = convert_static(request, tmp_path / "again", overwrite=True)
        description = read_description(done.output)
        told = any("probabilities are not calibrated" in note for note in done.report.notes)
        assert (description.calibration is None) == (description.thresholds is None) == told
        return not told

    request = ConversionRequest(plain.source, str(model))
    assert kept(request) and not kept(dataclasses.replace(request, config={"hidden_act": "relu"}))
    first = next(iter(arrays))
    npz(tmp_path, {**arrays, first: arrays[first] + np.float32(1e-3)})
    assert not kept(request)
    npz(tmp_path, arrays)
    (model / WEIGHTS).write_bytes(b"damaged")
    assert not kept(request)


def test_a_new_head_is_told_to_be_untrained(exports, original, tmp_path):
    """The model folder of nlpctl that is made of it has to be trained before it answers."""
    arrays = {
        value.name: value.numpy() for name, value in original.network.state_dict().items() if "classifier" not in name
    }
    request = ConversionRequest(str(npz(tmp_path, arrays)), str(original.model), allow_missing=("classifier",))
    done = convert_static(request, tmp_path / "out")
    assert done.task is None and not json.loads((tmp_path / "out" / "task.json").read_text())["trained"]
    assert done.report.proof.reason == "some parameters are newly initialised, so the outputs cannot be equal"


def test_the_pooler_that_a_tagger_does_not_use(exports, tmp_path):
    tagger = exports.make_original(tmp_path / "model", "Ernie", "TokenClassification", seed=1)
    exports.save_jit(tagger, tmp_path / "export")
    request = ConversionRequest(str(tmp_path / "export"), str(tagger.model))
    with pytest.raises(
        ConversionFailed, match="no output of this network depends on them.*--allow-missing ernie.pooler.dense"
    ):
        convert_static(request, tmp_path / "out")
    done = convert_static(dataclasses.replace(request, allow_missing=("ernie.pooler",)), tmp_path / "out")
    assert done.report.proof.holds and len(done.report.fresh) == 2


def test_programs_that_cannot_be_run_are_told(exports, original, tmp_path):
    exports.save_jit(original, tmp_path / "jit")

    class Odd(Service):
        def forward(self, input_ids: paddle.Tensor, other: paddle.Tensor) -> paddle.Tensor:
            return self.model(input_ids) + other.sum().astype("float32")

    odd = Odd(original.network)
    odd.eval()
    source = save(odd, tmp_path / "odd", info=True, names=("input_ids", "other"))
    done = convert_static(ConversionRequest(str(source), str(original.model)), tmp_path / "out")
    assert done.report.complete and done.report.proof.reason == "what the program's input 'other' means is not known"

    program = tmp_path / "jit" / "model.pdmodel"
    program.write_bytes(program.read_bytes().replace(b"lookup_table_v2", b"lookup_table_v9"))
    done = convert_static(ConversionRequest(str(tmp_path / "jit"), str(original.model)), tmp_path / "gone")
    assert "lookup_table_v9" in done.report.proof.reason and not done.report.proof.possible


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("static.save", marks=pytest.mark.slow),
        "npy",
        pytest.param("__model__ and __params__", marks=pytest.mark.slow),
        pytest.param("inference.zip", marks=pytest.mark.slow),
    ],
)
def test_round_trips(exports, tmp_path, kind):
    """One of each kind; scripts/check_static_round_trips.py does all families, heads and formats."""
    original = exports.make_original(tmp_path / "model", "Bert", "QuestionAnswering", seed=3)
    source = exports.save_all(original, tmp_path)[kind]
    allowed = () if kind in ("static.save", "npy") else ("bert.pooler",)
    done = convert_static(ConversionRequest(str(source), str(original.model), allow_missing=allowed), tmp_path / "out")
    new = {row.parameter for row in done.report.fresh}
    assert len(new) == 2 * len(allowed)
    for name, array in converted(tmp_path / "out").items():
        assert name in new or array.tobytes() == original.parameters[name].tobytes(), name
    assert done.report.proof.difference == (None if kind == "npy" else 0)


def test_an_unfinished_conversion_leaves_nothing(original, tmp_path, monkeypatch):
    source = npz(tmp_path, {value.name: value.numpy() for value in original.network.state_dict().values()})
    monkeypatch.setattr("nlpctl.convert.model_folder.markdown", lambda report: 1 / 0)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ZeroDivisionError):
        convert_static(ConversionRequest(str(source), str(original.model)), tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow
def test_a_head_is_never_taken_for_another(exports, original, tmp_path):
    """A classifier's pooler has the shape and the place of a language model's last layer."""
    exports.save_jit(original, tmp_path / "export")
    (tmp_path / "export" / "model.pdiparams.info").unlink()
    request = ConversionRequest(str(tmp_path / "export"), str(original.model), class_name="ErnieForMaskedLM")
    with pytest.raises(ConversionFailed, match="have no value") as failed:
        convert_static(request, tmp_path / "out")
    assert "cls.predictions.transform.weight" in {row.parameter for row in failed.value.report.missing}
    done = convert_static(dataclasses.replace(request, allow_missing=("cls", "ernie.pooler")), tmp_path / "out")
    assert {name for name, array in converted(tmp_path / "out").items() if name.startswith("ernie.encoder")
            and array.tobytes() != original.parameters[name].tobytes()} == set()  # fmt: skip
    assert set(done.report.ways) == {"parameter name", "place in the graph"}


def test_what_a_proof_says():
    worst = Compared("logits", (3, 2), float("inf"))
    proof = Proof(True, "", ("input_ids",), (Compared("logits", (3, 2), 0.5, "softmax"), worst))
    assert proof.fails and not proof.holds
    assert proof_text(proof).startswith(
        "FAILED: the static program and the network, run on the same inputs, differ by inf"
    )
    assert not Proof(False, "no program").fails and not Proof(False, "no program").holds
    assert Proof(True, "", ("x",), (Compared("y", (1,), 1e-5),)).holds
