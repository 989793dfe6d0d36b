"""Hand-written fine-tuning in Paddle: the bare training loop.

    python bare_paddle.py RECIPE TIMES      (scripts/bench_train.py calls it)

Network, threads, MKL setting and the order of the batches are nlpctl's, so that only the loops differ. The
text is tokenised before the clock starts, and there is no reader thread, checkpoint or log file.
"""

from __future__ import annotations

import os
import sys

import numpy as np
from step_times import LOG_EVERY, StepTimes

from nlpctl.config.load import load_recipe
from nlpctl.config.schema import Recipe
from nlpctl.data.batches.batching import LengthGroupedBatchSampler
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
    train(recipe, StepTimes(times_file))


def train(recipe: Recipe, times: StepTimes) -> None:
    import paddle
    import paddle.nn.functional as F

    training = recipe.training
    data = read_training_data(task_rows(recipe.task, recipe.data))
    loaded = load_to_train(recipe.model, Head("SequenceClassification"), data.labels.names, vocabulary_texts=data.texts)
    model, tokenizer = loaded.network, loaded.tokenizer
    texts = [example.text for example in data.train]
    rows = tokenizer(texts, max_length=recipe.data.max_seq_length, truncation=True)["input_ids"]
    labels = np.array([example.label for example in data.train], np.int64)
    sampler = LengthGroupedBatchSampler(data.train.lengths(), training.per_device_train_batch_size, seed=training.seed)

    steps = training.max_steps
    warmup = round(steps * training.warmup_ratio)
    schedule = paddle.optimizer.lr.LambdaDecay(
        training.learning_rate,
        lambda step: step / max(warmup, 1) if step < warmup else max(0.0, (steps - step) / max(steps - warmup, 1)),
    )
    decayed = {p.name for name, p in model.named_parameters() if "bias" not in name and "norm" not in name}
    optimizer = paddle.optimizer.AdamW(
        schedule,
        parameters=model.parameters(),
        weight_decay=training.weight_decay,
        apply_decay_param_fun=decayed.__contains__,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(training.max_grad_norm),
    )
    model.train()
    step, epoch, total = 0, 0, 0.0
    while step < steps:
        sampler.set_epoch(epoch)
        for batch in sampler:
            width = max(len(rows[i]) for i in batch)
            ids = np.full((len(batch), width), tokenizer.pad_token_id, np.int64)
            for place, i in enumerate(batch):
                ids[place, : len(rows[i])] = rows[i]
            logits = model(paddle.to_tensor(ids), token_type_ids=paddle.zeros(ids.shape, "int64"))
            loss = F.cross_entropy(logits, paddle.to_tensor(labels[batch]))
            loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.clear_grad()
            step += 1
            total += float(loss)
            times.after_step(step)
            if step % LOG_EVERY == 0:
                print(f"step {step}/{steps} loss {total / LOG_EVERY:.4f}", file=sys.stderr)
                total = 0.0
            if step == steps:
                return
        epoch += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
