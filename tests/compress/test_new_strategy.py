"""A strategy is one module and one entry of the registry: nothing else has to know of it."""

from __future__ import annotations

import ast
import importlib
import json
import pickle
import sys
from pathlib import Path

import pytest
from made_runs import make_run

from nlpctl.cli.app import main
from nlpctl.compress import strategies as registry
from nlpctl.compress.costs import Costs
from nlpctl.compress.plan import CompressRequest, parse_strategy, plan_steps
from nlpctl.compress.refusals import warn_unread
from nlpctl.compress.steps import StepExecutor
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.schema import CompressionSection
from nlpctl.errors import UserError
from nlpctl.export import strategies as graph_strategies
from nlpctl.export.request import ExportRequest
from nlpctl.models.export_folder import read_manifest
from nlpctl.runtime.process import set_up_process
from nlpctl.runtime.run_directory import RunDirectory

PACKAGE = Path(registry.__file__).resolve().parents[1]

MODULE = '''"""Two strategies of a user's own, beside nlpctl."""

import shutil

from nlpctl.export.strategies import Int8Strategy, NetworkStrategy
from nlpctl.models.export_folder import Graph


class OneScale(Int8Strategy):
    name = "one-scale"
    help = "8 bits for ONNX Runtime, a scale per matrix"
    gain = 1.5
    runs_on = ("onnxruntime", "int8")
    holds_tables = True
    graph = Graph("onnx", "int8", ("model.int8-one-scale.onnx",), "one-scale")

    def write(self, context):
        from onnxruntime.quantization import quantize_dynamic

        quantize_dynamic(context.fp32_graph("onnx"), context.folder / self.graph.files[0])


class Twin(NetworkStrategy):
    name = "twin"
    help = "the network once more"
    reads = in_names = ("width_mult_list",)

    def networks(self, section, base):
        yield self.network("twin", base)

    def make_network(self, recipe, source, step, run, setup):
        from nlpctl.compress.networks.training import begin_network, load_source, network_recipe, read_data

        model = load_source(recipe, source)
        data = read_data(recipe, model)
        begin_network(network_recipe(recipe, run, source, model.labels), run, setup, data)
        with run.recorded():
            shutil.copytree(source, run.model)
'''


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """The strategies of a module that lies beside the user's recipes."""
    (tmp_path / "my_strategies.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_strategies", raising=False)
    module = importlib.import_module("my_strategies")
    made = (module.OneScale(), module.Twin())
    monkeypatch.setattr(registry, "STRATEGIES", (*registry.STRATEGIES, *made))
    monkeypatch.setattr(graph_strategies, "GRAPH_STRATEGIES", (*graph_strategies.GRAPH_STRATEGIES, made[0]))
    return made


def test_without_its_entry_there_is_none():
    with pytest.raises(UserError, match="there is no strategy 'one-scale'"):
        parse_strategy("one-scale")


def test_the_parser_and_the_plan_know_it(registered):
    chains = parse_strategy("one-scale,twin+one-scale")
    steps = plan_steps(chains, CompressionSection())
    assert [step.folder for step in steps] == [
        "exports/original",
        "candidates/original+one-scale",
        "networks/twin",
        "exports/twin",
        "candidates/twin+one-scale",
    ]
    costs = Costs(500.0, {}, 9.0)
    assert costs.total(steps[1]) > 0 and costs.total(steps[2]) > 0 and steps[1].made_by.gain == 1.5
    assert pickle.loads(pickle.dumps(steps)) == steps  # it goes to the process that makes it


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one-scale+twin", "the order is another network, then 8 bits"),
        ("ptq+one-scale", "two steps that make 8 bits: ptq and one-scale"),
        ("dynabert+twin", "two steps that make another network"),
        ("one-scale+embeddings", "one-scale already stores large embedding tables in 8 bits"),
        ("one-scala", "did you mean 'one-scale'"),
    ],
)
def test_what_it_cannot_be_part_of(registered, text, message):
    with pytest.raises(UserError, match=message):
        parse_strategy(text)


@pytest.mark.slow
def test_it_is_made_scored_and_in_the_table_and_export_offers_it(registered, tmp_path):
    run = make_run(tmp_path, "sequence_classification").run_dir
    assert main(["compress", str(run), "--strategy", "one-scale", "--batch_sizes", "2"]) == 0
    report = json.loads((run / "compress" / "report.json").read_text())
    assert not report["failures"]
    assert "original+one-scale, onnxruntime int8 (one-scale)" in {row["name"] for row in report["rows"]}
    assert "original+one-scale" in (run / "compress" / "report.md").read_text()
    words = ["export", str(run), "-o", str(tmp_path / "export"), "--precision", "int8-one-scale", "--format"]
    assert main([*words, "paddle"]) == 2
    assert main([*words, "onnx"]) == 0
    assert [graph.method for graph in read_manifest(tmp_path / "export").graphs] == [None, "one-scale"]


def test_int8_is_all_of_them(registered):
    plan = ExportRequest(("paddle", "onnx"), ("fp32", "int8"))
    assert [graph.method for graph in plan.graphs()] == [None, None, "ptq", "dynamic", "static", "one-scale"]
    assert plan.may_lack(registered[0].graph)
    alone = ExportRequest(("onnx",), ("int8-one-scale",))
    assert [graph.method for graph in alone.graphs()] == [None, "one-scale"]
    assert not alone.may_lack(registered[0].graph)


def test_a_network_is_made(registered, tmp_path, capsys):
    recipe = make_run(tmp_path, "sequence_classification")
    chains = parse_strategy("twin")
    step = next(step for step in plan_steps(chains, recipe.compression) if step.is_network)
    StepExecutor(recipe, set_up_process(recipe), str(recipe.run_dir / "model"), tmp_path / "out").make(step)
    made = RunDirectory(tmp_path / "out" / "networks" / "twin")
    assert made.is_finished and (made.model / "config.json").is_file()
    smaller = step.in_form({"training.num_train_epochs": 0.5})
    StepExecutor(recipe, set_up_process(recipe), str(recipe.run_dir / "model"), tmp_path / "out").make(smaller)
    assert "num_train_epochs: 0.5" in (tmp_path / "out" / "networks" / "twin-epochs-0.5" / "recipe.yaml").read_text()
    flag = Override("compression.width_mult_list", "1/2", "--width_mult_list")
    given = load_recipe(recipe.run_dir, [flag], "apply")
    warn_unread(CompressRequest(given, "model", parse_strategy("one-scale")))
    assert "--width_mult_list has no effect: it applies to dynabert and twin" in capsys.readouterr().err
    warn_unread(CompressRequest(given, "model", chains))
    assert "changes nothing" not in capsys.readouterr().err


# Words that are also something else: PaddleNLP's flag and a precision, a key of recipes.
OTHER_MEANINGS = {
    "bf16": {"compress/networks/qat.py", "export/request.py"},
    "embeddings": {"compress/plan.py"},
}
ROOMS = ("compress", "export", "graphs")


def test_a_strategy_is_named_in_its_own_module_alone():
    names = {name: sys.modules[type(each).__module__].__file__ for name, each in registry.strategies().items()}
    elsewhere = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
            if name not in names or Path(names[name]).resolve() == path:
                continue
            meant = name in OTHER_MEANINGS and (not place.startswith(ROOMS) or place in OTHER_MEANINGS[name])
            if not meant:
                elsewhere.append(f"{place}:{node.lineno}: {name!r}")
    assert not elsewhere, elsewhere
