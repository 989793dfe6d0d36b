"""Data and a recipe of seconds for every task."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WORDS = "the room bed was staff view food very a and".split()
TELLING = {"neg": ("bad", "dirty"), "pos": ("good", "clean")}
ENCODER = "{vocab_size: 200, min_frequency: 1, hidden_size: 32, num_hidden_layers: 1, intermediate_size: 64}"

# Ten updates with a checkpoint and an evaluation after every second one; dropout is on, so a resumed run has to
# replay it; 27 rows in batches of 4 leave a small last batch, and the tenth update lies within the second epoch.
RECIPE = """\
task: {task}
model: {model}
data: {data}
{more}
training:
  learning_rate: 1e-2
  max_steps: 10
  per_device_train_batch_size: 4
  per_device_eval_batch_size: 3
  evaluation_strategy: steps
  eval_steps: 2
  save_strategy: steps
  save_steps: 2
  load_best_model_at_end: true
  metric_for_best_model: {metric}
  logging_steps: 1
runtime: {{device: cpu}}
"""

Rows = list[dict[str, Any]]


def classified(chance: random.Random) -> dict[str, Any]:
    label = chance.choice(("neg", "pos"))
    words = [*chance.choices(WORDS, k=chance.randint(1, 6)), chance.choice(TELLING[label])]
    chance.shuffle(words)
    return {"text": " ".join(words), "label": label}


def several(chance: random.Random) -> dict[str, Any]:
    labels = [name for name in ("room##bed", "room##view", "food") if chance.random() < 0.5]
    words = [*chance.choices(WORDS, k=3), *(name.rpartition("#")[2] for name in labels)]
    return {"text": " ".join(words), "label": labels}


def matched(chance: random.Random) -> dict[str, Any]:
    words = chance.choices(WORDS, k=4)
    match = chance.random() < 0.5
    other = chance.sample(words, 3) if match else chance.choices(WORDS, k=3)
    return {"a": " ".join(words), "b": " ".join(other), "label": int(match)}


def paired(chance: random.Random) -> dict[str, Any]:
    return {**matched(chance), "label": 1}


def tagged(chance: random.Random) -> dict[str, Any]:
    tokens, tags = ["in", chance.choice(("york", "delhi"))], ["O", "B-LOC"]
    if chance.random() < 0.5:
        tokens, tags = ["in", "new", tokens[1]], ["O", "B-LOC", "I-LOC"]
    around = chance.choices(WORDS, k=chance.randint(0, 9))
    return {"tokens": [*around, *tokens], "tags": ["O"] * len(around) + tags}


def cut(chance: random.Random) -> dict[str, Any]:
    pairs = [chance.choice((("北京", "LOC"), ("天气", "n"), ("很", "d"), ("好", "a"))) for _ in range(4)]
    characters = [(c, f"{tag}-{'B' if i == 0 else 'I'}") for word, tag in pairs for i, c in enumerate(word)]
    return {"tokens": [c for c, _ in characters], "tags": [tag for _, tag in characters]}


def asked(chance: random.Random) -> dict[str, Any]:
    context = " ".join(chance.choices(WORDS, k=chance.randint(3, 20))) + " in new delhi ."
    answer = "new delhi"
    return {"question": "where", "context": context,
            "answers": [{"text": answer, "answer_start": context.index(answer)}]}  # fmt: skip


def a_label(answer: dict[str, Any]) -> None:
    assert answer["label"] in ("neg", "pos") and sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-5)


def labels(answer: dict[str, Any]) -> None:
    assert set(answer["labels"]) <= {"room", "room##bed", "room##view", "food"}


def a_match(answer: dict[str, Any]) -> None:
    assert answer["label"] in ("0", "1") and 0 <= answer["score"] <= 1


def a_vector(answer: dict[str, Any]) -> None:
    assert sum(x * x for x in answer["embedding"]) == pytest.approx(1, abs=1e-4)


def spans(key: str) -> Callable[[dict[str, Any]], None]:
    def check(answer: dict[str, Any]) -> None:
        for span in answer[key]:
            assert answer["text"][span["start"] : span["end"]] == span["text"]

    return check


def an_answer(answer: dict[str, Any]) -> None:
    if answer["answer"] is not None:
        assert answer["context"][answer["start"] : answer["end"]] == answer["answer"]


# task: what makes a row, what checks an answer, what metric selects, and the keys of the recipe
CASES: dict[str, tuple[Callable, Callable, str, dict[str, str]]] = {
    "sequence_classification": (classified, a_label, "accuracy", {}),
    "multi_label_classification": (several, labels, "micro_f1", {}),
    "text_matching": (matched, a_match, "auc", {"data": "columns: {text: a, text_pair: b}"}),
    "semantic_indexing": (paired, a_vector, "recall@1", {"data": "columns: {text: a, text_pair: b}"}),
    "question_answering": (asked, an_answer, "f1", {"data": "doc_stride: 5"}),
    "token_classification": (tagged, spans("entities"), "f1", {"model": "head: crf", "data": "doc_stride: 5"}),
    "lexical_analysis": (
        cut, spans("words"), "f1",
        {"model": "from_scratch: {architecture: bigru, min_frequency: 1, hidden_size: 16, embedding_size: 16}"},
    ),
    "masked_language_model": (classified, lambda answer: None, "perplexity", {"data": "columns: {text: text}"}),
    "few_shot_classification": (
        classified, a_label, "accuracy",
        {
            "model": "name_or_path: masked_language_model",
            "more": "prompt: {template: \"{'text': 'text'} it was {'mask'}\", verbalizer: {neg: bad, pos: good}}",
        },
    ),
}  # fmt: skip


def write(folder: Path, task: str) -> Path:
    """Data and recipe of a task; returns the recipe."""
    make, _, metric, keys = CASES[task]
    for split, count in (("train", 27), ("dev", 10), ("test", 10)):
        chance = random.Random(f"{task} {split}")
        rows = [json.dumps(make(chance), ensure_ascii=False) for _ in range(count)]
        (folder / f"{task}-{split}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    files = ", ".join(f"{split}: {task}-{split}.jsonl" for split in ("train", "dev", "test"))
    model = keys.get("model", f"from_scratch: {ENCODER}")
    if "from_scratch" not in model and "name_or_path" not in model:
        model = f"from_scratch: {ENCODER}, {model}"
    data = ", ".join(filter(None, [files, "max_seq_length: 16", keys.get("data")]))
    recipe = folder / f"{task}.yaml"
    recipe.write_text(
        RECIPE.format(task=task, model=f"{{{model}}}", data=f"{{{data}}}", metric=metric, more=keys.get("more", "")),
        encoding="utf-8",
    )
    return recipe
