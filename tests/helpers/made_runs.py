"""Runs of every task, made without training: weights large enough that rows are decided differently."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nlpctl.config.dump import dump_recipe
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.schema import Recipe
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import read_training_data
from nlpctl.models.folder import make_description, save_model_folder
from nlpctl.runtime.process import set_up_process

WORDS = "the room bed was staff view food very a and good bad clean dirty".split()
ENCODER = "{{architecture: {}, min_frequency: 1, hidden_size: 32, num_hidden_layers: 2, intermediate_size: 64}}"
OWN = "{{architecture: {}, min_frequency: 1, hidden_size: 16, embedding_size: 16}}"
SCALE = 20.0  # of the matrices: networks from scratch give every row almost the same answer


def text(chance: random.Random, least: int = 1) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(least, 9)))


def tagged(chance: random.Random) -> dict[str, Any]:
    tokens = text(chance).split()
    return {"tokens": tokens, "tags": [chance.choice(("O", "B-LOC", "B-PER", "I-PER")) for _ in tokens]}


def analysed(chance: random.Random) -> dict[str, Any]:
    tokens = text(chance).split()
    return {"tokens": tokens, "tags": [chance.choice(("O", "B-n", "B-v", "I-v")) for _ in tokens]}


def asked(chance: random.Random) -> dict[str, Any]:
    context = text(chance, 3)
    return {"question": "which room", "context": context, "answers": [{"text": context[:3], "answer_start": 0}]}


PAIRED = "columns: {text: a, text_pair: b}"
# task: a row, and keys of the section data
CASES: dict[str, tuple[Callable[[random.Random], dict[str, Any]], str]] = {
    "sequence_classification": (lambda c: {"text": text(c), "label": c.choice("xyz")}, ""),
    "multi_label_classification": (lambda c: {"text": text(c), "label": c.sample("xyz", c.randint(0, 2))}, ""),
    "text_matching": (lambda c: {"a": text(c), "b": text(c), "label": c.randint(0, 1)}, PAIRED),
    "semantic_indexing": (lambda c: {"a": text(c), "b": text(c), "label": 1}, PAIRED),
    "question_answering": (asked, "doc_stride: 8"),
    "token_classification": (tagged, "doc_stride: 8"),
    "lexical_analysis": (analysed, "doc_stride: 8"),
    "masked_language_model": (lambda c: {"text": text(c)}, ""),
    "few_shot_classification": (lambda c: {"text": text(c), "label": c.choice("xy")}, ""),
}
PROMPT = "prompt: {template: \"{'text': 'text'} it was {'mask'}\", verbalizer: {x: good, y: bad}}"


def make_run(folder: Path, task: str, architecture: str = "ernie", head: str = "linear") -> Recipe:
    """A run directory with a model in it; returns the recipe that stands for it."""
    recipe = _recipe(folder, task, architecture, head)
    set_up_process(recipe)
    import paddle

    from nlpctl.models.load import load_to_train
    from nlpctl.tasks.base import task_class

    data = read_training_data(task_rows(recipe.task, recipe.data))
    paddle.seed(5)
    # not the task's own build_model: few-shot classification refuses a network that guesses no words yet
    network_head = task_class(task).head(recipe)
    model = load_to_train(recipe.model, network_head, data.labels.names, vocabulary_texts=data.texts)
    for parameter in model.network.parameters():
        # those of encoders are drawn from N(0, 0.02), others are larger
        if parameter.ndim > 1:
            parameter.set_value(parameter * min(SCALE, 0.4 / float(parameter.std())))
    save_model_folder(recipe.run_dir / "model", model.network, model.tokenizer, make_description(recipe, model.labels))
    (recipe.run_dir / "checkpoints").mkdir()
    (recipe.run_dir / "recipe.yaml").write_text(dump_recipe(recipe), encoding="utf-8")
    return load_recipe(recipe.run_dir, (), "apply")


def _recipe(folder: Path, task: str, architecture: str, head: str) -> Recipe:
    make, keys = CASES[task]
    data = f", {keys}" if keys else ""
    chance = random.Random(task)
    for split, count in (("train", 20), ("dev", 40)):
        rows = [json.dumps(make(chance)) for _ in range(count)]
        (folder / f"{split}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    sizes = (OWN if architecture in ("bilstm", "bigru", "textcnn") else ENCODER).format(architecture)
    file = folder / "recipe.yaml"
    file.write_text(
        f"task: {task}\nmodel: {{from_scratch: {sizes}{', head: crf' if head == 'crf' else ''}}}\n"
        f"data: {{train: train.jsonl, dev: dev.jsonl, max_seq_length: 24{data}}}\n"
        f"{PROMPT if task == 'few_shot_classification' else ''}\nruntime: {{device: cpu}}\n",
        encoding="utf-8",
    )
    return load_recipe(file, [Override("training.output_dir", str(folder / "run"), "--set")])
