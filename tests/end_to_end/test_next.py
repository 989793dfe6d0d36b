"""`nlpctl data next`: the rows to label next, for every kind of label."""

from __future__ import annotations

import json
import random

import pytest

QUICK = ("--max_steps", "6", "--evaluation_strategy", "no", "--save_strategy", "no", "--no-load_best_model_at_end")
OWN = "{architecture: bag_of_embeddings, unit: words, min_frequency: 1, hidden_size: 8, embedding_size: 8}"
RECIPE = """\
task: TASK
model: {from_scratch: OWN}
data: {train: FILE, max_seq_length: 16COLUMNS}
training: {learning_rate: 1e-2, per_device_train_batch_size: 8}
runtime: {device: cpu}
"""
TAGGED = [
    {"tokens": ["mr", "smith", "was", "in", "new", "york"], "tags": ["O", "B-PER", "O", "O", "B-LOC", "I-LOC"]},
    {"tokens": ["the", "room", "in", "york"], "tags": ["O", "O", "O", "B-LOC"]},
]
SEVERAL = [{"text": "dirty and rude", "label": ["dirty", "rude"]}, {"text": "rude", "label": ["rude"]}]
PAIR = ", columns: {text_pair: text_pair}"
PAIRS = [
    {"text": "good room", "text_pair": "clean room", "label": 1},
    {"text": "good food", "text_pair": "bad view", "label": 0},
]


def unlabelled(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    words = "the room bed was staff view food very a and bad dirty good clean unheard".split()
    return [" ".join(chance.choices(words, k=chance.randint(2, 9))) for _ in range(count)]


def jsonl(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def lines_of(file) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def chosen(work, *words: str) -> dict:
    done = work.nlpctl("data", "next", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]


@pytest.fixture(scope="session")
def pool(work, base) -> str:
    known = [line.split("\t")[0] for line in (work / "train.tsv").read_text().splitlines()[1:4]]
    known += [line.split("\t")[0].upper() for line in (work / "dev.tsv").read_text().splitlines()[1:2]]
    texts = [*known, *unlabelled(60, 5), *unlabelled(5, 5)]  # the last five twice
    (work / "pool.txt").write_text("\n".join(texts) + "\n")
    (work / "pool.jsonl").write_text(jsonl({"id": i, "text": text} for i, text in enumerate(texts)))
    return "pool.txt"


def test_it_chooses_uncertain_rows_that_differ(work, pool):
    found = chosen(work, "base", pool, "-n", "6", "--pool", "12", "-o", "to_label.jsonl")
    assert (found["rows"], found["known"]) == (69, 4)
    rows = lines_of(work / "to_label.jsonl")
    assert len(rows) == 6 and found["chosen"] == rows
    assert sum(row["chosen"]["stands_for"] for row in rows) == 12
    texts = (work / pool).read_text().splitlines()
    for row in rows:
        assert row["label"] is None and row["chosen"]["predicted"]["label"] in ("neg", "pos")
        file, _, line = row["chosen"]["where"].rpartition(":")
        assert file == pool and texts[int(line) - 1] == row["text"]
    answers = [json.loads(line) for line in work.nlpctl("predict", "base", pool).stdout.splitlines()]
    sureness = sorted(max(each["probabilities"].values()) for each in answers[4:64])
    assert rows[0]["chosen"]["confidence"] == pytest.approx(sureness[0], abs=1e-5)
    assert max(row["chosen"]["confidence"] for row in rows) <= sureness[11] + 1e-5
    by_doubt = chosen(work, "base", pool, "-n", "6", "--pool", "6")
    given = [row["chosen"]["confidence"] for row in by_doubt["chosen"]]
    assert sorted(given) == pytest.approx(sureness[:6], abs=1e-5)
    assert {row["text"] for row in by_doubt["chosen"]} != {row["text"] for row in rows}


def test_the_same_rows_each_time_whatever_the_chunk(work, pool, monkeypatch):
    """Memory holds the most uncertain rows alone: chunks that forget the others choose the same ones."""
    from nlpctl.config.recipe_of import recipe_of
    from nlpctl.data.predict_input import open_inputs
    from nlpctl.data.rows.task_rows import task_rows
    from nlpctl.datatools import next as labelling

    monkeypatch.chdir(work.folder)
    recipe = recipe_of(work / "base")
    source = open_inputs(task_rows(recipe.task, recipe.data), [pool], "auto")
    at_once = labelling.next_rows(recipe, source, 5, pool=10, measure="entropy")
    monkeypatch.setattr(labelling, "CHUNK", 7)
    in_parts = labelling.next_rows(recipe, source, 5, pool=10, measure="entropy")
    assert [row.where for row in in_parts.chosen] == [row.where for row in at_once.chosen]


def test_rows_keep_their_keys_and_train_when_labelled(work, pool):
    """A row that is labelled already is not asked for again."""
    chosen(work, "base", "pool.jsonl", "-n", "4", "-o", "round.jsonl")
    rows = lines_of(work / "round.jsonl")
    assert all(set(row) == {"id", "text", "label", "chosen"} for row in rows)
    refused = work.nlpctl("train", "recipe.yaml", "--set", "data.train=[train.tsv, round.jsonl]", "--output_dir", "no")
    assert refused.returncode == 2 and "round.jsonl:1: blank label" in refused.stderr
    (work / "round.jsonl").write_text(jsonl({**row, "label": "pos"} for row in rows))
    words = ("--set", "data.train=[train.tsv, round.jsonl]", *QUICK)
    work.train("second", *words)
    again = chosen(work, "second", "pool.jsonl", "-n", "4")
    assert again["known"] == 8 and not {row["id"] for row in again["chosen"]} & {row["id"] for row in rows}


@pytest.mark.parametrize(
    ("task", "rows", "columns", "text", "to_fill"),
    [
        ("token_classification", TAGGED, "", {}, {"tags": None}),
        pytest.param("multi_label_classification", SEVERAL, "", {}, {}, marks=pytest.mark.slow),
        pytest.param("text_matching", PAIRS, PAIR, {"text_pair": "b"}, {"label": None}, marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_label(work, task, rows, columns, text, to_fill):
    (work / f"{task}.jsonl").write_text(jsonl(rows * 8))
    own = OWN.replace("bag_of_embeddings", "bigru") if task == "token_classification" else OWN
    recipe = RECIPE.replace("TASK", task).replace("FILE", f"{task}.jsonl").replace("COLUMNS", columns)
    (work / f"{task}.yaml").write_text(recipe.replace("OWN", own))
    work.train(f"next_{task}", *QUICK, recipe=f"{task}.yaml")
    texts = [{**text, "text": line} for line in unlabelled(9, 3)]
    (work / f"{task}_pool.jsonl").write_text(jsonl(texts))
    found = chosen(work, f"next_{task}", f"{task}_pool.jsonl", "-n", "3")
    assert len(found["chosen"]) == 3
    for row in found["chosen"]:
        assert {key: row[key] for key in to_fill} == to_fill and 0 <= row["chosen"]["uncertainty"] <= 1
        assert task != "multi_label_classification" or "label" not in row  # null would say that it has none
        assert task != "token_classification" or row["tokens"] == row["text"].split()


def test_tasks_for_label_studio(work, pool):
    """They begin with what the model answers, and are read again once a person has answered."""
    found = chosen(work, "base", "pool.jsonl", "-n", "3", "-o", "tasks.json", "--to", "label_studio")
    assert found["interface"] == "tasks.xml"
    tasks = json.loads((work / "tasks.json").read_text())
    assert [task["data"] for task in tasks] == [{"id": row["id"], "text": row["text"]} for row in found["chosen"]]
    for task, row in zip(tasks, found["chosen"], strict=True):
        (guess,) = task["predictions"]
        assert guess["score"] == row["chosen"]["confidence"] and guess["model_version"].startswith("base")
        assert guess["result"][0]["value"]["choices"] == [row["chosen"]["predicted"]["label"]]
        task["annotations"] = [{"result": guess["result"], "was_cancelled": False}]
    assert '<Choice value="neg"/>' in (work / "tasks.xml").read_text()
    (work / "annotated.json").write_text(json.dumps(tasks))
    done = work.nlpctl("eval", "base", "annotated.json", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["metrics"]["test"]["accuracy"] == 1
    assert chosen(work, "base", "tasks.json", "-n", "3", "-o", "rows.jsonl", "--to", "doccano")["rows"] == 3
    assert all(row["label"] == [] for row in lines_of(work / "rows.jsonl"))  # a guess would count as a label


def test_tasks_of_a_recipe_with_a_map_say_whose_labels_they_have(work, pool):
    (work / "kept.py").write_text("def same(row):\n    return row\n")
    words = ("data", "next", "base", "pool.jsonl", "-n", "3", "--set", "data.map=kept:same")
    done = work.nlpctl(*words, "-o", "mapped.json", "--to", "label_studio")
    assert done.returncode == 0 and "mapped.json has the texts as they are before data.map" in done.stderr, done.stderr
    done = work.nlpctl(*words, "-o", "mapped.jsonl")  # its labels are empty
    assert done.returncode == 0 and "data.map" not in done.stderr, done.stderr


def test_a_table_that_ends_early_says_so(work, pool):
    done = work.nlpctl("data", "next", "base", pool, "-n", "12")
    assert done.returncode == 0 and "and 2 more: -o FILE writes all of them" in done.stderr, done.stderr


def test_what_it_refuses(work, pool):
    def refused(*words):
        done = work.nlpctl("data", "next", *words)
        assert done.returncode == 2 and "->" in done.stderr, done.stderr
        return done.stderr

    assert "labelled data" in refused("base", "train.tsv")
    assert "margin, entropy" in refused("base", pool, "--by", "guess")
    assert "--pool" in refused("base", pool, "-n", "5", "--pool", "4")
    assert "jsonl, label_studio, doccano" in refused("base", pool, "--to", "xml")
    told = refused("base", "pool.jsonl", "-o", "pool.jsonl", "--overwrite")
    assert "pool.jsonl: this is an input (UNLABELLED...), and is not replaced" in told
    before = (work / "train.tsv").read_bytes()
    assert "train.tsv: this is an input" in refused("base", "pool.jsonl", "-o", "train.tsv", "--overwrite")
    assert (work / "train.tsv").read_bytes() == before
