"""`nlpctl new`: what it makes of files, what it asks, and what it refuses."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from nlpctl.config.load import load_recipe
from nlpctl.config.recipe_text import recipe_text
from nlpctl.config.tasks import Preset
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import read_training_data
from nlpctl.datatools import recipe_defaults
from nlpctl.datatools.new import Given, Question, new_recipe
from nlpctl.models import pretrained
from nlpctl.report.language import in_language, say
from nlpctl.runtime.machine import CpuInfo

ROOT = Path(__file__).resolve().parent.parent.parent
REVIEWS = [f"the {word} of room {number} was {word}" for number in range(20) for word in ("food", "view", "bed")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def table(folder: Path) -> Callable[..., str]:
    """`table("name.csv", ["a", "b"], rows)`: the name of a file with these rows."""

    def write(name: str, header: list[str] | None, rows: list[tuple]) -> str:
        separator = "," if name.endswith(".csv") else "\t"
        lines = [] if header is None else [separator.join(header)]
        lines += [separator.join(map(str, row)) for row in rows]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return name

    return write


def labelled(rows: int = 60) -> list[tuple[int, str, str]]:
    return [(number, text, ("bad", "good")[number % 2]) for number, text in enumerate(REVIEWS[:rows])]


def test_columns_are_found_and_the_recipe_is_valid(nlpctl, table, folder: Path) -> None:
    table("train.csv", ["id", "review", "stars"], labelled())
    table("val.csv", ["id", "review", "stars"], labelled(20))
    ended = nlpctl("new", "train.csv", "-o", "reviews", "--model", "scratch")
    assert ended.code == 0 and ended.out == "reviews.yaml\n", ended.err
    assert "'review' holds texts, 'stars' is bad or good" in ended.err
    assert "nlpctl train reviews.yaml" in ended.err
    assert nlpctl("recipe", "validate", "reviews.yaml").code == 0
    recipe = load_recipe("reviews.yaml")
    assert (recipe.task, recipe.data.columns.text, recipe.data.columns.label) == (
        "sequence_classification",
        "review",
        "stars",
    )
    assert recipe.data.dev == (str(folder / "val.csv"),) and recipe.data.test == ()
    assert recipe.training.per_device_train_batch_size == 8 and recipe.data.max_seq_length == 16
    named = ("new", "train.csv", "-o", "named", "--model", "scratch", "--columns", "text=review,label=stars")
    assert nlpctl(*named).code == 0 and load_recipe("named.yaml").task == "sequence_classification"
    given = json.loads(nlpctl("new", "train.csv", "-o", "again", "--model", "scratch", "--json").out)["result"]
    assert given["recipe"] == "again.yaml" and given["files"]["dev"] == "val.csv" and given["model"] == "scratch"
    again = nlpctl("new", "train.csv", "-o", "reviews.yaml")
    assert again.code == 2 and "the recipe exists" in again.err and "--overwrite" in again.err


def test_a_column_that_says_the_same_is_named(nlpctl, table) -> None:
    names = {"bad": "not to be recommended", "good": "to be recommended"}
    rows = [(number, text, label, names[label], ("a", "b")[number % 3 > 0]) for number, text, label in labelled()]
    table("all.tsv", ["id", "review", "label", "label_desc", "source"], rows)
    ended = nlpctl("new", "all.tsv", "--model", "scratch")
    assert ended.code == 0 and load_recipe("all.yaml").data.columns.label == "label", ended.err
    told = "column 'label_desc' says the same as 'label'; in its place: --columns label=label_desc"
    assert told in ended.err and "'source'" not in ended.err


def test_many_labels_of_few_rows_are_labels(nlpctl, table) -> None:
    """As of intents: 24 of them with 4 rows each, in words or in numbers, in a column that says so."""
    rows = [(f"{text} as for {number % 24}", f"intent {number % 24}") for number, text in enumerate(2 * REVIEWS)][:96]
    table("named.tsv", ["text", "label"], rows)
    table("numbered.csv", ["text", "intent"], [(text, label.removeprefix("intent ")) for text, label in rows])
    for name in ("named.tsv", "numbered.csv"):
        ended = nlpctl("new", name, "--model", "scratch")
        recipe = load_recipe(f"{name.partition('.')[0]}.yaml")
        assert recipe.task == "sequence_classification" and "one of 24 labels" in ended.err, ended.err


def test_a_given_task_takes_the_columns_that_say_what_they_are(nlpctl, table) -> None:
    """Whatever they seem to hold: three texts that come again and again, and a label that comes once."""
    rows = [(("a b", "c d", "e f")[n % 3], f"label {n // 2 if n < 30 else n}") for n in range(40)]
    table("odd.tsv", ["text", "label"], rows)
    assert "--task: needed" in nlpctl("new", "odd.tsv", "--model", "scratch").err
    ended = nlpctl("new", "odd.tsv", "--model", "scratch", "--task", "sequence_classification")
    columns = load_recipe("odd.yaml").data.columns
    assert ended.code == 0 and (columns.text, columns.label) == ("text", "label"), ended.err


def test_labels_that_differ_in_case_width_or_digits_are_told(nlpctl, table) -> None:
    names = ("positive", "Positive", "好！", "好!", "1", "1.0", "2")
    table("twins.tsv", ["text", "label"], [(text, names[n % 7]) for n, text in enumerate(REVIEWS)])
    ended = nlpctl("new", "twins.tsv", "--model", "scratch")
    assert ended.code == 0 and "the labels '1' and '1.0' are one number, and count as two" in ended.err, ended.err
    assert "the labels 'Positive' and 'positive' differ in case or width only" in ended.err
    assert "the labels '好!' and '好！' differ in case or width only" in ended.err
    assert ended.err.count("count as two") == 3


def test_questions_without_an_answer_bring_a_threshold(nlpctl, folder: Path) -> None:
    context = "the food was good and the room was clean"
    answers = ({"text": "good", "answer_start": 13}, None)
    asked = [
        {"question": f"how was it {n}?", "context": context, "answers": [each] if (each := answers[n % 2]) else []}
        for n in range(20)
    ]
    (folder / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    qas = [{"id": str(n), "is_impossible": not row["answers"]} | row for n, row in enumerate(asked)]
    article = {"paragraphs": [{"context": context, "qas": qas}]}
    (folder / "squad.json").write_text(json.dumps({"data": [article]}))
    for name in ("asked", "squad"):
        ended = nlpctl("new", str(next(folder.glob(f"{name}.json*"))), "--model", "scratch")
        assert ended.code == 0 and load_recipe(f"{name}.yaml").decode.null_threshold == 0.0, ended.err
        assert "10 of the first 20 questions have no answer" in (folder / f"{name}.yaml").read_text()


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("tokenizer_config.json", b"{", "tokenizer_config.json: is not valid JSON"),
        ("tokenizer_config.json", b'{"unk_token": 5}', "tokenizer_config.json: unk_token is 5"),
        ("vocab.txt", b"", "vocab.txt: the vocabulary is empty"),
        ("vocab.txt", "[PAD]\n[UNK]\n好\n".encode("gbk"), "vocab.txt: cannot be read"),
        ("vocab.txt", b"[PAD]\n[CLS]\na\n", "vocab.txt: the vocabulary has no [UNK]"),
        ("tokenizer.json", b'{"model": {"type": "BPE"}}', "tokenizer.json: model.vocab holds no pieces"),
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_told(
    file: str, content: bytes, told: str, nlpctl, table, folder: Path
) -> None:
    table("reviews.tsv", ["id", "review", "stars"], labelled())
    shutil.copytree(ROOT / "tests/models/huggingface/bert-encoder", folder / "encoder")
    assert nlpctl("new", "reviews.tsv", "--model", "encoder", "-o", "good").code == 0
    if file == "tokenizer.json":
        (folder / "encoder" / "vocab.txt").unlink()
    (folder / "encoder" / file).write_bytes(content)
    ended = nlpctl("new", "reviews.tsv", "--model", "encoder", "-o", "bad")
    assert ended.code == 2 and told in ended.err and not (folder / "bad.yaml").exists(), ended.err


def test_without_a_header_or_dev(nlpctl, table, folder: Path) -> None:
    table("all.tsv", None, [(text, label) for _, text, label in labelled()])
    ended = nlpctl("new", "all.tsv", "--model", "scratch")
    assert "nlpctl data split all.yaml -o all_parts --write" in ended.err
    recipe = load_recipe("all.yaml")
    assert not recipe.data.header and recipe.data.columns.text == "0" and recipe.training.evaluation_strategy == "no"
    assert nlpctl("data", "split", "all.yaml", "-o", "all_parts", "--write").code == 0
    text = (folder / "all.yaml").read_text(encoding="utf-8")
    assert "dev: all_parts/dev.tsv" in text
    assert load_recipe("all.yaml").training.evaluation_strategy == "epoch"
    ended = nlpctl("new", "all.tsv", "--model", "scratch", "--split", "cut", "--overwrite")
    assert ended.code == 0, ended.err
    recipe = load_recipe("all.yaml")
    assert recipe.data.dev == (str(folder / "cut" / "dev.tsv"),) and recipe.training.evaluation_strategy == "epoch"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("file", ["all.tsv", f"{'folder/' * 14}all.tsv"])
def test_comments_say_what_the_parts_hold(nlpctl, table, folder: Path, file: str, end: str) -> None:
    """After new --split, and after data split --write: the rows, the updates, no lines that do without dev, and nothing
    of bad rows, which are in no part. What a person wrote stays."""
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    rows = [(text, "ab"[number % 2]) for number, text in enumerate(4 * REVIEWS)]
    table(file, ["text", "label"], [*rows, ("no label", "")])
    words = ("new", file, "--model", "scratch", "--task", "sequence_classification", "-o")
    assert nlpctl(*words, "new.yaml", "--split", "cut").code == 0
    assert nlpctl(*words, "old.yaml").code == 0
    before = (folder / "old.yaml").read_text(encoding="utf-8")
    assert "# 240 rows" in before and "# 30 updates per epoch" in before and "cannot be used" in before
    own = before.replace("extends:", "# dev: mine  # 7 rows\nextends:").replace("\n", end)
    (folder / "old.yaml").write_text(own, encoding="utf-8", newline="")
    ended = nlpctl("data", "split", "old.yaml", "-o", "parts", "--write")
    assert ended.code == 0 and "so training does not look at the dev rows" not in ended.err, ended.err
    for name, parts in (("new", "cut"), ("old", "parts")):
        text = (folder / f"{name}.yaml").read_bytes().decode()
        told = {line.split(":")[0].strip(): line for line in text.splitlines() if " # " in line}
        for part in ("train", "dev", "test"):
            count = len((folder / parts / f"{part}.tsv").read_text().splitlines()) - 1
            assert told[part].split() == [f"{part}:", f"{parts}/{part}.tsv", "#", str(count), "rows"]
            assert told[part].index("#") == 36
        assert "# 24 updates per epoch" in told["per_device_train_batch_size"]
        assert not any(stale in text for stale in ("240", "cannot be used", "no dev file", "save_strategy"))
        assert load_recipe(f"{name}.yaml").training.evaluation_strategy == "epoch"
    assert f"# dev: mine  # 7 rows{end}" in text
    (folder / "old.yaml").write_text(re.sub("(save_strategy:) .*", r"\1 epoch", before), encoding="utf-8")
    assert nlpctl("data", "split", "old.yaml", "-o", "again", "--write").code == 0
    assert "save_strategy: epoch" in (folder / "old.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("label", ["neg", "negative", "score"])
def test_a_label_that_is_a_usual_name_is_no_header(label: str, nlpctl, table) -> None:
    texts = [f"房间太小{text}".replace(" ", "") for text in REVIEWS]
    table("all.tsv", None, [((label, "pos")[number % 2], text) for number, text in enumerate(texts)])
    ended = nlpctl("new", "all.tsv", "--model", "scratch", "--task", "sequence_classification")
    assert ended.code == 0 and not load_recipe("all.yaml").data.header, ended.err


@pytest.mark.parametrize(
    "names", ["评论（原文）|是否好评？", "评论：|情感(0/1)", "1.评论，内容|2.标签", f"您对我们{'的评论' * 12}？|好/差"]
)
def test_names_of_columns_hold_the_signs_of_a_questionnaire(names: str, nlpctl, table) -> None:
    """And digits at the beginning, and whole questions. Nothing but a column of labels below tells that from a text."""
    header = names.split("|")
    table("all.csv", header, [(text, label) for _, text, label in labelled()])
    ended = nlpctl("new", "all.csv", "--model", "scratch")
    assert ended.code == 0 and "is bad or good" in ended.err, ended.err
    data = load_recipe("all.yaml").data
    assert data.header and [data.columns.text, data.columns.label] == header
    table("pairs.tsv", None, [(f"房间{number}怎么样？", f"{text}？") for number, text, _ in labelled()])
    task = ("--task", "semantic_indexing")
    assert nlpctl("new", "pairs.tsv", "--model", "scratch", *task).code == 0
    assert not load_recipe("pairs.yaml").data.header


def test_what_the_user_names_in_the_first_line_is_a_column(nlpctl, table) -> None:
    table("odd.tsv", ["您的评论！", "好评；差评"], [(text, label) for _, text, label in labelled()])
    assert nlpctl("new", "odd.tsv", "--model", "scratch", "--columns", "text=您的评论！").code == 0
    columns = load_recipe("odd.yaml").data.columns
    assert (columns.text, columns.label) == ("您的评论！", "好评；差评")


def test_the_commands_that_come_next_are_quoted_for_the_shell(nlpctl, table, folder: Path) -> None:
    table("all.tsv", None, [(text, label) for _, text, label in labelled()])
    ended = nlpctl("new", "all.tsv", "-o", "it's $my.yaml", "--model", "scratch")
    assert shlex.join(["nlpctl", "train", "it's $my.yaml"]) in ended.err
    assert shlex.join(["nlpctl", "train", "it's $my.yaml"]) in (folder / "it's $my.yaml").read_text(encoding="utf-8")


def test_problems_name_the_recipe_and_not_the_file_it_was_checked_in(tmp_path: Path) -> None:
    from nlpctl.datatools.new import _checked
    from nlpctl.errors import UserError

    text = "task: sequence_classification\nnonsense: 1\n"
    with pytest.raises(UserError) as refused, _checked(tmp_path / "my.yaml", text):
        pass
    assert "my.yaml:2" in str(refused.value) and "staging" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_pipe_that_nobody_writes_is_not_waited_for(nlpctl, folder: Path) -> None:
    os.mkfifo(folder / "train.tsv")
    ended = nlpctl("new", "train.tsv", "--model", "scratch", "-o", "my.yaml")
    assert ended.code == 2 and "train.tsv is a pipe or a device" in ended.err, ended.err


def test_nothing_is_cut_for_a_recipe_that_cannot_be_written(nlpctl, table, folder: Path) -> None:
    name = table("all.tsv", ["text", "label"], [(text, label) for _, text, label in labelled()])
    ended = nlpctl("new", name, "--model", "scratch", "--split", "cut", "-o", f"{name}/my.yaml")
    assert ended.code == 2 and "name another folder" in ended.err, ended.err
    assert [path.name for path in folder.iterdir()] == [name]


PAIR = [{"query": text, "title": f"{text} indeed"} for text in REVIEWS]
ANSWER = {"text": "food", "answer_start": 4}
SHAPES = {
    "multi_label_classification": [{"text": text, "label": ["a", "b"][: n % 2 + 1]} for n, text in enumerate(REVIEWS)],
    "text_matching": [{**row, "label": n % 2} for n, row in enumerate(PAIR)],
    "semantic_indexing": PAIR,
    "question_answering": [{"question": f"{t}?", "context": t, "answers": [ANSWER]} for t in REVIEWS if "food" in t],
    "token_classification": [
        {"words": t.split(), "tags": ["B-X", "I-X", *["O"] * (len(t.split()) - 2)]} for t in REVIEWS
    ],
    "masked_language_model": [{"body": text} for text in REVIEWS],
}


@pytest.mark.parametrize("task", SHAPES)
def test_the_task_is_told_by_the_rows(task: str, nlpctl, folder: Path) -> None:
    lines = [json.dumps(row) for row in SHAPES[task]]
    for name in ("train", "dev"):
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ended = nlpctl("new", ".", "-o", "my.yaml", "--model", "scratch")
    assert ended.code == 0, ended.err
    assert load_recipe("my.yaml").task == task
    assert nlpctl("recipe", "validate", "my.yaml").code == 0


WORDS = re.compile(r"[A-Za-z]{2,}[,;:]? [a-z]{2,}")  # two of them: a sentence, not a name
NAMED = re.compile(r"`[^`]*`|'[^']*'|nlpctl [ -~]*?(?=  +#|$)|name_or_path: NAME|Hugging Face")


def in_english(text: str) -> list[str]:
    """The lines of a recipe or of messages that say something in English besides commands, keys and names."""
    told = [line.partition("#")[2] if ":" in line.partition("#")[0] else line for line in text.splitlines()]
    return [line for line in told if WORDS.search(NAMED.sub("", line))]


@pytest.mark.parametrize("task", SHAPES)
def test_reasons_are_in_the_language_of_the_reader(task: str, nlpctl, folder: Path) -> None:
    """Of the recipe and of the messages, for every task; what programs read is the same in both languages."""
    lines = [json.dumps(row) for row in SHAPES[task]]
    (folder / "all.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ("new", "all.jsonl", "--model", "scratch", "--task", task, "-o", "my.yaml", "--overwrite")
    ended = nlpctl(*words, "--language", "zh")
    text = (folder / "my.yaml").read_text(encoding="utf-8")
    assert ended.code == 0 and in_english(text) == in_english(ended.err) == [], ended.err
    assert "由 `nlpctl new` 写出" in text and "没有 dev 文件：有了之后删去这三行" in text and "任务：" in ended.err
    given = [json.loads(nlpctl(*words, "--language", each, "--json").out)["result"] for each in ("zh", "en")]
    assert given[0] == given[1]
    assert in_english((folder / "my.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_comments_in_chinese_say_what_the_parts_hold(nlpctl, table, folder: Path, end: str) -> None:
    rows = [(text, "ab"[number % 2]) for number, text in enumerate(4 * REVIEWS)]
    table("银行.tsv", ["text", "label"], [*rows, ("no label", "")])
    words = ("new", "银行.tsv", "--model", "scratch", "--task", "sequence_classification", "-o", "my.yaml")
    assert nlpctl(*words, "--language", "zh").code == 0
    before = (folder / "my.yaml").read_text(encoding="utf-8")
    assert "# 240 行" in before and "# 每个 epoch 30 次更新" in before and "# 1 行不能使用，例如" in before
    (folder / "my.yaml").write_text(before.replace("\n", end), encoding="utf-8", newline="")
    assert nlpctl("data", "split", "my.yaml", "-o", "parts", "--write").code == 0
    text = (folder / "my.yaml").read_bytes().decode()
    told = {line.split(":")[0].strip(): line.split("# ")[1] for line in text.split(end) if " # " in line}
    counts = {part: len((folder / "parts" / f"{part}.tsv").read_text().splitlines()) - 1 for part in ("train", "dev")}
    assert all(told[part] == f"{count} 行" for part, count in counts.items())
    assert told["per_device_train_batch_size"] == "每个 epoch 24 次更新"
    assert "不能使用" not in text and "没有 dev 文件" not in text and text.count(end) == text.count("\n")


def test_questions_are_in_the_language_of_the_reader(nlpctl, table, folder: Path) -> None:
    table("pairs.tsv", ["q1", "q2", "label"], pairs("1", "2"))
    asked: list[str] = []

    def ask(question: Question) -> str:
        asked.append(say(question.text))
        given = {"TRAIN": "pairs.tsv", "@[task]": "text_matching", "data.labels": "2", "@[output]": "my.yaml"}
        return given.get(question.flag) or question.unasked or question.default or "none"

    with in_language("zh"):
        new_recipe(Given(model="scratch"), ask)
    assert "标签 '1' 和 '2' 中，哪一个表示两段文本匹配？" in asked and len(asked) > 8
    assert not [text for text in asked if in_english(text)]


def pairs(*labels: str) -> list[tuple[str, str, str]]:
    return [(text, f"{text} indeed", labels[number % len(labels)]) for number, text in enumerate(REVIEWS)]


@pytest.mark.parametrize(
    ("header", "labels", "expected"),
    [
        (["sentence1", "sentence2", "label"], ("same", "different"), ("different", "same")),
        (["mine", "yours", "label"], ("Similar", "other"), ("other", "Similar")),
        (["text_a", "text_b", "标签"], ("不同", "相同"), ("不同", "相同")),
        (["text_a", "text_b", "label"], ("1", "-1"), ("-1", "1")),
        (["q1", "q2", "label"], ("related", "related_not"), ("related_not", "related")),
    ],
)
def test_words_tell_which_label_means_a_match(header, labels, expected, nlpctl, table) -> None:
    name = table("pairs.tsv", header, pairs(*labels))
    words = ("new", name, "--task", "text_matching", "--model", "scratch", "--yes", "-o")
    ended = nlpctl(*words, "found.yaml")
    assert ended.code == 0, ended.err
    columns = ",".join(f"{role}={column}" for role, column in zip(("text", "text_pair", "label"), header, strict=True))
    assert nlpctl(*words, "given.yaml", "--columns", columns).code == 0
    for recipe in ("found.yaml", "given.yaml"):
        loaded = load_recipe(recipe)
        assert loaded.task == "text_matching" and loaded.data.labels == expected
        assert [getattr(loaded.data.columns, role) for role in ("text", "text_pair", "label")] == header
        assert nlpctl("recipe", "validate", recipe).code == 0
    assert "means that the two texts match" in Path("found.yaml").read_text("utf-8")


def test_a_second_text_is_found_by_a_chinese_name_and_else_told(nlpctl, table) -> None:
    table("pairs.csv", ["问题一", "问题二", "label"], pairs("1", "2"))
    table("titled.csv", ["title", "the text", "label"], pairs("1", "2"))
    assert nlpctl("new", "pairs.csv", "--model", "scratch").code == 0
    columns = load_recipe("pairs.yaml").data.columns
    assert (columns.text, columns.text_pair) == ("问题一", "问题二")
    ended = nlpctl("new", "titled.csv", "--model", "scratch")
    (other,) = {"title", "the text"} - {load_recipe("titled.yaml").data.columns.text}
    (words,) = re.findall(rf"'{other}' holds texts, too; as the second text: (--columns .*)", ended.err)
    again = nlpctl("new", "titled.csv", "--model", "scratch", *shlex.split(words), "--overwrite")
    assert again.code == 0 and load_recipe("titled.yaml").data.columns.text_pair == other
    ended = nlpctl("new", "titled.csv", "--model", "scratch", "--columns", "text_pair=none", "--overwrite")
    assert ended.code == 0 and "holds texts, too" not in ended.err


def test_labels_that_do_not_tell_which_one_means_a_match(nlpctl, table, folder: Path) -> None:
    words = ("new", table("pairs.tsv", ["q1", "q2", "label"], pairs("1", "2")), "--model", "scratch", "--yes", "--task")
    ended = nlpctl(*words, "text_matching")
    assert ended.code == 2 and "Which of the labels '1' and '2' means that two texts match?" in ended.err, ended.err
    assert "--task sequence_classification" in ended.err and not list(folder.glob("*.yaml"))
    assert nlpctl(*words, "sequence_classification").code == 0
    given = Given(train="pairs.tsv", task="text_matching", model="scratch", output=folder / "asked.yaml")
    made = new_recipe(given, lambda question: "2" if question.flag == "data.labels" else question.default)
    assert load_recipe(made.path).data.labels == ("1", "2")


def test_other_forms_of_files(nlpctl, folder: Path) -> None:
    words = "\n".join("他\tB-r\n来\tB-v\n了\tB-u\n" for _ in range(12))
    (folder / "words.txt").write_text(words, encoding="utf-8")
    (folder / "corpus.txt").write_text("\n".join(REVIEWS) + "\n", encoding="utf-8")
    (folder / "several.txt").write_text(
        "text\ttopics\n" + "".join(f"{text}\t{'a|b' if n % 3 else 'a'}\n" for n, text in enumerate(REVIEWS)), "utf-8"
    )
    (folder / "pku.txt").write_text("".join(f"他/r 来/v 了/u {number}/m 次/q\n" for number in range(12)), "utf-8")
    for name in ("words", "corpus", "several", "pku"):
        assert nlpctl("new", f"{name}.txt", "--model", "scratch").code == 0
    assert load_recipe("words.yaml").task == "lexical_analysis"
    assert load_recipe("corpus.yaml").task == "masked_language_model"
    assert load_recipe("pku.yaml").task == "lexical_analysis" and nlpctl("recipe", "validate", "pku.yaml").code == 0
    several = load_recipe("several.yaml")
    assert several.data.label_separator == "|" and several.data.format == "tsv"
    for sign in "，、；":  # as people write lists in Chinese
        rows = "".join(f"{text}\t{f'a{sign}b' if n % 3 else 'a'}\n" for n, text in enumerate(REVIEWS))
        (folder / "chinese.tsv").write_text(f"text\t问题类型\n{rows}", "utf-8")
        assert nlpctl("new", "chinese.tsv", "--model", "scratch", "--overwrite").code == 0
        assert load_recipe("chinese.yaml").data.label_separator == sign
    labels = [f'"a{"" if number % 3 else ending}"' for number, ending in enumerate(["\r\nb"] * len(REVIEWS))]
    below = "text,topics\n" + "".join(f"{text},{label}\n" for text, label in zip(REVIEWS, labels, strict=True))
    (folder / "below.csv").write_bytes(below.encode())
    assert nlpctl("new", "below.csv", "--model", "scratch").code == 0
    assert load_recipe("below.yaml").data.label_separator == "\n"


def test_numbers_for_tags_need_names(nlpctl, folder: Path) -> None:
    rows = [{"tokens": list("他来了"), "ner_tags": [1, 0, 0]} for _ in range(12)]
    (folder / "tags.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ended = nlpctl("new", "tags.jsonl", "--model", "scratch")
    assert ended.code == 2 and "the tags are numbers: '0', '1'" in ended.err
    assert "data.numbered_labels: [O, B-PER, I-PER]" in ended.err


def test_uneven_labels_unlike_files_and_bad_rows(nlpctl, table, folder: Path) -> None:
    rows = [(text, "rare" if number % 6 == 0 else "common") for number, text in enumerate(REVIEWS)]
    table("train.tsv", ["text", "label"], [*rows, ("", "rare")])
    (folder / "dev.jsonl").write_text(
        "\n".join(json.dumps({"text": text, "label": label}) for text, label in rows), encoding="utf-8"
    )
    table("test.tsv", ["text"], [(text,) for text in REVIEWS])
    ended = nlpctl("new", "train.tsv", "-o", "my.yaml", "--model", "scratch")
    assert ended.code == 0 and "left out: test.tsv: it has no column 'label'" in ended.err
    text = (folder / "my.yaml").read_text(encoding="utf-8")
    assert "# loss: {class_weights: balanced}" in text and "on_bad_row: skip" in text and "train.tsv:62" in text
    recipe = load_recipe("my.yaml")
    assert recipe.training.metric_for_best_model == "macro_f1" and recipe.data.test == ()


def test_rows_for_uie_are_no_unlabelled_texts(nlpctl, folder: Path) -> None:
    rows = [{"content": f"{t} in Wuhan", "result_list": [], "prompt": "city"} for t in REVIEWS]
    (folder / "train.txt").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    ended = nlpctl("new", "train.txt", "-o", "mine.yaml", "--model", "scratch")
    assert ended.code == 2 and "rows for UIE" in ended.err and "doccano" in ended.err
    assert not (folder / "mine.yaml").exists()


@pytest.mark.parametrize("flags", [(), ("--task", "token_classification")])
def test_spans_of_another_form_are_no_unlabelled_texts(nlpctl, folder: Path, flags: tuple[str, ...]) -> None:
    """The first row has none; the form that the message names is read."""

    def new(key: str):
        spans = [[], *([{"start": 0, "end": 5, "label": "CITY"}] for _ in REVIEWS)]
        rows = [{"text": f"Wuhan: {t}", key: each} for t, each in zip(("-", *REVIEWS), spans, strict=True)]
        (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        return nlpctl("new", "train.jsonl", "-o", "mine.yaml", "--model", "scratch", *flags)

    ended = new("cities")
    assert ended.code == 2 and "'cities' holds spans" in ended.err and '"entities": [{"start"' in ended.err
    assert not (folder / "mine.yaml").exists()
    assert new("entities").code == 0
    assert load_recipe("mine.yaml").task == "token_classification"


def test_a_column_can_be_left_out(nlpctl, table) -> None:
    rows = [(text, f"{text} indeed", float(number % 3)) for number, text in enumerate(REVIEWS)]
    table("nli.tsv", ["premise", "hypothesis", "label"], rows)
    words = ("new", "nli.tsv", "--model", "scratch", "--overwrite")
    assert nlpctl(*words).code == 0 and load_recipe("nli.yaml").data.columns.text_pair == "hypothesis"
    assert nlpctl(*words, "--columns", "text_pair=none,text=hypothesis").code == 0
    columns = load_recipe("nli.yaml").data.columns
    assert (columns.text, columns.text_pair, columns.label) == ("hypothesis", None, "label")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["new"], "TRAIN: needed"),
        (["new", "gone.tsv"], "there is no such file"),
        (["new", "numbers.tsv"], "--task: needed"),
        (["new", "reviews.tsv", "--task", "sequence_clasification"], "did you mean 'sequence_classification'"),
        (["new", "reviews.tsv", "--columns", "text=reviw"], "did you mean 'review'"),
        (["new", "reviews.tsv", "--columns", "texts=review"], "did you mean 'text'"),
        (["new", "reviews.tsv", "--columns", "review"], "is not ROLE=COLUMN"),
        (["new", "reviews.tsv", "--task", "question_answering"], "--columns question=COLUMN: needed"),
        (["new", "reviews.tsv", "--task", "token_classification"], "--columns tokens=COLUMN: needed"),
        (["new", "reviews.tsv", "--model", "./gone"], "no such model folder"),
        (["new", "reviews.tsv", "--dev", "numbers.tsv"], "no column 'review'"),
        (["new", "reviews.tsv", "--columns", "text=review，label=stars"], "(， there is full-width: write ,)"),
        (["new", "gbk.tsv"], "gbk.tsv: the file is in GBK (GB18030), not UTF-8\n  -> convert it: iconv -f GB18030"),
        (["new", "."], "which of them is the training file?"),
    ],
)
def test_what_cannot_be_known_names_the_flag(words: list[str], told: str, nlpctl, table, folder: Path) -> None:
    table("reviews.tsv", ["id", "review", "stars"], labelled())
    table("numbers.tsv", ["a", "b"], [(number, number / 7) for number in range(9)])
    (folder / "gbk.tsv").write_bytes("text\tlabel\n全部人很好\t1\n房间很大\t0\n".encode("gbk"))
    ended = nlpctl(*words)
    assert ended.code == 2 and told in ended.err, ended.err
    assert not list(folder.glob("*.yaml")) and not list(folder.glob(".staging*"))


def test_on_a_terminal_it_asks_until_the_answer_is_good(table, folder: Path) -> None:
    """What is typed: a bad name, the file, no dev, no test, the task and the columns as found, the model, the file, no
    parts, no timing."""
    table("reviews.tsv", ["id", "review", "stars"], labelled())
    terminal, other = pty.openpty()
    code = "import sys; from nlpctl.cli.app import main; code = main(['new']); assert 'paddle' not in sys.modules"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}; sys.exit(code)"],
        stdin=other,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    os.close(other)
    answers = ["gone.tsv", "reviews.tsv", "", "", "", "", "", "scratch", "mine.yaml", "none", "no"]
    os.write(terminal, "".join(f"{answer}\n" for answer in answers).encode())
    out, err = process.communicate(timeout=60)
    os.close(terminal)
    assert process.returncode == 0 and out == b"mine.yaml\n", err.decode()
    assert b"there is no such file" in err and b"[sequence_classification]" in err and b"[review]" in err
    assert load_recipe("mine.yaml").data.columns.label == "stars"


def test_how_a_folder_makes_vectors_is_not_overruled(nlpctl, table, folder: Path) -> None:
    rows = [(f"question {number}", f"the answer {number}") for number in range(20)]
    table("pairs.tsv", ["question", "answer"], rows)
    shutil.copytree(ROOT / "tests" / "models" / "sentence_folders" / "cls-dense", folder / "mine")
    given = ("--task", "semantic_indexing", "--columns", "text=question,text_pair=answer", "--model", "mine")
    assert nlpctl("new", "pairs.tsv", *given, "-o", "my.yaml").code == 0
    retrieval = load_recipe("my.yaml").retrieval
    assert (retrieval.pooling, retrieval.embedding_size, retrieval.activation) == ("cls", 12, "tanh")


def test_the_head_of_a_tagger_on_an_e5_learns_faster(nlpctl, folder: Path) -> None:
    """An e5 is known by its name, or by the prompts of its folder."""
    rows = [{"text": text, "entities": [{"start": 0, "end": 3, "label": "PER"}]} for text in PLACES]
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    shutil.copytree(ROOT / "tests" / "models" / "huggingface" / "bert-encoder", folder / "multilingual-e5-small")
    shutil.copytree(ROOT / "tests" / "models" / "sentence_folders" / "cls-dense", folder / "mine")
    shutil.copytree(folder / "mine", folder / "base5-query")
    (folder / "mine" / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "query: ", "document": "passage: "}})
    )
    for model, own in (("multilingual-e5-small", True), ("mine", True), ("base5-query", False), ("scratch", False)):
        ended = nlpctl("new", "train.jsonl", "--model", model, "-o", f"{model}.yaml")
        assert ended.code == 0, ended.err
        matched = [group.match for group in load_recipe(f"{model}.yaml").optimizer.groups]
        assert matched == [("crf",), *[("classifier",)] * own]


# As much of one as `new` looks at.
ENCODER = {
    "config.json": '{"hidden_size": 32}',
    "vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n",
    "model.safetensors": "x",
}


def test_a_folder_of_an_encoder_is_named_from_the_recipe(nlpctl, table, folder: Path) -> None:
    table("reviews.tsv", ["id", "review", "stars"], labelled())
    (folder / "mine").mkdir()
    for name, text in ENCODER.items():
        (folder / "mine" / name).write_text(text, encoding="utf-8")
    ended = nlpctl("new", "reviews.tsv", "--model", "mine", "-o", "recipes/my.yaml")
    assert ended.code == 0, ended.err
    recipe = load_recipe("recipes/my.yaml")
    assert recipe.model.name_or_path == str(folder / "mine") and recipe.training.learning_rate == 5e-5


def test_what_this_machine_does_best_is_proposed(nlpctl, table, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """bf16 for an encoder on a processor that computes so, and no more rows of a large dev than training can afford."""
    table("train.tsv", ["id", "review", "stars"], labelled())
    table("dev.tsv", ["id", "review", "stars"], labelled() * 10)
    (folder / "mine").mkdir()
    for name, text in ENCODER.items():
        (folder / "mine" / name).write_text(text, encoding="utf-8")
    for sets, model, expected in (
        (("avx512f", "avx512_bf16"), "mine", True),
        (("avx512f",), "mine", False),
        (("avx512_bf16",), "scratch", False),
    ):
        monkeypatch.setattr(recipe_defaults, "cpu_info", lambda sets=sets: CpuInfo("", "", sets))
        ended = nlpctl("new", "train.tsv", "--model", model, "-o", "my.yaml", "--overwrite")
        training = load_recipe("my.yaml").training
        assert ended.code == 0 and training.bf16 is expected, ended.err
        assert training.max_evaluate_steps == 8  # of 64 rows: 500 or some more of the 600
    assert nlpctl("new", "train.tsv", "--dev", "train.tsv", "--model", "scratch", "-o", "small.yaml").code == 0
    assert load_recipe("small.yaml").training.max_evaluate_steps == -1


def test_nothing_is_downloaded_to_time_a_training(nlpctl, table, folder: Path) -> None:
    table("train.tsv", ["id", "review", "stars"], labelled())
    ended = nlpctl("new", "train.tsv", "--model", "ernie-3.0-medium-zh", "--time", "-o", "my.yaml")
    assert ended.code == 2 and not (folder / "my.yaml").exists()
    assert "--time: ernie-3.0-medium-zh is not on this machine" in ended.err


CITIES = """北京 上海 天津 重庆 广州 深圳 武汉 成都 西安 南京 杭州 苏州 长沙 郑州 青岛 大连 沈阳 哈尔滨 长春 济南
    合肥 福州 厦门 昆明 贵阳 南宁 海口 兰州 银川 西宁""".split()


def test_what_a_network_from_scratch_reads_is_measured(
    nlpctl, table, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Characters of Chinese texts with too many words that come once; never of English ones."""
    for name, texts in (
        ("rare", [f"{city}很好" for city in CITIES]),
        ("usual", [f"{city}很好" for city in 6 * CITIES[:7]]),
        ("english", [f"w{number} is good" for number in range(40)]),
    ):
        table(f"{name}.tsv", ["text", "label"], [(text, "ab"[number % 2]) for number, text in enumerate(texts)])
        ended = nlpctl("new", f"{name}.tsv", "--model", "scratch", "--task", "sequence_classification")
        assert ended.code == 0, ended.err
    texts = {name: (folder / f"{name}.yaml").read_text(encoding="utf-8") for name in ("rare", "usual", "english")}
    assert "unit: characters" in texts["rare"] and "% of the words of held-out rows would be unknown" in texts["rare"]
    assert "unit: words" in texts["usual"] and "as jieba splits them; 0.0 % of the words" in texts["usual"]
    assert "unit: words" in texts["english"]
    with monkeypatch.context() as patch:  # what is rare in a part of the text decides nothing
        patch.setattr(recipe_defaults, "_TRAIN", 20)
        words = ("--model", "scratch", "--task", "sequence_classification", "-o", "part.yaml")
        assert nlpctl("new", "rare.tsv", *words).code == 0
    assert "as jieba splits them; at most" in (folder / "part.yaml").read_text(encoding="utf-8")
    ended = nlpctl("data", "inspect", "rare.yaml", "--set", "model.from_scratch.unit=words")
    assert ended.code == 0 and "model.from_scratch.unit: characters" in ended.out + ended.err
    assert "unit: characters" not in (ended := nlpctl("data", "inspect", "rare.yaml")).out + ended.err


def test_the_encoder_fits_the_language(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pretrained.language_of(["房间很好，wifi 也快"]) == "zh"
    assert pretrained.language_of(["a room", "ünder"]) == "en"
    assert pretrained.language_of(["комната", "部屋はとてもいい"]) == pretrained.language_of(["12"]) == pretrained.ANY
    monkeypatch.setattr(pretrained, "lies_here", lambda name: False)
    assert pretrained.available("zh", small=True) is None  # tests have no network
    monkeypatch.setattr(pretrained, "hub_answers", lambda: True)
    names = {small: pretrained.available("zh", small=small)[0].name for small in (True, False)}
    assert names == {True: "ernie-3.0-nano-zh", False: "ernie-3.0-medium-zh"}
    assert pretrained.available("any", small=True)[0].language == pretrained.ANY
    monkeypatch.setattr(pretrained, "lies_here", lambda name: name == "ernie-3.0-medium-zh")
    encoder, state = pretrained.available("zh", small=True)
    assert (encoder.name, state) == ("ernie-3.0-medium-zh", "here")


def test_a_value_keeps_its_place_and_its_comment(tmp_path: Path) -> None:
    starts = [Preset("task", "x"), Preset("data.train", "a b.tsv", "why"), Preset("model.head", "linear")]
    starts += [Preset("model.head", "crf"), Preset("training.learning_rate", 5e-5, "long " * 30)]
    text = recipe_text(["head"], starts, [Preset("loss.class_weights", "balanced")])
    assert text.splitlines() == [
        "# head",
        "task: x",
        "data:",
        "  train: a b.tsv                    # why",
        "model:",
        "  head: crf",
        "training:",
        *("  # " + ("long " * 23).strip(), "  # " + ("long " * 7).strip()),
        "  learning_rate: 5e-5",
        "",
        "# To try:",
        "# loss: {class_weights: balanced}",
    ]


def test_comments_stand_under_each_other_behind_chinese(tmp_path: Path) -> None:
    text = recipe_text([], [Preset("data.train", "评论.tsv", "why"), Preset("data.dev", "好" * 40, "because " * 5)])
    assert text.splitlines()[1:] == [
        "  train: 评论.tsv                   # why",
        f"  # {('because ' * 5).strip()}",
        f"  dev: {'好' * 40}",
    ]


def choice(*labels: str) -> dict:
    return {"from_name": "mood", "to_name": "y", "type": "choices", "value": {"choices": list(labels)}}


def span(text: str, part: str, label: str) -> dict:
    start = text.index(part)
    value = {"start": start, "end": start + len(part), "text": part, "labels": [label]}
    return {"from_name": "x", "to_name": "y", "type": "labels", "value": value}


def studio(rows: list[tuple[str, list[dict] | None]]) -> str:
    """An export of Label Studio: texts and the results of an annotator, None where there was none."""
    tasks = [
        {"id": i, "data": {"review": text}, "annotations": [] if results is None else [{"result": results}]}
        for i, (text, results) in enumerate(rows)
    ]
    return json.dumps(tasks)


RATED = [(text, ("bad", "good")[number % 2]) for number, text in enumerate(REVIEWS)]
LATE = ["late"]
PLACES = [f"{name} lives in {place}" for name in ("Ann", "Bob", "Eve", "Kim") for place in ("Rome", "Oslo", "Lima")]
EXPORTS = {
    "one label": (
        studio([*((text, [choice(mood)]) for text, mood in RATED), ("nobody", None)]),
        ("sequence_classification", "Label Studio", {"text": "review", "label": "mood"}),
    ),
    "several labels": (
        studio([(text, [choice(mood, *LATE[i % 3 :])]) for i, (text, mood) in enumerate(RATED)]),
        ("multi_label_classification", "Label Studio", {"text": "review", "label": "mood"}),
    ),
    "spans": (
        studio([(text, [span(text, text.split()[-1], "LOC")]) for text in PLACES] + [("nothing here", [])]),
        ("token_classification", "Label Studio", {"text": "review"}),
    ),
    "spans of JSON_MIN": (
        json.dumps([{"text": text, "id": 1, "ner": [span(text, text.split()[-1], "LOC")["value"]]} for text in PLACES]),
        ("token_classification", "Label Studio", {"text": "text"}),
    ),
    "spans of doccano": (
        "".join(f"{json.dumps({'id': 1, 'text': text, 'label': [[0, 3, 'PER']]})}\n" for text in PLACES),
        ("token_classification", "doccano", {"text": "text"}),
    ),
    "entities of CLUENER": (
        "".join(
            f"{json.dumps({'text': text, 'label': {'LOC': {text.split()[-1]: [[len(text) - 4, len(text) - 1]]}}})}\n"
            for text in PLACES if len(text.split()[-1]) == 4
        ),
        ("token_classification", "CLUENER", {"text": "text"}),
    ),
    "entities with start, end and label": (
        "".join(
            f"{json.dumps({'text': text, 'entities': [{'start': 0, 'end': 3, 'label': 'PER'}]})}\n" for text in PLACES
        ),
        ("token_classification", "spans", {"text": "text"}),
    ),
    "one label of doccano": (
        "".join(f"{json.dumps({'text': text, 'label': [mood]})}\n" for text, mood in RATED),
        ("sequence_classification", "doccano", {"text": "text", "label": "label"}),
    ),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_what_people_annotated_elsewhere(nlpctl, folder: Path, name: str) -> None:
    text, (task, program, columns) = EXPORTS[name]
    file = "exported.jsonl" if program == "doccano" else "exported.json"
    (folder / file).write_text(text, encoding="utf-8")
    ended = nlpctl("new", file, "-o", "mine.yaml", "--model", "scratch")
    assert ended.code == 0 and f"task: {task}" in ended.err and f"{file} ({program})" in ended.err, ended.err
    content = yaml.safe_load((folder / "mine.yaml").read_text())
    assert content["data"].get("columns", {}) == columns
    assert "format" not in content["data"]
    assert nlpctl("recipe", "validate", "mine.yaml").code == 0
    recipe = load_recipe("mine.yaml")
    data = read_training_data(task_rows(recipe.task, recipe.data))
    assert len(data.train) == len(REVIEWS if "label" in columns else PLACES) + (name == "spans")
    assert set(data.labels.names) <= {"bad", "good", "late", "O", "B-LOC", "B-PER"}


def test_lists_of_labels_of_which_some_are_longer_are_no_export(nlpctl, folder: Path) -> None:
    rows = [{"text": text, "label": [mood, *LATE[i % 50 != 40 :]]} for i, (text, mood) in enumerate(RATED)]
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ended = nlpctl("new", "train.jsonl", "-o", "mine.yaml", "--model", "scratch")
    assert ended.code == 0 and "task: multi_label_classification" in ended.err and "doccano" not in ended.err
    assert "format" not in yaml.safe_load((folder / "mine.yaml").read_text())["data"]


def test_another_task_does_without_the_spans(nlpctl, folder: Path) -> None:
    """Whether it is given, as here, or chosen: they are a column that it does not read."""
    rows = [{"text": text, "mood": mood, "spans": [{"start": 0, "end": 3, "label": "X"}]} for text, mood in RATED]
    for name in ("train", "dev"):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for task in ("token_classification", "sequence_classification", "masked_language_model"):
        ended = nlpctl("new", "train.jsonl", "-o", f"{task}.yaml", "--model", "scratch", "--task", task)
        assert ended.code == 0 and ("(spans)" in ended.err) is (task == "token_classification"), ended.err
        assert "format" not in yaml.safe_load((folder / f"{task}.yaml").read_text())["data"]
        assert nlpctl("data", "inspect", f"{task}.yaml").code == 0


def test_an_export_without_annotations_makes_no_recipe(nlpctl, folder: Path) -> None:
    (folder / "exported.json").write_text(studio([(text, None) for text in REVIEWS]))
    ended = nlpctl("new", "exported.json", "-o", "mine.yaml", "--model", "scratch")
    assert ended.code == 2 and "--task" in ended.err and not (folder / "mine.yaml").exists()
    ended = nlpctl("new", "exported.json", "-o", "mine.yaml", "--model", "scratch", "--task", "sequence_classification")
    assert ended.code == 2 and "Traceback" not in ended.err and not (folder / "mine.yaml").exists()
