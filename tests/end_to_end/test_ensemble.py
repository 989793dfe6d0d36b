"""`nlpctl ensemble`: several runs as one model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

OWN = "{architecture: bilstm, min_frequency: 1, hidden_size: 8, embedding_size: 8, unit: words, dropout: 0.0}"
QUICK = ("--max_steps", "8", "--evaluation_strategy", "no", "--save_strategy", "no", "--no-load_best_model_at_end")
TEXTS = "the room was clean\nbad food and dirty bed\nvery good staff view\na and the\nGOOD Room unheard\n"


@pytest.fixture(scope="session")
def units(work):
    """Two folds of a network over words, each with the vocabulary of its own rows."""
    before, _, after = (work / "recipe.yaml").read_text().partition("  from_scratch")
    (work / "units.yaml").write_text(f"{before}  from_scratch: {OWN}\ndata{after.partition('data')[2]}")
    rows = (work / "train.tsv").read_text() + "the rare lamp is bad\tneg\nan odd chair is good\tpos\n"
    (work / "more.tsv").write_text(rows)
    words = ("train", "units.yaml", "--folds", "2", "--set", "data.train=more.tsv")
    done = work.nlpctl(*words, "--set", "training.output_dir=units", *QUICK)
    assert done.returncode == 0, done.stderr
    return "units"


@pytest.fixture(scope="session")
def ensemble(work, units):
    done = work.nlpctl("ensemble", units, "-o", "ensemble", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]


def probabilities(work, model):
    done = work.nlpctl("predict", model, stdin=TEXTS)
    assert done.returncode == 0, done.stderr
    return np.array([list(json.loads(line)["probabilities"].values()) for line in done.stdout.splitlines()])


def test_it_answers_with_the_mean(work, ensemble):
    """Each member reads the words that it knows."""
    entries = [(work / "units" / name / "model" / "vocab.txt").read_text() for name in ("fold-1", "fold-2")]
    assert entries[0] != entries[1]
    members = [probabilities(work, f"units/{name}") for name in ("fold-1", "fold-2")]
    assert np.abs(members[0] - members[1]).max() > 1e-3
    assert np.allclose(probabilities(work, "ensemble"), (members[0] + members[1]) / 2, atol=2e-6)


def test_it_is_a_run_like_any_other(work, ensemble):
    assert ensemble["members"] == ["units/fold-1", "units/fold-2"]
    scored = json.loads(work.nlpctl("eval", "ensemble", "--json").stdout)["result"]["metrics"]
    assert scored == ensemble["metrics"] and set(scored) == {"dev", "test"}
    shown = json.loads(work.nlpctl("runs", "show", "ensemble", "--json").stdout)["result"]
    assert shown["state"] == "finished" and shown["manifest"]["members"] == ensemble["members"]
    assert (work / "ensemble" / "report.html").is_file()
    again = work.nlpctl("ensemble", "units", "-o", "ensemble")
    assert again.returncode == 2 and "--overwrite" in again.stderr


def test_the_labels_are_those_of_the_models(work, ensemble):
    """Not those of the training rows, which have gained one since that comes first."""
    (work / "gained.tsv").write_text((work / "more.tsv").read_text() + "view and staff\tmixed\n")
    done = work.nlpctl("ensemble", "units", "-o", "of-their-labels", "--set", "data.train=gained.tsv", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["metrics"] == ensemble["metrics"]


def test_scores_of_rows_that_a_member_knows_are_told(work, ensemble):
    done = work.nlpctl("eval", "ensemble", "dev.tsv", "--json")
    assert done.returncode == 0 and "members" not in str(json.loads(done.stdout)["warnings"]), done.stderr
    done = work.nlpctl("eval", "ensemble", "more.tsv", "--json")
    (warning,) = (each for each in json.loads(done.stdout)["warnings"] if "members" in each)
    assert "members were trained on 63 of these 63 rows" in warning and "units/scores.json (held)" in warning


@pytest.mark.slow
def test_it_is_exported_like_any_other(work, ensemble):
    """As one graph, which the export compares with the network."""
    done = work.nlpctl("export", "ensemble", "-o", "ensemble_export", "--timing", "0")
    assert done.returncode == 0, done.stderr
    for engine in ("paddle", "onnxruntime"):
        words = ("predict", "ensemble_export", "--engine", engine, "--precision", "fp32")
        answers = [json.loads(line) for line in work.nlpctl(*words, stdin=TEXTS).stdout.splitlines()]
        given = np.array([list(answer["probabilities"].values()) for answer in answers])
        assert np.allclose(given, probabilities(work, "ensemble"), atol=1e-5), engine


@pytest.mark.slow
def test_it_can_teach(work, ensemble):
    """What a distillation asks of its teacher: answers, by its graph, and vectors of words."""
    from nlpctl.compress.networks.teacher import open_teacher
    from nlpctl.config.recipe_of import recipe_of
    from nlpctl.data.rows.text_rows import TextExample
    from nlpctl.runtime.process import set_up_process
    from nlpctl.tasks.sequence_classification import softmax

    recipe = recipe_of(work / "ensemble")
    teacher = open_teacher(recipe, str(work / "ensemble" / "model"), set_up_process(recipe))
    answers = teacher.answers([TextExample(text, None, None) for text in TEXTS.splitlines()], 4)
    assert np.allclose(softmax(np.concatenate(answers)), probabilities(work, "ensemble"), atol=1e-5)
    vectors = teacher.word_vectors(["good", "clean", "unheard-of"])
    assert vectors.shape == (3, 16) and np.abs(vectors[:2]).sum() > 0 and not vectors[2].any()


@pytest.mark.slow
def test_a_student_is_taught_by_it(work, ensemble):
    words = ("--set", f"distillation.model.from_scratch={OWN}", "--max_steps", "8", "--batch_sizes", "2")
    done = work.nlpctl("compress", "ensemble", "--strategy", "distill", *words, "-o", "taught", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["candidate"]: row for row in json.loads(done.stdout)["result"]["rows"]}
    assert set(rows) == {"original", "student"} and rows["student"]["score"] is not None
    assert work.nlpctl("predict", "taught/best", stdin=TEXTS).returncode == 0


def test_it_has_no_layers_to_take(work, ensemble):
    done = work.nlpctl("compress", "ensemble", "--strategy", "distill", "-o", "never")
    assert done.returncode == 2 and "distillation.model.from_scratch" in done.stderr, done.stderr


def test_models_that_do_not_fit(work, base, units):
    shutil.copytree(work / "units" / "fold-1" / "model", work / "of-12-tokens")
    card = json.loads((work / "of-12-tokens" / "task.json").read_text())
    card["data"]["max_seq_length"] = 12
    (work / "of-12-tokens" / "task.json").write_text(json.dumps(card))
    (work / "of-12-tokens" / "manifest.json").unlink()  # the checksums

    def refused(*models):
        done = work.nlpctl("ensemble", *models, "-o", "never")
        assert done.returncode == 2 and "->" in done.stderr and not (work / "never").exists(), done.stderr
        return done.stderr

    assert "two models or more" in refused("base")
    assert "data.max_seq_length is 12, not 16" in refused("units/fold-1", "of-12-tokens")
    assert "in another way" in refused("base", "units/fold-1")
    assert "nonesuch" in refused("base", "nonesuch")


def test_train_does_not_go_on_with_one(work, base):
    """It would train a single network in its place."""
    run = Path(shutil.copytree(work / "base", work / "half-ensemble", ignore=shutil.ignore_patterns("checkpoints")))
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "state": "failed", "made_by": "ensemble"}))
    done = work.nlpctl("train", "half-ensemble", "--resume")
    assert done.returncode == 2 and "call the same `nlpctl ensemble` command with `--overwrite`" in done.stderr


LARGE = {"vocab_size": 10**12, "embedding_size": 10**3, "hidden_size": 8}


@pytest.mark.parametrize(
    "damage",
    [{"members": 3}, {"members": [3]}, {"members": None}, {"members": ["ab"]}, {"pool": "x"}, {"pool": [1]},
     {"max_position_embeddings": "a"}, LARGE],
)  # fmt: skip
def test_a_damaged_config_is_refused(work, ensemble, damage):
    folder = work / "damaged_ensemble"
    shutil.copytree(work / "ensemble" / "model", folder, dirs_exist_ok=True)
    (folder / "manifest.json").unlink()
    config = json.loads((work / "ensemble" / "model" / "config.json").read_text())
    if damage == LARGE:  # of a few lines, and more memory than there is
        damage = {"members": [{**config["members"][0], **LARGE}]}
    (folder / "config.json").write_text(json.dumps(config | damage))
    done = work.nlpctl("predict", folder, stdin=TEXTS)
    assert done.returncode == 2 and "config" in done.stderr and "internal error" not in done.stderr, done.stderr
