"""`index build`: memory of what puts an index together, from 100,000 to millions of texts.

    python scripts/bench_index.py                              # 100,000, 500,000 and 2,000,000 texts, 64 numbers each
    python scripts/bench_index.py --texts 10000000 --dim 128

Random vectors take the place of a network, and every tenth text is repeated. Each number of texts has a process of its
own, whose largest memory is told, with the seconds of its processor and the size of the index. The same vectors held
in memory would take texts x dim x 4 bytes.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nlpctl.inference.index import IndexBuild
from nlpctl.layout import INDEX_VECTORS
from nlpctl.report.model import Table
from nlpctl.report.text import show_table

CHUNK = 2048  # rows, as many as `index build` gives at a time


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, nargs="+", default=[100_000, 500_000, 2_000_000])
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--folder", type=Path, help="where the indexes are made, and removed")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inner:
        build(arguments.folder, arguments.texts[0], arguments.dim)
        return 0
    rows = []
    for count in arguments.texts:
        with tempfile.TemporaryDirectory(prefix="bench-index-", dir=arguments.folder) as folder:
            words = ["--inner", "--texts", str(count), "--dim", str(arguments.dim), "--folder", folder]
            done = subprocess.run([sys.executable, __file__, *words], check=True, capture_output=True, text=True)
            rows.append([f"{count:,}", *done.stdout.split()])
    columns = ["texts", "kept", "MB of memory", "CPU s", "MB of the index"]
    show_table(Table(columns, rows, "IndexBuild, flat"))
    return 0


def build(folder: Path, count: int, dim: int) -> None:
    """One index, and what it took."""
    with IndexBuild(folder, "flat") as made:
        for texts, vectors in chunks(count, dim):
            made.add(texts, vectors)
        kept = made.finish()
    size = (folder / INDEX_VECTORS).stat().st_size
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(kept, memory >> 10, round(time.process_time(), 1), size >> 20)


def chunks(count: int, dim: int) -> Iterator[tuple[list[str], np.ndarray]]:
    chance = np.random.default_rng(1)
    for start in range(0, count, CHUNK):
        numbers = range(start, min(count, start + CHUNK))
        texts = [f"text number {i if i % 10 else i // 2}" for i in numbers]
        yield texts, chance.random((len(texts), dim), np.float32)


if __name__ == "__main__":
    sys.exit(main())
