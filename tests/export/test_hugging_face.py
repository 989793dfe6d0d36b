"""Weights as Transformers and sentence-transformers load them: read back by nlpctl to the same bits.

scripts/check_transformers.py has these libraries load them.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from nlpctl.cli.app import main
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.schema import Recipe, value_of
from nlpctl.config.sentence_folder import read_sentence_folder
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.engines.trained import TrainedModel, load_network
from nlpctl.errors import RunFailed, UserError
from nlpctl.export.export import export
from nlpctl.export.layouts import hugging_face
from nlpctl.export.layouts.listing import changed_since, is_listed
from nlpctl.export.request import ExportRequest
from nlpctl.models.add_tokens import add_tokens
from nlpctl.models.calibration import Calibration, write_calibration
from nlpctl.models.find import find_trained_model
from nlpctl.tasks.base import make_task

MODELS = Path(__file__).parent.parent / "models"
TEXTS = ["the room was good", "a bad bed, and dirty food!", "Ünïcode ﬁne 房间"]
MADE = (
    ("sequence_classification", "bert", "transformers"),
    ("multi_label_classification", "ernie", "transformers"),
    ("text_matching", "electra", "transformers"),
    ("semantic_indexing", "roberta", "sentence-transformers"),
    ("question_answering", "ernie", "transformers"),
    ("token_classification", "roberta", "transformers"),
    ("masked_language_model", "bert", "transformers"),
)


def exported(recipe: Recipe, target: Path, layout: str, **options: Any) -> Path:
    export(recipe, find_trained_model(recipe), ExportRequest(), output=target, layout=layout, **options)
    return target


def outputs(model: TrainedModel, texts: list[str] = TEXTS) -> list[np.ndarray]:
    batch = model.task.collator(model.encoder, labelled=False).pad(model.encoder.encode(texts, None, 16))
    if model.task.name == "masked_language_model":
        batch["masked_positions"] = np.ones((len(texts), 1), np.int64)
    return list(model.predictor.outputs(batch))


def read_again(recipe: Recipe, folder: Path) -> TrainedModel:
    """The exported model, opened for the same task."""
    return load_network(recipe, str(folder))


@pytest.mark.parametrize(("task", "architecture", "layout"), MADE)
def test_the_same_bits_come_back(made_run: Callable[..., Recipe], tmp_path: Path, task, architecture, layout):
    recipe = made_run(task, architecture)
    folder = exported(recipe, tmp_path / "there", layout)
    before, after = load_network(recipe, str(recipe.run_dir)), read_again(recipe, folder)
    for mine, back in zip(outputs(before), outputs(after), strict=True):
        np.testing.assert_array_equal(mine, back)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"][0].lower().startswith(architecture)
    assert (config.get("problem_type") == task) is (task == "multi_label_classification")
    if task_labels := before.task.labels.names:
        assert list(config["id2label"].values()) == list(task_labels)
    card = (folder / "README.md").read_text()
    assert layout in card and is_listed(folder, layout) and changed_since(folder) is None
    told = {"token_classification": ', stride=', "multi_label_classification": "truncation=True, top_k=None)",
            "question_answering": "with answers of up to 50 tokens"}  # fmt: skip
    assert told.get(task, "pipeline_tag") in card
    assert {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"} <= {f.name for f in folder.iterdir()}


def test_tokenizer_json_gives_the_same_ids(made_run: Callable[..., Recipe], tmp_path: Path):
    recipe = made_run("sequence_classification", "bert")
    folder = exported(recipe, tmp_path / "there", "transformers")
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    encoder = load_network(recipe, str(recipe.run_dir)).encoder
    texts = [*TEXTS, "THE BED", "bedbed", "", "[CLS] room", "the\u3000room\u00a0was", "good😀bad"]
    for text in texts[: texts.index("[CLS] room")]:
        (ours,) = encoder.encode([text], None, 64)
        assert library.encode(text).ids == ours.input_ids, text
    (ours,) = encoder.encode(["the room"], ["bad bed"], 64)
    theirs = library.encode("the room", "bad bed")
    assert (theirs.ids, theirs.type_ids) == (ours.input_ids, ours.token_type_ids)


@pytest.mark.parametrize("name", ["mean", "cls-dense", "max-dot", "weightedmean-dense"])
def test_a_folder_of_sentence_transformers_comes_back(tmp_path: Path, name: str):
    source = MODELS / "sentence_folders" / name
    recipe = load_recipe(source, purpose="embed")
    folder = exported(recipe, tmp_path / "there", "sentence-transformers")
    first, second = read_sentence_folder(source), read_sentence_folder(folder)
    assert first is not None and second is not None
    prompts = {**first.prompts, "document": "passage: "} if first.prompts else {}
    assert second.prompts == prompts
    dense, file = first.dense, folder / "2_Dense" / "model.safetensors"
    dense = None if dense is None else dataclasses.replace(dense, weights=file, bias=True)
    assert second == dataclasses.replace(first, dense=dense, prompts=prompts)
    card = (folder / "README.md").read_text()  # nlpctl did not train it
    assert "of the model, which tell nothing of data" in card and "in the run that it came from" not in card
    assert "was not recorded" not in card.replace("language of the training texts was not recorded", "")
    assert ("encode_query" in card) is bool(first.prompts)
    written = load_recipe(folder, purpose="embed")
    mine, back = (load_network(each, find_trained_model(each)) for each in (recipe, written))
    np.testing.assert_array_equal(outputs(mine)[0], outputs(back)[0])
    assert written.data.max_seq_length == recipe.data.max_seq_length == 24


def test_a_cross_encoder_has_one_logit(made_run: Callable[..., Recipe], tmp_path: Path):
    recipe = made_run("text_matching", "bert")
    folder = exported(recipe, tmp_path / "there", "cross-encoder")
    arrays = load_file(folder / "model.safetensors")
    assert arrays["classifier.weight"].shape == (1, 32) and arrays["classifier.bias"].shape == (1,)
    config = json.loads((folder / "config.json").read_text())
    assert config["id2label"] == {"0": "LABEL_0"} and "Sigmoid" in config["sentence_transformers"]["activation_fn"]
    before, after = load_network(recipe, str(recipe.run_dir)), read_again(recipe, folder)
    examples = [TextExample(text, "the bed", None) for text in TEXTS]
    scores = [[each["score"] for each in model.task.answers(examples, [[row] for row in outputs(model)[0]])]
              for model in (before, after)]  # fmt: skip
    np.testing.assert_allclose(*scores, atol=2e-6)
    again = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, name_or_path=str(folder)))
    export(again, str(folder), ExportRequest(), output=tmp_path / "again", layout="cross-encoder")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_a_cross_encoder_of_labels_that_may_all_hold(tmp_path: Path):
    source = Path(shutil.copytree(MODELS / "sentence_folders" / "three-labels", tmp_path / "source"))
    settings = source / "config_sentence_transformers.json"
    settings.write_text(settings.read_text().replace("linear.Identity", "activation.Sigmoid"))
    recipe = load_recipe(source, purpose="apply")
    folder = exported(recipe, tmp_path / "there", "cross-encoder")
    config = json.loads((folder / "config.json").read_text())
    assert config["sentence_transformers"]["activation_fn"].endswith(".Sigmoid")
    again = load_recipe(folder, purpose="apply")
    assert recipe.task == again.task == "multi_label_classification"
    assert again.data.columns.text_pair == "text_pair"


@pytest.mark.parametrize(("key", "value"), [("strip_accents", False), ("tokenize_chinese_chars", False)])
def test_what_a_tokenizer_makes_of_characters_comes_back(tmp_path: Path, key: str, value: bool):
    source = Path(shutil.copytree(MODELS / "sentence_folders" / "three-labels", tmp_path / "source"))
    vocabulary = json.loads((source / "tokenizer.json").read_text())["model"]["vocab"]
    (source / "tokenizer.json").unlink()
    (source / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    settings = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps({**settings, key: value}))
    recipe = load_recipe(source, purpose="apply")
    folder = exported(recipe, tmp_path / "there", "transformers")
    assert json.loads((folder / "tokenizer_config.json").read_text())[key] is value
    before, after = load_network(recipe, str(source)), read_again(recipe, folder)
    assert before.encoder.encode(TEXTS, None, 24) == after.encoder.encode(TEXTS, None, 24)


def test_added_words_are_in_tokenizer_json(classifier: Recipe, tmp_path: Path):
    tokenizer = load_network(classifier, str(classifier.run_dir)).encoder.tokenizer
    grown = add_tokens(tokenizer, ["格利泽", "Fox trot", "c++"]).tokenizer
    hugging_face.write_tokenizer(tmp_path, grown, 64)
    library, encoder = Tokenizer.from_file(str(tmp_path / "tokenizer.json")), build_encoder(grown)
    for text in ("the 格利泽 room", "a格利泽b fox trot", "THE C++ c++good", "xc++y Fox  trot"):
        assert library.encode(text).ids == encoder.encode([text], None, 64)[0].input_ids, text
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "PreTrainedTokenizerFast" and library.token_to_id("c++") == len(grown) - 1


POWER = Calibration("temperature", (0.5,), (0.0,), (), 0.25)
BY_LABEL = Calibration("temperature", (0.5, 2.0, 1.0), (0.0,) * 3, ("x", "y", "z"))
LOGISTIC = Calibration("logistic", (0.5, 2.0, 1.0), (0.25, -1.0, 0.0), ("x", "y", "z"))
ONE = Calibration("temperature", (0.5,), (0.0,))


@pytest.mark.parametrize(
    ("task", "architecture", "layout", "calibration"),
    [
        ("sequence_classification", "roberta", "transformers", ONE),
        ("text_matching", "bert", "cross-encoder", ONE),
        ("multi_label_classification", "electra", "transformers", LOGISTIC),
        ("sequence_classification", "ernie", "transformers", POWER),
        ("sequence_classification", "ernie", "transformers", BY_LABEL),
        ("token_classification", "ernie", "transformers", LOGISTIC),
    ],
)
def test_calibration_is_in_the_weights_where_it_is_linear(
    made_run: Callable[..., Recipe], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    task: str, architecture: str, layout: str, calibration: Calibration,
):  # fmt: skip
    """Answers of the exported model are those of the calibrated one. Elsewhere nlpctl alone knows the calibration."""
    recipe = made_run(task, architecture)
    write_calibration(recipe.run_dir / "model", calibration)
    (recipe.run_dir / "model" / "manifest.json").unlink()
    made = export(recipe, str(recipe.run_dir), ExportRequest(), output=tmp_path / "there", layout=layout)
    before, after = load_network(recipe, str(recipe.run_dir)), read_again(recipe, made.folder)
    card = (made.folder / "README.md").read_text()
    assert before.task.calibration is not None
    linear = calibration in (ONE, LOGISTIC) and task != "token_classification"
    assert after.task.calibration == (None if linear else calibration)
    assert any("the calibration" in each for each in made.left_out) is not linear
    assert ("The weights of the last layer hold the calibration" in card) is linear
    assert ("the last layer of the written weights holds the calibration" in capsys.readouterr().err) is linear
    assert ("Not in these weights: the calibration" in card) is not linear
    if not linear:
        np.testing.assert_array_equal(outputs(before)[0], outputs(after)[0])
        return
    pairs = "the bed" if task == "text_matching" else None
    examples = [TextExample(text, pairs, None) for text in TEXTS]
    logits = [[[row] for row in outputs(model)[0]] for model in (before, after)]
    mine, back = (
        [model.task.label_probabilities(row) for row in rows]
        for model, rows in zip((before, after), logits, strict=True)
    )
    plain = [before.task.calibrated(None).label_probabilities(row) for row in logits[0]]
    for first, second, uncalibrated in zip(mine, back, plain, strict=True):
        np.testing.assert_allclose(list(first.values()), list(second.values()), atol=3e-6)
        assert first != uncalibrated
    if task != "multi_label_classification":  # where 0.5 of what is calibrated is another label
        given = [[each["label"] for each in model.task.answers(examples, rows)]
                 for model, rows in zip((before, after), logits, strict=True)]  # fmt: skip
        assert given[0] == given[1]


@pytest.mark.parametrize(
    ("task", "calibration"), [("multi_label_classification", LOGISTIC), ("sequence_classification", ONE)]
)
def test_thresholds_are_told_for_the_probabilities_that_are_written(
    made_run: Callable[..., Recipe], tmp_path: Path, task: str, calibration: Calibration
):
    """With them the exported model decides as the run does."""
    recipe = made_run(task)
    model, texts = recipe.run_dir / "model", [*TEXTS, "food", "bad", "clean and good", "a view", "staff was very dirty"]
    plain = load_network(recipe, str(recipe.run_dir))
    rows = [plain.task.label_probabilities([row]) for row in outputs(plain, texts)[0]]
    thresholds = [_widest_gap([row[label] for row in rows]) for label in "xyz"]
    write_calibration(model, calibration)
    labels = json.loads((model / "labels.json").read_text())
    (model / "labels.json").write_text(json.dumps({**labels, "thresholds": thresholds}))
    (model / "manifest.json").unlink()
    made = export(recipe, str(recipe.run_dir), ExportRequest(), output=tmp_path / "there", layout="transformers")
    assert "truncation=True" in (made.folder / "README.md").read_text()
    told = {name: float(value) for name, value in re.findall(r"([xyz]) (\d\.\d+)", made.left_out[0])}
    assert [*told] == ["x", "y", "z"] and list(told.values()) != pytest.approx(thresholds, abs=1e-3)
    before, after = load_network(recipe, str(recipe.run_dir)), read_again(recipe, made.folder)
    decided = make_task(recipe, after.task.labels, tuple(told.values()))
    examples = [TextExample(text, None, None) for text in texts]
    key = "labels" if task == "multi_label_classification" else "label"
    mine = [each[key] for each in before.task.answers(examples, [[row] for row in outputs(before, texts)[0]])]
    rows = [[row] for row in outputs(after, texts)[0]]
    for theirs in (decided, after.task):  # nlpctl reads its thresholds again
        assert [each[key] for each in theirs.answers(examples, rows)] == mine
    assert len({str(each) for each in mine}) > 1


def test_what_reads_texts_and_decides_comes_back(made_run: Callable[..., Recipe], tmp_path: Path):
    recipe = made_run("sequence_classification")
    labels = recipe.run_dir / "model" / "labels.json"
    labels.write_text(json.dumps({**json.loads(labels.read_text()), "thresholds": [0.25, 0.25, 0.5]}))
    (recipe.run_dir / "model" / "manifest.json").unlink()
    paired = load_recipe(recipe.run_dir, [Override("data.columns.text_pair", "b", "--set")], "apply")
    folder = exported(paired, tmp_path / "there", "cross-encoder")
    back = load_recipe(folder, (), "apply")
    assert (back.task, back.data.columns) == (recipe.task, paired.data.columns)
    assert load_network(back, str(folder)).task.thresholds == (0.25, 0.25, 0.5)
    moved = dataclasses.replace(back, data=dataclasses.replace(back.data, labels=("z", "x", "y")))
    assert load_network(moved, str(folder)).task.thresholds == (0.5, 0.25, 0.25)

    config = json.loads((folder / "config.json").read_text())
    config["nlpctl"]["sha256"] = "0" * 64  # as where Transformers trained the weights further
    (folder / "config.json").write_text(json.dumps(config))
    assert load_network(back, str(folder)).task.thresholds is None
    config["nlpctl"]["data"]["max_seq_length"] = 1024  # more than is read of a folder that says nothing
    (folder / "config.json").write_text(json.dumps(config))
    assert load_recipe(folder, (), "apply").data.max_seq_length == 1024
    (folder / "config.json").write_text(json.dumps({**config, "nlpctl": ["another program's"]}))
    assert load_recipe(folder, (), "apply").data.columns.text_pair is None


@pytest.mark.parametrize(
    ("task", "layout", "key", "value"),
    [
        ("lexical_analysis", "transformers", "data.doc_stride", "7"),
        ("question_answering", "transformers", "decode.null_threshold", "-1.5"),
        ("multi_label_classification", "transformers", "decode.threshold", "0.25"),
        ("text_matching", "cross-encoder", "data.labels", "different,same"),
    ],
)
def test_the_task_and_its_keys_come_back(made_run: Callable[..., Recipe], tmp_path: Path, task, layout, key, value):
    recipe = load_recipe(made_run(task).run_dir, [Override(key, value, "--set")], "apply")
    if task == "text_matching":
        model = recipe.run_dir / "model"
        (model / "labels.json").write_text(json.dumps({"labels": ["different", "same"]}))
        config = json.loads((model / "config.json").read_text())
        config |= {"id2label": {"0": "different", "1": "same"}, "label2id": {"different": 0, "same": 1}}
        (model / "config.json").write_text(json.dumps(config))
        (model / "manifest.json").unlink()
    folder = exported(recipe, tmp_path / "there", layout)
    back = load_recipe(folder, (), "apply")
    assert back.task == task and value_of(back, key) == value_of(recipe, key) is not None
    assert (back.data.columns, back.data.max_seq_length) == (recipe.data.columns, 24)
    model = load_network(back, str(folder))
    assert model.task.thresholds is None
    assert model.task.labels.names == load_network(recipe, str(recipe.run_dir)).task.labels.names


def _widest_gap(values: list[float]) -> float:
    """Halfway between the two neighbours that are furthest apart."""
    below, above = max(itertools.pairwise(sorted(values)), key=lambda pair: pair[1] - pair[0])
    return (below + above) / 2


@pytest.mark.parametrize("folder", sorted(path.name for path in (MODELS / "encoders").iterdir() if path.is_dir()))
def test_encoders_of_every_family_come_back(tmp_path: Path, folder: str):
    source = MODELS / "encoders" / folder
    recipe = load_recipe(source, [Override("task", "semantic_indexing", "--set")], "embed")
    if folder == "roformer":
        with pytest.raises(UserError, match="RoFormerTokenizer splits words by jieba"):
            exported(recipe, tmp_path / "there", "sentence-transformers")
        source = Path(shutil.copytree(source, tmp_path / "source"))
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(MODELS / "encoders" / "nezha" / name, source / name)
        recipe = load_recipe(source, [Override("task", "semantic_indexing", "--set")], "embed")
    target = exported(recipe, tmp_path / "there", "sentence-transformers")
    mine, back = load_network(recipe, str(source)), load_network(recipe, str(target))
    np.testing.assert_array_equal(outputs(mine)[0], outputs(back)[0])
    first, second = load_file(source / "model.safetensors"), load_file(target / "model.safetensors")
    for name, array in second.items():
        prefixed = next((key for key in first if key == name or key.endswith(f".{name}")), None)
        assert prefixed is not None, name
        computed = name == "encoder.embed_positions.weight"  # by another program in the first
        np.testing.assert_allclose(first[prefixed], array, rtol=0, atol=1e-6 if computed else 0)
    assert ("encoder.embed_positions.weight" in second) == (folder == "roformer")


def test_the_command_and_what_stays_behind(classifier: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = Path(shutil.copytree(classifier.run_dir, tmp_path / "run"))
    labels = run / "model" / "labels.json"
    labels.write_text(json.dumps({**json.loads(labels.read_text()), "thresholds": [0.5, 0.25, 0.75]}))
    (run / "model" / "manifest.json").unlink()
    assert main(["export", str(run), "--layout", "transformers"]) == 0
    assert "thresholds of labels (x 0.500, y 0.250, z 0.750)" in capsys.readouterr().err
    assert main(["export", str(run), "--layout", "transformers"]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["export", str(run), "--layout", "transformers", "--overwrite", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["folder"] == str(run / "transformers") and result["layout"] == "transformers"
    assert len(result["left_out"]) == 1
    labels.write_text(json.dumps({**json.loads(labels.read_text()), "thresholds": [1 / 3] * 3}))  # tune found no better
    (run / "model" / "manifest.json").unlink(missing_ok=True)
    assert main(["export", str(run), "--layout", "transformers", "--overwrite"]) == 0
    assert "thresholds" not in capsys.readouterr().err
    (tmp_path / "texts.txt").write_text("the room was good\n")
    assert main(["predict", str(run / "transformers"), str(tmp_path / "texts.txt")]) == 0
    assert json.loads(capsys.readouterr().out)["label"] in ("x", "y", "z")


@pytest.mark.parametrize(
    ("task", "layout", "told"),
    [
        ("sequence_classification", "sentence-transformers", "makes no vectors of texts"),
        ("sequence_classification", "cross-encoder", "reads pairs of texts, and this model reads one"),
        ("semantic_indexing", "transformers", "is an encoder, which transformers has no head for"),
        ("token_classification", "cross-encoder", "gives a pair of texts one answer"),
        ("few_shot_classification", "transformers", "what gives this model's labels is nlpctl's own"),
    ],
)
def test_layouts_that_a_task_has_not(made_run: Callable[..., Recipe], tmp_path: Path, task, layout, told):
    with pytest.raises(UserError, match=told) as caught:
        exported(made_run(task), tmp_path / "there", layout)
    assert caught.value.problems[0].hint and not (tmp_path / "there").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("token_classification", "ernie", "crf"), "Transformers has no CRF"),
        (("sequence_classification", "textcnn"), "TextCNNForSequenceClassification has no network of Transformers"),
        (("token_classification", "bigru"), "BiGRUForTokenClassification has no network of Transformers"),
    ],
)
def test_networks_that_transformers_has_not(made_run: Callable[..., Recipe], tmp_path: Path, words, told):
    with pytest.raises(UserError, match=told) as caught:
        exported(made_run(*words), tmp_path / "there", "transformers")
    assert ("optimizer.groups that matches crf" in caught.value.problems[0].hint) is ("crf" in words)
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(("heads", "neurons"), [([1, 2], [64, 64]), ([2, 2], [64, 32]), ([2, 2], [48, 48])])
def test_pruned_networks(classifier: Recipe, tmp_path: Path, heads: list[int], neurons: list[int]):
    from nlpctl.models.pruned import Kept, prune

    model = load_network(classifier, str(classifier.run_dir))
    network = model.predictor.network
    whole = network.config.num_attention_heads // 2
    kept = Kept(tuple(tuple(range(each * whole)) for each in heads), tuple(tuple(range(each)) for each in neurons))
    prune(network, kept)
    (tmp_path / "there").mkdir()
    arguments = ("transformers", classifier, model, network, tmp_path / "there", Path("source"), "there")
    if neurons[0] != neurons[1] or heads[0] != heads[1]:
        with pytest.raises(UserError, match="networks of Transformers have as many in each"):
            hugging_face.write_weights(*arguments)
        assert not list((tmp_path / "there").iterdir())
        return
    hugging_face.write_weights(*arguments)
    assert json.loads((tmp_path / "there" / "config.json").read_text())["intermediate_size"] == 48
    back = load_network(classifier, str(tmp_path / "there"))
    np.testing.assert_array_equal(outputs(model)[0], outputs(back)[0])


def test_networks_that_simulate_int8(classifier: Recipe, tmp_path: Path):
    model = load_network(classifier, str(classifier.run_dir))
    model.predictor.network.config.simulated_int8 = {"weights": "abs_max"}
    with pytest.raises(UserError, match="trained to be rounded to int8"):
        hugging_face.write_weights(
            "transformers", classifier, model, model.predictor.network, tmp_path, Path("source"), "there"
        )


@pytest.mark.parametrize(
    ("layout", "option", "value", "told"),
    [
        ("transformers", "--format", "onnx", "holds weights, and a format is one of graphs"),
        ("transformers", "--precision", "fp32", "holds weights in fp32"),
        ("transformers", "--data", "rows.tsv", "compared bit by bit, which needs no rows"),
        ("transformers", "--rows", "256", "compared bit by bit, which needs no rows"),
        ("transformers", "--timing", "0", "engines are timed for `auto`"),
        ("triton", "--timing", "0", "engines are timed for `auto`"),
    ],
)
def test_options_that_a_layout_leaves_without_effect(
    classifier: Recipe, capsys: pytest.CaptureFixture[str], layout: str, option: str, value: str, told: str
):
    """Refused also where the value is the default."""
    assert main(["export", str(classifier.run_dir), "--layout", layout, option, value]) == 2
    error = capsys.readouterr().err
    assert told in error and option in error and "leave it out" in error


def test_what_is_no_export_of_weights_is_not_replaced(classifier: Recipe, tmp_path: Path):
    with (exported(classifier, tmp_path / "further", "transformers") / "model.safetensors").open("ab") as file:
        file.write(b"trained further")
    with pytest.raises(UserError, match="model.safetensors was added or changed"):
        exported(classifier, tmp_path / "further", "transformers", overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    with pytest.raises(UserError, match="is not an export to transformers"):
        exported(classifier, tmp_path / "mine", "transformers", overwrite=True)


def test_weights_that_would_be_read_otherwise_are_a_failure(
    classifier: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plain = hugging_face.to_huggingface

    def off(*arguments: Any) -> dict[str, np.ndarray]:
        made = plain(*arguments)
        wrong = next(name for name in made if name.endswith("pooler.dense.bias"))
        return {**made, wrong: made[wrong] + 1}

    monkeypatch.setattr(hugging_face, "to_huggingface", off)
    with pytest.raises(RunFailed, match="would be read otherwise"):
        exported(classifier, tmp_path / "there", "transformers")
    assert not (tmp_path / "there").exists()
