"""Where the releases of Paddle differ, on the one that is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nlpctl.paddle_version import KNOWN, OLD_FORMAT, described_tensor, describes_tensor, release, release_of

NEW = release() >= (3, 0)


def python(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`code` in a new interpreter with these variables, and without the one that nlpctl sets here."""
    names = [f"-u{OLD_FORMAT}", *(f"{name}={value}" for name, value in environ.items())]
    return subprocess.run(["env", *names, sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("version", "found"),
    [("2.6.2", (2, 6)), ("2.6.2.post118", (2, 6)), ("3.1.1", (3, 1)), ("3.10.0", (3, 10)), ("dev", None)],
)
def test_release_of(version: str, found: tuple[int, int] | None) -> None:
    assert release_of(version) == found


def test_the_installed_release_is_known() -> None:
    assert release() in KNOWN


def test_programs_are_of_the_old_format() -> None:
    code = "import nlpctl, paddle; print(paddle.get_flags('FLAGS_enable_pir_api'), paddle.framework.in_pir_mode())"
    assert python(code).stdout.splitlines()[-1] == "{'FLAGS_enable_pir_api': False} False"


def test_paddle_3_writes_the_new_format_by_itself() -> None:
    """Once this fails under Paddle 3, keep_old_format can go."""
    code = "import zlib, paddle; print(paddle.get_flags('FLAGS_enable_pir_api')['FLAGS_enable_pir_api'])"
    assert python(code).stdout.splitlines()[-1] == str(NEW)


PREPARE = """
from nlpctl.config.schema import RuntimeSection
from nlpctl.runtime.process import prepare_process
prepare_process(RuntimeSection(device="cpu", flags={flags}), 7)
print("prepared")
"""


@pytest.mark.parametrize(
    ("before", "flags", "environ", "told"),
    [
        ("", {}, {}, ""),
        ("", {OLD_FORMAT: False}, {OLD_FORMAT: "1"}, ""),
        ("", {OLD_FORMAT: True}, {}, f"runtime.flags.{OLD_FORMAT}: nlpctl needs the old program format"),
        ("", {}, {OLD_FORMAT: "True"}, f"{OLD_FORMAT}: nlpctl needs the old program format"),
        ("import zlib, paddle", {}, {}, "too late for its old program format\n  -> import nlpctl before paddle"),
    ],
    ids=["as it is", "recipe wins", "recipe", "environment", "paddle first"],
)
def test_the_new_format_is_refused(before: str, flags: dict, environ: dict[str, str], told: str) -> None:
    done = python(before + PREPARE.format(flags=flags), **environ)
    if told and NEW:
        assert told in done.stderr and "UserError" in done.stderr
    else:
        assert done.stdout.endswith("prepared\n"), done.stderr


def test_the_field_of_a_tensor() -> None:
    from paddle.base.proto import framework_pb2

    variable = framework_pb2.VarType()
    assert not describes_tensor(variable)
    described_tensor(variable).tensor.dims[:] = [2, -1]
    assert describes_tensor(variable)
    field = framework_pb2.VarType.DESCRIPTOR.fields_by_name["dense_tensor" if NEW else "lod_tensor"]
    assert variable.HasField(field.name) and field.number == 3
