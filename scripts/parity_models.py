"""Small models of every task and architecture for check_parity.py: trained briefly on real data, or random."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from bench_common import DATA

from nlpctl.config.dump import dump_recipe
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.schema import Recipe
from nlpctl.data.batches.collate import raise_failure
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import read_training_data
from nlpctl.models.folder import make_description, save_model_folder
from nlpctl.runtime.process import set_up_process

TRAINING_ROWS, DEV_ROWS = 600, 256
BATCH = 16
LARGE = 0.2  # standard deviation of weights that are not trained
OWN_RATE = 5e-3  # learning rate of networks other than encoders
ARCHITECTURES = ("ernie", "bert", "roberta", "electra", "bilstm", "textcnn", "bigru")
OWN = ("bilstm", "textcnn", "bigru")


@dataclass(frozen=True)
class Kind:
    """A row of the table: a task, its data, and keys of the recipe."""

    name: str
    task: str
    rows: Callable[[str, int], list[Any]]  # of "train" or "dev", so many
    model: str = ""
    data: str = ""
    more: str = ""
    steps: int = 80  # of training; 0: weights are made larger instead, or every row would get the same answer
    rate: float = 2e-3  # learning rate of encoders


def _table(name: str) -> Callable[[str, int], list[Any]]:
    def rows(split: str, count: int) -> list[Any]:
        with (DATA / name / f"{split}.tsv").open(encoding="utf-8") as stream:
            next(stream)
            pairs = (line.rstrip("\n").rsplit("\t", 1) for line in stream)
            return [{"text": text, "label": label} for text, label in islice(pairs, count)]

    return rows


def _several(split: str, count: int) -> list[Any]:
    """News with their topic, and whether they are short or long."""
    with (DATA / "tnews_fewshot" / f"{split}.jsonl").open(encoding="utf-8") as stream:
        found = [json.loads(line) for line in stream]
    chosen = np.random.default_rng(1).permutation(len(found))[:count]
    return [
        {"text": row["sentence"], "label": [row["label_desc"], "long" if len(row["sentence"]) > 22 else "short"]}
        for row in (found[i] for i in chosen)
    ]


def _pairs(split: str, count: int) -> list[Any]:
    with (DATA / "bustm" / f"{'test' if split == 'dev' else split}.jsonl").open(encoding="utf-8") as stream:
        found = (json.loads(line) for line in stream)
        return [
            {"text": row["sentence1"], "text_pair": row["sentence2"], "label": row["label"]}
            for row in islice(found, count)
        ]


def _tagged(split: str, count: int) -> list[Any]:
    sentences = (DATA / "msra_ner" / f"{split}.txt").read_text(encoding="utf-8").split("\n\n")
    rows = []
    for sentence in sentences[:count]:
        pairs = [line.split("\t") for line in sentence.split("\n") if line]
        if pairs:
            rows.append({"tokens": [pair[0] for pair in pairs], "tags": [pair[1] for pair in pairs]})
    return rows


def _asked(split: str, count: int) -> list[Any]:
    content = json.loads((DATA / "cmrc2018" / f"{split}.json").read_text(encoding="utf-8"))
    rows = []
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answers = [
                    one
                    for one in question["answers"][:1]
                    if paragraph["context"][one["answer_start"] :].startswith(one["text"])
                ]
                if answers:
                    row = {"question": question["question"], "context": paragraph["context"], "answers": answers}
                    rows.append(row)
    return rows[: count // 4]  # each makes several windows


PAIR = "columns: {text_pair: text_pair}"
KINDS = (
    Kind("sequence classification", "sequence_classification", _table("sst2")),
    Kind("multi-label classification", "multi_label_classification", _several, steps=0),
    Kind("text matching", "text_matching", _pairs, data=PAIR),
    Kind("semantic indexing", "semantic_indexing", _pairs, data=PAIR),
    Kind("token classification", "token_classification", _tagged, data="doc_stride: 32", steps=0),
    Kind(
        "token classification, CRF", "token_classification", _tagged,
        model="head: crf", data="doc_stride: 32", steps=0,
    ),
    Kind("lexical analysis, CRF", "lexical_analysis", _tagged, model="head: crf", data="doc_stride: 32"),
    Kind("question answering", "question_answering", _asked, data="doc_stride: 16", rate=5e-4),
    Kind("masked language model", "masked_language_model", _table("chnsenticorp"), steps=0),
    Kind(
        "few-shot classification", "few_shot_classification", _table("sst2"),
        more="prompt: {template: \"{'text': 'text'} it was {'mask'}\", verbalizer: {'0': bad, '1': good}}",
    ),
)  # fmt: skip


def make_run(folder: Path, kind: Kind, architecture: str) -> Recipe:
    """A run directory with a briefly trained model. UserError if the architecture does not support the task."""
    recipe = _recipe(folder, kind, architecture)
    set_up_process(recipe)
    import paddle

    from nlpctl.data.text.tokenizers import build_encoder
    from nlpctl.models.load import load_to_train
    from nlpctl.runtime.process import quiet_libraries
    from nlpctl.tasks.base import make_task, task_class

    quiet_libraries()
    data = read_training_data(task_rows(recipe.task, recipe.data))
    task_class, where = task_class(recipe.task), recipe.run_dir / "model"
    paddle.seed(1)
    # not the task's own build_model: few-shot classification refuses a network that cannot predict words yet
    model = load_to_train(recipe.model, task_class.head(recipe), data.labels.names, vocabulary_texts=data.texts)
    description = make_description(recipe, model.labels)
    save_model_folder(where, model.network, model.tokenizer, description)
    (recipe.run_dir / "checkpoints").mkdir()
    (recipe.run_dir / "recipe.yaml").write_text(dump_recipe(recipe), encoding="utf-8")
    recipe = load_recipe(recipe.run_dir, (), "apply")
    model = task_class.load_trained(recipe, str(where))
    encoder = build_encoder(model.tokenizer)
    rate, examples = OWN_RATE if architecture in OWN else kind.rate, list(data.training_examples())
    _train(make_task(recipe, data.labels), model.network, encoder, examples, kind.steps, rate)
    save_model_folder(where, model.network, model.tokenizer, description)
    return recipe


def _recipe(folder: Path, kind: Kind, architecture: str) -> Recipe:
    for split, count in (("train", TRAINING_ROWS), ("dev", DEV_ROWS)):
        lines = [json.dumps(row, ensure_ascii=False) for row in kind.rows(split, count)]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sizes = "hidden_size: 64, embedding_size: 64" if architecture in OWN else "hidden_size: 128, intermediate_size: 256"
    layers = "" if architecture == "textcnn" else ", num_hidden_layers: 2"
    scratch = f"from_scratch: {{architecture: {architecture}, min_frequency: 2, vocab_size: 4000, {sizes}{layers}}}"
    model, data = (", ".join(filter(None, parts)) for parts in ((scratch, kind.model), (_DATA, kind.data)))
    file = folder / "recipe.yaml"
    file.write_text(
        f"task: {kind.task}\nmodel: {{{model}}}\ndata: {{{data}}}\n{kind.more}\nruntime: {{device: cpu}}\n",
        encoding="utf-8",
    )
    return load_recipe(file, [Override("training.output_dir", str(folder / "run"), "--set")])


_DATA = "train: train.jsonl, dev: dev.jsonl, max_seq_length: 64"


def _train(task: Any, network: Any, encoder: Any, examples: list[Any], steps: int, rate: float) -> None:
    """Train until rows are separated; accuracy does not matter here."""
    import paddle

    from nlpctl.tasks.base import as_tuple

    if not steps:
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.set_value(parameter * (LARGE / float(parameter.std())))
        network.eval()
        return
    task.collect_statistics(examples)
    chance = np.random.default_rng(1)
    features = [part for example in examples for part in task.features(example, encoder)]
    collate = task.collator(encoder, labelled=True)
    warm_up = paddle.optimizer.lr.LinearWarmup(rate, steps // 2, 0.0, rate)  # or encoders learn nothing at all
    optimizer = paddle.optimizer.AdamW(warm_up, parameters=network.parameters())
    network.train()
    for _ in range(steps):
        batch = collate([features[i] for i in chance.choice(len(features), BATCH)])
        raise_failure(batch)
        batch = task.apply_mask(batch, chance) if task.masks_inputs else batch
        tensors = {name: paddle.to_tensor(array) for name, array in batch.items()}
        outputs = network(**{name: tensor for name, tensor in tensors.items() if name not in task.label_names})
        loss = task.loss(network, as_tuple(outputs), {name: tensors[name] for name in task.label_names})
        loss.backward()
        optimizer.step()
        warm_up.step()
        optimizer.clear_grad()
    network.eval()
