"""The same fine-tuning with Hugging Face's Trainer and PyTorch, under a Python that has them (and no nlpctl).

    python huggingface.py RECIPE TIMES [ANSWERS]      (scripts/bench_train.py and bench_encoder.py call it)

Reads a recipe of nlpctl in which every value is written out, for a text, a pair of texts, tags of tokens, or answers in
a context. Batches are grouped by length and padded to their longest row, as nlpctl's are. With ANSWERS the last model
answers data.test, one JSON object per line, with what was expected and given: a label, the tags of a sentence, an
answer (expected: the question and all right answers). Needs torch, transformers, accelerate and pyyaml.
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
import yaml
from step_times import LOG_EVERY, StepTimes
from transformers import AutoTokenizer, Trainer, TrainerCallback, TrainingArguments

KINDS = {
    "sequence_classification": ("AutoModelForSequenceClassification", "DataCollatorWithPadding"),
    "text_matching": ("AutoModelForSequenceClassification", "DataCollatorWithPadding"),
    "token_classification": ("AutoModelForTokenClassification", "DataCollatorForTokenClassification"),
    "question_answering": ("AutoModelForQuestionAnswering", "DataCollatorWithPadding"),
}
BEST_ENDS = 20  # likely first and last tokens of an answer that are paired, as in the examples of Transformers
Row = dict[str, Any]


def main(recipe_file: str, times_file: str, answers_file: str | None = None) -> None:
    recipe = yaml.safe_load(Path(recipe_file).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        train(recipe, StepTimes(times_file), folder, answers_file)


def train(recipe: Row, times: StepTimes, output_dir: str, answers_file: str | None) -> None:
    class Clock(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            times.after_step(state.global_step)

    training, task, folder = recipe["training"], recipe["task"], recipe["model"]["name_or_path"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    examples = read(recipe, "train")
    labels = sorted({label for row in examples for label in (row["tags"] if "tags" in row else [row.get("label")])})
    features = FEATURES[task]
    rows = [features(row, labels, tokenizer, recipe["data"]) for row in examples]
    rows = [feature for of_row in rows for feature in of_row]
    steps = training.get("max_steps", -1)
    if steps <= 0:
        steps = round(training["num_train_epochs"]) * -(-len(rows) // training["per_device_train_batch_size"])
    arguments = TrainingArguments(
        output_dir=output_dir,
        use_cpu=True,
        bf16=training.get("bf16", False),
        max_steps=steps,
        per_device_train_batch_size=training["per_device_train_batch_size"],
        per_device_eval_batch_size=training.get("per_device_eval_batch_size", 64),
        learning_rate=float(training["learning_rate"]),
        warmup_steps=round(steps * training["warmup_ratio"]),
        weight_decay=training["weight_decay"],
        max_grad_norm=training.get("max_grad_norm", 1.0),
        logging_steps=LOG_EVERY,
        save_strategy="no",
        report_to="none",
        seed=training["seed"],
        disable_tqdm=True,
        **grouping(),
    )
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads", file=sys.stderr)
    model_class, collator = KINDS[task]
    sizes = {} if task == "question_answering" else {"num_labels": len(labels)}
    model = getattr(transformers, model_class).from_pretrained(folder, dtype=torch.float32, **sizes)
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=[{key: value for key, value in row.items() if key not in SIDE} for row in rows],
        data_collator=getattr(transformers, collator)(tokenizer),
        callbacks=[Clock()],
    )
    groups = (recipe.get("optimizer") or {}).get("groups") or []
    if groups:
        trainer.optimizer = with_rates(model, trainer, groups, arguments)
    trainer.train()
    if answers_file:
        asked = read(recipe, "test")
        answers = ANSWERS[task](trainer, asked, labels, tokenizer, recipe)
        both = [{"expected": expected(row), "given": given} for row, given in zip(asked, answers, strict=True)]
        lines = [json.dumps(each, ensure_ascii=False) + "\n" for each in both]
        Path(answers_file).write_text("".join(lines), encoding="utf-8")


def grouping() -> Row:
    """Batches by length; the argument was renamed in transformers 5."""
    if "group_by_length" in inspect.signature(TrainingArguments).parameters:
        return {"group_by_length": True}
    return {"train_sampling_strategy": "group_by_length"}


def with_rates(model: Any, trainer: Trainer, groups: list[Row], arguments: TrainingArguments) -> torch.optim.Optimizer:
    """AdamW with a learning rate of its own for the parameters that a group names."""
    heads = ("classifier", "qa_outputs")  # nlpctl calls the layer of answers a classifier, too
    decayed = set(trainer.get_decay_parameter_names(model))
    settings: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        rate = arguments.learning_rate
        for group in groups:
            wanted = [group["match"]] if isinstance(group["match"], str) else group["match"]
            if any(each in name or (each in heads and name.startswith(heads)) for each in wanted):
                rate = float(group["learning_rate"])
        decay = arguments.weight_decay if name in decayed else 0.0
        settings.setdefault((rate, decay), []).append(parameter)
    parameters = [{"params": each, "lr": rate, "weight_decay": decay} for (rate, decay), each in settings.items()]
    return torch.optim.AdamW(parameters, lr=arguments.learning_rate)


# -- rows ---------------------------------------------------------------------------------------


def read(recipe: Row, split: str) -> list[Row]:
    """The rows of a split: text, perhaps text_pair, and label; tokens and tags; or question, context and its answer."""
    data = recipe["data"]
    files = data[split] if isinstance(data[split], list) else [data[split]]
    return [row for file in files for row in READERS[recipe["task"]](Path(file), data)]


def expected(row: Row) -> Any:
    """The label, the tags, or a question with its answers."""
    kept = {key: row[key] for key in ("label", "tags", "question", "texts") if key in row}
    return kept if "question" in kept else next(iter(kept.values()))


def read_labelled(path: Path, data: Row) -> list[Row]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in text.splitlines()]
    else:
        names, *lines = (line.split("\t") for line in text.splitlines())
        rows = [dict(zip(names, line, strict=True)) for line in lines]
    columns = {"text": "text", "label": "label", **(data.get("columns") or {})}
    wanted = {key: name for key, name in columns.items() if key in ("text", "text_pair", "label") and name}
    return [{key: str(row[name]) for key, name in wanted.items()} for row in rows]


def read_tagged(path: Path, data: Row) -> list[Row]:
    sentences = path.read_text(encoding="utf-8").split("\n\n")
    words = [[line.split("\t") for line in sentence.split("\n") if line] for sentence in sentences]
    return [{"tokens": [word[0] for word in each], "tags": [word[1] for word in each]} for each in words if each]


def read_questions(path: Path, data: Row) -> list[Row]:
    rows = []
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                texts = [answer["text"] for answer in question["answers"]]
                start = question["answers"][0]["answer_start"]
                end = start + len(texts[0])
                if paragraph["context"][start:end] == texts[0]:  # as data.on_bad_row: skip
                    row = {"question": question["question"], "context": paragraph["context"], "texts": texts}
                    rows.append({**row, "start": start, "end": end})
    return rows


def text_features(row: Row, labels: list[str], tokenizer: Any, data: Row) -> list[Row]:
    encoded = tokenizer(row["text"], row.get("text_pair"), max_length=data["max_seq_length"], truncation=True)
    return [{**encoded, "labels": labels.index(row["label"])}]


def tag_features(row: Row, labels: list[str], tokenizer: Any, data: Row) -> list[Row]:
    encoded = tokenizer(row["tokens"], is_split_into_words=True, max_length=data["max_seq_length"], truncation=True)
    words = encoded.word_ids()
    # Of a character as a word the last piece is the character; the first is a mark, alike for all of them.
    last = [word is not None and word != after for word, after in zip(words, [*words[1:], None], strict=True)]
    tags = [labels.index(row["tags"][word]) if is_last else -100 for word, is_last in zip(words, last, strict=True)]
    return [{**encoded, "labels": tags, "last": last}]


def question_features(row: Row, labels: list[str], tokenizer: Any, data: Row) -> list[Row]:
    """A feature per window; the answer's tokens, or 0 and 0 in a window that does not hold all of it."""
    encoded = tokenizer(
        row["question"],
        row["context"],
        max_length=data["max_seq_length"],
        stride=overlap(row["question"], tokenizer, data),
        truncation="only_second",
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    features = []
    for number, offsets in enumerate(encoded["offset_mapping"]):
        parts = encoded.sequence_ids(number)
        offsets = [place if part == 1 else None for place, part in zip(offsets, parts, strict=True)]
        inside = [index for index, place in enumerate(offsets) if place and place[1] > place[0]]
        begins = [index for index in inside if offsets[index][0] <= row["start"] < offsets[index][1]]
        ends = [index for index in inside if offsets[index][0] < row["end"] <= offsets[index][1]]
        start, end = (begins[0], ends[-1]) if begins and ends else (0, 0)
        inputs = {key: encoded[key][number] for key in tokenizer.model_input_names if key in encoded}
        features.append({**inputs, "start_positions": start, "end_positions": end, "offsets": offsets})
    return features


def overlap(question: str, tokenizer: Any, data: Row) -> int:
    """Tokens that two windows share: nlpctl's doc_stride is how far a window advances."""
    around = tokenizer.num_special_tokens_to_add(pair=True)
    room = data["max_seq_length"] - around - len(tokenizer(question, add_special_tokens=False)["input_ids"])
    return max(room - data["doc_stride"], 0)


# -- answers ------------------------------------------------------------------------------------


def outputs(trainer: Trainer, rows: list[Row]) -> Any:
    for name in grouping():  # a Trainer that groups by length answers in the order of the lengths
        setattr(trainer.args, name, False if name == "group_by_length" else "random")
    plain = [{key: value for key, value in row.items() if key not in (*SIDE, *TARGETS)} for row in rows]
    return trainer.predict(plain).predictions


def answer_labels(trainer: Trainer, rows: list[Row], labels: list[str], tokenizer: Any, recipe: Row) -> list[str]:
    encoded = [text_features({**row, "label": labels[0]}, labels, tokenizer, recipe["data"])[0] for row in rows]
    return [labels[int(best)] for best in outputs(trainer, encoded).argmax(-1)]


def answer_tags(trainer: Trainer, rows: list[Row], labels: list[str], tokenizer: Any, recipe: Row) -> list[list[str]]:
    """Words that were cut off are O."""
    blank = [{**row, "tags": [labels[0]] * len(row["tokens"])} for row in rows]
    encoded = [tag_features(row, labels, tokenizer, recipe["data"])[0] for row in blank]
    answers = []
    for scores, row, feature in zip(outputs(trainer, encoded), rows, encoded, strict=True):
        best = scores.argmax(-1)
        tags = [labels[int(best[index])] for index, is_last in enumerate(feature["last"]) if is_last]
        answers.append(tags + ["O"] * (len(row["tokens"]) - len(tags)))
    return answers


def answer_questions(trainer: Trainer, rows: list[Row], labels: list[str], tokenizer: Any, recipe: Row) -> list[str]:
    """The text with the highest sum of scores among the spans of all windows, as in the examples of Transformers."""
    of_rows = [question_features(row, labels, tokenizer, recipe["data"]) for row in rows]
    starts, ends = outputs(trainer, [feature for features in of_rows for feature in features])[:2]
    longest, answers, number = recipe["decode"]["max_answer_length"], [], 0
    for row, features in zip(rows, of_rows, strict=True):
        found = [(-np.inf, 0, 0)]
        for feature in features:
            places, first, last = feature["offsets"], starts[number], ends[number]
            number += 1
            inside = np.array([bool(place) for place in places])
            first = np.where(inside, first[: len(places)], -np.inf)
            last = np.where(inside, last[: len(places)], -np.inf)
            for begin in np.argsort(-first)[:BEST_ENDS]:
                for end in np.argsort(-last)[:BEST_ENDS]:
                    if begin <= end < begin + longest and places[begin] and places[end]:
                        found.append((first[begin] + last[end], places[begin][0], places[end][1]))
        _, begin, end = max(found)
        answers.append(row["context"][begin:end])
    return answers


SIDE = ("last", "offsets")  # of a feature, not for the network
TARGETS = ("labels", "start_positions", "end_positions")
READERS: dict[str, Callable[[Path, Row], list[Row]]] = {
    "sequence_classification": read_labelled, "text_matching": read_labelled, "token_classification": read_tagged,
    "question_answering": read_questions,
}  # fmt: skip
FEATURES: dict[str, Callable[..., list[Row]]] = {
    "sequence_classification": text_features, "text_matching": text_features, "token_classification": tag_features,
    "question_answering": question_features,
}  # fmt: skip
ANSWERS: dict[str, Callable[..., list[Any]]] = {
    "sequence_classification": answer_labels, "text_matching": answer_labels, "token_classification": answer_tags,
    "question_answering": answer_questions,
}  # fmt: skip

if __name__ == "__main__":
    main(*sys.argv[1:])
