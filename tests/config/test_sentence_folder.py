"""What a folder of sentence-transformers says of vectors, and which folders are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from nlpctl.config.dump import dump_recipe
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.schema import RetrievalSection
from nlpctl.config.sentence_folder import read_sentence_folder
from nlpctl.errors import UserError
from nlpctl.models.sentence_model import take_sentence_model

FOLDERS = Path(__file__).parent.parent / "models" / "sentence_folders"
PAIRS = {"train": "pairs.tsv", "columns": {"text_pair": "b"}}


def recipe_from(name: str | Path, **sections: object):
    values = {"task": "semantic_indexing", "model": {"name_or_path": str(name)}, "data": PAIRS}
    return load_recipe({**values, **sections}, purpose="apply")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDERS / "cls-dense", tmp_path / "made"))


def rewrite(file: Path, **values: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_the_folder_fills_what_a_recipe_leaves_out():
    made = recipe_from(FOLDERS / "weightedmean-dense").retrieval
    assert (made.pooling, made.embedding_size, made.activation) == ("weightedmean", 20, "none")
    assert (made.normalize, made.similarity, made.default_prompt) == (False, "cosine", "other")
    assert made.prompts == {"document": "", "other": "good ", "passage": "passage: ", "query": ""}
    dense = recipe_from(FOLDERS / "cls-dense", retrieval={"scale": 5.0, "pooling": "mean"})
    assert (dense.retrieval.pooling, dense.retrieval.activation, dense.retrieval.scale) == ("mean", "tanh", 5.0)
    assert dense.data.max_seq_length == 24 and dense.retrieval.prompts == {}
    assert recipe_from(FOLDERS / "max-dot").retrieval.similarity == "dot"


def test_a_written_recipe_gives_the_same_again(tmp_path: Path):
    own = {"pooling": "mean", "embedding_size": None, "activation": "none", "default_prompt": None}
    recipe = recipe_from(FOLDERS / "weightedmean-dense", retrieval=own, data={**PAIRS, "max_seq_length": 128})
    (tmp_path / "again.yaml").write_text(dump_recipe(recipe))
    assert load_recipe(tmp_path / "again.yaml", purpose="apply") == recipe


def test_a_prompt_of_the_recipe_is_laid_over_those_of_the_folder():
    made = recipe_from(FOLDERS / "mean", retrieval={"prompts": {"query": "Q: "}}).retrieval
    assert made.prompts == {"document": "passage: ", "query": "Q: "}


def test_a_folder_that_is_known_by_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "some_package").mkdir()
    (tmp_path / "some_package" / "__init__.py").touch()
    shutil.copytree(FOLDERS / "cls-dense", tmp_path / "some_package" / "model")
    monkeypatch.syspath_prepend(tmp_path)
    named = recipe_from("python:some_package/model", retrieval={"pooling": "mean"})
    assert named.retrieval.activation == "none"
    taken = take_sentence_model(named)
    assert (taken.retrieval.pooling, taken.retrieval.activation, taken.data.max_seq_length) == ("mean", "tanh", 24)


@pytest.mark.parametrize("folder", ["cls-dense", "reranker"])
def test_a_prompt_that_there_is_not_is_told(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also to a command that trains nothing, and of a folder that says nothing of vectors."""
    (tmp_path / "some_package").mkdir()
    (tmp_path / "some_package" / "__init__.py").touch()
    shutil.copytree(FOLDERS / folder, tmp_path / "some_package" / "model")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("python:some_package/model", str(FOLDERS / folder)):
        asked = recipe_from(name, retrieval={"prompts": {"query": "q: "}, "default_prompt": "qury"})
        with pytest.raises(UserError, match=r"there is no prompt 'qury' in retrieval.prompts\n  -> did you mean query"):
            take_sentence_model(asked)


@pytest.mark.parametrize("name", [str(FOLDERS / "weightedmean-dense"), "hf:org/encoder"])
def test_a_recipe_that_was_run_answers_as_its_model_does(tmp_path: Path, name: str):
    values = {"task": "semantic_indexing", "model": {"name_or_path": name}, "data": PAIRS}
    values |= {"training": {"output_dir": str(tmp_path / "run")}, "retrieval": {"similarity": "dot"}}
    (tmp_path / "my.yaml").write_text(json.dumps(values))
    model = tmp_path / "run" / "model"
    model.mkdir(parents=True)
    # As a version wrote it that knew neither of modules.json nor of the keys that came with it.
    card = {"format": 1, "task": "semantic_indexing", "trained": True, "data": {"max_seq_length": 20}}
    (model / "task.json").write_text(json.dumps(card | {"retrieval": {"pooling": "cls", "scale": 5.0}}))
    recipe = take_sentence_model(load_recipe(tmp_path / "my.yaml", purpose="apply"))
    old = RetrievalSection(pooling="cls", scale=5.0, similarity="dot")
    assert (recipe.retrieval, recipe.data.max_seq_length) == (old, 20)
    if not name.startswith("hf:"):  # a new training, and another run
        again = load_recipe({**values, "data": {**PAIRS, "train": str(tmp_path / "my.yaml")}})
        elsewhere = load_recipe(tmp_path / "my.yaml", [Override("training.output_dir", "new", "--output_dir")], "apply")
        assert again.retrieval.pooling == elsewhere.retrieval.pooling == "weightedmean"
        assert elsewhere.retrieval.embedding_size == 20


def test_other_folders_say_nothing(tmp_path: Path):
    assert read_sentence_folder(tmp_path) is None
    assert read_sentence_folder(FOLDERS / "reranker") is None


@pytest.mark.parametrize("version", [2, 6])
def test_poolings(folder: Path, version: int):
    (folder / "modules.json").write_text((folder / "modules.json").read_text().replace("base.modules.dense", "models"))
    keys = {"max": "pooling_mode_max_tokens", "weightedmean": "pooling_mode_weightedmean_tokens"}
    for mode, key in keys.items():
        config = {"word_embedding_dimension": 16, "pooling_mode_cls_token": False, key: True}
        config = config if version == 2 else {"embedding_dimension": 16, "pooling_mode": mode}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
        made = read_sentence_folder(folder)
        assert made is not None and made.pooling == mode


MODULES = "modules.json"
CONFIG = "config_sentence_transformers.json"
DENSE, POOLING, NORMALIZE = "2_Dense/config.json", "1_Pooling/config.json", "3_Normalize/config.json"
TEXTS = "sentence_bert_config.json"


@pytest.mark.parametrize(
    ("file", "values", "told"),
    [
        (POOLING, {"pooling_mode": "lasttoken"}, "pooling_mode: this encoder pools by lasttoken, and nlpctl by cls"),
        (POOLING, {"pooling_mode": ["cls", "mean"]}, "pools by cls and mean"),
        (POOLING, {"pooling_mode": 7}, "pools by 7"),
        (POOLING, {"include_prompt": False}, "include_prompt: false"),
        (POOLING, {"include_prompt": None}, "include_prompt: null"),  # which the library takes for false
        (POOLING, {"embedding_dimension": 8}, "states of width 8, and those of the network have 16"),
        (DENSE, {"in_features": 8}, "in_features: 8, but the pooled vector has the width 16"),
        (DENSE, {"out_features": "12"}, "must be whole numbers"),
        (DENSE, {"out_features": 10**12}, "numbers cannot be in model.safetensors, which has 968 bytes"),
        (DENSE, {"activation_function": "os.system"}, 'activation_function: "os.system" is none of'),
        (DENSE, {"activation_function": [1]}, r"activation_function: \[1\] is none of"),
        (DENSE, {"use_residual": True}, "use_residual"),
        (CONFIG, {"similarity_fn_name": "manhattan"}, "similarity_fn_name"),
        (CONFIG, {"truncate_dim": 4}, "truncate_dim"),
        (CONFIG, {"prompts": ["a"]}, "prompts: must hold names"),
        (CONFIG, {"default_prompt_name": "a"}, "default_prompt_name: there is no prompt"),
        (CONFIG, {"default_prompt_name": {}}, "default_prompt_name: there is no prompt {}"),
        (CONFIG, {"model_type": "CrossEncoder"}, "model_type: with Pooling this is a CrossEncoder"),
        (DENSE, {"module_output_name": "scores"}, "module_output_name: nlpctl's linear layer"),
        (NORMALIZE, {"module_input_name": "token_embeddings"}, 'module_input_name: "token_embeddings"'),
        (TEXTS, {"modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}}},
         'method_output_name: "pooler_output", and nlpctl has last_hidden_state only'),
        (TEXTS, {"modality_config": {"text": {"method": "get_text_features"}}}, 'modality_config: "get_text_features"'),
        (TEXTS, {"modality_config": 3}, "modality_config: 3"),
        (TEXTS, {"transformer_task": "fill-mask"}, 'transformer_task: "fill-mask"'),
        (TEXTS, {"query_length": 8}, "query_length: 8: it reads texts so, and nlpctl does not"),
        (TEXTS, {"processing_kwargs": {"text": {"add_special_tokens": False}}}, "processing_kwargs: {"),
    ],
)  # fmt: skip
def test_what_is_refused(folder: Path, file: str, values: dict, told: str):
    rewrite(folder / file, **values)
    with pytest.raises(UserError, match=told) as caught:
        load_recipe(folder, purpose="embed")
    (problem,) = caught.value.problems
    assert problem.where.endswith(file) and problem.hint


@pytest.mark.parametrize(
    ("place", "values", "told"),
    [
        (1, {"type": "custom_st.Model"}, 'type: "custom_st.Model" is code of the model\'s author'),
        (1, {"type": "sentence_transformers.models.LSTM"}, "is a part that nlpctl does not have"),
        (1, {"type": None}, "type: null is code"),
        (1, {"path": "../elsewhere"}, 'path: "../elsewhere" is not a folder in this one'),
        (1, {"path": "\0"}, "is not a folder in this one"),
        (1, {"path": "\ud800"}, "is not a folder in this one"),
        (1, {"path": "\udc80"}, "/config.json is missing"),  # a byte that is no UTF-8
        (1, {"path": "/etc"}, 'path: "/etc" is not a folder'),
        (1, {"path": 3}, "path: 3 is not a folder"),
        (1, {"path": "7_Gone"}, "7_Gone/config.json is missing"),
        (0, {"path": "1_Pooling"}, "begins with 1_Pooling, where the Transformer must be"),
        (2, {"type": "sentence_transformers.models.Pooling"}, "its modules are Transformer, Pooling, Pooling"),
    ],
)
def test_modules_that_are_refused(folder: Path, place: int, values: dict, told: str):
    modules = json.loads((folder / MODULES).read_text())
    modules[place] |= values
    (folder / MODULES).write_text(json.dumps(modules))
    for purpose in ("embed", "observe"):
        with pytest.raises(UserError) as caught:
            load_recipe(folder, purpose=purpose)
        (problem,) = caught.value.problems
        assert told in problem.message and problem.where.endswith(MODULES) and problem.hint


def test_modules_that_have_no_config_in_the_folder(tmp_path: Path):
    """StaticEmbedding, WordEmbeddings, Router: what they are is told, not that config.json is missing."""
    kind = "sentence_transformers.sentence_transformer.modules.static_embedding.StaticEmbedding"
    (tmp_path / MODULES).write_text(json.dumps([{"path": "", "type": kind}]))
    with pytest.raises(UserError, match="StaticEmbedding is a part that nlpctl does not have"):
        load_recipe(tmp_path, purpose="embed")


@pytest.mark.parametrize(
    ("file", "values"),
    [
        (CONFIG, {"model_type": None}),
        *((TEXTS, {"processing_kwargs": ways})
          for ways in ({}, {"text": {}, "common": None}, {"image": {"size": 8}}, {"chat_template": {"x": True}})),
    ],
)  # fmt: skip
def test_keys_that_change_no_vector(folder: Path, file: str, values: dict):
    rewrite(folder / file, **values)
    assert load_recipe(folder, purpose="embed").retrieval.pooling == "cls"


@pytest.mark.parametrize("purpose", ["embed", "observe"])
def test_a_transformer_alone_makes_vectors_as_somebody_says(folder: Path, purpose: str):
    (folder / MODULES).write_text(json.dumps(json.loads((folder / MODULES).read_text())[:1]))
    rewrite(folder / "config.json", architectures=["BertModel"])
    with pytest.raises(UserError, match="modules.json: its modules are Transformer alone; without Pooling") as caught:
        load_recipe(folder, purpose=purpose)
    assert "retrieval.pooling" in str(caught.value.problems[0].hint)
    said = [Override("retrieval.pooling", "max", "--set retrieval.pooling")]
    assert load_recipe(folder, said, purpose=purpose).retrieval.pooling == "max"
    with pytest.raises(UserError, match="its modules are Transformer alone"):
        recipe_from(folder)
    assert recipe_from(folder, retrieval={"pooling": "weightedmean"}).retrieval.pooling == "weightedmean"


def test_a_transformer_alone_with_a_head_answers(folder: Path):
    """Of which nobody wants vectors; it is trained from as well."""
    (folder / MODULES).write_text(json.dumps(json.loads((folder / MODULES).read_text())[:1]))
    rewrite(folder / "config.json", architectures=["BertForSequenceClassification"])
    for purpose in ("apply", "observe"):
        assert load_recipe(folder, purpose=purpose).task == "sequence_classification"
    named = {"task": "sequence_classification", "model": {"name_or_path": str(folder)}}
    load_recipe({**named, "data": {"train": str(folder / MODULES)}}, purpose="train")
    assert read_sentence_folder(folder) is None  # as few-shot learning asks


@pytest.mark.parametrize(
    ("function", "task"), [("Identity", "sequence_classification"), ("Sigmoid", "multi_label_classification")]
)
def test_a_cross_encoder_of_several_logits_reads_pairs(tmp_path: Path, function: str, task: str):
    folder = Path(shutil.copytree(FOLDERS / "three-labels", tmp_path / "made"))
    rewrite(folder / CONFIG, activation_fn=f"torch.nn.modules.activation.{function}")
    recipe = load_recipe(folder, purpose="apply")
    assert (recipe.task, recipe.data.columns.text_pair) == (task, "text_pair")
    (folder / CONFIG).unlink()  # as versions 3 and 4 told it
    assert load_recipe(folder, purpose="apply").data.columns.text_pair is None
    for told in ({"sbert_ce_default_activation_function": f"torch.{function}"},
                 {"sentence_transformers": {"activation_fn": f"torch.{function}"}}):  # fmt: skip
        shutil.copyfile(FOLDERS / "three-labels" / "config.json", folder / "config.json")
        rewrite(folder / "config.json", **told)
        recipe = load_recipe(folder, purpose="apply")
        assert (recipe.task, recipe.data.columns.text_pair) == (task, "text_pair")


@pytest.mark.parametrize(
    ("name", "task"),
    [
        *(("reranker", task) for task in (None, "text_matching", "sequence_classification")),
        *(("three-labels", task) for task in (None, "sequence_classification", "multi_label_classification")),
    ],
)
def test_a_cross_encoder_that_reads_otherwise(tmp_path: Path, name: str, task: str | None):
    """Also where the command line names the task."""
    named = [] if task is None else [Override("task", task, "--set task")]
    folder = Path(shutil.copytree(FOLDERS / name, tmp_path / "made"))
    rewrite(folder / CONFIG, prompts={"query": "q: "})
    assert load_recipe(folder, named, purpose="apply").data.columns.text_pair == "text_pair"
    rewrite(folder / CONFIG, default_prompt_name="query")
    with pytest.raises(UserError, match="default_prompt_name: it scores pairs behind the prompt 'q: '"):
        load_recipe(folder, named, purpose="apply")
    rewrite(folder / CONFIG, default_prompt_name=None)
    rewrite(folder / TEXTS, processing_kwargs={"text": {"max_length": 8}})
    with pytest.raises(UserError, match="sentence_bert_config.json: processing_kwargs"):
        load_recipe(folder, named, purpose="apply")
    vectors = load_recipe(folder, [Override("task", "semantic_indexing", "--set task")], purpose="apply")
    assert vectors.data.columns.text_pair is None  # the encoder alone, of which this says nothing


def test_the_width_of_a_distilbert(folder: Path):
    """Which it calls dim."""
    (folder / "config.json").write_text(json.dumps({"dim": 16, "model_type": "distilbert"}))
    rewrite(folder / DENSE, in_features=8)
    with pytest.raises(UserError, match="in_features: 8, but the pooled vector has the width 16"):
        load_recipe(folder, purpose="embed")


def test_a_dense_without_weights(folder: Path):
    (folder / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(UserError, match="2_Dense: no weights in this folder: model.safetensors or pytorch_model.bin"):
        load_recipe(folder, purpose="embed")


def test_a_link_out_of_the_folder_is_none_of_its_modules(folder: Path, tmp_path: Path):
    shutil.move(folder / "2_Dense", tmp_path / "outside")
    (folder / "2_Dense").symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match='path: "2_Dense" is not a folder in this one'):
        load_recipe(folder, purpose="embed")


@pytest.mark.parametrize("content", ["{", "{}", "[1]", "[]", "[" * 100_000])
def test_damaged_modules(folder: Path, content: str):
    (folder / MODULES).write_text(content)
    with pytest.raises(UserError, match=r"modules\.json"):
        load_recipe(folder, purpose="embed")
