"""A folder of Hugging Face whose tokenizer is no plain WordPiece: trained, scored, exported, asked without Paddle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.library_tokenizers import KINDS, encoder, unigram

ROOT = Path(__file__).resolve().parents[2]
TRAINED = ("--max_steps", "4", "--per_device_train_batch_size", "4", "--learning_rate", "1e-3", "--device", "cpu")
PLACES = ("北京 的 酒店，ﬁne food 好，cafe\u0301 fox", "這 酒店 Ｆｏｘ 300 the <mask> </s> 龘")
ASKED = """\
import sys
from nlpctl.cli.app import main
code = main(sys.argv[1:])
print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
sys.exit(code)
"""

CLASSIFIED = [{"text": text, "label": label} for text, label in (("fine food", "pos"), ("酒店 不 好", "neg")) * 8]
TAGGED = [{"tokens": list("北京的酒店好"), "tags": ["B-LOC", "I-LOC", "O", "O", "O", "O"]}] * 8
TAGGED += [{"tokens": ["the", "quick", "fox"], "tags": ["O", "O", "B-LOC"]}] * 8
ASKS = [{"question": "哪里", "context": "酒店 在 北京 的 the fox",
         "answers": [{"text": "北京", "answer_start": 5}]}] * 12  # fmt: skip
PAIRS = [{"text": "fine food", "text_pair": text, "label": label} for text, label in (("酒店", 0), ("fine", 1)) * 6]
FOUND = [{"text": text, "text_pair": pair} for text, pair in (("fine food", "fox"), ("酒店", "北京")) * 6]
PROMPT = ["prompt.template={'text': 'text'} it was {'mask'}", "prompt.verbalizer={pos: fox, neg: bed}"]
CASES = {
    "sequence_classification": (CLASSIFIED, []),
    "token_classification": (TAGGED, ["--set", "data.doc_stride=5"]),
    "question_answering": (ASKS, ["--set", "data.doc_stride=5"]),
    "text_matching": (PAIRS, ["--set", "data.columns.text_pair=text_pair"]),
    "semantic_indexing": (FOUND, ["--set", "data.columns.text_pair=text_pair"]),
    "masked_language_model": ([{"text": row["text"]} for row in CLASSIFIED], []),
    "few_shot_classification": (CLASSIFIED, ["--set", PROMPT[0], "--set", PROMPT[1]]),
}


def rows(task: str) -> list[dict]:
    """Texts to answer: of the training, and such as normalisers change."""
    made, _ = CASES[task]
    if task == "question_answering":
        return [{"question": "哪里", "context": text} for text in PLACES]
    if task in ("text_matching", "semantic_indexing"):
        return [{"text": text, "text_pair": "fox"} for text in PLACES]
    if task == "masked_language_model":
        return [{"text": f"the <mask> {text}"} for text in ("酒店", "quick dog")]
    return [{"text": text} for text in PLACES]


def answered(work, run: Path, task: str) -> list[dict]:
    file = work / f"{run.name}-asked.jsonl"
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows(task)), encoding="utf-8")
    done = work.nlpctl("predict", run, file)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(task: str, answer: dict) -> None:
    for entity in answer.get("entities", ()):
        assert answer["text"][entity["start"] : entity["end"]] == entity["text"]
    if task == "question_answering":
        part = answer["context"][answer["start"] : answer["end"]]
        assert part == answer["answer"] and part == part.strip() and part


@pytest.fixture(scope="session")
def trained(work):
    """From kind of tokenizer and task to a run, made once."""
    runs: dict[tuple[str, str], Path] = {}

    def train(kind, task: str) -> Path:
        name = f"{kind.__name__}-{task}"
        if (kind.__name__, task) not in runs:
            folder = work / f"encoder-{kind.__name__}"
            if not folder.exists():
                encoder(folder, kind())
            made, options = CASES[task]
            file = work / f"{task}-library.jsonl"
            file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made), encoding="utf-8")
            (work / f"{name}.yaml").write_text(
                f"task: {task}\nmodel: {{name_or_path: {folder}}}\n"
                f"data: {{train: {file}, dev: {file}, max_seq_length: 24}}\n", encoding="utf-8",
            )  # fmt: skip
            runs[kind.__name__, task] = work.train(name, *options, *TRAINED, recipe=f"{name}.yaml")
        return runs[kind.__name__, task]

    return train


SOON = ("token_classification", "question_answering")


def later(values, soon):
    """Parameters of which all but `soon` are slow."""
    return [pytest.param(each, marks=[pytest.mark.slow] * (each not in soon)) for each in values]


@pytest.mark.parametrize("task", later(CASES, SOON))
@pytest.mark.parametrize("kind", later(KINDS, [unigram]))
def test_every_task_learns_and_answers(work, trained, kind, task):
    run = trained(kind, task)
    assert {"tokenizer.json", "tokenizer_config.json"} <= {path.name for path in (run / "model").iterdir()}
    assert not (run / "model" / "vocab.txt").exists()
    for answer in answered(work, run, task):
        check(task, answer)
    done = work.nlpctl("eval", run)
    assert done.returncode == 0, done.stderr


def test_a_question_of_too_many_tokens_is_a_bad_row(work, trained):
    """Of one word, so that only the tokenizer tells. It used to end the command, whatever data.on_bad_row says."""
    run = trained(unigram, "question_answering")
    good = {**ASKS[0], "id": "a"}
    rows = [good, {**good, "id": "long", "question": "zqx" * 12}, {**good, "id": "b"}]
    (work / "long.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    skip = ("--set", "data.on_bad_row=skip")
    done = work.nlpctl("predict", run, "long.jsonl", *skip)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[1]["error"].startswith("long.jsonl:2: question too long: ") and "has room for" in answers[1]["error"]
    assert [answers[0]["id"], answers[2]["id"]] == ["a", "b"]
    stopped = work.nlpctl("predict", run, "long.jsonl")
    assert stopped.returncode == 2 and "long.jsonl:2: question too long" in stopped.stderr
    assert stopped.stdout.splitlines() == [json.dumps(answers[0], ensure_ascii=False)]
    for workers in ((), ("--workers", "2")):
        done = work.nlpctl("eval", run, "long.jsonl", *skip, *workers, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["result"]["metrics"]["test"]["rows"] == 2


@pytest.mark.parametrize("task", later(CASES, ["token_classification"]))
def test_an_export_carries_its_tokenizer_and_answers_alike(work, trained, task):
    """By ONNX Runtime without Paddle and PaddleNLP, unless the task's code imports it."""
    run = trained(unigram, task)
    expected = answered(work, run, task)
    done = work.nlpctl("export", run, "-o", f"{run.name}-export", "--format", "onnx", "--timing", "0")
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (work / f"{run.name}-export").iterdir()}
    assert "tokenizer.json" in names and "fast_tokenizer.json" not in names
    words = [sys.executable, "-c", ASKED, "predict", f"{run.name}-export", f"{run.name}-asked.jsonl"]
    asked = subprocess.run(words, cwd=work.folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
    assert asked.returncode == 0, asked.stderr.decode()
    imported = set(asked.stderr.decode().splitlines()[-1].split())
    if task not in ("masked_language_model", "few_shot_classification"):
        assert not imported & {"paddle", "paddlenlp", "transformers"}
    answers = [json.loads(line) for line in asked.stdout.decode().splitlines()]
    for got, wanted in zip(answers, expected, strict=True):
        for key in ("label", "labels", "entities", "answer", "start", "end"):
            assert got.get(key) == wanted.get(key)


@pytest.mark.slow
def test_added_tokens_are_kept_whole(work, trained):
    run = trained(unigram, "sequence_classification")
    recipe = next(work.folder.glob(f"{run.name}.yaml"))
    grown = work.train("grown", *TRAINED, "--set", "model.add_tokens=[格利泽, fine food]", recipe=recipe.name)
    done = work.nlpctl("data", "show", grown, "-n", "1", "--json")
    assert done.returncode == 0, done.stderr
    tokens = json.loads(done.stdout)["result"]["rows"][0]["windows"][0]["inputs"][0]["tokens"]
    assert "fine food" in tokens, tokens
