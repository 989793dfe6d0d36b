"""Students of every kind, what they learn, and what is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import paddle
import pytest
from made_runs import make_run

from nlpctl.compress.costs import row_counter, trained_rows
from nlpctl.compress.networks import training
from nlpctl.compress.networks.distill import TaughtCollator, answer_losses, check, place_losses, train_student
from nlpctl.compress.networks.student import spread_layers, start_embedding, student_layers, student_recipe
from nlpctl.compress.networks.teacher import open_teacher, varied_examples
from nlpctl.compress.networks.training import load_source, read_data
from nlpctl.compress.plan import make_plan
from nlpctl.compress.strategies import Distill
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.recipe_of import with_student
from nlpctl.config.schema import DataSection, DistillationSection, ModelSection, ScratchSection
from nlpctl.data.batches.collate import Collator, raise_failure
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.rows.text_rows import TextExample, TextRows
from nlpctl.engines.engine import DygraphPredictor
from nlpctl.engines.pipeline import prediction_pipeline
from nlpctl.errors import Interrupted, RunFailed, UserError
from nlpctl.inference.evaluate import evaluate
from nlpctl.models.families import SHARED_LAYERS
from nlpctl.models.folder import make_description, save_model_folder
from nlpctl.models.load import load_to_train
from nlpctl.models.pruned import PrunedShape
from nlpctl.models.source import read_config
from nlpctl.runtime.process import set_up_process
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.base import task_class
from nlpctl.training.trainer import RecipeTrainer

SHORT = ("training.max_steps=3", "training.report_to=none", "training.logging_steps=1")
INSIDE = ("distillation.hidden=1", "distillation.attention=0.1", "distillation.relations=1")
MORE_TEXTS = "distillation.generate.copies=2"
OWN = "distillation.model.from_scratch."
WINDOWS = ("data.max_seq_length=10", "data.doc_stride=3")  # of questions, several for a context


def own_network(architecture: str, *more: str) -> tuple[str, ...]:
    return (f"{OWN}architecture={architecture}", f"{OWN}min_frequency=1", f"{OWN}embedding_size=8", *more)


CASES = {
    "half of the layers": (("sequence_classification", "ernie"), (*INSIDE, MORE_TEXTS)),
    "one layer, narrow": (
        ("multi_label_classification", "bert"),
        (*INSIDE, "distillation.layers=1", "distillation.width=0.5", "distillation.hard=0.5"),
    ),
    "pairs": (("text_matching", "electra"), (*INSIDE, MORE_TEXTS, "distillation.loss=kl")),
    "tagger": (("token_classification", "roberta"), (*INSIDE, MORE_TEXTS, "distillation.hard=0.5")),
    "tagger with a crf": (("token_classification", "bert", "crf"), (MORE_TEXTS, "distillation.hard=0.5")),
    "words": (("sequence_classification", "bert"), (MORE_TEXTS, *own_network("bilstm", f"{OWN}unit=words"))),
    "characters": (("text_matching", "ernie"), own_network("textcnn", "distillation.hard=0.2")),
    "reader": (
        ("question_answering", "bert"),
        (*INSIDE, "distillation.hard=0.5", *WINDOWS),
    ),
    "reader, kl": (("question_answering", "ernie"), ("distillation.loss=kl", "distillation.temperature=2")),
    "bag": (("multi_label_classification", "ernie"), own_network("bag_of_embeddings", "distillation.loss=kl")),
    "lexical": (("lexical_analysis", "ernie"), own_network("bigru", MORE_TEXTS)),
    "student of a bilstm": (("sequence_classification", "bilstm"), own_network("bag_of_embeddings", MORE_TEXTS)),
}


def at_steps(steps: int) -> tuple[str, ...]:
    """Evaluate and save every so many steps, and keep the best."""
    strategies = ("training.evaluation_strategy=steps", "training.save_strategy=steps")
    return (*strategies, f"training.eval_steps={steps}", f"training.save_steps={steps}",
            "training.load_best_model_at_end=true")  # fmt: skip


def opened(folder: Path, words: tuple[str, ...], *settings: str):
    """A recipe with `settings` for a made teacher, its folder, and the process."""
    recipe = make_run(folder, *words)
    overrides = [Override(*setting.split("=", 1), "--set") for setting in (*SHORT, *settings)]
    recipe = with_student(load_recipe(recipe.run_dir, overrides, "apply"))
    return recipe, str(recipe.run_dir / "model"), set_up_process(recipe)


def checksums(folder: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def weights(folder: Path) -> dict[str, np.ndarray]:
    return paddle.load(str(folder / "model_state.pdparams"), return_numpy=True)


@pytest.mark.parametrize("name", CASES)
def test_student_is_a_model_like_any(name: str, tmp_path: Path) -> None:
    words, settings = CASES[name]
    recipe, source, setup = opened(tmp_path, words, *settings)
    before = checksums(Path(source))
    check(recipe, read_config(Path(source)))
    run = RunDirectory(tmp_path / "student")
    model = train_student(recipe, source, run, setup)
    assert checksums(Path(source)) == before
    assert evaluate(load_recipe(model, [Override("data.dev", recipe.data.dev[0], "--set")], "apply")).metrics["dev"]
    assert not any(weight.startswith("distillation") for weight in weights(model))
    finished = checksums(run.path)
    assert train_student(recipe, source, run, setup) == model
    assert checksums(run.path) == finished  # nothing is done again
    if recipe.distillation.model == ModelSection():
        found = PrunedShape.of(load_source(recipe, str(model)).network)
        width = recipe.distillation.width
        assert found == PrunedShape((int(2 * width),), (int(64 * width),))


def test_student_comes_to_say_what_the_teacher_says(tmp_path: Path) -> None:
    recipe, source, setup = opened(
        tmp_path, ("sequence_classification", "bert"), MORE_TEXTS, "distillation.generate.copies=8",
        *own_network("bilstm", f"{OWN}unit=words", f"{OWN}dropout=0", f"{OWN}hidden_size=32"), "training.max_steps=60",
        *at_steps(60), "training.per_device_train_batch_size=32", "distillation.learning_rate=0.02",
    )  # fmt: skip
    model = train_student(recipe, source, RunDirectory(tmp_path / "student"), setup)
    rows = read_data(recipe, load_source(recipe, source)).dev
    teacher, student = (
        np.concatenate(open_teacher(recipe, each, setup).answers(rows, 16)) for each in (source, str(model))
    )
    error = ((student - teacher) ** 2).mean()
    assert error < 0.5 * teacher.var(), (error, teacher.var())
    assert (student.argmax(1) == teacher.argmax(1)).mean() > 0.75


def test_the_own_loss_of_the_teachers_training_does_not_replace_its_answers(tmp_path: Path) -> None:
    recipe, source, setup = opened(tmp_path, ("sequence_classification", "bert"), *INSIDE, "training.max_steps=2")
    own = dataclasses.replace(recipe.training, criterion="paddle.nn:CrossEntropyLoss")
    runs = {"plain": recipe, "own": dataclasses.replace(recipe, training=own)}
    found = {name: train_student(each, source, RunDirectory(tmp_path / name), setup) for name, each in runs.items()}
    for name, value in weights(found["plain"]).items():
        np.testing.assert_array_equal(weights(found["own"])[name], value)


@pytest.mark.slow
def test_killed_training_goes_on_to_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("sequence_classification", "bert")
    recipe, source, setup = opened(tmp_path, words, *INSIDE, MORE_TEXTS, "training.max_steps=6", *at_steps(2))
    whole = train_student(recipe, source, RunDirectory(tmp_path / "whole"), setup)
    steps = iter(range(100))

    def stop_at_fifth(self, *arguments, **named):
        if next(steps) == 4:
            raise KeyboardInterrupt
        return original(self, *arguments, **named)

    original = RecipeTrainer.compute_loss
    run = RunDirectory(tmp_path / "stopped")
    with monkeypatch.context() as patched:
        patched.setattr(RecipeTrainer, "compute_loss", stop_at_fifth)
        with pytest.raises((Interrupted, KeyboardInterrupt)):
            train_student(recipe, source, run, setup)
    assert run.last_checkpoint() is not None
    assert not run.model.exists()
    resumed = weights(train_student(recipe, source, run, setup))
    for name, value in weights(whole).items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)


def test_student_of_another_width_has_its_states_projected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, source, setup = opened(tmp_path, ("sequence_classification", "bert"))
    texts = read_data(recipe, load_source(recipe, source)).texts
    sizes = ScratchSection("bert", min_frequency=1, hidden_size=16, num_hidden_layers=1, intermediate_size=32)
    head = task_class(recipe.task).head(recipe)
    narrow = load_to_train(ModelSection(from_scratch=sizes), head, ("x", "y", "z"), vocabulary_texts=texts)
    save_model_folder(tmp_path / "narrow", narrow.network, narrow.tokenizer, make_description(recipe, ("x", "y", "z")))
    section = DistillationSection(
        model=ModelSection(name_or_path=str(tmp_path / "narrow")), hidden=1.0, attention=1.0, relations=1.0
    )
    run, removed = RunDirectory(tmp_path / "student"), []
    with monkeypatch.context() as patched:
        patched.setattr(training, "remove_dir", removed.append)  # else a finished student keeps no checkpoint
        model = train_student(dataclasses.replace(recipe, distillation=section), source, run, setup)
    assert not any(name.startswith("distillation") for name in weights(model)) and removed == [run.checkpoints]
    checkpoint = weights(run.last_checkpoint())
    assert checkpoint["distillation_projection.weight"].shape == (16, 32)


def test_epochs_of_the_student_go_before_the_steps_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(
        "task: sequence_classification\ndata: {train: train.tsv}\ntraining: {max_steps: 120}\n"
        "distillation: {num_train_epochs: 2, learning_rate: 0.01}\n"
    )
    recipe = load_recipe(tmp_path / "recipe.yaml", purpose="apply")
    own = student_recipe(recipe, RunDirectory(tmp_path / "student"), ("x", "y")).training
    assert (own.num_train_epochs, own.max_steps, own.learning_rate) == (2, -1, 0.01)
    assert trained_rows(recipe, [Distill()], lambda: 800)["distill"] == 2 * 800


def test_recipe_of_the_student(tmp_path: Path) -> None:
    recipe, source, setup = opened(tmp_path, ("sequence_classification", "ernie"))
    file = tmp_path / "student.yaml"
    file.write_text(
        "task: sequence_classification\nmodel: {from_scratch: {architecture: textcnn, min_frequency: 1}}\n"
        "data: {max_seq_length: 10}\ntraining: {max_steps: 2, learning_rate: 0.01, report_to: none}\n"
    )
    recipe = with_student(dataclasses.replace(recipe, distillation=DistillationSection(student=str(file))))
    run = RunDirectory(tmp_path / "student")
    model = train_student(recipe, source, run, setup)
    assert read_config(model)["model_type"] == "textcnn"
    own = load_recipe(run.path, purpose="apply")
    assert (own.data.max_seq_length, own.training.max_steps, own.training.learning_rate) == (10, 2, 0.01)


def test_answers_are_kept_and_the_engine_gives_those_of_the_network(tmp_path: Path) -> None:
    recipe, source, setup = opened(tmp_path, ("token_classification", "bert"))
    teacher = open_teacher(recipe, source, setup)
    rows = read_data(recipe, teacher.model).train
    answers = teacher.kept_answers(tmp_path / "kept", rows, 4)
    assert [len(answer) for answer in answers] == [len(row) for row in rows]
    for parameter in teacher.network.parameters():
        parameter.set_value(parameter * 0)  # so that nobody can compute them again
    for one, other in zip(answers, teacher.kept_answers(tmp_path / "kept", rows, 4), strict=True):
        np.testing.assert_array_equal(one, other)
    teacher = open_teacher(recipe, source, setup)
    slower = teacher.answers(rows[:3], 1)
    for one, other in zip(answers, slower, strict=False):
        np.testing.assert_allclose(one, other, atol=1e-3)
    others = teacher.kept_answers(tmp_path / "kept", rows[:5], 4)
    assert len(others) == 5


def test_files_of_more_texts(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("a very clean bed\nbad food\n", encoding="utf-8")
    settings = (f"distillation.unlabelled={tmp_path / 'more.txt'}", "distillation.hard=0.5")
    recipe, source, setup = opened(tmp_path, ("sequence_classification", "bert"), *settings)
    run = RunDirectory(tmp_path / "student")
    train_student(recipe, source, run, setup)
    with np.load(tmp_path / "student.answers" / "00000.npz") as kept:
        assert kept["logits"].shape[0] == 20 + 2
        found = kept["logits"][20:]
    rows = [TextExample(text, None, None) for text in ("a very clean bed", "bad food")]
    answers = np.concatenate(open_teacher(recipe, source, setup).answers(rows, 2))
    np.testing.assert_allclose(found, answers, atol=1e-3)
    assert str(tmp_path / "more.txt") in run.read_manifest().data


def questions(folder: Path, *pairs: tuple[str, str]) -> Path:
    """A SQuAD file, of one line, as most are."""
    asked = [(context, {"id": "1", "question": question, "answers": []}) for question, context in pairs]
    paragraphs = [{"context": context, "qas": [question]} for context, question in asked]
    (folder / "more.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    return folder / "more.json"


def test_files_of_more_questions(tmp_path: Path) -> None:
    file = questions(tmp_path, ("which room", "the dirty bed and the clean view"), ("which bed", "a good bed"))
    settings = (f"distillation.unlabelled={file}", "distillation.hard=0.5", *WINDOWS)
    recipe, source, setup = opened(tmp_path, ("question_answering", "bert"), *settings)
    rows = len(list(read_data(recipe, load_source(recipe, source)).train))
    whole = dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, max_steps=-1))
    assert trained_rows(whole, [Distill()], row_counter(whole))["distill"] == rows + 2
    train_student(recipe, source, RunDirectory(tmp_path / "student"), setup)
    with np.load(tmp_path / "student.answers" / "00000.npz") as kept:
        ends = kept["ends"]
        assert len(ends) == rows + 2
        # Two windows of [CLS] and five pieces, the second of which has four; one of three.
        assert np.diff(ends)[-2:].tolist() == [6 + 5, 4]


def test_a_question_too_long_is_refused_before_the_teacher_answers(tmp_path: Path) -> None:
    file = questions(tmp_path, ("which room room room room", "the bed"))
    recipe, source, setup = opened(
        tmp_path, ("question_answering", "bert"), f"distillation.unlabelled={file}", *WINDOWS
    )
    with pytest.raises(UserError, match="which room room room room"):
        train_student(recipe, source, RunDirectory(tmp_path / "student"), setup)
    assert not (tmp_path / "student.answers").exists()


def test_answers_of_other_windows_are_computed_anew(tmp_path: Path) -> None:
    recipe, source, setup = opened(tmp_path, ("question_answering", "bert"), *WINDOWS)
    teacher = open_teacher(recipe, source, setup)
    rows = list(read_data(recipe, teacher.model).train)
    longer = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, max_seq_length=64))
    found = [
        open_teacher(each, source, setup).kept_answers(tmp_path / "kept", rows, 4) for each in (recipe, longer)
    ]
    assert sum(map(len, found[0])) > sum(map(len, found[1]))


def test_a_student_that_reads_other_places_is_told(tmp_path: Path) -> None:
    recipe, source, setup = opened(tmp_path, ("question_answering", "bert"), *WINDOWS)
    teacher = open_teacher(recipe, source, setup)
    row = next(iter(read_data(recipe, teacher.model).train))
    plain = teacher.task.collator(teacher.encoder, labelled=True)
    collate = TaughtCollator(plain, teacher.rows, {teacher.rows.key(row): np.zeros((1, 2))}, 2)
    with pytest.raises(RunFailed, match="the teacher reads 1 places"):
        raise_failure(collate(teacher.task.features(row, teacher.encoder)))


def test_embedding_starts_from_the_teachers_vectors(tmp_path: Path) -> None:
    recipe, source, setup = opened(tmp_path, ("sequence_classification", "bert"))
    teacher = open_teacher(recipe, source, setup)
    texts = read_data(recipe, teacher.model).texts
    sizes = ScratchSection("bilstm", min_frequency=1, unit="words", embedding_size=40, hidden_size=8)
    head = task_class(recipe.task).head(recipe)
    student = load_to_train(ModelSection(from_scratch=sizes), head, ("x", "y"), vocabulary_texts=texts)
    start_embedding(teacher, student)
    vectors = student.network.base_model.get_input_embeddings().weight.numpy()
    words = ["room", "bed", "dirty", "clean"]
    ids = [student.tokenizer.vocabulary.index(word) for word in words]
    known = [word for word in student.tokenizer.vocabulary if not word.startswith("[")]
    theirs = teacher.word_vectors(words) - teacher.word_vectors(known).mean(0)
    mine = vectors[ids][:, :32]
    ratio = np.linalg.norm(mine) / np.linalg.norm(theirs)
    np.testing.assert_allclose(mine @ mine.T, theirs @ theirs.T * ratio**2, atol=1e-4)  # turned and scaled only
    assert (vectors[student.tokenizer.pad_token_id] == 0).all()


@pytest.mark.parametrize("loss", ["mse", "kl"])
def test_a_readers_student_comes_to_say_what_the_teacher_says(loss: str, tmp_path: Path) -> None:
    recipe, source, setup = opened(
        tmp_path, ("question_answering", "bert"), *WINDOWS, "training.max_steps=300", *at_steps(300),
        "training.per_device_train_batch_size=32", "distillation.learning_rate=0.005", "distillation.fit=0",
        f"distillation.loss={loss}",
    )  # fmt: skip
    model = train_student(recipe, source, RunDirectory(tmp_path / "student"), setup)
    rows = list(read_data(recipe, load_source(recipe, source)).train)
    teacher, student = (open_teacher(recipe, each, setup).answers(rows, 16) for each in (source, str(model)))
    if loss == "mse":
        missing = np.concatenate(student) - np.concatenate(teacher)
        assert (missing**2).mean() < 0.5 * np.concatenate(teacher).var()
    same = [one.argmax(0) == other.argmax(0) for one, other in zip(teacher, student, strict=True)]
    assert np.mean(same) > 0.3  # by chance less than a tenth: there are a dozen places


def test_a_reader_learns_each_windows_logits_at_their_places(tmp_path: Path) -> None:
    recipe, source, setup = opened(tmp_path, ("question_answering", "bert"), *WINDOWS)
    teacher = open_teacher(recipe, source, setup)
    rows = list(read_data(recipe, teacher.model).train)
    answers = dict(zip(map(teacher.rows.key, rows), teacher.answers(rows, 4), strict=True))
    features = [feature for row in rows for feature in teacher.task.features(row, teacher.encoder)]
    assert len(features) > len(rows)
    plain = teacher.task.collator(teacher.encoder, labelled=True)
    batch = TaughtCollator(plain, teacher.rows, answers, 2)(features)
    inputs = {name: paddle.to_tensor(batch[name]) for name in ("input_ids", "token_type_ids")}
    with paddle.no_grad():
        outputs = np.stack([each.numpy() for each in teacher.network(**inputs)], -1)
    wanted = outputs * batch["places"][..., None]
    np.testing.assert_allclose(batch["teacher_logits"], wanted, atol=1e-3)


def test_losses_of_places() -> None:
    places = paddle.to_tensor(np.array([[1, 0, 1, 1]], np.float32))
    teacher = paddle.to_tensor(np.array([[1.0, 5.0, 2.0, 3.0]], np.float32))
    for loss in ("mse", "kl"):
        section = DistillationSection(loss=loss, temperature=2.0)
        far = paddle.to_tensor(np.array([[1.0, -70.0, 2.0, 3.0]], np.float32))  # where no answer may be
        assert place_losses(far, teacher, places, section).numpy() == pytest.approx([0], abs=1e-6)
    student = paddle.to_tensor(np.array([[0.0, 0.0, 0.0, 0.0]], np.float32))
    found = place_losses(student, teacher, places, DistillationSection(loss="mse"))
    assert found.numpy() == pytest.approx([(1 + 4 + 9) / 3])
    p = np.exp([1.0, 2.0, 3.0])
    p /= p.sum()
    found = place_losses(student, teacher, places, DistillationSection(loss="kl"))
    assert found.numpy() == pytest.approx([(p * np.log(3 * p)).sum()], rel=1e-5)


def test_losses_of_answers() -> None:
    student, teacher = np.array([[1.0, -1.0]], np.float32), np.array([[2.0, 0.5]], np.float32)
    one, other = paddle.to_tensor(student), paddle.to_tensor(teacher)
    mse = answer_losses(one, other, DistillationSection(), independent=False)
    np.testing.assert_allclose(mse.numpy(), [(1 + 2.25) / 2])

    def softmax(values: np.ndarray) -> np.ndarray:
        return np.exp(values) / np.exp(values).sum(-1, keepdims=True)

    kl = answer_losses(one, other, DistillationSection(loss="kl", temperature=2.0), independent=False)
    wanted, given = softmax(teacher / 2), softmax(student / 2)
    np.testing.assert_allclose(kl.numpy(), 4 * (wanted * np.log(wanted / given)).sum(-1), rtol=1e-5)
    many = answer_losses(one, other, DistillationSection(loss="kl"), independent=True)
    yes, mine = 1 / (1 + np.exp(-teacher)), 1 / (1 + np.exp(-student))
    pairs = yes * np.log(yes / mine) + (1 - yes) * np.log((1 - yes) / (1 - mine))
    np.testing.assert_allclose(many.numpy(), pairs.mean(-1), rtol=1e-5)


def test_layers_of_a_student() -> None:
    assert spread_layers(6, 3) == (1, 3, 5)
    assert spread_layers(12, 4) == (2, 5, 8, 11)
    assert student_layers(DistillationSection(), 6) == (1, 3, 5)
    assert student_layers(DistillationSection(num_hidden_layers=2), 6) == (2, 5)
    assert student_layers(DistillationSection(layers=(0, 5)), 6) == (0, 5)
    for section in (DistillationSection(num_hidden_layers=7), DistillationSection(layers=(1, 6))):
        with pytest.raises(UserError, match="6 layers, 0 to 5"):
            student_layers(section, 6)


def test_generated_examples_are_new_and_the_same_again(tmp_path: Path) -> None:
    recipe, _, _ = opened(tmp_path, ("sequence_classification", "bert"), MORE_TEXTS)
    rows = task_rows(recipe.task, recipe.data)
    read = [TextExample(text, None, 0) for text in ("the room was clean", "a dirty bed", "好的房间", "房间很差")]
    found = varied_examples(recipe, rows, read, {"bed": ["sofa"]}, None)
    assert 0 < len(found) <= 2 * len(read)
    assert found == varied_examples(recipe, rows, read, {"bed": ["sofa"]}, None)
    keys = [rows.key(example) for example in (*read, *found)]
    assert len(set(keys)) == len(keys)
    assert all(example.label is None for example in found)
    chinese = [example.text for example in found if not example.text.isascii()]
    assert not any(" " in text for text in chinese)


@pytest.mark.parametrize(
    ("words", "settings", "message"),
    [
        (("semantic_indexing", "bert"), (), "distill does not support semantic_indexing"),
        (("question_answering", "bert"), own_network("bilstm"), "consists of layers of its teacher"),
        (("question_answering", "bert"), (MORE_TEXTS,), "no texts are generated"),
        (("question_answering", "bert"), ("distillation.model.add_tokens=[dirty view]",), "reads the tokens of its"),
        (("sequence_classification", "bilstm"), (), "bilstm has no layers that a student could take"),
        (("sequence_classification", "bert"), ("distillation.num_hidden_layers=3",), "the teacher has 2 layers"),
        (("token_classification", "bert"), ("distillation.student={}",), "the student's task is sequence_class"),
        (
            ("sequence_classification", "bert"),
            ("distillation.student={}", "distillation.hidden=1"),
            "with the same tokens",
        ),
    ],
)
def test_refused_before_any_work(words, settings, message: str, tmp_path: Path) -> None:
    student = tmp_path / "student.yaml"
    student.write_text("task: sequence_classification\nmodel: {from_scratch: {architecture: textcnn}}\n")
    recipe, source, _ = opened(tmp_path, words, *(setting.format(student) for setting in settings))
    with pytest.raises(UserError, match=message):
        check(recipe, read_config(Path(source)))


def test_layers_that_share_their_weights_are_refused_before_any_work(tmp_path: Path) -> None:
    recipe, source, _ = opened(tmp_path, ("sequence_classification", "bert"))
    for model_type in SHARED_LAYERS:
        with pytest.raises(UserError, match=f"{model_type} has no layers that a student could take"):
            check(recipe, {**read_config(Path(source)), "model_type": model_type})


def test_questions_in_plain_text_are_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("which room\n")
    settings = (f"distillation.unlabelled={tmp_path / 'more.txt'}",)
    recipe, source, _ = opened(tmp_path, ("question_answering", "bert"), *settings)
    with pytest.raises(UserError, match="more.txt: plain text has one text per line.*\n.*as .jsonl") as error:
        check(recipe, read_config(Path(source)))
    assert error.value.problems[0].where == "distillation.unlabelled"


def test_relation_heads_that_do_not_fit(tmp_path: Path) -> None:
    settings = ("distillation.relations=1", "distillation.relation_heads=5")
    recipe, source, setup = opened(tmp_path, ("sequence_classification", "bert"), *settings)
    with pytest.raises(UserError, match="5 relation heads do not divide"):
        train_student(recipe, source, RunDirectory(tmp_path / "student"), setup)


def test_labels_are_what_the_teacher_decides(tmp_path: Path) -> None:
    for name in ("many", "crf", "reader"):
        (tmp_path / name).mkdir()
    recipe, source, setup = opened(tmp_path / "many", ("multi_label_classification", "bert"))
    teacher = open_teacher(recipe, source, setup)
    teacher.task.thresholds = (0.9,) * len(teacher.task.labels)
    row = read_data(recipe, teacher.model).train[0]
    logits = np.full((1, len(teacher.task.labels)), 1.0, np.float32)  # 0.73
    logits[0, 1] = 4.0
    assert teacher.labelled([row], [logits])[0].labels == (1,)
    recipe, source, setup = opened(tmp_path / "crf", ("token_classification", "bert", "crf"))
    teacher = open_teacher(recipe, source, setup)
    rows = list(read_data(recipe, teacher.model).train)
    found = teacher.labelled(rows, teacher.answers(rows, 4))
    predictor = DygraphPredictor(teacher.network)
    wanted = prediction_pipeline(teacher.task, teacher.encoder, predictor).predictions(rows, 4)
    assert [list(each.tags) for each in found] == [np.concatenate(each).tolist() for each in wanted]
    recipe, source, setup = opened(tmp_path / "reader", ("question_answering", "bert"), *WINDOWS)
    teacher = open_teacher(recipe, source, setup)
    rows = list(read_data(recipe, teacher.model).train)
    found = teacher.labelled(rows, teacher.answers(rows, 4))
    parts = prediction_pipeline(teacher.task, teacher.encoder, DygraphPredictor(teacher.network)).predictions(rows, 4)
    given = [teacher.task.answer(*each)["answer"] for each in zip(rows, parts, strict=True)]
    assert [each.answers[0].text for each in found] == given
    assert all(each.context[each.answers[0].start :].startswith(each.answers[0].text) for each in found)


def test_plan_knows_the_files_of_students(tmp_path: Path) -> None:
    more = tmp_path / "more.txt"
    more.write_text("bad food\n")
    recipe, source, _ = opened(tmp_path, ("sequence_classification", "bert"), f"distillation.unlabelled={more}")
    recipe = dataclasses.replace(
        recipe,
        distillation=dataclasses.replace(recipe.distillation, model=ModelSection(name_or_path=source)),
        compression=dataclasses.replace(recipe.compression, criterion="made_runs:make_run"),
    )
    files = make_plan(recipe, source).networks
    names = {Path(name).name for name in files}
    assert {"more.txt", "model_state.pdparams", "config.json", "made_runs.py"} <= names
    more.write_text("good food\n")
    assert make_plan(recipe, source).networks[str(more)] != files[str(more)]


def test_rows_that_a_student_reads(tmp_path: Path) -> None:
    student = tmp_path / "student.yaml"
    student.write_text("task: sequence_classification\ntraining: {num_train_epochs: 5}\n")
    (tmp_path / "more.txt").write_text("bad food\n" * 4)
    recipe, _, _ = opened(tmp_path, ("sequence_classification", "bert"), f"distillation.student={student}",
                          f"distillation.unlabelled={tmp_path / 'more.txt'}", MORE_TEXTS)  # fmt: skip
    assert trained_rows(recipe, [Distill()], row_counter(recipe))["distill"] == 5 * 3 * (20 + 4)


def test_smaller_forms_of_a_student(tmp_path: Path) -> None:
    """Shorter down to an epoch, without generated texts, parts of an epoch, then fewer layers of the teacher."""

    def forms(*lines: str) -> list[tuple[str, dict]]:
        (tmp_path / "recipe.yaml").write_text("task: sequence_classification\n" + "\n".join(lines))
        recipe = load_recipe(tmp_path / "recipe.yaml", purpose="apply")
        step = next(Distill().networks(recipe.compression, None))
        return [(each.name, dict(each.settings)) for each in Distill().smaller(step, recipe, {"num_hidden_layers": 6})]

    found = forms("training: {num_train_epochs: 3}", "distillation: {generate: {copies: 2}, num_hidden_layers: 4}")
    shares = [f"student-epochs-{share}-copies-0" for share in (0.5, 0.25, 0.125, 0.0625)]
    least = shares[-1]
    assert [name for name, _ in found] == [
        "student-epochs-2",
        "student-epochs-1",
        "student-epochs-1-copies-0",
        *shares,
        f"{least}-layers-2",
        f"{least}-layers-1",
    ]
    changed = {"distillation.generate.copies": 0, "distillation.num_hidden_layers": 1}
    assert found[-1][1] == {"training.num_train_epochs": 0.0625, **changed}
    steps = forms("training: {max_steps: 100}", "distillation: {layers: [0, 5]}")
    assert [values for _, values in steps] == [{"training.max_steps": number} for number in (50, 25, 12, 6)]
    epochs = forms("training: {max_steps: 100}", "distillation: {layers: [0, 5], num_train_epochs: 7}")
    assert epochs[0] == ("student-epochs-4", {"distillation.num_train_epochs": 4.0})
    own = forms("distillation: {num_train_epochs: 2, model: {from_scratch: {architecture: bilstm}}}")
    assert own[0] == ("student-epochs-1", {"distillation.num_train_epochs": 1.0}) and "layers" not in own[-1][0]


def test_an_error_of_the_teachers_answers_is_handed_on():
    """Raised in a reader of Paddle, it would let the training wait for ever."""

    class Ids(Collator):
        def encodings(self, examples, tell_cut=True):
            return []

        def arrays(self, examples, encodings):
            return {"input_ids": np.zeros((len(examples), 1), np.int64)}

    row, rows = TextExample("good", None, 0), TextRows(DataSection())
    collate = TaughtCollator(Ids(None, 8, with_labels=True), rows, {rows.key(row): np.zeros((1, 2))}, width=3)
    with pytest.raises(RunFailed, match="making a batch failed: ValueError"):
        raise_failure(collate([row]))
