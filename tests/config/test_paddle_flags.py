"""The flag list agrees with the installed Paddle, and Paddle reads what we render."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nlpctl.config.environment import flag_environment, known_flags, render
from nlpctl.errors import UserError
from nlpctl.paddle_version import KNOWN, release

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "nlpctl/config/data"


def listed(paddle: tuple[int, int]) -> dict[str, Any]:
    """The list of a release."""
    return json.loads((DATA / f"paddle_flags-{paddle[0]}.{paddle[1]}.json").read_text(encoding="utf-8"))


def test_list_agrees_with_the_installed_paddle():
    script = REPOSITORY / "scripts/update_paddle_flags.py"
    code = (
        f"import importlib.util as u, json, nlpctl, paddle; s = u.spec_from_file_location('flags', {str(script)!r});"
        "m = u.module_from_spec(s); s.loader.exec_module(m);"
        "print(json.dumps([m.exported_flags(), m.python_flags(), paddle.is_compiled_with_cuda()]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    exported, python_flags, with_gpu = json.loads(done.stdout.splitlines()[-1])
    known = listed(release())
    if with_gpu:
        assert exported == {**known["flags"], **known["gpu_flags"]}
    else:
        assert exported == known["flags"]
        assert python_flags == known["python_flags"]


@pytest.mark.parametrize("paddle", KNOWN)
def test_every_release_has_its_list(paddle):
    known = listed(paddle)
    assert known["paddle"].startswith(f"{paddle[0]}.{paddle[1]}.") and len(known["flags"]) > 100
    assert not known["gpu_flags"].keys() & known["flags"].keys()


def test_gpu_flags_are_known_without_a_gpu_build():
    assert known_flags()["FLAGS_cudnn_deterministic"] == "bool"
    assert known_flags()["FLAGS_embedding_deterministic"] == "int"


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (True, "bool", "1"),
        (False, "bool", "0"),
        ("No", "bool", "0"),
        ("true", "bool", "1"),
        (1, "bool", "1"),
        (2, "bool", None),
        ("maybe", "bool", None),
        (3, "int", "3"),
        (True, "int", "1"),
        (1.5, "int", None),
        ("0.5", "float", "0.5"),
        (1, "float", "1.0"),
        (True, "float", None),
        ("naive_best_fit", "str", "naive_best_fit"),
        (None, "str", None),
    ],
)
def test_render(value, kind, text):
    assert render(value, kind) == text


def test_paddle_reads_what_we_render():
    flags = {
        "FLAGS_check_nan_inf": True,
        "FLAGS_use_autotune": "yes",
        "FLAGS_gpu_memory_limit_mb": 100,
        "FLAGS_fraction_of_gpu_memory_to_use": 0.5,
        "FLAGS_allocator_strategy": "naive_best_fit",
    }
    code = f"import nlpctl, json, paddle; print(json.dumps(paddle.get_flags({list(flags)})))"
    env = {**os.environ, **flag_environment(flags)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert json.loads(done.stdout.splitlines()[-1]) == {**flags, "FLAGS_use_autotune": True}


def test_a_flag_of_the_other_release_is_told():
    name, other, here = "FLAGS_cpu_deterministic", "2.6", "3.1"
    if release() < (3, 0):
        name, other, here = "FLAGS_check_cuda_error", "3.1", "2.6"
    hint = f"remove it: Paddle {other} has it, the installed {here} does not"
    with pytest.raises(UserError, match=f"Paddle has no flag {name}\n  -> {hint}"):
        flag_environment({name: True})


def test_all_bad_flags_are_told_at_once_with_the_nearest():
    with pytest.raises(UserError) as caught:
        flag_environment(
            {
                "FLAGS_cudnn_determinstic": True,
                "cudnn_deterministic": True,
                "FLAGS_check_nan_inf": "perhaps",
                "FLAGS_qqqqqqqqq": 1,
            }
        )
    messages = [str(problem) for problem in caught.value.problems]
    assert messages[0] == (
        "runtime.flags.FLAGS_cudnn_determinstic: Paddle has no flag FLAGS_cudnn_determinstic\n"
        "  -> did you mean FLAGS_cudnn_deterministic?"
    )
    assert messages[1].endswith("did you mean FLAGS_cudnn_deterministic?")
    assert messages[2].endswith("FLAGS_check_nan_inf takes true or false")
    assert "did you mean" not in messages[3]
