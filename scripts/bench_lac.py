"""Speed of the lexical analyser converted from jieba's LAC, compared with jieba.

    python scripts/bench_lac.py [MODEL] [--data FILE] [--rounds 3] [--batch-sizes 64 256] [--threads N] [--json]

MODEL is the converted folder (by default, LAC is converted first). FILE has a character and its tag per line; default
../shared/data/msra_ner/test.txt. Everything runs in one process and is loaded before timing starts. Variants alternate:
jieba's default mode (words only, from a dictionary), its posseg (words and parts of speech), and nlpctl's pipeline
from text to words with offsets, in Paddle's dygraph and in ONNX Runtime on an export. jieba's own LAC
(use_paddle=True) is not included: it imports paddle.fluid, which Paddle no longer has.

The results are words per second, and words per second of CPU time. CPU time includes all threads and depends little on
other load.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench_common import DATA, NLPCTL, Table, conditions, environment, middle_and_range, tell
from check_lac import SOURCE, read_sentences

from nlpctl.config.load import Override, load_recipe
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.inference.open_model import open_trained_model
from nlpctl.runtime.process import set_up_process

Segment = Callable[[list[str]], int]  # texts to the number of their words


@dataclass
class Variant:
    """One way to segment. `wall`, `processor`: words per second, one figure per round."""

    name: str
    segment: Segment
    words: int = 0
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def measure(self, texts: list[str]) -> None:
        wall, processor = time.perf_counter(), time.process_time()
        self.words = self.segment(texts)
        self.wall.append(self.words / (time.perf_counter() - wall))
        self.processor.append(self.words / (time.process_time() - processor))

    def result(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "segment"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--data", type=Path, default=DATA / "msra_ner" / "test.txt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    facts = conditions()
    texts = ["".join(characters) for characters, _ in read_sentences(options.data)]
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or Path(folder) / "lac"
        if options.model is None:
            nlpctl("convert-static", SOURCE, "--to", "lac", "-o", model)
        nlpctl("export", model, "--format", "onnx", "-o", Path(folder) / "export", "--data", options.data)
        variants = [Variant("jieba, default mode", jieba_words()), Variant("jieba.posseg", jieba_tags())]
        for name, source in (("dygraph", model), ("ONNX Runtime", Path(folder) / "export")):
            for size in options.batch_sizes:
                variants.append(Variant(f"LAC, {name}, batch {size}", nlpctl_words(source, size, options.threads)))
    for variant in variants:
        variant.segment(texts[:50])  # whatever is done once
    for _ in range(options.rounds):
        for variant in variants:
            variant.measure(texts)
    cells = [
        (variant.name, f"{variant.words:,}", middle_and_range(variant.wall, 0), middle_and_range(variant.processor, 0))
        for variant in variants
    ]
    title = f"Words per second, median (range); {len(texts):,} sentences, {sum(map(len, texts)):,} characters"
    table = Table(title, ("variant", "words", "per second", "per second of CPU time"), cells)
    tell(facts, [table], options.json, sentences=len(texts), variants=[variant.result() for variant in variants])


def jieba_words() -> Segment:
    import jieba

    jieba.initialize()
    return lambda texts: sum(len(jieba.lcut(text)) for text in texts)


def jieba_tags() -> Segment:
    import jieba.posseg

    return lambda texts: sum(len(jieba.posseg.lcut(text)) for text in texts)


def nlpctl_words(source: Path, batch_size: int, threads: int | None) -> Segment:
    """The pipeline of `nlpctl predict`, without reading the file and writing the JSON."""
    given = [] if threads is None else [Override("runtime.threads", str(threads), "--threads")]
    recipe = load_recipe(source, given, purpose="apply")
    model = open_trained_model(recipe, set_up_process(recipe), str(source), batch_size)
    rows = task_rows(recipe.task, recipe.data)

    from nlpctl.engines.pipeline import prediction_pipeline

    pipeline = prediction_pipeline(model.task, model.encoder, model.predictor)

    def segment(texts: list[str]) -> int:
        examples = [rows.read({rows.plain_column: text}, None) for text in texts]
        predictions = pipeline.predictions(examples, batch_size)
        answers = [model.task.answer(*pair) for pair in zip(examples, predictions, strict=True)]
        return sum(len(answer["words"]) for answer in answers)

    return segment


def nlpctl(*words: str | Path) -> None:
    subprocess.run([*NLPCTL, *map(str, words)], env=environment(), check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
