"""The command line of convert-static: what becomes of its words. tests/end_to_end runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.cli.app import main
from nlpctl.convert import convert_static as runner
from nlpctl.errors import UserError


@pytest.fixture
def asked(monkeypatch) -> list:
    """What the runners are asked for; they end at once."""
    calls = []

    def stop(*words, **more):
        calls.append((*words, more))
        raise UserError("stopped")

    monkeypatch.setattr(runner, "convert_static", stop)
    monkeypatch.setattr(runner, "plan_static", stop)
    return calls


def test_every_option_reaches_the_runner(asked):
    words = """convert-static params --to ernie-1.0 --class ErnieModel --config num_hidden_layers=3
        --config hidden_act=relu --config hidden_dropout_prob=0.5 --map my.yaml --labels l.txt --vocabulary v.txt
        --allow-missing classifier --allow-missing *.pooler -o out --overwrite"""
    assert main(words.split()) == 2
    expected = runner.ConversionRequest(
        "params", "ernie-1.0", "ErnieModel",
        {"num_hidden_layers": 3, "hidden_act": "relu", "hidden_dropout_prob": 0.5},
        "my.yaml", Path("l.txt"), Path("v.txt"), ("classifier", "*.pooler"),
    )  # fmt: skip
    assert asked == [(expected, Path("out"), {"overwrite": True})]


@pytest.mark.parametrize(
    ("output", "file"),
    [([], "params.map.yaml"), (["-o", "m.yaml"], "m.yaml"), (["-o", "models/ernie"], "models/ernie.map.yaml")],
)
def test_where_a_plan_is_written(asked, output, file):
    assert main(["convert-static", "a/params", "--to", "ernie-1.0", "--plan", *output]) == 2
    assert asked[0][1] == Path(file)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config", "num_hidden_layers"], "'num_hidden_layers' is not of the form KEY=VALUE"),
        (["--config", "=3"], "is not of the form KEY=VALUE"),
        (["--config", "x={a: 1}"], "is not of the form KEY=VALUE"),
        ([], "no output folder"),
    ],
)
def test_what_cannot_be_meant(asked, capsys, words, message):
    assert main(["convert-static", "params", "--to", "ernie-1.0", *words]) == 2
    assert message in capsys.readouterr().err and not asked
