"""Export small networks in every static format of Paddle 2.x, convert them back, and compare bit by bit.

    python scripts/check_static_round_trips.py [--families Ernie,Bert] [--heads QuestionAnswering]

Tests families x heads x formats; exits with 1 if a parameter or an output differs.
The graph of a head that does not use the encoder's pooler lacks the pooler, and so does its export. Only then may the
pooler be new.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import static_exports as exports  # imports nlpctl before paddle

# isort: split
import numpy as np
import paddle

from nlpctl import console
from nlpctl.convert.convert_static import ConversionRequest, convert_static
from nlpctl.convert.proof import NO_PROGRAM
from nlpctl.errors import NlpctlError
from nlpctl.models.source import WEIGHTS
from nlpctl.models.weights import read_weights_file
from nlpctl.report.model import Table
from nlpctl.report.text import show_table

POOLER = ".pooler.dense."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", default=",".join(exports.FAMILIES))
    parser.add_argument("--heads", default=",".join(exports.HEADS))
    options = parser.parse_args()
    rows, failed, started = [], 0, time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        for number, family in enumerate(options.families.split(",")):
            for head in options.heads.split(","):
                folder = Path(name) / f"{family}For{head}"
                original = exports.make_original(folder / "model", family, head, seed=number)
                for kind, source in exports.save_all(original, folder).items():
                    problem, ways, new = round_trip(original, source, folder / "converted" / kind)
                    failed += problem is not None
                    rows.append([f"{family}For{head}", kind, ways, new, problem or "bit-exact"])
    show_table(Table(["network", "format", "matched", "new", "parameters and outputs"], rows))
    seconds = time.monotonic() - started
    console.result(f"{len(rows)} round trips, {failed} with a difference, in {seconds:.0f} s")
    return 1 if failed else 0


def round_trip(original: exports.Original, source: Path, output: Path) -> tuple[str | None, str, int]:
    """Convert and compare: (the difference or None, number of matches by method, number of new parameters)."""
    uses_pooler = type(original.network).__name__.endswith("SequenceClassification")
    has_pooler = any(POOLER in name for name in original.parameters)
    allowed = ("*.pooler",) if has_pooler and not uses_pooler else ()
    try:
        done = convert_static(ConversionRequest(str(source), str(original.model), allow_missing=allowed), output)
    except NlpctlError as error:
        return str(error), "", 0
    new = {row.parameter for row in done.report.fresh}
    ways = ", ".join(f"{count} by {way}" for way, count in done.report.ways.items())
    problem = _parameters_differ(original, output, new) or _outputs_differ(original, output)
    if problem is None and any(POOLER not in name for name in new):
        problem = f"new: {sorted(new)}"
    proof = done.report.proof
    if problem is None and not (proof.difference == 0 if proof.possible else proof.reason == NO_PROGRAM):
        problem = f"proof: {proof}"
    return problem, ways, len(new)


def _parameters_differ(original: exports.Original, output: Path, new: set[str]) -> str | None:
    arrays = read_weights_file(output / WEIGHTS).arrays
    if arrays.keys() != original.parameters.keys():
        return f"names: {sorted(arrays.keys() ^ original.parameters.keys())}"
    for name, array in original.parameters.items():
        if name not in new and (arrays[name].dtype != array.dtype or arrays[name].tobytes() != array.tobytes()):
            return f"parameter {name}"
    return None


def _outputs_differ(original: exports.Original, output: Path) -> str | None:
    random = np.random.default_rng(0)
    ids = random.integers(1, len(exports.VOCABULARY), (4, 12))
    ids[-1, 7:] = 0
    feed = {"input_ids": ids, "token_type_ids": (np.arange(12) > 5).astype("int64") * np.ones_like(ids)}
    expected = original.outputs(feed)
    family, _, head = type(original.network).__name__.partition("For")
    network = exports.build(family, head)
    network.set_state_dict(paddle.load(str(output / WEIGHTS)))
    network.eval()
    found = exports.Original(network, output, {}).outputs(feed)
    if len(found) != len(expected):
        return f"{len(found)} outputs"
    equal = all(one.tobytes() == other.tobytes() for one, other in zip(found, expected, strict=True))
    return None if equal else "outputs"


if __name__ == "__main__":
    sys.exit(main())
