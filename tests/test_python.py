"""`import nlpctl` as a program uses it: models, training, scores, errors; and every snippet of docs/python.md."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import nlpctl
from nlpctl.api import _remedy
from nlpctl.config.schema import ColumnsSection
from nlpctl.data.readers.row import BadRow
from nlpctl.spelling import PYTHON, VARIABLE

ROOT = Path(__file__).resolve().parent.parent
REVIEWS = ROOT / "recipes/quickstart/test.tsv"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("python")


@pytest.fixture(scope="module")
def run(place: Path) -> nlpctl.Run:
    """A short run of the quickstart, trained from Python."""
    folder = place / "outputs/quickstart"
    return nlpctl.train("quickstart", max_steps=25, output_dir=folder, device="cpu", set={"data.max_seq_length": 48})


@pytest.fixture(scope="module")
def model(run: nlpctl.Run) -> nlpctl.Model:
    return run.model(batch_size=32)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [line.split("\t")[0] for line in REVIEWS.read_text(encoding="utf-8").splitlines()[1:]]


def test_import_brings_nothing_heavy_and_only_what_is_public():
    code = """if True:
        import sys, nlpctl
        heavy = {"paddle", "paddlenlp", "numpy", "pandas", "yaml", "typer", "nlpctl.api"} & set(sys.modules)
        assert not heavy, heavy
        assert set(nlpctl.__all__) <= set(dir(nlpctl))
        assert nlpctl.load and nlpctl.train and issubclass(nlpctl.UserError, Exception)
        heavy = {"paddle", "paddlenlp", "numpy", "pandas"} & set(sys.modules)
        assert not heavy, heavy
        try:
            nlpctl.lood
        except AttributeError as error:
            assert "lood" in str(error)
        else:
            raise AssertionError
    """
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_train_follows_its_keywords_and_notes_the_command(run):
    manifest = json.loads((run.path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["state"] == "finished"
    assert "--max_steps=25" in manifest["command"] and "data.max_seq_length=48" in manifest["command"]
    assert run.metrics == json.loads((run.path / "metrics.json").read_text(encoding="utf-8"))


@pytest.mark.filterwarnings("ignore:data.max_seq_length")
def test_answers_are_those_of_the_command(model, run, texts, run_nlpctl, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    done = run_nlpctl("predict", run.path, file, "--batch-size", "32")
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    answers = model.predict(texts)
    assert list(model.predict(iter(texts))) == answers
    # the command ran in a process of its own, whose threads may round the last digit otherwise
    assert [each["label"] for each in answers] == [each["label"] for each in told]
    for one, other in zip(answers, told, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=2e-6)
    assert [model.predict(text)["label"] for text in texts[:20]] == [each["label"] for each in told[:20]]


def test_every_kind_of_input_gives_its_kind_of_answer(model, texts):
    one = model.predict(texts[0])
    assert set(one) == {"text", "label", "probabilities"} and one["text"] == texts[0]
    assert model.predict({"text": texts[0]}) == one
    assert model.predict([texts[0]]) == model.predict((texts[0],)) == [one]
    assert model.predict([{"text": texts[0]}, texts[0]]) == [one, one]
    assert model.predict([]) == list(model.predict(iter([]))) == []
    frame = pd.DataFrame({"text": texts[:5], "more": range(5)}, index=list("abcde"))
    assert list(model.predict(frame[:0]).columns) == list(model.predict(frame).columns)
    answered = model.predict(frame)
    assert list(answered.index) == list("abcde") and list(answered.columns) == list(one)
    assert answered.to_dict("records") == model.predict(texts[:5])
    assert model.predict(frame["text"]).equals(answered)
    assert list(model.predict(frame, keep=["more"])["more"]) == list(range(5))
    labelled = {"text": texts[0], "id": 7, "label": "x"}
    kept = {**one, "id": 7, "given_label": "x"}
    assert model.predict(labelled) == model.predict([labelled])[0] == next(model.predict(iter([labelled]))) == kept
    assert model.predict(labelled, keep="none") == one and model.predict(labelled, keep=["id"]) == {**one, "id": 7}
    with pytest.raises(nlpctl.UserError, match="there is no 'di' to keep"):
        model.predict(labelled, keep=["di"])
    assert len(model.predict(frame[:0])) == 0


def test_an_iterator_is_read_as_its_answers_are_wanted(model, texts):
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield texts[taken % len(texts)]

    answers = model.predict(endless())
    assert taken == 0
    assert [next(answers)["text"] for _ in range(3)] == texts[1:4]
    answers.close()
    assert 0 < taken < 10_000
    after = taken
    assert model.predict(texts[0]) and taken == after


def test_texts_that_are_cut_are_told(model, recwarn):
    long, short = "这家酒店的房间很干净。" * 40, "很好"
    with pytest.warns(UserWarning, match=r"cut to 48 tokens: 1 of 2 rows") as told:
        plain = model.predict([long, short])
    assert told[0].filename == __file__ and "truncated=True" in str(told[0].message)
    with pytest.warns(UserWarning, match=r"cut to 48 tokens: 40 of 80 rows"):
        assert list(model.predict(iter([long, short] * 40))) == plain * 40
    recwarn.clear()
    marked = model.predict([long, short], truncated=True)
    assert marked == [{**answer, "truncated": cut} for answer, cut in zip(plain, (True, False), strict=True)]
    assert not recwarn and model.predict(short, truncated=True) == marked[1] and not recwarn


def test_a_bad_row_is_named_by_its_place(model, run, texts):
    with pytest.raises(nlpctl.UserError, match=r"texts\[1\]: blank text\n.*\n?texts\[3\]: not a row") as error:
        model.predict([texts[0], " ", texts[1], 7])
    assert "2 of 4 rows are bad" in str(error.value)
    answers, found = model.predict(iter([*texts[:40], ""])), []
    with pytest.raises(nlpctl.UserError, match=r"texts\[40\]: blank text"):
        found.extend(answers)
    assert [each["text"] for each in found] == texts[:40]
    with pytest.raises(nlpctl.UserError) as error:
        model.predict(pd.DataFrame({"txet": texts[:30]}))
    told = "texts[0]: missing key 'text': the keys are 'txet' (and 29 more rows like it)"
    assert str(error.value).startswith(f"{told}\n  -> ") and len(error.value.problems) == 1
    named = nlpctl.load(run.path, set={"data.columns.text": "txet"})  # as the hint says
    assert len(named.predict(pd.DataFrame({"txet": texts[:3]}))) == 3
    skipping = nlpctl.load(run.path, set={"data.on_bad_row": "skip"})
    assert skipping.predict([texts[0], ""])[1] == {"error": "texts[1]: blank text"}


def test_a_missing_column_is_named_by_its_key():
    columns = ColumnsSection(text_pair="other")
    for name, key in (("text", "text"), ("other", "text_pair")):
        bad = BadRow("texts", "[0]", f"missing key {name!r}: the keys are 'a'")
        assert f'set={{"data.columns.{key}": "NAME"}}' in _remedy([bad], columns)


def test_what_is_no_rows_is_refused(model):
    for wrong in (5, None, b"bytes"):
        with pytest.raises(nlpctl.UserError, match="expected rows"):
            model.predict(wrong)
    with pytest.raises(nlpctl.UserError, match="no text vectors"):
        model.embed(["a"])


def test_scores_are_those_of_the_run(model, run):
    assert model.evaluate() == run.metrics["dev"]
    assert model.evaluate(split="test") == run.metrics["test"]
    frame = pd.read_csv(REVIEWS, sep="\t")
    for data in (REVIEWS, str(REVIEWS), frame, frame.to_dict("records"), iter(frame.to_dict("records"))):
        assert model.evaluate(data) == run.metrics["test"]
    for data, told in (
        ([{"text": "a"}], r"data\[0\]: missing key 'label'"),
        ([{"text": "a", "label": "neither"}], r"data\[0\]: unknown label"),
        ([], "no rows"),
        ("missing.tsv", "missing.tsv does not exist"),
    ):
        with pytest.raises(nlpctl.UserError, match=told):
            model.evaluate(data)
    with pytest.raises(nlpctl.UserError, match="there is no split 'tests'"):
        model.evaluate(split="tests")


def test_rows_of_a_program_are_scored_as_those_of_a_file(run, tmp_path):
    frame = pd.read_csv(REVIEWS, sep="\t")
    frame["label"] = [["差评", "好评"].index(label) for label in frame["label"]]
    frame["author"] = [i // 10 for i in range(len(frame))]
    frame.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    model = run.model(set={"data.columns.group": "author", "data.numbered_labels": ["差评", "好评"]})
    scores = model.evaluate(tmp_path / "a.tsv")
    assert scores["accuracy"] == run.metrics["test"]["accuracy"]
    assert scores["intervals"] != run.metrics["test"]["intervals"]  # rows of an author are drawn together
    assert model.evaluate(frame) == model.evaluate(frame.to_dict("records")) == scores
    with pytest.raises(nlpctl.UserError, match=r"data\[0\] has no column 'author'"):
        model.evaluate(frame.drop(columns="author"))


def test_rows_of_a_program_pass_through_the_functions_of_the_recipe(run, tmp_path, monkeypatch):
    (tmp_path / "changes.py").write_text(
        "def named(row): return {'text': row['review'], 'label': row['label']}\n"
        "def short(row): return len(row['text']) < 12\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    frame = pd.read_csv(REVIEWS, sep="\t").rename(columns={"text": "review"})
    frame.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    model = run.model(set={"data.map": ["changes:named"], "data.filter": ["changes:short"]})
    scores = model.evaluate(tmp_path / "a.tsv")
    assert 0 < scores["rows"] < len(frame)
    assert model.evaluate(frame) == model.evaluate(frame.to_dict("records")) == scores


def test_a_model_tells_what_it_is(model, run):
    assert model.task == "sequence_classification" and sorted(model.labels) == ["好评", "差评"]
    assert model.path == run.path / "model" and (model.engine, model.precision) == ("dygraph", "fp32")
    assert str(model.path) in repr(model)


def test_wrong_values_are_told_with_the_keyword(run, place):
    for call, told in (
        (lambda: nlpctl.load(place / "nothing"), "no such recipe"),
        (lambda: nlpctl.load("quickstart", set={"training.output_dir": place / "never"}), "has not been trained yet"),
        (lambda: nlpctl.load(run.path, engine="steam"), "^engine: .*'steam'"),
        (lambda: nlpctl.load(run.path, batch_size=0), "^batch_size"),
        (lambda: nlpctl.load(run.path, threads=77), "too late for OMP_NUM_THREADS=77"),
        (lambda: nlpctl.train("quickstart", learnin_rate=1), "(?s)^learnin_rate: .*did you mean learning_rate"),
        (lambda: nlpctl.train("quickstart", max_seq_length=8), r"set=\{'data.max_seq_length': ...\}"),
        (lambda: nlpctl.train("quickstart", learning_rate="x"), "^learning_rate: .*is not a number"),
        (lambda: nlpctl.train("quickstart", learning_rate=object()), "^learning_rate: a object cannot"),
        (lambda: nlpctl.train({"task": "sequence_classification", "dat": {}}), "(?s)unknown key dat.*mean data"),
        (lambda: nlpctl.train({}), "the recipe is empty"),
        (lambda: nlpctl.train({"model": object()}), "cannot be part of a recipe"),
        (lambda: nlpctl.train("quickstart", output_dir=run.path, device="cpu"), "overwrite"),
    ):
        with pytest.raises(nlpctl.UserError, match=told):
            call()


def test_hints_name_arguments_and_no_flags(model, run, place, tmp_path, monkeypatch):
    """What the text says can be typed as it is: the tests name flags elsewhere (tests/conftest.py)."""
    monkeypatch.setenv(VARIABLE, PYTHON)
    empty, commas = tmp_path / "empty.tsv", tmp_path / "commas.tsv"
    empty.write_text("text\tlabel\n\t好评\n", encoding="utf-8")
    commas.write_text("text,label\n好,好评\n", encoding="utf-8")
    again = {"output_dir": run.path, "device": "cpu"}
    for call, hint in (
        (lambda: nlpctl.train("quickstart", **again), "use overwrite=True to train again; or"),
        (lambda: nlpctl.train("quickstart", **again, resume=True, overwrite=True), "^resume: resume=True and overw"),
        (lambda: nlpctl.train("quickstart", no_cuda=True), r'runtime.device: cpu \(or device="cpu"\)'),
        (lambda: nlpctl.train("quickstart", local_rank=1), r"\(devices=\[0, 1\] or nproc=2\)"),
        (lambda: nlpctl.load("task:none"), "^path: there is no ready model 'none'"),
        (lambda: nlpctl.load(run.path, labels=["a", "b"]), "leave labels out; it names"),
        (lambda: nlpctl.load(run.path, precision="int8"), 'or use engine="onnxruntime"$'),
        (lambda: model.predict([{"text": "好"}], keep=[]), "^keep: "),
        (lambda: model.predict([{"text": "好"}], keep="label"), "give keep names from this list, all, or none$"),
        (lambda: model.evaluate(empty), r'set=\{"data.on_bad_row": "skip"\}$'),
        (lambda: model.evaluate(commas), r'or add set=\{"data.format": "csv"\}$'),
        (lambda: model.evaluate(split="tests"), "^split: there is no split"),
        (lambda: model.export(formats=[]), "^formats: is empty"),
        (lambda: model.export(precisions=["int8-dynamic"], formats=["paddle"]), r'add formats=\["onnx"\], or use int8'),
        (lambda: model.export(tmp_path, overwrite=True), 'name another folder: output="FOLDER"$'),
    ):
        with pytest.raises(nlpctl.UserError, match=hint) as error:
            call()
        assert "--" not in str(error.value)


def test_models_side_by_side_and_a_recipe_that_is_a_dict(model, texts, place, monkeypatch, capfd):
    """Vectors of a second model, trained from a dict whose paths begin at the current folder."""
    before = model.predict(texts[:40])
    monkeypatch.chdir(place)
    chance = random.Random(0)
    words = [[chance.choice("abcdefgh") for _ in range(6)] for _ in range(64)]
    rows = [{"text": " ".join(each), "text_pair": " ".join(reversed(each))} for each in words]
    Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = {"vocab_size": 60, "min_frequency": 1, "hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64}
    recipe = {
        "task": "semantic_indexing",
        "model": {"from_scratch": small},
        "data": {"train": "pairs.jsonl", "dev": Path("pairs.jsonl"), "columns": {"text_pair": "text_pair"}},
        "training": {"output_dir": "vectors", "max_steps": 2, "per_device_train_batch_size": 16},
        "runtime": {"device": "cpu"},
    }
    second = nlpctl.train(recipe, learning_rate=np.float64(5e-3)).model()
    vectors = second.embed([row["text"] for row in rows])
    assert vectors.dtype == np.float32 and len(vectors) == 64
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(second.embed(rows[3]["text"]), vectors[3], atol=1e-6)
    assert second.embed([]).shape == (0, vectors.shape[1])
    with pytest.raises(nlpctl.UserError, match=r"texts\[1\]: blank text"):
        second.embed(["a", ""])
    assert model.predict(texts[:40]) == before
    assert capfd.readouterr().out == ""


def test_threads_that_use_one_model_get_their_own_answers(run, texts):
    """Lists, single rows, iterators and scores at once; in the engine that mixed them up. Loading meets, too."""
    with ThreadPoolExecutor(2) as threads:
        others = list(threads.map(lambda _: run.model(batch_size=16), range(2)))
    assert [other.predict(texts[0])["label"] for other in others] == [others[0].predict(texts[0])["label"]] * 2
    model = run.model(engine="paddle", batch_size=16)
    rows = [{"text": text, "label": label} for text, label in zip(texts[:40], ["好评", "差评"] * 20, strict=True)]
    shares = [texts[:40], texts[40:80], texts[5:30]]
    answers, scores = [model.predict(share) for share in shares], model.evaluate(rows)
    with ThreadPoolExecutor(4) as threads:
        scored = threads.submit(lambda: [model.evaluate(rows) for _ in range(5)])
        lists = threads.map(lambda share: [model.predict(share) for _ in range(5)], shares)
        single = threads.submit(lambda: [model.predict(text)["label"] for text in texts[:40]])
        streamed = threads.map(lambda share: list(model.predict(iter(share))), shares)
        assert all(found == [wanted] * 5 for found, wanted in zip(lists, answers, strict=True))
        assert list(streamed) == answers
        assert single.result() == [each["label"] for each in answers[0]]
        assert all(found == scores for found in scored.result())


@pytest.mark.slow
def test_a_model_runs_where_paddle_was_imported_first(run, texts, tmp_path):
    """Also one that was trained with threads and flags which the process does not have, and outside the main thread."""
    copy = shutil.copytree(run.path, tmp_path / "copy")
    recipe = (copy / "recipe.yaml").read_text(encoding="utf-8")
    wishes = "threads: 77\n  deterministic: true\n  flags:\n    FLAGS_max_inplace_grad_add: 3\n"
    assert "runtime:\n" in recipe and "threads" not in recipe
    (copy / "recipe.yaml").write_text(recipe.replace("runtime:\n", f"runtime:\n  {wishes}"), encoding="utf-8")
    code = f"""if True:
        import nlpctl, paddle, threading
        def answer():
            model = nlpctl.load({str(copy)!r}, device="cpu")
            print(model.predict([{texts[0]!r}] * 100)[99]["label"])
        thread = threading.Thread(target=answer)
        thread.start()
        thread.join()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] in ("好评", "差评")


def _blocks(name: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / name).read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.slow
def test_every_snippet_of_the_page_runs(run, texts, place, monkeypatch):
    monkeypatch.chdir(place)
    shutil.copy(REVIEWS, "test.tsv")
    Path("reviews.txt").write_text("\n".join(texts[:100]) + "\n", encoding="utf-8")
    names: dict[str, object] = {}
    blocks = _blocks("python.md")
    assert len(blocks) >= 8
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    assert isinstance(names["frame"], pd.DataFrame) and set(names["frame"]["predicted"]) <= {"好评", "差评"}
