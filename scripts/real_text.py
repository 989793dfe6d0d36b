"""Readers of the real data sets of benchmarks and tests: path of the data folder -> rows.

A row is (text, second text or None).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

Pair = tuple[str, str | None]


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line]


def _tsv(folder: Path) -> list[Pair]:
    files = sorted(folder.glob("*.tsv"))
    return [(line.rsplit("\t", 1)[0], None) for path in files for line in _lines(path)[1:]]


def _jsonl(folder: Path, text: str, pair: str | None) -> list[Pair]:
    rows = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in _lines(path)]
    return [(row[text], row[pair] if pair else None) for row in rows]


def _conll(folder: Path) -> list[Pair]:
    rows: list[Pair] = []
    for path in sorted(folder.glob("*.txt")):
        for sentence in path.read_text(encoding="utf-8").split("\n\n"):
            characters = [line.split("\t")[0] for line in sentence.split("\n") if line]
            if characters:
                rows.append(("".join(characters), None))
    return rows


def _squad(folder: Path) -> list[Pair]:
    """(question, context) for every question."""
    rows: list[Pair] = []
    for path in sorted(folder.glob("*.json")):
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                rows += [(question["question"], paragraph["context"]) for question in paragraph["qas"]]
    return rows


SETS: dict[str, Callable[[Path], list[Pair]]] = {
    "chnsenticorp": lambda data: _tsv(data / "chnsenticorp"),
    "sst2": lambda data: _tsv(data / "sst2"),
    "msra_ner": lambda data: _conll(data / "msra_ner"),
    "bustm": lambda data: _jsonl(data / "bustm", "sentence1", "sentence2"),
    "cmrc2018": lambda data: _squad(data / "cmrc2018"),
    "tnews_fewshot": lambda data: _jsonl(data / "tnews_fewshot", "sentence", None),
}
