"""Make pairs of matching texts from single sentences, to try semantic indexing without labelled pairs.

    python scripts/make_text_pairs.py ~/data/sst2 /tmp/pairs --kind dropped

reads train.tsv, dev.tsv and test.tsv (a header line with the column `text`) and writes train.jsonl, dev.jsonl
and test.jsonl with the keys `text` and `text_pair`:

    dropped   two copies of the sentence; each drops every word with probability 1/2
    halves    its first and its second half

Sentences of fewer than 8 words are left out. The same input gives the same pairs.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from pathlib import Path

LEAST_WORDS = 8
SPLITS = ("train", "dev", "test")


def halves(words: list[str], chance: random.Random) -> tuple[str, str]:
    middle = len(words) // 2
    return " ".join(words[:middle]), " ".join(words[middle:])


def dropped(words: list[str], chance: random.Random) -> tuple[str, str]:
    def copy() -> str:
        return " ".join([word for word in words if chance.random() < 0.5] or words[:1])

    return copy(), copy()


KINDS = {"dropped": dropped, "halves": halves}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder with train.tsv, dev.tsv, test.tsv")
    parser.add_argument("target", type=Path, help="folder to write to")
    parser.add_argument("--kind", choices=sorted(KINDS), default="dropped")
    arguments = parser.parse_args()
    arguments.target.mkdir(parents=True, exist_ok=True)
    chance = random.Random(0)
    for split in SPLITS:
        with (arguments.source / f"{split}.tsv").open(encoding="utf-8", newline="") as stream:
            rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
            sentences = [words for row in rows if len(words := row["text"].split()) >= LEAST_WORDS]
        pairs = [KINDS[arguments.kind](words, chance) for words in sentences]
        with (arguments.target / f"{split}.jsonl").open("w", encoding="utf-8") as stream:
            for text, pair in pairs:
                stream.write(json.dumps({"text": text, "text_pair": pair}, ensure_ascii=False) + "\n")
        print(f"{split}: {len(pairs)} pairs")


if __name__ == "__main__":
    main()
