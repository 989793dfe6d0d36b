"""What --strategy may say, and the folders that it stands for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nlpctl.compress.plan import CompressRequest, parse_strategy, plan_steps
from nlpctl.compress.strategies import simplicity
from nlpctl.errors import UserError

# Those that PaddleNLP's trainer_compress.py names, and ours.
SUMS = (
    "dynabert+qat+embeddings dynabert+qat dynabert+ptq+embeddings dynabert+ptq dynabert+embeddings dynabert "
    "ptq ptq+embeddings qat qat+embeddings embeddings distill distill+ort-dynamic bf16 dynabert+bf16 embeddings+bf16"
).split()


def section(**given):
    names = ("width_mult_list", "algo_list", "batch_size_list", "batch_num_list")
    return SimpleNamespace(**{**dict.fromkeys(names), "prune_embeddings": False, **given})


def folders(strategy: str, **given) -> list[str]:
    return [step.folder for step in plan_steps(parse_strategy(strategy), section(**given))]


@pytest.mark.parametrize("text", SUMS)
def test_every_sum(text):
    (chain,) = parse_strategy(text)
    assert "+".join(chain.parts) == text


def test_alternatives_come_once():
    found = parse_strategy(" ptq , dynabert + ort-static,ptq,")
    assert [chain.parts for chain in found] == [("ptq",), ("dynabert", "ort-static")]
    recipe = SimpleNamespace(compression=section())
    assert CompressRequest(recipe, "model", found).trains
    assert not CompressRequest(recipe, "model", parse_strategy("ptq,ort-static,embeddings,bf16")).trains


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no strategy"),
        (" , ", "names no strategy"),
        ("dynabret", "no strategy 'dynabret' .did you mean 'dynabert'"),
        ("ptq+", "no strategy ''"),
        ("ptq+dynabert", "the order is another network, then 8 bits\n"),
        ("embeddings+ptq", "the order is 8 bits, then smaller embeddings\n"),
        ("bf16+dynabert", "the order is another network, then another precision\n"),
        ("ptq+qat", "two steps that make 8 bits: ptq and qat"),
        ("dynabert+distill", "two steps that make another network"),
        ("ort-dynamic+embeddings", "already"),
        ("ptq+bf16", "bf16 is a way to compute an fp32 graph"),
        ("bf16+ptq", "bf16 is a way to compute an fp32 graph"),
        ("bf16+qat+dynabert", "bf16 is a way to compute an fp32 graph"),
        ("embeddings+ort-dynamic", "already"),
    ],
)
def test_what_cannot_be(text, message):
    with pytest.raises(UserError, match=message) as caught:
        parse_strategy(text)
    (problem,) = caught.value.problems
    assert problem.hint and problem.where == "compression.strategy"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ptq+dynabert", "write dynabert+ptq"),
        ("bf16+embeddings+dynabert", "write dynabert+embeddings+bf16"),
        ("bf16+ptq", "leave out bf16, or separate it: ptq,bf16"),
        ("bf16+embeddings+ptq", "leave out bf16, or separate it: ptq+embeddings,bf16"),
    ],
)
def test_the_hint_is_accepted(text, hint):
    with pytest.raises(UserError) as caught:
        parse_strategy(text)
    assert caught.value.problems[0].hint == hint
    assert parse_strategy(hint.rpartition(" ")[2])


def test_folders_of_a_sum_come_after_those_they_need():
    steps = plan_steps(parse_strategy("dynabert+qat+embeddings,ptq,ort-dynamic"), section(width_mult_list=("1/2",)))
    assert [step.folder for step in steps] == [
        "exports/original",
        "networks/width-0.5",
        "exports/width-0.5",
        "networks/width-0.5+qat",
        "candidates/width-0.5+qat",
        "candidates/width-0.5+qat+embeddings",
        "candidates/original+ptq-avg-32x16",
        "candidates/original+ptq-mse-32x16",
        "candidates/original+ort-dynamic",
    ]
    assert steps[4].needs == ("exports/width-0.5", "networks/width-0.5+qat")
    for i, step in enumerate(steps):
        assert set(step.needs) <= {each.folder for each in steps[:i]}
    assert [step.name for step in steps if step.trains] == ["width-0.5", "width-0.5+qat"]
    assert [step.folder for step in steps if not step.scored] == ["networks/width-0.5", "networks/width-0.5+qat"]


def test_widths_are_fractions_and_one_width_is_one_folder():
    found = folders("dynabert", width_mult_list=("3/4", "0.75", "2/3"))
    assert [name for name in found if name.startswith("networks")] == ["networks/width-0.75", "networks/width-0.6667"]


def test_calibration_on_all_rows_has_a_name():
    (name,) = (name for name in folders("ort-static", batch_num_list=(None,)) if name.startswith("candidates"))
    assert name == "candidates/original+ort-static-32xall"


def test_the_grid_is_every_combination():
    found = folders("ptq,ort-static", algo_list=("avg", "KL"), batch_size_list=(8, 16), batch_num_list=(2,))
    rows = ("8x2", "16x2")
    ptq = [f"candidates/original+ptq-{algorithm}-{row}" for algorithm in ("avg", "KL") for row in rows]
    assert found == ["exports/original", *ptq, *(f"candidates/original+ort-static-{row}" for row in rows)]


def test_fewer_words_come_first():
    found = folders("dynabert+ort-dynamic,bf16", prune_embeddings=True)
    assert found == [
        "exports/original",
        "networks/fewer-words",
        "networks/fewer-words-width-0.75",
        "exports/fewer-words-width-0.75",
        "candidates/fewer-words-width-0.75+ort-dynamic",
        "exports/fewer-words",
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("original", (0, 0)),
        ("original+ort-dynamic original+ptq-avg-32x16 fewer-words", (1, 1)),
        ("original+ptq-avg-32x16+embeddings fewer-words+ort-static-32x16", (1, 2)),
        ("width-0.75 student original+qat somebody-elses", (2, 1)),
        ("student+ort-static-32xall fewer-words-width-0.75", (2, 2)),
    ],
)
def test_what_is_simpler(names, expected):
    assert {simplicity(name) for name in names.split()} == {expected}
