"""Model folders with files that are not those that were written: every command that loads one says so."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from made_runs import make_run

from nlpctl.cli.app import main
from nlpctl.config.load import Override, load_recipe
from nlpctl.errors import UserError
from nlpctl.formats.safe_pickle import load_pdparams
from nlpctl.inference.evaluate import evaluate
from nlpctl.models.find import find_trained_model
from nlpctl.models.folder import read_labels, tune_labels
from nlpctl.models.model_manifest import changing, check_model_sums, refuse_model_folder, write_model_sums
from nlpctl.models.source import resolve_source
from nlpctl.modeltools.params import set_in_copy

WEIGHTS = "model_state.pdparams"
TRUST = [Override("runtime.trust_edits", "true", "--trust-edits")]


@pytest.fixture(scope="session")
def sound(tmp_path_factory) -> Path:
    """A run with a model that nobody changed."""
    folder = tmp_path_factory.mktemp("sound")
    make_run(folder, "sequence_classification")
    return folder


@pytest.fixture
def run(sound, tmp_path) -> Path:
    """A copy of it, to be damaged."""
    shutil.copytree(sound / "run", tmp_path / "run")
    return tmp_path / "run"


def edit_json(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def shuffled(model):
    lines = (model / "vocab.txt").read_text().splitlines()
    (model / "vocab.txt").write_text("\n".join([*lines[:5], *reversed(lines[5:])]) + "\n")


def with_pieces(model, more):
    content = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["vocab"] |= more
    (model / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")


def with_labels(model, *labels, **more):
    (model / "labels.json").write_text(json.dumps({"labels": labels, **more}))


def with_weights(model, change):
    import paddle

    arrays = {name: np.array(array) for name, array in load_pdparams(model / WEIGHTS).items()}
    change(arrays)
    paddle.save({name: paddle.to_tensor(array) for name, array in arrays.items()}, str(model / WEIGHTS))


def as_int8(arrays):
    name = next(name for name in arrays if name.endswith("linear1.weight"))
    arrays[name] = (arrays[name] * 100).astype(np.int8)


def nudged(arrays):
    arrays["classifier.bias"] = arrays["classifier.bias"] + 1


# Damage that cheap facts tell, manifest or not: what is done, and what is said.
CHEAP = {
    "labels reversed": (lambda model: with_labels(model, "z", "y", "x"), 'labels.json: calls output 0 "z", but'),
    "a label less": (lambda model: with_labels(model, "x", "y"), "labels.json: names 2 labels, but"),
    "NaN threshold": (
        lambda model: with_labels(model, "x", "y", "z", thresholds=[0.5, float("nan"), 0.5]),
        'labels.json: the threshold of "y" is not between 0 and 1',
    ),
    "infinite threshold": (
        lambda model: with_labels(model, "x", "y", "z", thresholds=[float("inf"), 0.5, 0.5]), "threshold of"
    ),
    "negative threshold": (
        lambda model: with_labels(model, "x", "y", "z", thresholds=[-0.1, 0.5, 0.5]), "threshold of"
    ),
    "int8 weights": (lambda model: with_weights(model, as_int8), "holds int8 where"),
    "vocabulary too long": (
        lambda model: with_pieces(model, {f"word{i}": 1000 + i for i in range(999)}), "entries"
    ),
}  # fmt: skip
# Damage that only the manifest tells.
SUMS = {
    "vocabulary shuffled": (shuffled, "vocab.txt: was altered since the model was written"),
    "task edited": (lambda model: edit_json(model / "task.json", note="hello"), "task.json: was altered"),
    "config edited": (lambda model: edit_json(model / "config.json", hidden_dropout_prob=0.3), "config.json: was alt"),
    "other weights": (lambda model: with_weights(model, nudged), f"{WEIGHTS}: was altered"),
    "a file gone": (lambda model: (model / "tokenizer_config.json").unlink(), "no tokenizer_config.json in this model"),
}


def scores(run, *overrides):
    return evaluate(load_recipe(run, overrides, "apply"), ["dev"]).metrics["dev"]


@pytest.mark.parametrize("damage", CHEAP)
@pytest.mark.parametrize("how", ["manifest", "no manifest", "trusted"])
def test_cheap_facts_are_always_looked_at(run, damage, how):
    change, told = CHEAP[damage]
    change(run / "model")
    if how == "no manifest":
        (run / "model" / "manifest.json").unlink()
    with pytest.raises(UserError) as caught:
        scores(run, *(TRUST if how == "trusted" else ()))
    (problem,) = caught.value.problems
    altered = any(f"{name}: was altered" in str(problem) for name in (WEIGHTS, "tokenizer.json"))
    by_sum = how == "manifest" and altered  # these are opened after that
    assert problem.hint and (told in str(problem) or by_sum)
    assert str(run / "model") in problem.where


@pytest.mark.parametrize("damage", SUMS)
def test_sums_are_compared_unless_edits_are_trusted(run, damage):
    change, told = SUMS[damage]
    change(run / "model")
    with pytest.raises(UserError) as caught:
        scores(run)
    (problem,) = caught.value.problems
    assert told in str(problem) and "--trust-edits" in problem.hint
    assert "accuracy" in scores(run, *TRUST)
    (run / "model" / "manifest.json").unlink()
    assert "accuracy" in scores(run)


def test_a_cut_vocabulary_is_told_also_where_edits_are_trusted(run):
    lines = (run / "model" / "vocab.txt").read_text().splitlines(keepends=True)
    (run / "model" / "vocab.txt").write_text("".join(lines[:-3]))
    for overrides in ((), TRUST):
        with pytest.raises(UserError, match=f"vocab.txt: has {len(lines) - 3} entries, but had {len(lines)}"):
            scores(run, *overrides)


COMMANDS = {
    "eval": ("eval", "run"),
    "predict": ("predict", "run", "rows.txt"),
    "explain": ("explain", "run", "rows.txt"),
    "export": ("export", "run", "-o", "out"),
    "compress": ("compress", "run", "-o", "out", "--strategy", "ort-dynamic"),
    "serve": ("serve", "run", "--port", "0"),
    "bench": ("bench", "run"),
    "train": ("train", "recipe.yaml", "--output_dir", "out"),
    "data inspect": ("data", "inspect", "run"),
    "params ls": ("params", "ls", "run"),
    "params set": ("params", "set", "run", "--value", "classifier.bias=0", "-o", "out"),
    "params export": ("params", "export", "run", "-o", "out.npz"),
    "params diff": ("params", "diff", "run", "run"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_loads_a_model(run, command, monkeypatch, capsys):
    (run / "model" / WEIGHTS).open("ab").write(b"x")
    monkeypatch.chdir(run.parent)
    Path("rows.txt").write_text("a good room\n")
    Path("train.tsv").write_text("text\tlabel\na good room\tx\n")
    Path("recipe.yaml").write_text(
        "task: sequence_classification\nmodel: {name_or_path: run/model}\ndata: {train: train.tsv}\n"
    )
    code, err = main([*COMMANDS[command]]), capsys.readouterr().err
    assert code == 2 and f"{WEIGHTS}: was altered since the model was written" in err and "--trust-edits" in err
    assert not Path("out").exists()


def test_the_flag(run, monkeypatch, capsys):
    shuffled(run / "model")
    monkeypatch.chdir(run.parent)
    assert main(["params", "ls", "run"]) == 2
    assert main(["params", "ls", "run", "--trust-edits"]) == 0
    assert main(["eval", "run", "--split", "dev", "--trust-edits"]) == 0, capsys.readouterr().err


def test_what_the_user_adds_does_not_matter(run):
    (run / "model" / "README.md").write_text("mine")
    check_model_sums(run / "model")
    set_in_copy(str(run), {"classifier.bias": 0.0}, run.parent / "copy")
    (run.parent / "copy" / "README.md").write_text("another")
    check_model_sums(run.parent / "copy")
    assert resolve_source(str(run.parent / "copy")).kind == "nlpctl"  # its manifest.json is no run's


def test_a_copy_with_other_parameters_and_tuned_thresholds_verify(run):
    set_in_copy(str(run), {"classifier.bias": 0.0}, run.parent / "copy")
    find_trained_model(load_recipe(run.parent / "copy", purpose="apply"))
    tune_labels(run / "model", ("x", "y", "z"), (0.2, 0.3, 0.5))
    assert read_labels(run / "model")[1] == (0.2, 0.3, 0.5)
    find_trained_model(load_recipe(run, purpose="apply"))
    (run / "model" / "manifest.json").unlink()
    with changing(run / "model", "labels.json"):  # a folder without one gets none
        pass
    assert not (run / "model" / "manifest.json").exists()


def test_a_change_that_was_cut_off_leaves_the_other_sums(run):
    """The file that was to change is not checked, the others are; the next change lists all again."""
    model = run / "model"
    whole = json.loads((model / "manifest.json").read_text())
    with pytest.raises(OSError), changing(model, "labels.json"):
        (model / "labels.json").write_text(json.dumps({"labels": ["x", "y", "z"], "thresholds": [0.1, 0.2, 0.3]}))
        raise OSError("no space")
    check_model_sums(model)
    refuse_model_folder(model, True, ())
    kept = json.loads((model / "manifest.json").read_text())["sha256"]
    assert kept == {name: value for name, value in whole["sha256"].items() if name != "labels.json"}
    tune_labels(model, ("x", "y", "z"), (0.2, 0.3, 0.5))
    assert json.loads((model / "manifest.json").read_text())["sha256"].keys() == whole["sha256"].keys()
    (model / "task.json").write_text((model / "task.json").read_text() + " ")
    with pytest.raises(UserError, match="altered"):
        check_model_sums(model)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", "{}", '{"format": 2}', '{"format": 1, "kind": "model"}',
     '{"format": 1, "kind": "model", "sha256": {"a": 1}, "size": {}}',
     '{"format": 1, "kind": "model", "sha256": {"../a": "b"}, "size": {"../a": 1}}'],
)  # fmt: skip
def test_a_damaged_manifest(run, text):
    (run / "model" / "manifest.json").write_text(text)
    with pytest.raises(UserError) as caught:
        find_trained_model(load_recipe(run, purpose="apply"))
    assert caught.value.problems[0].hint


def test_the_manifest_of_another_program_is_left_alone(run):
    model = run / "model"
    (model / "task.json").unlink()
    (model / "manifest.json").write_text('{"name": "an app"}')
    check_model_sums(model)
    with changing(model, "labels.json"):
        pass
    assert json.loads((model / "manifest.json").read_text()) == {"name": "an app"}
    assert resolve_source(str(model)).kind == "paddlenlp"


def test_no_recipe_of_a_run_trusts_edits(run):
    from nlpctl.config.dump import dump_recipe

    assert "trust_edits" not in dump_recipe(load_recipe(run, TRUST, "apply"))


def test_format_on_disk_is_a_contract(tmp_path):
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    write_model_sums(tmp_path)
    sums = {"vocab.txt": hashlib.sha256(b"a\nb\n").hexdigest()}
    found = json.loads((tmp_path / "manifest.json").read_text())
    assert found == {"format": 1, "kind": "model", "vocabulary": 2, "size": {"vocab.txt": 4}, "sha256": sums}
