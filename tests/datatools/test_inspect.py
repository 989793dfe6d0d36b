"""nlpctl data inspect and split, from Python and from the command line, on rows of every kind of task."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nlpctl.cli.app import main
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import KNOWN_TASKS
from nlpctl.data.inspection.page import label_table
from nlpctl.data.open_split import open_split
from nlpctl.data.rows.task_rows import TaskRows, task_rows
from nlpctl.datatools.inspect import format_inspection, inspect_data, write_page
from nlpctl.datatools.split import part_sizes, split_data
from nlpctl.errors import UserError
from nlpctl.files import write_text_atomic
from nlpctl.report.language import in_language

ADJECTIVES = ("clean", "noisy", "large", "dark", "cheap", "old", "modern", "cosy", "damp", "bright")
NOUNS = ("room", "lobby", "garden", "kitchen", "terrace", "bathroom")


def sentence(i: int) -> str:
    return f"the {ADJECTIVES[i % 10]} {NOUNS[i // 10 % 6]} number {i} was as we had been told"


def tagged(i: int) -> dict[str, Any]:
    words = [*sentence(i).split(), "Anna", "Smith"]
    return {"tokens": words, "tags": ["O"] * (len(words) - 2) + ["B-PER", "I-PER" if i % 2 else "B-LOC"]}


def conll(row: dict[str, Any]) -> str:
    return "".join(f"{word}\t{tag}\n" for word, tag in zip(row["tokens"], row["tags"], strict=True)) + "\n"


def squad(count: int) -> str:
    articles = []
    for i in range(count // 2):
        context = f"{sentence(i)}. Its owner is called Number{i}."
        questions = [
            {"id": f"{i}-{k}", "question": f"{ask} {i}?", "answers": [{"text": f"Number{i}",
             "answer_start": context.index(f"Number{i}")}]}
            for k, ask in enumerate(("Who owns place", "What is the owner's name of place"))
        ]  # fmt: skip
        articles.append({"title": f"article {i}", "paragraphs": [{"context": context, "qas": questions}]})
    return json.dumps({"version": "1.1", "data": articles})


def jsonl(rows: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def table(separator: str, rows: Sequence[Sequence[str]]) -> str:
    return "".join(separator.join(row) + "\n" for row in rows)


N = 60
LABEL = [("pos", "neg", "pos")[i % 3] for i in range(N)]
PAIR = "columns: {text: a, text_pair: b, label: same}"
PAIRS = [{"a": sentence(i), "b": sentence(i + 100), "same": str(i % 2)} for i in range(N)]
QUOTED = [["text", "label"], *([f'"{sentence(i)},\n\nand ""more"""', LABEL[i]] for i in range(N))]
LISTS = [{"text": sentence(i), "label": ["a", "b", "c"][: i % 4]} for i in range(N)]
TSV = [["text", "label"], *([sentence(i), LABEL[i]] for i in range(N))]
WORDS = "columns: {tokens: tokens, tags: tags}"
# name -> task, file, its text, what else stands under data, what stands beside data
CASES = {
    "tsv": ("sequence_classification", "all.tsv", table("\t", TSV), "", ""),
    "tsv without header": ("sequence_classification", "all.tsv", table("\t", TSV[1:]),
                           'header: false, columns: {text: "0", label: "1"}', ""),
    "csv with quotes": ("sequence_classification", "all.csv", table(",", QUOTED), "", ""),
    "lines of Windows": ("sequence_classification", "all.tsv", "\ufeff" + table("\t", TSV).replace("\n", "\r\n"), "",
                         ""),
    "json": ("sequence_classification", "all.json",
             json.dumps([{"text": sentence(i), "label": LABEL[i]} for i in range(N)]), "", ""),
    "few shot": ("few_shot_classification", "all.tsv", table("\t", TSV), "",
                 "prompt: {template: \"{'text': 'text'} It was {'mask'}.\", verbalizer: {pos: good, neg: bad}}"),
    "multi-label": ("multi_label_classification", "all.jsonl", jsonl(LISTS), "", ""),
    "matching": ("text_matching", "all.jsonl", jsonl(PAIRS), PAIR, ""),
    "indexing": ("semantic_indexing", "all.jsonl", jsonl(PAIRS), PAIR, ""),
    "corpus": ("masked_language_model", "all.txt", table("", [[sentence(i)] for i in range(N)]), "", ""),
    "conll": ("token_classification", "all.txt", "".join(conll(tagged(i)) for i in range(N)), "", ""),
    "tagged jsonl": ("lexical_analysis", "all.jsonl", jsonl([tagged(i) for i in range(N)]), WORDS, ""),
    "joined": ("token_classification", "all.tsv",
               "tokens\ttags\n" + table("\t", [["\002".join(tagged(i)["tokens"]), "\002".join(tagged(i)["tags"])]
                                             for i in range(N)]), "", ""),
    "squad": ("question_answering", "all.json", squad(N), "", ""),
}  # fmt: skip


def recipe_of(case: str, folder: Path) -> Path:
    task, name, text, data, rest = CASES[case]
    (folder / name).write_text(text, encoding="utf-8", newline="")
    extra = f", {data}" if data else ""
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        f"task: {task}\nmodel: {{name_or_path: ernie-3.0-nano-zh}}\ndata: {{train: {name}{extra}}}\n{rest}\n"
        f"training: {{output_dir: {folder}/run}}\n",
        encoding="utf-8",
    )
    return recipe


def recipe_for(case: str, folder: Path, *overrides: tuple[str, str]) -> Recipe:
    return load_recipe(
        recipe_of(case, folder), [Override(key, text, "--set") for key, text in overrides], purpose="apply"
    )


def test_every_task_is_here() -> None:
    assert {case[0] for case in CASES.values()} == {info.name for info in KNOWN_TASKS}


@pytest.mark.parametrize("case", CASES)
def test_parts_hold_every_row_once_as_it_was(case: str, tmp_path: Path) -> None:
    recipe = recipe_for(case, tmp_path)
    before = Path(recipe.data.train[0]).read_bytes()
    made = split_data(recipe, tmp_path / "parts", {"dev": 0.2, "test": 10})
    assert Path(recipe.data.train[0]).read_bytes() == before
    assert made.rows == {"train": 38, "dev": 12, "test": 10}
    parts = {f"data.{part}": f"[{path}]" for part, path in made.files.items()}
    again = load_recipe(recipe.path, [Override(key, text, "--set") for key, text in parts.items()], purpose="apply")
    found = inspect_data(again, estimate=True)
    assert {profile.split: profile.rows for profile in found.splits} == made.rows
    assert all(not profile.bad for profile in found.splits)
    assert all(not (overlap.exact or overlap.near) for overlap in found.duplicates.overlaps)
    whole = inspect_data(recipe, estimate=True)
    total = sum(profile.lengths.mean * profile.rows for profile in found.splits)
    assert total == pytest.approx(whole.splits[0].lengths.mean * N)
    for label, count in whole.splits[0].labels.items():
        assert sum(profile.labels.get(label, 0) for profile in found.splits) == count


def test_bad_sentences_are_not_copied(tmp_path: Path) -> None:
    recipe = recipe_for("conll", tmp_path, ("data.on_bad_row", "skip"))
    file = Path(recipe.data.train[0])
    lines = file.read_text("utf-8").splitlines()
    lines[lines.index("")] = "\t"  # of Windows, and a tab alone ends the sentence
    lines[lines.index("\t") + 1 : lines.index("\t") + 1] = ["good\tO", "untagged", ""]
    file.write_text("\r\n".join([*lines, ""]), encoding="utf-8", newline="")
    made = split_data(recipe, tmp_path / "parts", {"dev": 0.2, "test": 10})
    copied = b"".join(path.read_bytes() for path in made.files.values())
    assert sum(made.rows.values()) == N and not {b"good\tO\r", b"untagged\r"} & {*copied.split(b"\n")}


def test_comments_above_a_sentence_go_with_it(tmp_path: Path) -> None:
    recipe = recipe_for("conll", tmp_path, ("data.on_bad_row", "skip"))
    file = Path(recipe.data.train[0])
    sentences = file.read_text("utf-8").removesuffix("\n\n").split("\n\n")
    sentences[5] = "untagged"
    texts = [f"-DOCSTART- O\n\n# sent_id = {i}\n# source = a\n{each}\n\n" for i, each in enumerate(sentences)]
    file.write_text("\n".join(texts), encoding="utf-8")
    made = split_data(recipe, tmp_path / "parts", {"dev": 0.2, "test": 10})
    copied = "".join(path.read_text("utf-8") for path in made.files.values()).removesuffix("\n\n").split("\n\n")
    assert sorted(copied) == sorted(text.split("\n\n")[1] for i, text in enumerate(texts) if i != 5)


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("squad", "json")])
def test_lines_are_copied_byte_for_byte(case: str, tmp_path: Path) -> None:
    recipe = recipe_for(case, tmp_path)
    original = Path(recipe.data.train[0]).read_bytes().removeprefix(b"\xef\xbb\xbf")
    made = split_data(recipe, tmp_path / "parts", {"dev": 0.5, "test": 0})
    has_header = case in ("tsv", "csv with quotes", "lines of Windows", "few shot", "joined")
    header = original.split(b"\n")[0] + b"\n" if has_header else b""
    parts = [path.read_bytes() for path in made.files.values()]
    assert all(part.startswith(header) for part in parts)
    pieces = [part.removeprefix(header) for part in parts]
    assert sum(map(len, pieces)) + len(header) == len(original)
    for piece in pieces:
        assert all(line in original.split(b"\n") for line in piece.split(b"\n"))


OWN_PARTS = """
def marked(row):
    return {**row, "seen_by_a_map": True}

def joined(row):
    return {"text": row["title"] + " " + row["body"], "label": {"1": "pos", "2": "neg"}[row["stars"]]}

def wanted(row):
    return "noisy" not in row["text"]
"""


@pytest.mark.parametrize("case", CASES)
def test_rows_are_copied_as_they_were_before_a_map(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe keeps its data.map, which would else be applied to them twice."""
    (tmp_path / "my_own_row_parts.py").write_text(OWN_PARTS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = []
    for given in ((), (("data.map", "my_own_row_parts:marked"),)):
        made = split_data(recipe_for(case, tmp_path, *given), tmp_path / f"parts{len(found)}", {"dev": 0.3, "test": 9})
        found.append({path.name: path.read_bytes() for path in made.files.values()})
    assert found[0] == found[1]


def test_a_recipe_with_map_and_filter_reads_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_own_row_parts.py").write_text(OWN_PARTS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    lines = [["title", "body", "stars"], *([f"title {i}", sentence(i), "12"[i % 2]] for i in range(N))]
    (tmp_path / "all.tsv").write_text(table("\t", lines), encoding="utf-8")
    own = "data: {train: all.tsv, format: tsv, map: my_own_row_parts:joined, filter: my_own_row_parts:wanted}"
    recipe = tmp_path / "own.yaml"
    recipe.write_text(f"task: sequence_classification\nmodel: {{name_or_path: ernie-3.0-nano-zh}}\n{own}\n")
    shares = ["--dev", "0.5", "--test", "0"]
    assert main(["data", "split", str(recipe), "-o", str(tmp_path / "parts"), *shares, "--write"]) == 0
    written = load_recipe(recipe, purpose="apply")
    parts = [Path(name) for name in (*written.data.train, *written.data.dev)]
    rows = [line for path in parts for line in path.read_text("utf-8").splitlines()[1:]]
    assert sorted(rows) == sorted("\t".join(row) for row in lines[1:] if "noisy" not in row[1])
    texts = [row.values["text"] for part in ("train", "dev") for row in open_split(rows_of(written), part)]
    assert len(texts) == len(rows) and all(text.count("title") == 1 for text in texts)
    capsys.readouterr()
    assert main(["data", "convert", str(recipe), "-o", str(tmp_path / "mapped.jsonl")]) == 0
    assert "mapped.jsonl has rows as data.map made them" in capsys.readouterr().err
    recipe.write_text(recipe.read_text().replace("format: tsv", "by_split: {dev: {format: csv}}"))
    again = ["data", "split", str(recipe), "-o", str(tmp_path / "more"), "--write"]
    assert main(again) == 2


def rows_of(recipe: Recipe) -> TaskRows:
    return task_rows(recipe.task, recipe.data)


def test_questions_about_one_text_stay_together(tmp_path: Path) -> None:
    made = split_data(recipe_for("squad", tmp_path), tmp_path / "parts", {"dev": 0.3, "test": 0.2})
    titles = [
        {article["title"] for article in json.loads(path.read_text("utf-8"))["data"]} for path in made.files.values()
    ]
    assert [len(each) for each in titles] == [15, 9, 6]
    assert len(set().union(*titles)) == 30
    assert json.loads(made.files["train"].read_text("utf-8"))["version"] == "1.1"


def test_questions_that_are_left_out_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_question_parts.py").write_text("def first(row):\n    return row['id'].endswith('0')\n")
    monkeypatch.chdir(tmp_path)
    recipe = recipe_for("squad", tmp_path, ("data.filter", "my_own_question_parts:first"), ("data.on_bad_row", "skip"))
    file = Path(recipe.data.train[0])
    document = json.loads(file.read_text("utf-8"))
    document["data"][0]["paragraphs"][0]["qas"][0]["question"] = ""
    more = {**document["data"][1]["paragraphs"][0], "context": "Number1 again"}
    more["qas"] = [{**more["qas"][0], "id": "1-0-0", "answers": [{"text": "Number1", "answer_start": 0}]}]
    document["data"][1]["paragraphs"].append(more)
    file.write_text(json.dumps(document))
    made = split_data(recipe, tmp_path / "parts", {"dev": 0.3, "test": 0})
    copied = [article for path in made.files.values() for article in json.loads(path.read_text("utf-8"))["data"]]
    questions = [each["id"] for article in copied for part in article["paragraphs"] for each in part["qas"]]
    assert sorted(questions) == sorted([f"{i}-0" for i in range(1, 30)] + ["1-0-0"])


def test_articles_of_the_first_layout_of_cmrc_stay_whole(tmp_path: Path) -> None:
    articles = [
        {"context_text": f"text {i} says {i} twice", "qas": [
            {"query_id": f"{i}.{k}", "query_text": f"what is {k}?", "answers": [str(i)]} for k in range(3)
        ]}
        for i in range(20)
    ]  # fmt: skip
    (tmp_path / "all.json").write_text(json.dumps(articles))
    (tmp_path / "r.yaml").write_text("task: question_answering\ndata: {train: all.json}\n")
    made = split_data(load_recipe(tmp_path / "r.yaml", purpose="apply"), tmp_path / "parts", {"dev": 0.2, "test": 0.1})
    parts = [json.loads(path.read_text()) for path in made.files.values()]
    assert [len(part) for part in parts] == [14, 4, 2]
    assert sorted(map(json.dumps, sum(parts, []))) == sorted(map(json.dumps, articles))


def test_the_seed_decides(tmp_path: Path) -> None:
    def dev(folder: str, seed: str) -> bytes:
        recipe = recipe_for("tsv", tmp_path, ("training.seed", seed))
        return split_data(recipe, tmp_path / folder, {"dev": 0.3, "test": 0}).files["dev"].read_bytes()

    assert dev("a", "1") == dev("b", "1") != dev("c", "2")
    told = json.loads((tmp_path / "c" / "split.json").read_text("utf-8"))
    assert (told["seed"], told["rows"]) == (2, {"train": 42, "dev": 18})


def test_repeated_and_grouped_rows_stay_together(tmp_path: Path) -> None:
    rows = [{"text": sentence(i // 2).upper() if i % 2 else sentence(i // 2), "label": LABEL[i // 2], "by": i // 10}
            for i in range(N)]  # fmt: skip
    recipe = recipe_for("tsv", tmp_path, ("data.train", str(tmp_path / "rows.jsonl")))
    (tmp_path / "rows.jsonl").write_text(jsonl(rows), encoding="utf-8")
    same = split_data(recipe, tmp_path / "same", {"dev": 0.5, "test": 0})
    texts = [{json.loads(line)["text"].lower() for line in path.open()} for path in same.files.values()]
    assert not texts[0] & texts[1] and same.rows == {"train": 30, "dev": 30}
    by = split_data(recipe, tmp_path / "by", {"dev": 0.5, "test": 0}, group_by="by")
    authors = [{json.loads(line)["by"] for line in path.open()} for path in by.files.values()]
    assert not authors[0] & authors[1] and len(authors[0] | authors[1]) == 6


def test_bad_rows_are_left_out_where_the_recipe_says_so(tmp_path: Path) -> None:
    recipe = recipe_for("csv with quotes", tmp_path, ("data.on_bad_row", "skip"))
    file = Path(recipe.data.train[0])
    file.write_text(file.read_text("utf-8") + " ,pos\nx,y,z\n", encoding="utf-8")
    made = split_data(recipe, tmp_path / "parts", {"dev": 0.5, "test": 0})
    assert sum(made.rows.values()) == N
    assert all("x,y,z" not in path.read_text("utf-8") for path in made.files.values())
    skipped = json.loads((tmp_path / "parts" / "split.json").read_text("utf-8"))["skipped_rows"]["total"]
    assert skipped == made.skipped == 2
    with pytest.raises(UserError, match=f"2 of {N + 2} rows cannot be used"):
        split_data(recipe, tmp_path / "fewer", {"dev": 0.5}, most_bad=0.01)
    assert not (tmp_path / "fewer").exists()


@pytest.mark.parametrize(
    ("shares", "sizes"),
    [
        ({"dev": 0.1, "test": 0.1}, {"train": 80, "dev": 10, "test": 10}),
        ({"dev": 5, "test": 0}, {"train": 95, "dev": 5, "test": 0}),
        ({"dev": 0, "test": 0, "train": 0.25}, {"train": 25, "dev": 0, "test": 0}),
    ],
)
def test_sizes(shares: dict[str, float], sizes: dict[str, int]) -> None:
    assert part_sizes(100, shares) == sizes


def test_sizes_of_shares_that_are_all_of_few_rows() -> None:
    for total in range(10, 200):
        sizes = part_sizes(total, {"train": 0.8, "dev": 0.1, "test": 0.1})
        assert sum(sizes.values()) == total and abs(sizes["dev"] - sizes["test"]) <= 1
    assert part_sizes(14, {"train": 0.7, "dev": 0.04, "test": 0.12}) == {"train": 10, "dev": 1, "test": 2}
    with pytest.raises(UserError, match="15 rows cannot be split like this: train 12, dev 2, test 3"):
        part_sizes(15, {"train": 0.8, "dev": 0.1, "test": 0.2})


MESSY = """text\tlabel
the room was clean and the staff were friendly and helpful\tpos
The room was  clean and the staff were friendly and helpful\tneg
the room was clean and the staff were friendly and helpful!!\tpos
!!!\tneg
\tpos
we saw a <br> in the middle\tneg
"""


def test_findings_name_their_lines(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("text\tlabel\nwe saw a <br> in the middle\tneg\nfine\tpso\n", encoding="utf-8")
    recipe = recipe_for("tsv", tmp_path, ("data.dev", str(tmp_path / "dev.tsv")))
    write_text_atomic(Path(recipe.data.train[0]), MESSY)
    found = inspect_data(recipe, estimate=True).to_json()
    train = str(tmp_path / "all.tsv")
    assert found["splits"]["train"]["rows"] == 5 and found["splits"]["train"]["labels"] == {"neg": 3, "pos": 2}
    assert [row["where"] for row in found["conflicts"]["groups"][0]] == [f"{train}:2", f"{train}:3"]
    assert found["duplicates"]["within"]["train"] == {"exact": 1, "near": 1}
    assert found["duplicates"]["overlaps"] == [{"inside": "dev", "other": "train", "rows": 1, "exact": 1, "near": 0}]
    kinds = {each["kind"]: [row["where"] for row in each["rows"]] for each in found["suspicious"]}
    assert kinds["no letter or digit"] == [f"{train}:5"]
    assert kinds["blank text"] == [f"{train}:6"]
    assert kinds["unknown label"] == [f"{tmp_path / 'dev.tsv'}:3"]
    assert kinds["markup"] == [f"{train}:7"]  # the same text in dev is counted, and listed once


def test_broken_tags_and_equal_texts_are_suspicious(tmp_path: Path) -> None:
    recipe = recipe_for("conll", tmp_path)
    file = Path(recipe.data.train[0])
    file.write_text(file.read_text("utf-8") + "Anna\tO\nSmith\tI-PER\n", encoding="utf-8")
    last = 1 + sum(1 for _ in file.open()) - 2
    (odd,) = [each for each in inspect_data(recipe, estimate=True).suspicions if "tags" in each.kind]
    assert odd.first[0][0] == f"{file}:{last}" and odd.first[0][2] == "I-PER after O, at word 2"
    (tmp_path / "pairs").mkdir()
    recipe = recipe_for("matching", tmp_path / "pairs")
    file = Path(recipe.data.train[0])
    file.write_text(file.read_text("utf-8") + jsonl([{"a": "x y", "b": "x y", "same": "0"}]), encoding="utf-8")
    kinds = {each.kind for each in inspect_data(recipe, estimate=True).suspicions}
    assert "both texts are the same" in kinds


READER = """
import csv

def reviews(path):
    for row in csv.DictReader(open(path, encoding="utf-8"), delimiter=";"):
        yield {"text": row["review"], "label": row["stars"], "words": row["review"].split()}
"""


def test_rows_of_a_reader_become_jsonl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_reviews_reader.py").write_text(READER, encoding="utf-8")
    (tmp_path / "all.dat").write_text("review;stars\n" + table(";", TSV[1:]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    given = (("data.reader", "my_reviews_reader:reviews"), ("data.train", str(tmp_path / "all.dat")))
    made = split_data(recipe_for("tsv", tmp_path, *given), tmp_path / "parts", {"dev": 0.5, "test": 0})
    assert made.files["dev"] == tmp_path / "parts" / "dev.jsonl"
    rows = [json.loads(line) for path in made.files.values() for line in path.open(encoding="utf-8")]
    assert sorted(row["text"] for row in rows) == sorted(row[0] for row in TSV[1:])
    assert rows[0]["words"] == rows[0]["text"].split()


SCRATCH = """task: sequence_classification
model: {from_scratch: {architecture: textcnn, unit: UNIT, min_frequency: 1}}
data: {train: all.tsv, max_seq_length: 4}
"""


@pytest.mark.parametrize(("unit", "longest"), [("characters", 8), ("words", 6)])
def test_tokens_are_those_that_training_would_make(tmp_path: Path, unit: str, longest: int) -> None:
    (tmp_path / "all.tsv").write_text("text\tlabel\n房间很干净，很好\tpos\n太吵\tneg\n", encoding="utf-8")
    (tmp_path / "recipe.yaml").write_text(SCRATCH.replace("UNIT", unit), encoding="utf-8")
    found = inspect_data(load_recipe(tmp_path / "recipe.yaml", purpose="apply"))
    assert found.exact_tokens
    assert found.splits[0].lengths.longest == longest
    assert found.splits[0].lengths.longer == 1


def test_tokens_are_added_to_the_model_that_training_starts_from(tmp_path: Path) -> None:
    """That it has weights of its own does not make it the trained model of the recipe."""
    start = Path(__file__).parent.parent / "models" / "huggingface" / "bert-classifier"
    (tmp_path / "all.tsv").write_text("text\tlabel\n房间很干净\tpos\n房间很干净\tneg\n", encoding="utf-8")
    text = f"task: sequence_classification\nmodel: {{name_or_path: {start}}}\ndata: {{train: all.tsv}}\n"
    text += f"training: {{output_dir: {tmp_path / 'never'}}}\n"
    longest = []
    for more in ("", "add_tokens: [房间很干净], "):
        (tmp_path / "recipe.yaml").write_text(text.replace("name_or_path", f"{more}name_or_path"), "utf-8")
        found = inspect_data(load_recipe(tmp_path / "recipe.yaml"))
        assert found.exact_tokens
        longest.append(found.splits[0].lengths.longest)
    assert longest == [7, 3]


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    recipe = recipe_for("tsv", tmp_path)
    write_text_atomic(Path(recipe.data.train[0]), MESSY)
    write_page(inspect_data(recipe, estimate=True), "my data", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "<svg" in text and "max_seq_length 128" in text
    assert "we saw a &lt;br&gt; in the middle" in text
    assert "all.tsv:6" in text
    assert not re.search(r"(?:src|href)=\"(?!#)|@import|url\(|<script", text)


def test_the_command_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of("tsv", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["data", "inspect", "recipe.yaml", "--estimate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["splits"]["train"]["rows"] == N
    assert main(["data", "inspect", "recipe.yaml", "all.tsv", "--estimate", "--rows", "7", "--html", "a.html"]) == 0
    assert re.search(r"train +7 ", capsys.readouterr().out)
    assert (tmp_path / "a.html").is_file()
    assert main(["data", "split", str(recipe), "-o", "parts", "--dev", "6", "--test", "0", "--seed", "9"]) == 0
    printed = capsys.readouterr()
    assert "(rows)  54     6" in printed.out and "  dev: parts/dev.tsv" in printed.err
    assert json.loads((tmp_path / "parts/split.json").read_text("utf-8"))["seed"] == 9
    assert main(["data", "split", str(recipe), "-o", "parts"]) == 2


def test_a_device_takes_the_page_and_is_no_folder(tmp_path, device, capsys):
    null, full = device("null"), device("full")
    (tmp_path / "train.tsv").write_text("text\tlabel\na a\t1\nc c\t0\n")
    (tmp_path / "my.yaml").write_text(
        "task: sequence_classification\nmodel: {from_scratch: {}}\ndata: {train: train.tsv}\n"
        "training: {output_dir: run}\n"
    )
    assert main(["data", "inspect", str(tmp_path / "my.yaml"), "--html", str(null)]) == 0
    assert main(["data", "inspect", str(tmp_path / "my.yaml"), "--html", str(full)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert main(["data", "split", str(tmp_path / "my.yaml"), "-o", str(null), "--dev", "1"]) == 2
    assert "--overwrite" not in capsys.readouterr().err
    assert null.is_char_device() and full.is_char_device()


def test_unknown_tokens_and_what_stands_behind_them(tmp_path: Path) -> None:
    """A vocabulary of a few letters: full-width punctuation and whole words become [UNK]."""
    folder = Path(__file__).resolve().parents[1] / "models" / "huggingface" / "bert-encoder"
    (tmp_path / "train.tsv").write_text("text\tlabel\na b，c\tp\na xyz，\tn\nb c d\tp\n", encoding="utf-8")
    values = {
        "task": "sequence_classification",
        "model": {"name_or_path": str(folder)},
        "data": {"train": str(tmp_path / "train.tsv")},
    }
    found = inspect_data(load_recipe(values, (), "apply"))
    (split,) = found.to_json()["splits"].values()
    assert split["unknown"] == {"tokens": 3, "share": 0.3, "words": {"，": 2, "xyz": 1}}
    (table,) = [each for each in format_inspection(found, 5, 40)[0] if "does not know" in each.title]
    assert table.rows == [["train", 3, "30.0 %", "， (2), xyz (1)"]]
    (line,) = [line for line in format_inspection(found, 5, 40)[1] if "[UNK]" in line]
    assert "30.0 % of the tokens of train" in line and "， (2), xyz (1)" in line
    assert inspect_data(load_recipe(values, (), "apply"), estimate=True).to_json()["splits"]["train"]["unknown"] is None


def test_labels_that_are_made_of_others_are_told(tmp_path: Path) -> None:
    file = tmp_path / "all.tsv"
    file.write_text("text\tlabel\n" + "fine\troom,staff\nso so\troom，staff\n" * 9, encoding="utf-8")
    recipe = load_recipe({"task": "multi_label_classification", "data": {"train": str(file)}}, (), "apply")
    advice = format_inspection(inspect_data(recipe, estimate=True), 5, 40)[1]
    assert any(line.startswith("Labels that are made of others") and "room，staff" in line for line in advice)


def test_labels_that_are_none_of_the_users_are_said(tmp_path: Path) -> None:
    found = inspect_data(recipe_for("squad", tmp_path), estimate=True)
    for language, label in (("en", "answer"), ("zh", "答案")):
        with in_language(language):
            assert label_table(found).rows[0][0] == label


def test_copies_that_a_split_keeps_together(tmp_path, capsys):
    """The split says which rows its parts lack, and so does an inspection of the parts."""
    rows = [{"text": sentence(i), "spans": [{"start": 4, "end": 9, "label": "adjective"}]} for i in range(60)]
    rows += [{"text": text, "spans": []} for text in ("nothing here",) * 14 + ("nor here",) * 12]
    file = tmp_path / "all.jsonl"
    file.write_text(jsonl(rows), encoding="utf-8")

    def of_spans(**files):
        return load_recipe({"task": "token_classification", "data": files}, (), "apply")

    split_data(of_spans(train=str(file)), tmp_path / "parts", {"dev": 0.1, "test": 0.1})
    line = "no row without entities in dev and test (26 rows are copies of 2 texts)"
    assert line in " ".join(capsys.readouterr().err.split())
    parts = {part: str(tmp_path / "parts" / f"{part}.jsonl") for part in ("train", "dev", "test")}
    found = inspect_data(of_spans(**parts), estimate=True)
    told = [each for each in format_inspection(found, 5, 80)[1] if "keeps together" in each]
    ending = "has no row without entities: the 26 of train are copies of 2, which a split keeps together."
    assert told == [f"dev {ending}", f"test {ending}"]
