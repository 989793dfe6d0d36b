"""What a later call may find in a folder of compressed models, and what --overwrite spares. Nothing is made here."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from nlpctl.compress import compress
from nlpctl.compress.plan import CompressionPlan, CompressRequest, carried_over, check_plan, make_plan, write_plan
from nlpctl.compress.refusals import refuse_output
from nlpctl.compress.scorer import score_key
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.recipe_of import with_student
from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.models.engine_speeds import Conditions
from nlpctl.models.export_folder import ExportManifest, write_manifest
from nlpctl.outputs import inputs_noted
from nlpctl.runtime import work_folder

STUDENT = "task: sequence_classification\nmodel:\n  from_scratch: {architecture: bilstm}\n"
READER = 'def read(path):\n    yield {"text": "a", "label": "x"}\n'

NOTHING_PLANNED = CompressionPlan(source="m", sha256={}, data={}, networks={}, settings={})
TRAINED = "networks/student/model"
HERE = Conditions("AMD EPYC", ("avx2",), "cpu", 2, {"onnxruntime": "1.32.0"}, 2)


def model_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "ernie"}')
    for name in ("model_state.pdparams", "vocab.txt"):
        (folder / name).write_text("something")
    return folder


@pytest.fixture
def source(tmp_path: Path) -> str:
    return str(model_folder(tmp_path / "model"))


def recipe_in(folder: Path, *settings: str) -> Recipe:
    (folder / "train.tsv").write_text("text\tlabel\na\tx\nb\ty\n")
    (folder / "recipe.yaml").write_text("task: sequence_classification\ndata: {train: train.tsv}\n")
    overrides = [Override(*setting.split("=", 1), f"--set {setting}") for setting in settings]
    return with_student(load_recipe(folder / "recipe.yaml", overrides, "apply"))


def planned(folder: Path, recipe: Recipe, source: str) -> Path:
    """A folder of compressed models with a plan, in which nothing is yet."""
    folder.mkdir()
    write_plan(folder, make_plan(recipe, source))
    return folder


def check(folder: Path, recipe: Recipe, source: str) -> None:
    recipe = with_student(recipe)  # its files may have changed
    check_plan(folder, make_plan(recipe, source), recipe, training=True)


def test_overwriting_spares_what_the_student_starts_from(tmp_path, source):
    out = planned(tmp_path / "out", recipe_in(tmp_path), source)
    start = model_folder(out / "networks" / "student" / "model")
    (tmp_path / "student.yaml").write_text(f"task: sequence_classification\nmodel:\n  name_or_path: {start}\n")
    recipe = recipe_in(tmp_path, f"distillation.student={tmp_path / 'student.yaml'}")
    with inputs_noted(), pytest.raises(UserError, match="this holds an input") as told:
        refuse_output(CompressRequest(recipe, source, (), out, overwrite=True))
    assert "student.yaml:3 (model.name_or_path)" in str(told.value)
    recipe = recipe_in(tmp_path, f"distillation.model.name_or_path={start}")
    with inputs_noted(), pytest.raises(UserError, match="this holds an input.*distillation.model.name_or_path"):
        refuse_output(CompressRequest(recipe, source, (), out, overwrite=True))
    refuse_output(CompressRequest(recipe_in(tmp_path), source, (), out, overwrite=True))


def test_files_of_the_user_in_best_are_spared(tmp_path, source):
    recipe = recipe_in(tmp_path)
    out = planned(tmp_path / "out", recipe, source)
    (out / "best").mkdir()
    write_manifest(out / "best", ExportManifest("sequence_classification", (), (), 64, (), 256, "run", {}))
    refuse_output(CompressRequest(recipe, source, (), out))
    (out / "best" / "notes.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(UserError, match=r"best: .* also holds what nlpctl did not write there \(notes.txt\)"):
            refuse_output(CompressRequest(recipe, source, (), out, overwrite=overwrite))


@pytest.mark.parametrize("key", ["data.dev", "distillation.unlabelled"])
def test_overwriting_spares_rows(tmp_path, source, key):
    out = planned(tmp_path / "out", recipe_in(tmp_path), source)
    (out / "best").mkdir()
    (out / "best" / "rows.tsv").write_text("text\tlabel\na\tx\n")
    recipe = recipe_in(tmp_path, f"{key}={out / 'best' / 'rows.tsv'}")
    with inputs_noted(), pytest.raises(UserError, match=f"this holds an input.*{key}"):
        refuse_output(CompressRequest(recipe, source, (), out, overwrite=True))


@pytest.mark.parametrize(
    ("folder", "trained"),
    [
        ("networks/width-0.75/model", True),
        ("networks/width-0.75/checkpoints/checkpoint-8", True),
        ("networks/width-0.75/start", False),
        ("networks/fewer-words/model", False),
        ("exports/fewer-words", False),
        ("exports/original", False),
        ("exports/.staging-width-0.75-x1", False),
        ("exports/width-0.75", True),
        ("candidates/original+ptq-avg-32x16", False),
        ("candidates/original+qat+embeddings", True),
        ("candidates/student+ort-dynamic", True),
    ],
)
def test_what_was_trained_is_known_without_networks(tmp_path, source, folder, trained):
    out = planned(tmp_path / "out", recipe_in(tmp_path), source)
    (out / folder).mkdir(parents=True)
    faster = recipe_in(tmp_path, "training.learning_rate=0.1")
    if not trained:
        check(out, faster, source)
        return
    with pytest.raises(UserError, match="made with training.learning_rate"):
        check(out, faster, source)


def test_settings_of_an_earlier_version(tmp_path, source):
    """Keys that came since have their defaults there; one that went decides nothing: nobody could set it again."""
    recipe = recipe_in(tmp_path)
    out = planned(tmp_path / "out", recipe, source)
    plan = json.loads((out / "plan.json").read_text())
    del plan["settings"]["retrieval.normalize"], plan["settings"]["data.max_seq_length"]
    plan["settings"] |= {"data.tokenizer": "fast", "data.columns.gone": 1}
    (out / "plan.json").write_text(json.dumps(plan))
    check(out, recipe, source)
    with pytest.raises(UserError, match="made with data.max_seq_length: 128"):
        check(out, recipe_in(tmp_path, "data.max_seq_length=64"), source)


def test_settings_of_a_student_by_an_earlier_version(tmp_path, source):
    (tmp_path / "student.yaml").write_text("task: sequence_classification\nmodel: {from_scratch: {}}\n")
    recipe = recipe_in(tmp_path, f"distillation.student={tmp_path / 'student.yaml'}")
    out = planned(tmp_path / "out", recipe, source)
    (out / "candidates" / "student+ort-dynamic").mkdir(parents=True)
    plan = json.loads((out / "plan.json").read_text())
    plan["settings"] |= {"distillation.student.model.gone": 1}
    del plan["settings"]["distillation.student.model.tie"], plan["settings"]["distillation.student.optimizer.groups"]
    (out / "plan.json").write_text(json.dumps(plan))
    check(out, recipe, source)


def test_networks_go_last(tmp_path, monkeypatch):
    """Stopped while it deletes, --overwrite leaves what tells that the rest was trained."""
    kinds = ("networks", "exports", "candidates", "scores", "best")
    for name in kinds:
        (tmp_path / name / "x").mkdir(parents=True)
    remove, deleted = work_folder.remove_dir, []

    def stopped(folder: Path) -> None:
        if len(deleted) == len(kinds) - 1:
            raise KeyboardInterrupt
        deleted.append(folder.name)
        remove(folder)

    monkeypatch.setattr(work_folder, "remove_dir", stopped)
    with pytest.raises(KeyboardInterrupt), compress._locked_folder(tmp_path, True, NOTHING_PLANNED):
        pass
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"networks"}


def test_what_workers_wrote_goes_too(tmp_path):
    """A log is opened to be added to, and would begin with what an earlier command wrote."""
    log = compress.worker_log(tmp_path, 1)
    log.write_text("earlier")
    with compress._locked_folder(tmp_path, False, NOTHING_PLANNED):
        assert log.exists()
    with compress._locked_folder(tmp_path, True, NOTHING_PLANNED):
        assert not log.exists()


def test_a_student_counts_once_something_was_trained(tmp_path, source):
    student = tmp_path / "student.yaml"
    student.write_text(STUDENT)
    taught = recipe_in(tmp_path, f"distillation.student={student}")
    out = planned(tmp_path / "out", recipe_in(tmp_path), source)
    check(out, taught, source)
    (out / TRAINED).mkdir(parents=True)
    with pytest.raises(UserError, match="the files that networks depend on changed .*student.yaml"):
        check(out, taught, source)
    write_plan(out, make_plan(with_student(taught), source))
    check(out, taught, source)
    student.write_text(f"{STUDENT}training: {{num_train_epochs: 9}}\n")
    with pytest.raises(UserError, match="the files that networks depend on changed .*student.yaml"):
        check(out, taught, source)
    shutil.rmtree(out / "networks")
    check(out, taught, source)


def test_what_the_student_extends_counts(tmp_path, source):
    base, student = tmp_path / "base.yaml", tmp_path / "student.yaml"
    base.write_text(f"{STUDENT}training: {{num_train_epochs: 9}}\n")
    student.write_text("extends: base.yaml\n")
    recipe = recipe_in(tmp_path, f"distillation.student={student}")
    out = planned(tmp_path / "out", recipe, source)
    base.write_text(f"{STUDENT}training: {{num_train_epochs: 5, logging_dir: elsewhere}}\nruntime: {{threads: 1}}\n")
    check(out, recipe, source)
    (out / TRAINED).mkdir(parents=True)
    with pytest.raises(UserError, match=r"--set dist.*made with distillation.student.training.num_train_epochs: 9\.0"):
        check(out, recipe, source)
    base.write_text(f"{STUDENT.replace('bilstm', 'textcnn')}training: {{num_train_epochs: 9}}\n")
    with pytest.raises(UserError, match="distillation.student.model.from_scratch.architecture: bilstm"):
        check(out, recipe, source)


def test_the_code_of_a_reader_counts(tmp_path, source, monkeypatch):
    module = tmp_path / "rows_of_mine.py"
    module.write_text(READER)
    monkeypatch.syspath_prepend(tmp_path)
    recipe = recipe_in(tmp_path, "data.reader=rows_of_mine:read")
    out = planned(tmp_path / "out", recipe, source)
    key = score_key(recipe, [], "train", None, HERE)
    assert score_key(recipe, [], "train", None, HERE) == key
    for other in ({"device": "gpu:0"}, {"threads": 1}, {"processor": "AMD EPYC, NVIDIA H100"}):
        assert score_key(recipe, [], "train", None, dataclasses.replace(HERE, **other)) != key
    check(out, recipe, source)
    module.write_text(READER.replace('"a"', '"b"'))
    assert score_key(recipe, [], "train", None, HERE) != key
    with pytest.raises(UserError, match="the data changed .*rows_of_mine.py"):
        check(out, recipe, source)


def test_rows_of_a_data_folder_count(tmp_path, source):
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "train.csv").write_text("text,label\na,x\n")
    recipe = recipe_in(tmp_path, f"data.dataset={rows}", "data.train=null")
    out, key = planned(tmp_path / "out", recipe, source), score_key(recipe, [], "dev", None, HERE)
    (rows / "cache-0123.arrow").write_text("what the library keeps")
    check(out, recipe, source)
    (rows / "train.csv").write_text("text,label\nb,x and y\n")
    assert score_key(recipe, [], "dev", None, HERE) != key
    with pytest.raises(UserError, match="the data changed .*train.csv"):
        check(out, recipe, source)


@pytest.mark.parametrize("key", ["data.labels", "data.numbered_labels", "decode.terms", "masking.dictionary"])
def test_files_that_labels_and_answers_depend_on_count(tmp_path, source, key):
    file = tmp_path / "names.txt"
    file.write_text("no\nyes\n")
    recipe = recipe_in(tmp_path, f"{key}={file}")
    out, scores = planned(tmp_path / "out", recipe, source), score_key(recipe, [], "dev", None, HERE)
    check(out, recipe, source)
    assert score_key(recipe, [], "dev", None, HERE) == scores
    file.write_text("yes\nno\n\n")
    assert score_key(recipe, [], "dev", None, HERE) != scores
    with pytest.raises(UserError, match=f"labels and answers depend on changed .*{key}"):
        check(out, recipe, source)
    moved = tmp_path / "copy.txt"
    moved.write_text("no\nyes\n")
    check(out, recipe_in(tmp_path, f"{key}={moved}"), source)
    with pytest.raises(UserError, match=f"labels and answers depend on changed .*{key}"):
        check(out, recipe_in(tmp_path), source)
    as_of_an_earlier_version(out)
    if key.startswith("data."):
        check(out, recipe, source)
    else:
        with pytest.raises(UserError, match=f"by an earlier version, which left {key} out"):
            check(out, recipe, source)


def test_flags_of_reading_and_answering_go_on_with_no_folder_of_an_earlier_version(tmp_path, source):
    recipe = recipe_in(tmp_path, "data.max_seq_length=12", "prompt.verbalizer.x=good")
    out = planned(tmp_path / "out", recipe, source)
    check(out, recipe, source)
    as_of_an_earlier_version(out)
    with pytest.raises(UserError, match=r"--set data.max_seq_length=12 .*which left data.max_seq_length out of some"):
        check(out, recipe, source)
    check(out, dataclasses.replace(recipe, origins={}), source)  # as of a recipe that says so


def as_of_an_earlier_version(out: Path) -> None:
    """plan.json lists no files of labels and answers, and not all that networks depend on."""
    plan = json.loads((out / "plan.json").read_text())
    del plan["further"]
    plan["networks"] = {name: value for name, value in plan["networks"].items() if name.endswith("student.yaml")}
    (out / "plan.json").write_text(json.dumps(plan))


@pytest.mark.parametrize("changed", ["loss_of_mine.py", "words.txt"])
def test_all_files_of_a_student_count(tmp_path, source, monkeypatch, changed):
    (tmp_path / "loss_of_mine.py").write_text("def loss(outputs, labels): return 0.1\n")
    (tmp_path / "words.txt").write_text("a\nb\n")
    monkeypatch.syspath_prepend(tmp_path)
    student = tmp_path / "student.yaml"
    model = STUDENT.replace("bilstm", "bilstm, vocabulary: words.txt")
    student.write_text(f"{model}training: {{criterion: 'loss_of_mine:loss'}}\n")
    recipe = recipe_in(tmp_path, f"distillation.student={student}")
    out = planned(tmp_path / "out", recipe, source)
    (out / TRAINED).mkdir(parents=True)
    check(out, recipe, source)
    with (tmp_path / changed).open("a") as stream:
        stream.write("\n")
    with pytest.raises(UserError, match=f"the files that networks depend on changed .*{changed}"):
        check(out, recipe, source)
    as_of_an_earlier_version(out)
    check(out, recipe, source)
    write_plan(out, carried_over(out, make_plan(recipe, source)))  # by a command that trains nothing
    check(out, recipe, source)


def test_a_score_depends_on_the_size_of_batches(tmp_path):
    small, large = (recipe_in(tmp_path, f"training.per_device_eval_batch_size={size}") for size in (1, 64))
    assert score_key(small, [], "dev", None, HERE) != score_key(large, [], "dev", None, HERE)


def test_a_card_is_no_change_of_the_model(tmp_path, source):
    recipe = recipe_in(tmp_path)
    out = planned(tmp_path / "out", recipe, source)
    (Path(source) / "README.md").write_text("written later, by nlpctl card")
    check(out, recipe, source)
    (Path(source) / "vocab.txt").write_text("another")
    with pytest.raises(UserError, match="its files have changed|another model|earlier version"):
        check(out, recipe, source)


def test_a_command_that_does_not_train_leaves_networks_as_they_are(tmp_path, source):
    """It needs no flags of theirs, and what it writes still tells how they were trained."""
    fast = recipe_in(tmp_path, "training.learning_rate=0.1")
    out = planned(tmp_path / "out", fast, source)
    (out / TRAINED).mkdir(parents=True)
    plain = recipe_in(tmp_path)
    plan = make_plan(plain, source)
    check_plan(out, plan, plain, training=False)
    write_plan(out, carried_over(out, plan))
    check(out, fast, source)
    with pytest.raises(UserError, match="made with training.learning_rate: 0.1"):
        check(out, plain, source)


def test_settings_of_qat_count_for_trainings(tmp_path, source):
    plain, given = recipe_in(tmp_path), recipe_in(tmp_path, "compression.use_pact=false")
    out = planned(tmp_path / "out", given, source)
    check(out, plain, source)
    (out / TRAINED).mkdir(parents=True)
    check_plan(out, make_plan(plain, source), plain, training=False)
    with pytest.raises(UserError, match="made with compression.use_pact: False"):
        check(out, plain, source)


def test_a_long_list_of_changes_is_cut(tmp_path, source):
    names = ("learning_rate", "num_train_epochs", "weight_decay", "warmup_ratio", "seed")
    out = planned(tmp_path / "out", recipe_in(tmp_path, *(f"training.{name}=0.5" for name in names[:-1])), source)
    (out / TRAINED).mkdir(parents=True)
    with pytest.raises(UserError, match=r"learning_rate: 0.5, .*, and 1 more settings differ"):
        check(out, recipe_in(tmp_path), source)


def test_another_static_model_is_told(tmp_path, source):
    out = planned(tmp_path / "out", recipe_in(tmp_path, f"compression.input_infer_model_path={tmp_path}/model"), source)
    plan = make_plan(plain := recipe_in(tmp_path), source, Path(source) / "graph")
    plan = dataclasses.replace(plan, sha256={**plan.sha256, "graph.pdmodel": "1"})
    with pytest.raises(UserError, match=r"another graph \(compression.input_infer_model_path: .*/model\)"):
        check_plan(out, plan, plain, training=True)


def test_what_has_learned_nothing_begins_anew(tmp_path):
    """A training that failed at its first step, by a mistake in a loss, must not go on with the old start."""
    for name in ("failed", "begun", "done"):
        (tmp_path / "networks" / name / "start").mkdir(parents=True)
        (tmp_path / "networks" / name / "manifest.json").write_text("{}")
    (tmp_path / "networks" / "begun" / "checkpoints" / "checkpoint-4").mkdir(parents=True)
    (tmp_path / "networks" / "done" / "model").mkdir()
    (tmp_path / "networks" / "student.answers").mkdir()
    with compress._locked_folder(tmp_path, False, NOTHING_PLANNED):
        assert {path.name for path in (tmp_path / "networks").iterdir()} == {"begun", "done", "student.answers"}


def test_what_a_sweep_would_try_is_noted_and_does_not_count(tmp_path, source):
    out = planned(tmp_path / "out", recipe_in(tmp_path), source)
    other = recipe_in(tmp_path, "search.trials=7")
    assert make_plan(other, source).settings["search.trials"] == 7
    check(out, other, source)
    with pytest.raises(UserError, match="these models were made with data.max_seq_length"):
        check(out, recipe_in(tmp_path, "data.max_seq_length=9"), source)
