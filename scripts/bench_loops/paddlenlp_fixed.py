"""Fine-tuning as PaddleNLP's example scripts do it: its stock Trainer, every row padded to max_seq_length.

    python paddlenlp_fixed.py RECIPE TIMES      (scripts/bench_train.py calls it)

Network, threads and MKL setting are nlpctl's; without the last two the examples are even slower.
The text is tokenised before the training starts, as `MapDataset.map` in the examples does.
"""

from __future__ import annotations

import os
import sys
import tempfile

from step_times import LOG_EVERY, StepTimes

from nlpctl.config.load import load_recipe
from nlpctl.config.schema import Recipe
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import read_training_data
from nlpctl.models.families import Head
from nlpctl.models.load import load_to_train
from nlpctl.runtime.process import configure_paddle, prepare_process


def main(recipe_file: str, times_file: str) -> None:
    recipe = load_recipe(recipe_file)
    # The modules above have imported Paddle: bench_train.py has put threads and MKL setting into the environment.
    if "OMP_NUM_THREADS" not in os.environ:
        sys.exit("start this through scripts/bench_train.py")
    configure_paddle(prepare_process(recipe.runtime, recipe.training.seed), recipe.training.seed)
    with tempfile.TemporaryDirectory() as folder:
        train(recipe, StepTimes(times_file), folder)


def train(recipe: Recipe, times: StepTimes, output_dir: str) -> None:
    import paddle
    from paddlenlp.data import DataCollatorWithPadding
    from paddlenlp.datasets import MapDataset
    from paddlenlp.trainer import Trainer, TrainerCallback, TrainingArguments

    class Clock(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            times.after_step(state.global_step)

    training = recipe.training
    data = read_training_data(task_rows(recipe.task, recipe.data))
    loaded = load_to_train(recipe.model, Head("SequenceClassification"), data.labels.names, vocabulary_texts=data.texts)

    def convert(example):
        encoded = loaded.tokenizer(
            example.text, max_length=recipe.data.max_seq_length, padding="max_length", truncation=True
        )
        return {**encoded, "labels": example.label}

    trainer = Trainer(
        model=loaded.network,
        criterion=paddle.nn.loss.CrossEntropyLoss(),
        args=TrainingArguments(
            output_dir=output_dir,
            device="cpu",
            max_steps=training.max_steps,
            per_device_train_batch_size=training.per_device_train_batch_size,
            learning_rate=training.learning_rate,
            warmup_ratio=training.warmup_ratio,
            weight_decay=training.weight_decay,
            max_grad_norm=training.max_grad_norm,
            logging_steps=LOG_EVERY,
            save_strategy="no",
            seed=training.seed,
            disable_tqdm=True,
        ),
        data_collator=DataCollatorWithPadding(loaded.tokenizer),
        train_dataset=MapDataset(list(data.train)).map(convert),
        tokenizer=loaded.tokenizer,
        callbacks=[Clock()],
    )
    trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
