"""The same fine-tuning with Hugging Face's Trainer and PyTorch, under a Python that has them (and no nlpctl).

    python huggingface.py RECIPE TIMES      (scripts/bench_train.py calls it)

Length-grouped batches and dynamic padding, as nlpctl has. Needs torch, transformers and accelerate.
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
from pathlib import Path

import torch
from step_times import LOG_EVERY, StepTimes
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


def main(recipe_file: str, times_file: str) -> None:
    recipe = json.loads(Path(recipe_file).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        train(recipe, StepTimes(times_file), folder)


def train(recipe: dict, times: StepTimes, output_dir: str) -> None:
    class Clock(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            times.after_step(state.global_step)

    training, folder = recipe["training"], recipe["model"]["name_or_path"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    lines = Path(recipe["data"]["train"]).read_text(encoding="utf-8").splitlines()[1:]
    texts, labels = zip(*(line.rsplit("\t", 1) for line in lines), strict=True)
    names = sorted(set(labels))
    encoded = tokenizer(list(texts), max_length=recipe["data"]["max_seq_length"], truncation=True)["input_ids"]
    rows = [{"input_ids": ids, "labels": names.index(label)} for ids, label in zip(encoded, labels, strict=True)]
    arguments = TrainingArguments(
        output_dir=output_dir,
        use_cpu=True,
        bf16=training["bf16"],
        max_steps=training["max_steps"],
        per_device_train_batch_size=training["per_device_train_batch_size"],
        learning_rate=training["learning_rate"],
        warmup_steps=round(training["max_steps"] * training["warmup_ratio"]),
        weight_decay=training["weight_decay"],
        max_grad_norm=training["max_grad_norm"],
        logging_steps=LOG_EVERY,
        save_strategy="no",
        report_to="none",
        seed=training["seed"],
        disable_tqdm=True,
        **grouping(),
    )
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads", file=sys.stderr)
    trainer = Trainer(
        model=AutoModelForSequenceClassification.from_pretrained(folder, num_labels=len(names), dtype=torch.float32),
        args=arguments,
        train_dataset=rows,
        data_collator=DataCollatorWithPadding(tokenizer),
        callbacks=[Clock()],
    )
    trainer.train()


def grouping() -> dict:
    """Batches by length; the argument was renamed in transformers 5."""
    if "group_by_length" in inspect.signature(TrainingArguments).parameters:
        return {"group_by_length": True}
    return {"train_sampling_strategy": "group_by_length"}


if __name__ == "__main__":
    main(*sys.argv[1:])
