"""Check that a converted LAC equals the original, and that it can be trained on names of other guidelines.

    python scripts/check_lac.py [--data ../shared/data/msra_ner] [--folder FOLDER] [--only convert score train]

convert: converts python:jieba/lac_small/model_baseline to FOLDER/lac and verifies it with the old operators. Then
    prints the sentences of tests/end_to_end/lac_sentences.txt with its words and tags, for reading.
score: precision, recall and F1 of its PER, LOC and ORG on DATA's test sentences: with the full-width characters as
    jieba feeds them, and as nlpctl reads them.
train: trains it with recipes/lexical/lac_msra.yaml on its own words with DATA's entities inserted (`nlpctl data
    retag`), then prints the same scores. About 20 minutes of CPU time.

Existing results in FOLDER are reused. Other arguments, such as --threads 1, are passed to nlpctl train.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench_common import DATA, NLPCTL, ROOT, conditions, conditions_line, environment

from nlpctl.data.rows.tag_scheme import Span, detect_scheme

SOURCE = "python:jieba/lac_small/model_baseline"
SENTENCES = ROOT / "tests" / "end_to_end" / "lac_sentences.txt"
RECIPE = ROOT / "recipes" / "lexical" / "lac_msra.yaml"
FIRST = 400  # sentences that are also scored separately
NAMED = ("PER", "LOC", "ORG")
STEPS = ("convert", "score", "train")
AS_JIEBA = ("--set", "decode.replacements=false")  # every character as it stands
Sentence = tuple[list[str], list[str]]  # characters and tags


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA / "msra_ner")
    parser.add_argument("--folder", type=Path, default=Path("outputs"))
    parser.add_argument("--only", choices=STEPS, nargs="+", default=list(STEPS))
    options, words = parser.parse_known_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print(conditions_line(conditions()))
    lac = folder / "lac"
    if "convert" in options.only or not lac.is_dir():
        convert(lac)
    if "score" in options.only:
        show_scores("as jieba feeds it", lac, options.data, *AS_JIEBA)
        show_scores("as converted", lac, options.data)
    if "train" in options.only:
        show_scores("trained on", train(lac, options.data, folder, words), options.data)


def convert(lac: Path) -> None:
    """Convert, and print what the report says and what the model answers."""
    print(nlpctl("convert-static", SOURCE, "--to", "lac", "-o", lac, "--overwrite"))
    texts = []
    for line in SENTENCES.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            texts.append("".join(pair.rpartition("/")[0] for pair in line.split(" ")))
    done = nlpctl("predict", lac, "-", stdin="\n".join(texts) + "\n")
    for line in done.splitlines():
        print(" ".join(f"{word['text']}/{word['tag']}" for word in json.loads(line)["words"]))


def show_scores(name: str, model: Path, data: Path, *more: str) -> None:
    """Print the scores of the entities in the first sentences of test, and in all; `more`: flags of predict."""
    sentences = read_sentences(data / "test.txt")
    started = time.monotonic()
    gold = [set(entities(tags)) for _, tags in sentences]
    found = [{word for word in words if word.type in NAMED} for words in analysed(model, sentences, *more)]
    for count in (FIRST, len(sentences)):
        right = sum(len(a & b) for a, b in zip(gold[:count], found[:count], strict=True))
        precision = right / max(sum(map(len, found[:count])), 1)
        recall = right / max(sum(map(len, gold[:count])), 1)
        f1 = 2 * precision * recall / max(precision + recall, 1e-9)
        print(f"{name:<18} {count:>5} sentences  P {precision:.4f}  R {recall:.4f}  F1 {f1:.4f}", flush=True)
    print(f"{name:<18} {time.monotonic() - started:.0f} s with loading")


def read_sentences(file: Path) -> list[Sentence]:
    """The sentences of a file with a character and its tag per line."""
    blocks = file.read_text(encoding="utf-8").split("\n\n")
    rows = [[line.split("\t") for line in block.split("\n") if line] for block in blocks]
    return [([row[0] for row in block], [row[1] for row in block]) for block in rows if block]


def entities(tags: list[str]) -> list[Span]:
    """The entities in tags of any scheme."""
    return [] if set(tags) <= {"O"} else detect_scheme(tags, "the tags").entities(tags)


def analysed(model: Path, sentences: list[Sentence], *more: str) -> Iterator[list[Span]]:
    """The words that `model` finds in each sentence, in characters; `more`: flags of predict."""
    rows = "".join(json.dumps({"tokens": characters}, ensure_ascii=False) + "\n" for characters, _ in sentences)
    with tempfile.TemporaryDirectory() as folder:
        file, answers = Path(folder) / "rows.jsonl", Path(folder) / "answers.jsonl"
        file.write_text(rows, encoding="utf-8")
        nlpctl("predict", model, file, "-o", answers, "--threads", "1", *more)
        for line in answers.read_text(encoding="utf-8").split("\n")[:-1]:
            yield [Span(word["tag"], word["start"], word["end"]) for word in json.loads(line)["words"]]


def train(lac: Path, data: Path, folder: Path, words: Sequence[str]) -> Path:
    """Train the model on its own words with the entities of `data`; returns the run."""
    retagged = folder / "retagged"
    retagged.mkdir(exist_ok=True)
    for split in ("train", "dev", "test"):
        if not (retagged / f"{split}.txt").is_file():
            nlpctl("data", "retag", lac, data / f"{split}.txt", "-o", retagged / f"{split}.txt")
    run = folder / "lac_msra"
    if not (run / "metrics.json").is_file():
        resume = ("--resume",) if run.is_dir() else ()
        paths = ("--set", f"model.name_or_path={lac}", "--output_dir", run)
        nlpctl("train", RECIPE, *paths, *resume, *words, more={"LAC_DIR": str(retagged)})
    return run


def nlpctl(*words: str | Path, stdin: str = "", more: dict[str, str] | None = None) -> str:
    """The standard output of a command; its standard error goes to the terminal."""
    done = subprocess.run(
        [*NLPCTL, *map(str, words)], env={**environment(), **(more or {})}, input=stdin, stdout=subprocess.PIPE,
        text=True, encoding="utf-8",
    )  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"nlpctl {words[0]} failed")
    return done.stdout


if __name__ == "__main__":
    os.environ.setdefault("PYTHONIOENCODING", "utf-8")
    main()
