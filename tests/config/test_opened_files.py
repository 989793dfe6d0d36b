"""What a folder that is opened may name: its own files, and those that it shows to be made from."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from nlpctl.compress.plan import CompressRequest, parse_strategy
from nlpctl.compress.refusals import refuse_training
from nlpctl.config import environment
from nlpctl.config.environment import flags_of, may_name_a_place
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.task_file import COPIED
from nlpctl.errors import UserError
from nlpctl.experiments.series import read_series
from nlpctl.layout import link_out
from nlpctl.models.source import resolve_source
from nlpctl.paddle_version import KNOWN

TASKS = {"decode.terms": "token_classification", "masking.dictionary": "masked_language_model"}


@pytest.fixture
def secret(tmp_path, monkeypatch) -> Path:
    (tmp_path / "secret").write_text("stolen\tPER\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "secret"


@pytest.fixture
def model(tmp_path, secret) -> Path:
    folder = tmp_path / "run" / "model"
    folder.mkdir(parents=True)
    for name in ("config.json", "vocab.txt", "model_state.pdparams"):
        (folder / name).write_text("{}")
    return folder


def write_task(folder: Path, key: str, value: str, **more: object) -> None:
    section, name = key.split(".")
    content = {"format": 1, "task": TASKS[key], "trained": True, "data": {}, section: {name: value}} | more
    (folder / "task.json").write_text(json.dumps(content))


@pytest.mark.parametrize("key", TASKS)
@pytest.mark.parametrize("how", ["absolute", "../../secret", "link", "~/secret"])
def test_a_model_folder_names_files_of_its_own(model, secret, key, how):
    name = {"absolute": str(secret)}.get(how, how)
    if how == "link":
        (model / name).symlink_to(secret)
    write_task(model, key, name)
    with pytest.raises(UserError, match=f"{key} names .*, which is no file of this folder"):
        recipe_of(model)
    (model / "mine.txt").write_text("a\tPER\n")
    write_task(model, key, "mine.txt")
    section, field = key.split(".")
    assert getattr(getattr(recipe_of(model), section), field) == str(model / "mine.txt")


def test_other_keys_of_a_recipe_are_not_taken_from_a_model_folder(model, secret):
    more = {"data": {"train": str(secret), "reader": "os:system", "max_seq_length": 40}, "runtime": {"cache_dir": "/x"}}
    write_task(model, "decode.terms", "terms.tsv", **more)
    recipe = recipe_of(model)
    assert not recipe.data.train and recipe.data.reader is None and recipe.runtime.cache_dir is None
    assert recipe.data.max_seq_length == 40


@pytest.mark.parametrize("key", TASKS)
def test_a_run_names_a_file_that_its_model_holds_a_copy_of(model, secret, key):
    run, (section, field) = model.parent, key.split(".")
    (run / "manifest.json").write_text("{}")
    (run / "recipe.yaml").write_text(f"task: {TASKS[key]}\n{section}: {{{field}: {secret}}}\n")
    with pytest.raises(UserError, match=f"{key}: run names .*secret, which is neither in it") as told:
        load_recipe(run, purpose="apply")
    assert f"--set {key}={secret}" in told.value.problems[0].hint
    load_recipe(run, [Override(key, str(secret), "--set")], "apply")
    copied = next(name for each, other, name in COPIED if f"{each}.{other}" == key)
    (model / copied).write_bytes(secret.read_bytes())
    load_recipe(run, purpose="apply")
    (run.parent / "mine.yaml").write_text((run / "recipe.yaml").read_text())
    (model / copied).unlink()
    load_recipe(run.parent / "mine.yaml", purpose="apply")


NAMED = {
    "data.train": "data: {{train: {}}}\nmodel: {{from_scratch: {{}}}}",
    "data.labels": "data: {{train: own.tsv, labels: {}}}\nmodel: {{from_scratch: {{}}}}",
    "model.from_scratch.vocabulary": "data: {{train: own.tsv}}\nmodel: {{from_scratch: {{vocabulary: {}}}}}",
    "masking.dictionary": "data: {{train: own.tsv}}\nmodel: {{from_scratch: {{}}}}\nmasking: {{dictionary: {}}}",
}


@pytest.mark.parametrize("key", NAMED)
def test_a_training_from_a_run_takes_files_that_the_run_knows(model, secret, key):
    run = model.parent
    (run / "own.tsv").write_text("text\tlabel\n")
    (run / "manifest.json").write_text("{}")
    task = "masked_language_model" if "masking" in key else "sequence_classification"
    (run / "recipe.yaml").write_text(f"task: {task}\ntraining: {{metric_for_best_model: loss}}\n"
                                     f"{NAMED[key].format(secret)}\n")  # fmt: skip
    with pytest.raises(UserError, match=f"{key}: run names .*secret, which is neither in it nor what it was made from"):
        load_recipe(run)
    load_recipe(run, [Override(key, str(secret), "--set")])
    digest = hashlib.sha256(secret.read_bytes()).hexdigest()
    for place in ("data", "further_files"):
        (run / "manifest.json").write_text(json.dumps({place: {str(secret): digest}}))
        load_recipe(run)
    if key == "data.train":
        (run / "manifest.json").write_text("{}")
        load_recipe(run, purpose="apply")  # read for the user alone


@pytest.mark.parametrize("value", ["/etc/x", "evil", "."])
@pytest.mark.parametrize("key", ["runtime.flags.FLAGS_tracer_profile_fname", "runtime.env.NCCL_TOPO_FILE"])
def test_a_run_sets_nothing_of_libraries_that_may_name_a_place(model, key, value):
    _, section, name = key.split(".")
    (model.parent / "manifest.json").write_text("{}")
    (model.parent / "recipe.yaml").write_text(f"task: text_matching\nruntime: {{{section}: {{{name}: {value}}}}}\n")
    with pytest.raises(UserError, match=f"{key}: run sets it to .*, and it may name a file or place"):
        load_recipe(model.parent, purpose="apply")
    load_recipe(model.parent, [Override(key, value, "--set")], "apply")


def test_a_run_keeps_its_numbers_switches_and_words_for_libraries(model):
    flags = {"FLAGS_cudnn_deterministic": True, "FLAGS_fraction_of_gpu_memory_to_use": 0.5,
             "FLAGS_gpu_memory_limit_mb": 9, "FLAGS_allocator_strategy": "auto_growth", "FLAGS_prim_all": True,
             "FLAGS_nccl_nrings": 2}  # fmt: skip
    env = {"NCCL_DEBUG": "INFO", "NCCL_P2P_DISABLE": "1", "NCCL_IB_ADDR_RANGE": "10.0.0.0/8"}
    (model.parent / "manifest.json").write_text("{}")
    (model.parent / "recipe.yaml").write_text(json.dumps({"task": "text_matching",
                                                         "runtime": {"flags": flags, "env": env}}))  # fmt: skip
    assert load_recipe(model.parent, purpose="apply").runtime.env == env


@pytest.mark.parametrize("paddle", KNOWN)
def test_no_flag_that_names_a_folder_or_file_counts_as_harmless(paddle, monkeypatch):
    monkeypatch.setattr(environment, "known_flags", lambda: flags_of(paddle))
    named = [name for name in flags_of(paddle) if name.endswith(("_dir", "_path", "path", "_fname", "_config"))]
    assert named and all(may_name_a_place("runtime.flags", name, "a") for name in named)


def test_a_run_has_no_cache_folder_made(model, tmp_path, capfd):
    run, cache = model.parent, tmp_path / "cache"
    (run / "manifest.json").write_text("{}")
    (run / "recipe.yaml").write_text(f"task: sequence_classification\nruntime: {{cache_dir: {cache}}}\n")
    assert load_recipe(run, purpose="apply").runtime.cache_dir is None
    assert "which is not here; the usual one is taken" in capfd.readouterr().err
    cache.mkdir()  # the user's own
    assert load_recipe(run, purpose="apply").runtime.cache_dir == str(cache)


@pytest.mark.parametrize("name", ["vocab.txt", "added_tokens.json", "1_Pooling/config.json"])
def test_a_link_out_of_a_model_is_refused(model, secret, name):
    (model / name).unlink(missing_ok=True)
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).symlink_to(secret)
    assert link_out(model) == model / name
    if name == "vocab.txt":
        (model / "task.json").write_text("{}")
    with pytest.raises(UserError, match="is a link to a file outside of the model"):
        resolve_source(str(model))


def test_links_inside_a_run_of_weights_and_into_the_cache_of_the_hub_are_taken(model, secret, tmp_path):
    (model.parent / "manifest.json").write_text("{}")
    (model.parent / "words.txt").write_text("a\n")
    (model / "words.txt").symlink_to("../words.txt")
    (model / "model_state.pdparams").unlink()
    (model / "model_state.pdparams").symlink_to(secret)
    assert link_out(model) is None
    snapshot = tmp_path / "models--a--b" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--a--b" / "blobs").mkdir()
    (tmp_path / "models--a--b" / "blobs" / "5").write_text("a\n")
    (snapshot / "vocab.txt").symlink_to("../../blobs/5")
    assert link_out(snapshot) is None
    (snapshot / "pd").mkdir()
    (snapshot / "pd" / "vocab.txt").symlink_to("../../../blobs/5")
    assert link_out(snapshot / "pd") is None


def test_a_link_to_a_file_that_the_models_manifest_lists_is_taken(model, secret, tmp_path):
    (model / "vocab.txt").unlink()
    (model / "vocab.txt").symlink_to(secret)
    digest = hashlib.sha256(secret.read_bytes()).hexdigest()
    (tmp_path / "list").write_text(json.dumps({"sha256": {"vocab.txt": digest}}))
    (model / "manifest.json").symlink_to(tmp_path / "list")
    with pytest.raises(UserError, match="is a link to a file outside of the model: .*list"):
        resolve_source(str(model))
    (model / "manifest.json").unlink()
    (model / "manifest.json").write_text((tmp_path / "list").read_text())
    assert resolve_source(str(model)).folder == model
    secret.write_text("another\n")
    with pytest.raises(UserError, match="is a link to a file outside of the model: .*secret"):
        resolve_source(str(model))


def test_the_cache_of_a_strangers_snapshot_is_no_link(secret, tmp_path):
    snapshot = tmp_path / "models--a--b" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--a--b" / "blobs").symlink_to(tmp_path)
    (snapshot / "vocab.txt").symlink_to("../../blobs/secret")
    assert link_out(snapshot) == snapshot / "vocab.txt"


@pytest.mark.parametrize("name", ["../other", "/other"])
def test_a_series_lists_runs_of_its_own(tmp_path, name):
    content = {"format": 1, "kind": "folds", "state": "finished", "runs": ["fold-1", name], "data": {}, "plan": {}}
    (tmp_path / "series.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"{name} is not in the folder"):
        read_series(tmp_path)


def test_a_run_reads_no_environment_variables(model, monkeypatch):
    """A new run holds the resolved recipe, which would tell the variable to whoever gets that run."""
    monkeypatch.setenv("SECRET_KEY", "stolen")
    text = "task: text_matching\ntraining: {run_name: '${env:SECRET_KEY}'}\n"
    (model.parent / "manifest.json").write_text("{}")
    (model.parent / "recipe.yaml").write_text(text)
    with pytest.raises(UserError, match="the recipe of a run reads no environment variables"):
        recipe_of(model.parent)
    (model.parent.parent / "mine.yaml").write_text(text)
    assert load_recipe(model.parent.parent / "mine.yaml", purpose="apply").training.run_name == "stolen"


def test_an_export_takes_the_models_copy_of_a_file_that_has_changed_or_is_gone(model, secret, capfd):
    run = model.parent
    (run / "manifest.json").write_text("{}")
    (run / "recipe.yaml").write_text(f"task: token_classification\ndecode: {{terms: {secret}}}\n")
    (model / "terms.tsv").write_text("old\tPER\n")
    assert load_recipe(run, purpose="apply").decode.terms == str(model / "terms.tsv")
    told = capfd.readouterr().err
    assert told.count("has changed since the training") == 1 and f"--set decode.terms={secret} takes the new" in told
    assert load_recipe(run, [Override("decode.terms", str(secret), "--set")], "apply").decode.terms == str(secret)
    secret.unlink()
    assert load_recipe(run, purpose="apply").decode.terms == str(model / "terms.tsv")


def test_a_link_in_a_checkpoint_is_no_copy(model, secret):
    run = model.parent
    (run / "manifest.json").write_text("{}")
    (run / "recipe.yaml").write_text(f"task: token_classification\ndecode: {{terms: {secret}}}\n")
    (run / "checkpoints" / "checkpoint-5").mkdir(parents=True)
    (run / "checkpoints" / "checkpoint-5" / "terms.tsv").symlink_to(secret)
    with pytest.raises(UserError, match="decode.terms: run names .*secret, which is neither in it"):
        load_recipe(run, purpose="apply")


@pytest.mark.parametrize("strategy", ["distill", "qat", "ort-dynamic"])
def test_a_compression_makes_models_of_files_that_the_run_knows(model, secret, strategy):
    run = model.parent
    (run / "manifest.json").write_text(json.dumps({"data": {str(secret): "0" * 64}}))
    (run / "recipe.yaml").write_text(f"task: sequence_classification\ndata: {{train: {secret}}}\n"
                                     f"distillation: {{unlabelled: [{secret}]}}\n")  # fmt: skip
    recipe = load_recipe(run, [Override("compression.strategy", strategy, "--strategy")], "apply")
    request = CompressRequest(recipe, str(model), parse_strategy(strategy), run / "compress")
    if not request.trains:
        refuse_training(request)
        return
    with pytest.raises(UserError, match="data.train: run names .*secret, which has changed since") as told:
        refuse_training(request)
    keys = [problem.message.partition(":")[0] for problem in told.value.problems]
    assert keys == ["data.train", *(["distillation.unlabelled"] if strategy == "distill" else [])]


@pytest.mark.parametrize("beside", ["manifest.json", "plan.json", "series.json", "events.jsonl"])
def test_a_recipe_that_is_taken_for_a_runs_is_told_why(tmp_path, secret, beside):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / beside).write_text("{}")
    (tmp_path / "mine" / "recipe.yaml").write_text("task: sequence_classification\ndata: {train: ../secret}\n"
                                                   "model: {from_scratch: {}}\n")  # fmt: skip
    with pytest.raises(UserError, match="data.train: mine names") as told:
        load_recipe(tmp_path / "mine" / "recipe.yaml")
    hint = f"recipe.yaml is taken for a run's, with {beside} beside it: rename it if it is yours"
    assert hint in told.value.problems[0].hint
    (tmp_path / "mine" / "recipe.yaml").rename(tmp_path / "mine" / "mine.yaml")
    assert load_recipe(tmp_path / "mine" / "mine.yaml").data.train == (str(secret),)
