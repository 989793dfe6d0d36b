"""Make training data that keep a lexical analyser's own tags and add the entities of other data.

    python scripts/retag_lexical.py MODEL IN.txt OUT.txt

IN.txt is a file of characters and tags (B-PER, I-PER, ..., O), a blank line between sentences. OUT.txt has the words
and parts of speech that MODEL (a lexical_analysis model folder, such as a converted LAC) gives the same sentences, with
the entities of IN.txt inserted; elsewhere the tags of MODEL are kept. A name that is an entity for MODEL but not in
IN.txt becomes a plain name: nr for persons, ns for places, nt for organisations. Training MODEL on OUT.txt then teaches
it the entities of IN.txt, and it keeps its segmentation.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench_common import NLPCTL, environment

from nlpctl.data.tag_scheme import Span, detect_scheme

PLAIN = {"PER": "nr", "LOC": "ns", "ORG": "nt"}
Sentence = tuple[list[str], list[str]]  # characters and tags


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    model, source, target = sys.argv[1:]
    retag(Path(model), Path(source), Path(target))


def retag(model: Path, source: Path, target: Path) -> None:
    """Write `target` from `source`, as described above."""
    sentences = read_sentences(source)
    lines = []
    for (characters, tags), words in zip(sentences, analysed(model, sentences), strict=True):
        merged = merge(words, entities(tags), len(characters))
        lines += [f"{c}\t{tag}" for c, tag in zip(characters, merged, strict=True)] + [""]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_sentences(file: Path) -> list[Sentence]:
    """The sentences of a file with a character and its tag per line."""
    blocks = file.read_text(encoding="utf-8").split("\n\n")
    rows = [[line.split("\t") for line in block.split("\n") if line] for block in blocks]
    return [([row[0] for row in block], [row[1] for row in block]) for block in rows if block]


def analysed(model: Path, sentences: list[Sentence]) -> Iterator[list[Span]]:
    """The words that `model` finds in each sentence, in characters."""
    rows = "".join(json.dumps({"tokens": characters}, ensure_ascii=False) + "\n" for characters, _ in sentences)
    with tempfile.TemporaryDirectory() as folder:
        file, answers = Path(folder) / "rows.jsonl", Path(folder) / "answers.jsonl"
        file.write_text(rows, encoding="utf-8")
        command = [*NLPCTL, "predict", str(model), str(file), "-o", str(answers), "--threads", "1"]
        subprocess.run(command, check=True, env=environment(), stderr=subprocess.DEVNULL)
        for line in answers.read_text(encoding="utf-8").split("\n")[:-1]:
            yield [Span(word["tag"], word["start"], word["end"]) for word in json.loads(line)["words"]]


def entities(tags: list[str]) -> list[Span]:
    """The entities in tags of any scheme."""
    return [] if set(tags) <= {"O"} else detect_scheme(tags, "the tags").entities(tags)


def merge(words: list[Span], named: list[Span], length: int) -> list[str]:
    """Tags (prefix last) of `length` characters: the words, with the entities inserted."""
    tags = ["O"] * length
    taken = {place for entity in named for place in range(entity.start, entity.end)}
    for kind, start, end in words:
        kind = PLAIN.get(kind, kind)
        for place in range(start, end):
            if place not in taken and kind != "O":
                goes_on = place > start and place - 1 not in taken
                tags[place] = f"{kind}-{'I' if goes_on else 'B'}"
    for kind, start, end in named:
        tags[start:end] = [f"{kind}-B", *[f"{kind}-I"] * (end - start - 1)]
    return tags


if __name__ == "__main__":
    main()
