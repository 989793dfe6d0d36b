"""argv -> words for Typer and values for the recipe."""

from __future__ import annotations

import pytest

from nlpctl.cli.field_flags import COMPRESSION, TRAINING, field_flags, take_overrides
from nlpctl.config.keys import all_keys
from nlpctl.config.refused_keys import MANAGED
from nlpctl.errors import UserError

OWN = {"--overwrite": 0, "--output": 1, "-o": 1, "--data-file": 1, "--seed": 1, "--help": 0}


def take(line: str, positionals: int = 1) -> tuple[list[str], dict[str, object]]:
    words, overrides = take_overrides(line.split(), OWN, positionals)
    return words, {each.key: each.text for each in overrides}


@pytest.mark.parametrize(
    ("line", "words", "values"),
    [
        ("r.yaml --learning_rate 3e-5", ["r.yaml"], {"training.learning_rate": "3e-5"}),
        ("--learning-rate=3e-5 r.yaml", ["r.yaml"], {"training.learning_rate": "3e-5"}),
        ("--max_steps -1 r.yaml", ["r.yaml"], {"training.max_steps": "-1"}),
        ("r.yaml --fp16", ["r.yaml"], {"training.fp16": "true"}),
        ("--fp16 r.yaml", ["r.yaml"], {"training.fp16": "true"}),
        ("--fp16 false r.yaml", ["r.yaml"], {"training.fp16": "false"}),
        ("--fp16=no r.yaml", ["r.yaml"], {"training.fp16": "no"}),
        ("--no-fp16 r.yaml", ["r.yaml"], {"training.fp16": "false"}),
        ("--no_fp16 r.yaml", ["r.yaml"], {"training.fp16": "false"}),
        ("--no-fp16 true", ["true"], {"training.fp16": "false"}),
        ("--no_cuda r.yaml", ["r.yaml"], {"training.no_cuda": "true"}),  # a field of that name
        ("r.yaml --report_to visualdl wandb", ["r.yaml"], {"training.report_to": ("visualdl", "wandb")}),
        ("--report_to visualdl wandb r.yaml", ["r.yaml"], {"training.report_to": ("visualdl", "wandb")}),
        ("--report_to visualdl,wandb r.yaml", ["r.yaml"], {"training.report_to": "visualdl,wandb"}),
        ("--labels neg,pos model", ["model"], {"data.labels": "neg,pos"}),
        ("model --labels neg,pos in.txt", ["model", "in.txt"], {"data.labels": "neg,pos"}),
        ("--width_mult_list 3/4 1/2 r.yaml", ["r.yaml"], {"compression.width_mult_list": ("3/4", "1/2")}),
        ("r.yaml --width_mult_list 3/4 1/2", ["r.yaml"], {"compression.width_mult_list": ("3/4", "1/2")}),
        ("--width_mult_list 3/4 --fp16 r.yaml", ["r.yaml"],
         {"compression.width_mult_list": "3/4", "training.fp16": "true"}),
        ("--batch_num_list 1 2 r.yaml", ["r.yaml"], {"compression.batch_num_list": ("1", "2")}),
        ("--batch_num_list 1 all r.yaml", ["r.yaml"], {"compression.batch_num_list": ("1", "all")}),
        ("--batch_num_list None r.yaml", ["r.yaml"], {"compression.batch_num_list": "None"}),
        ("--devices 0,1 r.yaml", ["r.yaml"], {"runtime.devices": "0,1"}),
        ("--devices 0 1 r.yaml", ["r.yaml"], {"runtime.devices": ("0", "1")}),
        ("--device cpu r.yaml", ["r.yaml"], {"runtime.device": "cpu"}),
        ("r.yaml --nproc 2 --threads 1 --deterministic --cache-dir c", ["r.yaml"],
         {"runtime.nproc": "2", "runtime.threads": "1", "runtime.deterministic": "true", "runtime.cache_dir": "c"}),
        ("--set data.max_seq_length=256 r.yaml", ["r.yaml"], {"data.max_seq_length": "256"}),
        ("r.yaml --set=model.config.a=b=c --set data.dev=", ["r.yaml"], {"model.config.a": "b=c", "data.dev": ""}),
        ("r.yaml --overwrite -o x --output y", ["r.yaml", "--overwrite", "-o", "x", "--output", "y"], {}),
        ("r.yaml --data_file=x --data_file y", ["r.yaml", "--data-file=x", "--data-file", "y"], {}),
        ("--output --fp16 r.yaml", ["--output", "--fp16", "r.yaml"], {}),  # the value of --output
        ("r.yaml --seed 3", ["r.yaml", "--seed", "3"], {}),  # the command's own option wins
        ("r.yaml -- --fp16", ["r.yaml", "--", "--fp16"], {}),
        ("r.yaml - --run_name=-x", ["r.yaml", "-"], {"training.run_name": "-x"}),
        ("r.yaml --weight_decay -.5", ["r.yaml"], {"training.weight_decay": "-.5"}),
    ],
)  # fmt: skip
def test_taking(line: str, words: list[str], values: dict[str, object]) -> None:
    assert take(line) == (words, values)


@pytest.mark.parametrize("line", ["--width_mult_list 3/4 r.yaml out", "--width_mult_list 3/4 r.yaml --fp16 no out"])
def test_two_positionals_keep_their_order(line: str) -> None:
    words, values = take(line, 2)
    assert words == ["r.yaml", "out"] and values["compression.width_mult_list"] == "3/4"


def test_the_flag_is_kept_as_typed() -> None:
    _, overrides = take_overrides(["--learning-rate", "1", "--set", "a.b=2"], {}, 0)
    assert [each.flag for each in overrides] == ["--learning-rate", "--set a.b"]


@pytest.mark.parametrize(
    ("line", "flag", "message", "hint"),
    [
        ("--lerning_rate 3", "--lerning_rate", "no such flag", "--learning_rate"),
        ("--overwritte", "--overwritte", "no such flag", "--overwrite"),
        ("--no-learning_rate", "--no-learning_rate", "no such flag", "--"),
        ("--qqqq", "--qqqq", "no such flag", "nlpctl recipe flags"),
        ("--learning_rate", "--learning_rate", "needs a value", "number"),
        ("--learning_rate --fp16", "--learning_rate", "needs a value", "--learning_rate=--fp16"),
        ("--report_to", "--report_to", "needs a value", "list of"),
        ("--no-fp16=true", "--no-fp16", "takes no value", "--fp16 true"),
        ("--set", "--set", "not of the form key=value", "--set"),
        ("--set data.train", "--set", "not of the form key=value", "--set"),
        ("--set =3", "--set", "not of the form key=value", "--set"),
    ],
)
def test_flags_that_are_wrong(line: str, flag: str, message: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        take(line)
    (problem,) = caught.value.problems
    assert problem.where == flag and message in problem.message and hint in problem.hint


def test_all_wrong_flags_at_once() -> None:
    with pytest.raises(UserError) as caught:
        take("--aaaa --fp17 --set x r.yaml --learning_rate")
    assert [each.where for each in caught.value.problems] == ["--aaaa", "--fp17", "--set", "--learning_rate"]


@pytest.mark.parametrize("flag", sorted(field_flags()))
def test_every_field_is_a_flag_in_both_spellings(flag: str) -> None:
    key = field_flags()[flag]
    for spelling in (flag, flag.replace("_", "-")):
        words, overrides = take_overrides(["r.yaml", f"--{spelling}=1"], {}, 1)
        assert words == ["r.yaml"] and [(each.key, each.text) for each in overrides] == [(key.dotted, "1")]


def test_a_field_of_both_sections_is_that_of_the_command() -> None:
    for section in (TRAINING, COMPRESSION):
        _, overrides = take_overrides(["r.yaml", "--criterion", "my:loss"], {}, 1, section)
        assert [each.key for each in overrides] == [f"{section}.criterion"]


def test_no_field_is_left_out() -> None:
    reached = {key.dotted for section in (TRAINING, COMPRESSION) for key in field_flags(section).values()}
    fields = {dotted for dotted in all_keys() if dotted.split(".")[0] in ("training", "compression")}
    assert fields - reached == {"training.device"} <= set(MANAGED)  # --device is runtime.device
