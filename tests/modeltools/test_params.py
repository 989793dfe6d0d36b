"""Parameters of folders that nlpctl did not write: names as in recipes, copies that load, values as they were."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from nlpctl.errors import UserError
from nlpctl.models.families import Head
from nlpctl.models.load import load_trained
from nlpctl.models.model_manifest import write_model_sums
from nlpctl.modeltools.params import (
    add_to_copy,
    diff_parameters,
    export_parameters,
    list_parameters,
    read_parameters,
    set_in_copy,
)

HUGGINGFACE = Path(__file__).parent.parent / "models" / "huggingface"
CLASSIFIER = HUGGINGFACE / "bert-classifier"


def test_names_are_those_of_recipes():
    network = load_trained(str(CLASSIFIER), Head("SequenceClassification")).network
    wanted = {name: value.numpy() for name, value in network.state_dict().items()}
    found = read_parameters(str(CLASSIFIER))
    assert wanted.keys() <= found.keys() and len(wanted) > 30
    assert all(np.array_equal(found[name], value) for name, value in wanted.items())
    bare = [row.name for row in list_parameters(str(HUGGINGFACE / "bert-encoder"), ["bert.encoder.layers.0-1.norm2"])]
    assert bare and all(name.startswith("bert.encoder.layers.") for name in bare)  # the file's names have no prefix


def test_a_copy_with_other_values_loads(tmp_path):
    done = set_in_copy(str(CLASSIFIER), {"classifier.bias": 0.5, "*.norm2.weight": 2}, tmp_path / "copy")
    assert done["classifier.bias"] == ["classifier.bias"]
    network = load_trained(str(tmp_path / "copy"), Head("SequenceClassification")).network
    state = network.state_dict()
    assert (state["classifier.bias"].numpy() == 0.5).all()
    found = diff_parameters(str(CLASSIFIER), str(tmp_path / "copy"))
    changed = {row.name for row in found.changed}
    assert changed == {name for names in done.values() for name in names} and found.same > 20
    assert not (found.reshaped or found.only_first or found.only_second)
    with pytest.raises(UserError, match="already exists"):
        set_in_copy(str(CLASSIFIER), {"classifier.bias": 0}, tmp_path / "copy")


def test_a_copy_has_what_comes_after_the_encoder_and_can_be_replaced(tmp_path):
    source, copy = tmp_path / "source", tmp_path / "copy"
    shutil.copytree(CLASSIFIER, source)
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    write_model_sums(source)
    (source / "README.md").write_text("tells of the source")
    for _ in range(2):
        set_in_copy(str(source), {"classifier.bias": 0}, copy, overwrite=True)
        assert (copy / "1_Pooling" / "config.json").read_text() == '{"pooling_mode_cls_token": true}'
        assert not (copy / "README.md").exists()
    (copy / "mine.txt").write_text("a note")
    with pytest.raises(UserError, match="mine.txt"):
        set_in_copy(str(source), {"classifier.bias": 0}, copy, overwrite=True)


def test_only_a_model_folder_is_replaced(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(CLASSIFIER, run / "model")
    (run / "events.jsonl").write_text("{}\n")
    other = shutil.copytree(run, tmp_path / "other")
    for taken in (other, run / "events.jsonl"):
        with pytest.raises(UserError, match="this is not a model folder"):
            set_in_copy(str(run / "model"), {"classifier.bias": 0}, taken, overwrite=True)
    assert (run / "events.jsonl").read_text() == "{}\n" and (run / "model" / "config.json").is_file()
    for taken in (run, run / "model"):
        with pytest.raises(UserError, match="this (is|holds) an input"):
            set_in_copy(str(run / "model"), {"classifier.bias": 0}, taken, overwrite=True)
    for value in (1, 2):
        set_in_copy(str(run / "model"), {"classifier.bias": value}, tmp_path / "copy", overwrite=True)
    assert (read_parameters(str(tmp_path / "copy"))["classifier.bias"] == 2).all()


def test_draws_do_not_depend_on_what_else_is_set(tmp_path):
    first = {"classifier.weight": "normal(0, 0.02)", "*.norm1.weight": "uniform(0.5, 1)"}
    set_in_copy(str(CLASSIFIER), first, tmp_path / "a", seed=3)
    set_in_copy(str(CLASSIFIER), {"classifier.weight": "normal(0, 0.02)"}, tmp_path / "b", seed=3)
    one, other = (read_parameters(str(tmp_path / name)) for name in "ab")
    assert one["classifier.weight"].tobytes() == other["classifier.weight"].tobytes()
    assert one["classifier.weight"].std() == pytest.approx(0.02, rel=0.5)
    with pytest.raises(UserError, match="there is no distribution 'nrmal'"):
        set_in_copy(str(CLASSIFIER), {"classifier.weight": "nrmal(0, 1)"}, tmp_path / "c")


def test_a_parameter_is_added_and_the_model_still_loads(tmp_path):
    add_to_copy(str(CLASSIFIER), "classifier.scale", (1, 4), "normal(0, 1)", tmp_path / "a", seed=5)
    arrays = read_parameters(str(tmp_path / "a"))
    assert arrays["classifier.scale"].shape == (1, 4) and arrays["classifier.scale"].dtype == np.float32
    kept = read_parameters(str(CLASSIFIER))
    assert all(np.array_equal(arrays[name], kept[name]) for name in kept) and len(arrays) == len(kept) + 1
    with pytest.raises(UserError, match="there is a parameter classifier.scale already"):
        add_to_copy(str(tmp_path / "a"), "classifier.scale", (1,), 0.0, tmp_path / "b")
    loaded = load_trained(str(tmp_path / "a"), Head("SequenceClassification"))
    assert loaded.ignored == ("classifier.scale",)


def test_exported_arrays(tmp_path):
    names = export_parameters(str(CLASSIFIER), ["classifier"], tmp_path / "a.npz")
    arrays = np.load(tmp_path / "a.npz")
    assert sorted(arrays) == sorted(names) == ["classifier.bias", "classifier.weight"]
    parameters = read_parameters(str(CLASSIFIER))
    assert all(np.array_equal(arrays[name], parameters[name]) for name in names)
    with pytest.raises(UserError, match="already exists"):
        export_parameters(str(CLASSIFIER), ["classifier"], tmp_path / "a.npz")


def test_tied_entries_are_told_and_set_together(tmp_path):
    folder = Path(shutil.copytree(CLASSIFIER, tmp_path / "model"))
    values = np.random.default_rng(1).normal(size=(8,)).astype("float32")
    np.save(tmp_path / "v.npy", values)
    norms = [row.name for row in list_parameters(str(folder), ["*.norm1.weight"])]
    assert len(norms) == 2
    set_in_copy(str(folder), {"*.norm1.weight": str(tmp_path / "v.npy")}, tmp_path / "tied")
    assert [row.same_as for row in list_parameters(str(tmp_path / "tied"), norms)] == [None, norms[0]]
    done = set_in_copy(str(tmp_path / "tied"), {norms[1]: 3}, tmp_path / "again")
    assert done[norms[1]] == norms
    # Values that are all alike say nothing: fresh norms and biases are not tied.
    assert [row.same_as for row in list_parameters(str(tmp_path / "again"), norms)] == [None, None]


def test_models_of_other_shapes_are_compared():
    found = diff_parameters(str(CLASSIFIER), str(HUGGINGFACE / "electra-classifier"), ["classifier", "bert"])
    assert set(found.only_first) >= {"bert.pooler.dense.weight"}
    assert all(name.startswith("classifier.") for name in found.only_second) and found.only_second
    with pytest.raises(UserError, match="matches no parameter"):
        diff_parameters(str(CLASSIFIER), str(CLASSIFIER), ["electra"])


def test_devices_hold_neither_arrays_nor_models(tmp_path, device):
    null = device("null")
    (tmp_path / "a.npz").symlink_to("null")
    for overwrite in (False, True):
        with pytest.raises(UserError, match="this is a device or a pipe") as caught:
            export_parameters(str(CLASSIFIER), ["classifier"], tmp_path / "a.npz", overwrite=overwrite)
        assert "--overwrite" not in str(caught.value)
        with pytest.raises(UserError, match="this is not a model folder") as caught:
            set_in_copy(str(CLASSIFIER), {"classifier.bias": 0}, null, overwrite=overwrite)
        assert "--overwrite" not in str(caught.value)
    assert null.is_char_device() and (tmp_path / "a.npz").is_symlink()
