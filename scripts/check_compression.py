"""Check that every strategy works with every family and task, and that engines compute int8 as simulated.

    python scripts/check_compression.py                                  # the tables, about 30 minutes
    python scripts/check_compression.py --task question --family roberta --results table.json

Small networks are trained for a few steps on the real data in ../shared/data (parity_models.py), compressed by every
strategy and combination of strategies with trainings of STEPS steps, and loaded by each engine of this machine. A cell
shows the agreement with the decisions of the fp32 graph of the same network on real rows, for the worst engine. For
Paddle int8, the second number is the agreement of oneDNN with the simulated graph, which runs operator by operator in
Paddle's own kernels. --results stores the results, and a second call continues from them.
Exits 1 if a strategy failed without being refused with a reason, if oneDNN and the simulation agree on less than
SIMULATED of the rows, or if a network makes the same decision for all rows, so that agreement means nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from bench_common import conditions, conditions_line
from parity_models import KINDS, Kind, make_run

from nlpctl.compress.plan import CompressRequest, parse_strategy, plan_steps
from nlpctl.compress.refusals import refuse_networks
from nlpctl.compress.steps import StepExecutor
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.recipe_of import recipe_for_export
from nlpctl.config.schema import Recipe
from nlpctl.errors import NlpctlError, UserError
from nlpctl.export.strategies import CANDIDATES, EXPORTS, NETWORKS, Step
from nlpctl.files import STAGING_PREFIX
from nlpctl.models.export_folder import read_manifest
from nlpctl.models.find import find_trained_model
from nlpctl.runtime.process import set_up_process

FAMILIES = ("ernie", "bert", "roberta", "electra", "bilstm")
TASKS = ("sequence classification", "text matching", "token classification", "token classification, CRF",
         "question answering")  # fmt: skip
STRATEGIES = (
    "bf16", "ort-dynamic", "ort-static", "ptq", "embeddings", "ptq+embeddings", "qat", "qat+embeddings",
    "dynabert", "dynabert+ort-dynamic", "dynabert+ort-static", "dynabert+ptq", "dynabert+embeddings",
    "dynabert+ptq+embeddings", "dynabert+qat", "dynabert+qat+embeddings",
    "distill", "distill+ort-dynamic", "distill+ptq", "distill+qat",
)  # fmt: skip
STEPS = 12  # of each training
CLEAR_STEPS = 400  # of the original taggers and readers: those of parity_models.py decide by the last digits
SIMULATED = 0.97  # least share of decisions alike; of some 60 rows two may lie on the edge between two answers
EXACT = 1e-4  # a difference of outputs, as a share of the largest, below which no value was rounded otherwise
Results = dict[str, Any]  # "task / family" -> strategy -> what was found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="", help="only tasks whose name contains this")
    parser.add_argument("--family", default=",".join(FAMILIES), help="families, between commas")
    parser.add_argument("--results", type=Path, help="JSON file with results so far")
    options = parser.parse_args()
    kinds = [_trained(kind) for kind in KINDS if kind.name in TASKS and options.task in kind.name]
    families = [name for name in options.family.split(",") if name]
    results: Results = {}
    if options.results is not None and options.results.exists():
        results = json.loads(options.results.read_text(encoding="utf-8"))
    for kind in kinds:
        for family in families:
            key = f"{kind.name} / {family}"
            if key in results:
                continue
            began = time.monotonic()
            results[key] = measured(kind, family)
            print(f"{key}: {time.monotonic() - began:.0f} s", file=sys.stderr)
            if options.results is not None:
                options.results.write_text(json.dumps(results, indent=1, ensure_ascii=False), encoding="utf-8")
    print(conditions_line(conditions()), end="\n\n")
    bad = []
    for kind in kinds:
        print(table(kind, families, results), end="\n\n")
        for key in (f"{kind.name} / {name}" for name in families):
            bad += [f"{key}: {each}" for each in faults(results[key])]
    print(exactness(results), end="\n\n")
    print("Refused:", *sorted(refusals(results)), sep="\n- ")
    print("\nFailed:", *(bad or ["none"]), sep="\n- ")
    return 1 if bad else 0


def _trained(kind: Kind) -> Kind:
    clear = kind.task in ("token_classification", "question_answering")
    return dataclasses.replace(kind, steps=CLEAR_STEPS) if clear else kind


def measured(kind: Kind, family: str) -> dict[str, Any]:
    """What became of every strategy on one small network: {"refused": ...}, {"failed": ...} or its agreements."""
    with tempfile.TemporaryDirectory(prefix="nlpctl-compress-") as name:
        folder = Path(name)
        try:
            recipe = _recipe(make_run(folder, kind, family))
        except UserError as error:
            return dict.fromkeys(STRATEGIES, {"refused": error.problems[0].message.replace(f"{folder}/", "")})
        source = find_trained_model(recipe)
        bench = StepExecutor(recipe, set_up_process(recipe), source, folder / "compress")
        for part in (NETWORKS, EXPORTS, CANDIDATES):
            (bench.output / part).mkdir(parents=True)
        made: dict[str, str | None] = {}  # folder: why it could not be made
        with kept_simulations(folder / "simulated"):
            return {strategy: _tried(bench, strategy, made, folder / "simulated") for strategy in STRATEGIES}


def _recipe(recipe: Recipe) -> Recipe:
    """The run's recipe with the shortest training and calibration."""
    values = {
        "training.max_steps": STEPS, "training.per_device_train_batch_size": 8, "training.evaluation_strategy": "no",
        "training.save_strategy": "no", "training.warmup_ratio": 0.1, "compression.width_mult_list": "[1/2]",
        "compression.algo_list": "[avg]", "compression.batch_size_list": "[16]", "compression.batch_num_list": "[4]",
        "distillation.num_hidden_layers": 1,
    }  # fmt: skip
    overrides = [Override(name, str(value), "--set") for name, value in values.items()]
    return load_recipe(recipe.run_dir, overrides, "apply")


def _tried(bench: StepExecutor, strategy: str, made: dict[str, str | None], simulated: Path) -> dict[str, Any]:
    """One strategy, whose folders may be there from another one."""
    chains = parse_strategy(strategy)
    try:
        refuse_networks(CompressRequest(bench.recipe, bench.source, chains))
    except UserError as error:
        return {"refused": error.problems[0].message}
    steps = plan_steps(chains, bench.recipe.compression)
    for step in steps:
        if step.folder not in made:
            made[step.folder] = _make(bench, step)
        if made[step.folder] is not None:
            kind = "refused" if made[step.folder].startswith("refused: ") else "failed"
            return {kind: f"{step.folder}: {made[step.folder].removeprefix('refused: ')}"}
    return _agreements(bench, steps[-1], simulated)


def _make(bench: StepExecutor, step: Step) -> str | None:
    try:
        bench.make(step)
    except UserError as error:
        return f"refused: {error.problems[0].message}"
    except NlpctlError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _agreements(bench: StepExecutor, step: Step, simulated: Path) -> dict[str, Any]:
    """Agreement with the fp32 graph by engine, and with the simulated int8 graph if there is one."""
    folder = bench.output / step.folder
    checks = [check for graph in read_manifest(folder).graphs for check in graph.checks]
    found: dict[str, Any] = {"engines": {f"{each.engine} {each.precision}": each.agreement for each in checks}}
    if (simulated / f"{step.name}.pdmodel").is_file():
        found |= _compared(bench, folder, simulated / step.name)
    return found


def _compared(bench: StepExecutor, folder: Path, simulated: Path) -> dict[str, Any]:
    """Share of the rows that oneDNN decides as the simulated graph, its largest difference as a share of the largest
    output, and how many different decisions there are.
    """
    from nlpctl.data.rows.task_rows import task_rows
    from nlpctl.data.sample_rows import rows_to_compare
    from nlpctl.engines.choice import open_choice, runnable_here
    from nlpctl.engines.parity import Parity
    from nlpctl.tasks.base import task_and_encoder

    recipe, manifest, setup = recipe_for_export(bench.recipe, folder), read_manifest(folder), bench.setup
    task, encoder = task_and_encoder(folder, recipe)
    rows = rows_to_compare(task_rows(recipe.task, recipe.data), None, encoder.tokenizer, 64, masked=task.masks_inputs)
    parity = Parity(task, encoder, rows.examples, own_kernels(simulated))
    (choice,) = runnable_here(manifest, setup)
    difference = parity.difference(open_choice(folder, manifest, choice, setup, 16).outputs)
    return {
        "simulated": difference.agreement,
        "difference": difference.relative,
        "decisions": parity.distinct_decisions,
    }


def own_kernels(prefix: Path) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    """A graph as Paddle's own kernels compute it, operator by operator."""
    import paddle

    config = paddle.inference.Config(f"{prefix}.pdmodel", f"{prefix}.pdiparams")
    config.disable_gpu()
    config.disable_glog_info()
    config.switch_ir_optim(False)
    predictor = paddle.inference.create_predictor(config)

    def run(batch: dict[str, Any]) -> tuple[Any, ...]:
        for name in predictor.get_input_names():
            predictor.get_input_handle(name).copy_from_cpu(batch[name])
        predictor.run()
        return tuple(predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names())

    return run


@contextlib.contextmanager
def kept_simulations(folder: Path) -> Iterator[None]:
    """Simulated graphs, from which those for oneDNN are made, are kept in `folder` under the candidate's name."""
    from nlpctl.compress.networks import qat
    from nlpctl.graphs import ptq

    folder.mkdir()
    write = ptq.write_onednn_program

    def keep(simulated: Path, out: Path) -> tuple[str, ...]:
        name = out.parent.name.removeprefix(STAGING_PREFIX).rpartition("-")[0]  # of the staged folder
        for ending in (".pdmodel", ".pdiparams"):
            shutil.copyfile(f"{simulated}{ending}", folder / f"{name}{ending}")
        return write(simulated, out)

    with mock.patch.object(ptq, "write_onednn_program", keep), mock.patch.object(qat, "write_onednn_program", keep):
        yield


def table(kind: Kind, families: list[str], results: Results) -> str:
    """Markdown."""
    lines = [f"| {kind.name} | {' | '.join(families)} |", f"|---|{'---|' * len(families)}"]
    for strategy in STRATEGIES:
        cells = [_cell(results[f"{kind.name} / {name}"][strategy]) for name in families]
        lines.append(f"| {strategy} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(found: dict[str, Any]) -> str:
    if "refused" in found:
        return "refused"
    if "failed" in found:
        return "failed!"
    worst = f"{min(found['engines'].values()):.0%}"
    return f"{worst}, {found['simulated']:.0%}" if "simulated" in found else worst


def exactness(results: Results) -> str:
    """What the worst of all networks in int8 shows."""
    found = [each for column in results.values() for each in column.values() if "simulated" in each]
    if not found:
        return "No network in int8."
    exact = sum(each["difference"] < EXACT for each in found)
    largest, fewest = max(each["difference"] for each in found), min(each["decisions"] for each in found)
    return (
        f"{len(found)} networks in int8 for oneDNN. The outputs of {exact} differ from the simulated ones by less than "
        f"{EXACT:g} of the largest output, those of all by at most {largest:.2g}. "
        f"Each makes at least {fewest} different decisions."
    )


def refusals(results: Results) -> set[str]:
    """Each reason once, with its cells."""
    cells: dict[str, set[str]] = {}
    for key, strategies in results.items():
        for strategy, found in strategies.items():
            if "refused" in found:
                cells.setdefault(found["refused"], set()).add(f"{strategy} ({key.partition(' / ')[2]})")
    return {f"{', '.join(sorted(names))}: {reason}" for reason, names in cells.items()}


def faults(strategies: dict[str, Any]) -> list[str]:
    """What went wrong in one column."""
    failed = [f"{name}: {found['failed']}" for name, found in strategies.items() if "failed" in found]
    apart = [
        f"{name}: oneDNN agrees with the simulated graph on {found['simulated']:.1%}"
        for name, found in strategies.items()
        if found.get("simulated", 1.0) < SIMULATED
    ]
    idle = [f"{name}: all decisions are equal" for name, found in strategies.items() if found.get("decisions") == 1]
    return failed + apart + idle


if __name__ == "__main__":
    sys.exit(main())
