"""`runtime.env`: what is accepted, what is refused, and where a refusal points."""

from __future__ import annotations

import pytest

from nlpctl.config.environment import (
    KNOWN_VARIABLES,
    NUMBERS,
    PLACES,
    TEXTS,
    checked_environment,
    flag_environment,
    known_variables,
)
from nlpctl.errors import UserError

GOOD = "task: sequence_classification\nmodel: {from_scratch: {}}\ndata: {train: train.tsv}\n"


def refusal(name: str, value: str = "1") -> str:
    with pytest.raises(UserError) as caught:
        checked_environment({name: value})
    (problem,) = caught.value.problems
    assert problem.where == f"runtime.env.{name}"
    return str(problem)


def test_what_the_libraries_read_is_accepted():
    asked = {
        "CUBLAS_WORKSPACE_CONFIG": ":16:8",
        "CUDA_LAUNCH_BLOCKING": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NCCL_DEBUG": "INFO",
        "NCCL_SOCKET_IFNAME": "^docker0,lo",
        "NCCL_P2P_DISABLE": "1",
    }
    assert checked_environment(asked) == asked
    assert len(KNOWN_VARIABLES) == len([*NUMBERS, *TEXTS, *PLACES])


@pytest.mark.parametrize(
    "name",
    "LD_PRELOAD LD_LIBRARY_PATH PATH PYTHONPATH PYTHONSTARTUP HOME BASH_ENV NCCL_NET_PLUGIN NCCL_TUNER_PLUGIN "
    "CUDA_INJECTION64_PATH CUDA_FORCE_PRELOAD_LIBRARIES NCCL_CONF_FILE".split(),
)
def test_what_loads_code_is_refused(name):
    assert "it decides which code runs" in refusal(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("FLAGS_cudnn_deterministic", "set runtime.flags.FLAGS_cudnn_deterministic"),
        ("CUDA_VISIBLE_DEVICES", "use runtime.devices"),
        ("OMP_NUM_THREADS", "use runtime.threads"),
        ("PPNLP_HOME", "use runtime.cache_dir"),
        ("NCCL_P2P_DISABLED", "did you mean NCCL_P2P_DISABLE?"),
        ("nccl_debug", "did you mean NCCL_DEBUG?"),
        ("EDITOR", "export it yourself"),
    ],
)
def test_a_refusal_names_the_way(name, hint):
    assert hint in refusal(name)


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("NCCL_P2P_DISABLE", "true", "takes a whole number"),
        ("NCCL_DEBUG", "", "delete the line"),
        ("NCCL_SOCKET_IFNAME", "eth0\x00", "give it a value"),
        ("CUBLAS_WORKSPACE_CONFIG", "4096:8", '":4096:8"'),
    ],
)
def test_bad_values(name, value, hint):
    assert hint in refusal(name, value)


def test_a_variable_among_the_flags_is_sent_here():
    with pytest.raises(UserError, match="set runtime.env.CUBLAS_WORKSPACE_CONFIG"):
        flag_environment({"CUBLAS_WORKSPACE_CONFIG": ":16:8"})


def test_values_are_texts_as_written(load, problems):
    env = "runtime: {env: {NCCL_P2P_DISABLE: 1, NCCL_DEBUG: INFO, NCCL_IB_TC: 010, CUBLAS_WORKSPACE_CONFIG: ':16:8'}}"
    assert load(GOOD + env).runtime.env == {
        "NCCL_P2P_DISABLE": "1",
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_TC": "010",
        "CUBLAS_WORKSPACE_CONFIG": ":16:8",
    }
    refused = " ".join(map(str, problems(GOOD + "runtime:\n  env:\n    LD_PRELOAD: evil.so\n")))
    assert "recipe.yaml:6" in refused and "a recipe may not set LD_PRELOAD" in refused


def test_known_variables_of_the_environment():
    assert known_variables({"NCCL_DEBUG": "INFO", "HOME": "/root", "SECRET": "x"}) == {"NCCL_DEBUG": "INFO"}
