"""Inference from raw text on CPU: nlpctl's engines, PyTorch, Hugging Face's pipeline and hand-written scripts.

    python scripts/bench_inference.py RUN         # RUN: recipes/sentiment/sst2_minilm.yaml, trained
    python scripts/bench_inference.py RUN --torch-python VENV/bin/python    # has torch, transformers, tokenizers
    python scripts/bench_inference.py RUN --rows 300 --rounds 3 --json

Two networks: the trained MiniLM (6x384) of RUN, and a BERT of 6x768 with random weights, for its speed alone. All
variants answer the same sentences of SST-2's test split, from text to label, two threads or as many as there are cores.
Every variant runs in its own process. All are loaded first and then timed in rounds, nlpctl beside the script by hand
for its engine and precision. Speeds are those of the median round. Ratios are the median of the rounds' ratios: a
machine that slows down for a while slows both down. Needs an idle machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench_common import DATA, NLPCTL, ROOT, Table, conditions, environment, tell

from nlpctl import console
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.schema import RuntimeSection
from nlpctl.inference.timed_process import TimedModel, TimedProcess, TimedRows
from nlpctl.models.export_folder import read_manifest
from nlpctl.runtime.machine import cpu_info, physical_cores
from nlpctl.runtime.process import prepare_process

LOOPS = ROOT / "scripts" / "bench_loops"
BATCH_SIZES = (1, 8, 32, 64)
WIDE_SIZES, WIDE_SHARE = (1, 32), 4  # the larger network answers a quarter of the rows
PIPELINE = "Hugging Face pipeline, PyTorch fp32"
NOT_FOR_AUTO = ", not for auto"
WIDE = {"hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 3072}
TIMES_PIPELINE = 10.0  # target of auto
TIMES_BY_HAND = 0.95  # nlpctl may add 5 % to the engine's own time
BY_HAND = {
    "nlpctl onnxruntime fp32": "ONNX Runtime by hand, fp32",
    "nlpctl onnxruntime int8 (dynamic)": "ONNX Runtime by hand, int8",
    "nlpctl paddle fp32": "Paddle Inference by hand, fp32",
    "nlpctl paddle bf16": "Paddle Inference by hand, bf16",
    "nlpctl paddle int8 (ptq)": "Paddle Inference by hand, int8",
}
_LAYER = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "linear1": "intermediate.dense",
    "linear2": "output.dense",
    "norm2": "output.LayerNorm",
}


@dataclass
class Variant:
    """One variant. `ask` runs all rows once at a batch size and returns the seconds."""

    name: str
    ask: Callable[[int], float]
    sizes: tuple[int, ...]
    rows: int
    seconds: dict[int, list[float]] = field(default_factory=dict)

    def round(self, counted: bool) -> None:
        self.ask(self.sizes[0])  # the others have emptied the processor's caches
        for size in self.sizes:
            seconds = self.ask(size)
            if counted:
                self.seconds.setdefault(size, []).append(seconds)

    @property
    def speeds(self) -> dict[int, float]:
        """Rows per second at every batch size, by the median round."""
        return {size: self.rows / median(rounds) for size, rounds in self.seconds.items()}

    @property
    def best(self) -> int:
        """The batch size that is answered fastest."""
        return max(self.speeds, key=self.speeds.__getitem__)

    def times(self, other: Variant, size: int, other_size: int) -> float:
        """How many times as fast as another one: the median of the rounds' ratios."""
        return median(b / a for a, b in zip(self.seconds[size], other.seconds[other_size], strict=True))


Asked = tuple[str, Callable[[int], float]]  # a name, and what takes a batch size and returns seconds


class Loop:
    """A script of bench_loops that answers one round per request."""

    def __init__(self, python: str, script: str, spec: dict[str, Any], folder: Path):
        file = folder / f"{script}-{abs(hash(json.dumps(spec, sort_keys=True)))}.json"
        file.write_text(json.dumps(spec), encoding="utf-8")
        command = [python, str(LOOPS / script), str(file)]
        variables = {**environment(), "OMP_NUM_THREADS": str(spec["threads"])}
        self._process = subprocess.Popen(
            command, env=variables, cwd=LOOPS, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.labels: list[int] = []
        if self._process.stdout.readline().strip() != "ready":
            sys.exit(f"{' '.join(command)} does not start: run it by hand to see why")

    def ask(self, size: int) -> float:
        self._process.stdin.write(f"{size}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{self._process.args} ended")
        answer = json.loads(line)
        self.labels = answer["labels"]
        return answer["seconds"]

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *error: Any) -> None:
        self._process.kill()
        self._process.wait()


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="nlpctl-bench-") as name:
        folder = Path(name)
        small = Path(options.run) / "model"
        networks = {"MiniLM 6x384": small} if options.only != "wide" else {}
        if options.only != "small":
            networks["BERT 6x768, random weights"] = _wide_model(small, folder / "wide")
        found = {}
        for title, model in networks.items():
            console.note(f"{title}: exporting")
            wide = "random" in title
            texts = _texts(options.data, options.rows // (WIDE_SHARE if wide else 1))
            found[title] = _network(model, folder, options, texts, wide=wide)
    facts = conditions()
    good = _report(found, facts, options)
    return 0 if good else 1


def _network(model: Path, folder: Path, options: argparse.Namespace, texts: list[str], *, wide: bool) -> list[Variant]:
    """All variants of one network, timed."""
    sizes = WIDE_SIZES if wide else BATCH_SIZES
    rows = folder / f"{model.parent.name}-rows.tsv"
    rows.write_text("text\n" + "".join(f"{text}\n" for text in texts), encoding="utf-8")
    export = folder / f"{model.parent.name}-export"
    words = ["export", str(model if wide else options.run), "-o", str(export), "--precision", "fp32,int8"]
    if wide:  # random weights have no dev scores
        train = Path(options.data) / "sst2" / "train.tsv"
        words += ["--data", str(rows), "--rows", "256", "--set", f"data.train={train}"]
    subprocess.run([*NLPCTL, *words], env=environment(), stdout=sys.stderr, check=True)  # ours is the table
    with ExitStack() as stack:
        ours = _ours(stack, export, rows, len(texts), sizes, any_precision=wide)
        asked = [*ours, *_by_hand(stack, model, export, texts, folder, options)]
        variants = _neighbours([Variant(name, ask, sizes, len(texts)) for name, ask in asked])
        for number in range(options.rounds + 1):
            for variant in variants[:: 1 if number % 2 else -1]:
                variant.round(counted=number > 0)
            console.note(f"round {number} of {options.rounds}" if number else "warmed up")
    return variants


def _neighbours(variants: list[Variant]) -> list[Variant]:
    """Each script by hand directly after what is compared with it."""
    names = [variant.name.removesuffix(NOT_FOR_AUTO) for variant in variants]
    after = {BY_HAND[name]: place for place, name in enumerate(names) if name in BY_HAND}
    return [variants[place] for place in sorted(range(len(names)), key=lambda place: after.get(names[place], place))]


def _ours(
    stack: ExitStack, export: Path, rows: Path, count: int, sizes: tuple[int, ...], *, any_precision: bool
) -> list[Asked]:
    """nlpctl in every engine and precision of this machine; auto is the fastest that it may take."""
    recipe = load_recipe(export, [Override("runtime.device", "cpu", "--device")], "apply")
    from nlpctl.runtime.process import set_up_process

    setup = set_up_process(recipe)  # first: an import of Paddle would settle for one thread
    manifest = read_manifest(export)
    from nlpctl.engines.choice import allowed_choices, runnable_here, this_machine

    least = 0.0 if any_precision else recipe.inference.min_agreement
    inference = dataclasses.replace(recipe.inference, min_agreement=least)
    allowed = {each.name for each in allowed_choices(manifest, inference, this_machine(setup)).choices}
    found = []
    for choice in runnable_here(manifest, setup):
        candidate = TimedModel(choice.name, str(export), recipe, choice)
        process = stack.enter_context(TimedProcess(candidate, TimedRows(rows, count, None), sizes))
        process.open()
        mark = "" if choice.name in allowed else NOT_FOR_AUTO
        found.append((f"nlpctl {choice.name}{mark}", process.text_seconds))
    return found


def _by_hand(
    stack: ExitStack, model: Path, export: Path, texts: list[str], folder: Path, options: argparse.Namespace
) -> list[Asked]:
    spec = {"texts": texts, "folder": str(export), "threads": physical_cores(), "max_length": options.max_length}
    spec["exact"] = not cpu_info().computes("int8")
    loops = [
        (f"{kind} by hand, {precision}", sys.executable, f"{script}_by_hand.py", {"file": file, "precision": precision})
        for kind, script, file, precision in (
            ("ONNX Runtime", "onnx", "model.onnx", "fp32"),
            ("ONNX Runtime", "onnx", "model.int8-dynamic.onnx", "int8"),
            ("Paddle Inference", "paddle", "model.pdmodel", "fp32"),
            ("Paddle Inference", "paddle", "model.pdmodel", "bf16"),
            ("Paddle Inference", "paddle", "model.int8.pdmodel", "int8"),
        )
        if (export / file).is_file() and (script == "onnx" or cpu_info().computes(precision))
    ]
    if options.torch_python:
        weights = {"weights": str(folder / f"{model.parent.name}.npz"), "config": _torch_config(model)}
        _torch_weights(model, Path(weights["weights"]))
        for name, precision, pipeline in (
            ("PyTorch by hand, fp32", "fp32", False),
            ("PyTorch by hand, bf16", "bf16", False),
            (PIPELINE, "fp32", True),
        ):
            own = {**weights, "precision": precision, "pipeline": pipeline}
            loops.append((name, options.torch_python, "torch_answering.py", own))
    return [
        (name, stack.enter_context(Loop(python, script, {**spec, **own}, folder)).ask)
        for name, python, script, own in loops
    ]


def _texts(data: str, rows: int) -> list[str]:
    """Sentences of SST-2's test split."""
    lines = (Path(data) / "sst2" / "test.tsv").read_text(encoding="utf-8").splitlines()
    place = lines[0].split("\t").index("text")
    return [line.split("\t")[place] for line in lines[1 : rows + 1]]


def _wide_model(like: Path, run: Path) -> Path:
    """A model folder with the tokenizer and labels of `like`, and a larger network of random weights."""
    prepare_process(RuntimeSection(device="cpu"), 1)  # an import of Paddle without would settle for one thread
    import paddle
    from paddlenlp.transformers import BertConfig, BertForSequenceClassification

    paddle.seed(1)
    folder = run / "model"
    shutil.copytree(like, folder, ignore=shutil.ignore_patterns("*.pdparams", "manifest.json"))
    written = json.loads((like / "config.json").read_text(encoding="utf-8"))
    BertForSequenceClassification(BertConfig.from_dict({**written, **WIDE})).save_pretrained(str(folder))
    return folder


def _torch_config(model: Path) -> dict[str, Any]:
    written = json.loads((model / "config.json").read_text(encoding="utf-8"))
    names = ("vocab_size", "type_vocab_size", "max_position_embeddings", "layer_norm_eps", "hidden_act", *WIDE)
    return {name: written[name] for name in names} | {"num_labels": len(written["id2label"])}


def _torch_weights(model: Path, file: Path) -> None:
    """The weights of a BertForSequenceClassification under Hugging Face's names."""
    import numpy as np
    import paddle

    arrays = paddle.load(str(model / "model_state.pdparams"), return_numpy=True)
    renamed = {}
    for name, array in arrays.items():
        linear = array.ndim == 2 and "embeddings" not in name
        for ours, theirs in _LAYER.items():
            name = name.replace(f".{ours}.", f".{theirs}.")
        name = name.replace("encoder.layers.", "encoder.layer.").replace("layer_norm", "LayerNorm")
        renamed[name] = np.ascontiguousarray(array.T) if linear else array
    np.savez(file, **renamed)


def _report(found: dict[str, list[Variant]], facts: dict[str, Any], options: argparse.Namespace) -> bool:
    """Print the results; return whether every target is met."""
    good, tables, networks = True, [], {}
    for title, variants in found.items():
        ranked = sorted(variants, key=lambda variant: max(variant.speeds.values()), reverse=True)
        named = {variant.name.removesuffix(NOT_FOR_AUTO): variant for variant in variants}
        auto = next(each for each in ranked if each.name.startswith("nlpctl ") and not each.name.endswith(NOT_FOR_AUTO))
        targets = _targets(named, auto)
        good = good and all(ratio >= target for ratio, target in targets.values())
        speeds = {variant.name: variant.speeds for variant in variants}
        networks[title] = {"speeds": speeds, "auto": auto.name, "targets": targets}
        rows = [[variant.name, *(f"{speed:,.0f}" for speed in variant.speeds.values())] for variant in ranked]
        columns = ["variant", *(f"batch {size}" for size in variants[0].sizes)]
        notes = [f"auto takes {auto.name}"] + [
            f"{what}: {ratio:.2f} (target {target}, {'met' if ratio >= target else 'missed'})"
            for what, (ratio, target) in targets.items()
        ]
        told = f"{title}: rows per second from text, {variants[0].rows} sentences, median of {options.rounds} rounds"
        tables.append(Table(told, columns, rows, notes))
    tell(facts, tables, options.json, networks=networks)
    return good


def _targets(named: dict[str, Variant], auto: Variant) -> dict[str, tuple[float, float]]:
    """What is compared: (ratio, target)."""
    ratios = {}
    if pipeline := named.get(PIPELINE):
        times = auto.times(pipeline, auto.best, pipeline.best)
        ratios[f"auto, times the {PIPELINE}, each at its best"] = (times, TIMES_PIPELINE)
    for name, by_hand in BY_HAND.items():
        if name in named:
            ours, theirs = named[name], named[by_hand]
            ratios[f"{name}, times by hand, batch 1"] = (ours.times(theirs, 1, 1), TIMES_BY_HAND)
            ratios[f"{name}, times by hand, best batch"] = (ours.times(theirs, ours.best, theirs.best), TIMES_BY_HAND)
    return ratios


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="run directory of recipes/sentiment/sst2_minilm.yaml")
    parser.add_argument("--torch-python", help="Python with torch, transformers and tokenizers")
    parser.add_argument("--data", default=str(DATA), help="folder with sst2/")
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--only", choices=("small", "wide"), help="one network")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
