"""What a shell offers after a tab: bash itself for the way of a word there and back, the protocol for the others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import nlpctl as package
from nlpctl.cli import ASKED
from nlpctl.cli.app import COMMANDS
from nlpctl.cli.field_flags import field_flags
from nlpctl.config.keys import all_keys
from nlpctl.config.library import shipped_recipes
from nlpctl.config.refused_keys import MANAGED, UNSUPPORTED

ROOT = Path(package.__file__).parent.parent


@pytest.fixture
def offered(nlpctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """`offered("train", "qu")`: the words that bash is given, in a folder with a run, a recipe and a text."""
    (tmp_path / "outputs" / "first").mkdir(parents=True)
    (tmp_path / "outputs" / "first" / "manifest.json").touch()
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "mine.txt").touch()
    monkeypatch.chdir(tmp_path)

    def words(*typed: str) -> list[str]:
        monkeypatch.setenv(ASKED, "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(["nlpctl", *typed]))
        monkeypatch.setenv("COMP_CWORD", str(len(typed)))
        ended = nlpctl()
        monkeypatch.delenv(ASKED)
        assert not ended.err
        return ended.out.split()

    return words


def test_commands(offered) -> None:
    assert offered("") == [command.name for command in COMMANDS]
    assert offered("comp") == ["compress", "completion"]
    assert offered("runs", "") == ["ls", "show", "diff", "board", "clean", "send"]
    assert offered("nothing", "") == []


def test_recipes(offered) -> None:
    assert offered("train", "quick") == ["quickstart"] and offered("recipe", "copy", "quick") == ["quickstart"]
    assert offered("train", "mi") == ["mine.yaml"]
    assert set(offered("train", "sentiment/")) == {
        each.name for each in shipped_recipes() if each.name.startswith("sentiment/")
    }
    assert offered("recipe", "validate", "mine.yaml", "mi") == ["mine.yaml"]


@pytest.mark.parametrize("words", [("predict",), ("runs", "show"), ("report",), ("train",), ("bench", "outputs/first")])
def test_runs(offered, words: tuple[str, ...]) -> None:
    assert sorted(offered(*words, "outputs/f")) == ["outputs/first", "outputs/first/"]


def test_flags(offered) -> None:
    found = offered("train", "mine.yaml", "--")
    fields = [f"--{name}" for name, key in field_flags().items() if key.dotted not in {*MANAGED, *UNSUPPORTED}]
    assert set(fields) <= set(found) and "--overwrite" in found and "--set" in found
    assert len(found) == len(set(found))
    assert offered("train", "--learning_rate", "1e-5", "mi") == ["mine.yaml"]
    assert offered("runs", "ls", "--so") == ["--sort"]


def test_values_of_flags(offered) -> None:
    schedules = {"cosine", "constant", "constant_with_warmup"}
    assert set(offered("train", "mine.yaml", "--lr_scheduler_type", "c")) == schedules
    assert offered("train", "mine.yaml", "--device", "") == ["cpu", "gpu", "auto"]
    assert offered("predict", "outputs/first", "--engine", "on") == ["onnxruntime"]
    assert "lexical_analysis" in offered("predict", "--task", "")
    assert offered("new", "--task", "text_") == ["text_matching"]
    assert offered("convert-static", "old", "--map", "") == ["auto"]
    assert "qat" in offered("compress", "outputs/first", "--strategy", "")


def test_keys_of_set(offered) -> None:
    keys = {dotted for dotted, key in all_keys().items() if not key.section} - {*MANAGED, *UNSUPPORTED}
    assert set(offered("train", "mine.yaml", "--set", "")) == {f"{key}=" for key in keys}
    assert offered("train", "mine.yaml", "--set", "data.max_") == ["data.max_seq_length="]


@pytest.mark.parametrize(
    ("shell", "asked", "told"),
    [
        ("zsh", {"_TYPER_COMPLETE_ARGS": "nlpctl train m"}, '"mine.yaml"'),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "nlpctl train mine.yaml --"}, '"--learning_rate":"'),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "nlpctl train --set "}, '"data.max_seq_length=":"'),
        ("fish", {"_TYPER_COMPLETE_ARGS": "nlpctl compr"}, "compress\tMake a trained model smaller and faster."),
        ("fish", {"_TYPER_COMPLETE_ARGS": "nlpctl compress r --"}, "--learning_rate\t"),
        ("fish", {"_TYPER_COMPLETE_ARGS": "nlpctl train --set "}, "data.max_seq_length=\t"),
    ],
)
def test_the_protocols_of_the_other_shells(offered, nlpctl, monkeypatch, shell: str, asked: dict, told: str) -> None:
    monkeypatch.setenv(ASKED, f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    ended = nlpctl()
    assert ended.code == 0 and told in ended.out and not ended.err


def test_the_scripts(nlpctl) -> None:
    for shell, line in (("bash", "complete -o default -F"), ("zsh", "#compdef nlpctl"), ("fish", "--command nlpctl")):
        ended = nlpctl("completion", shell)
        assert ended.code == 0 and line in ended.out and ASKED in ended.out
    ended = nlpctl("completion", "bsh")
    assert ended.code == 2 and "did you mean 'bash'" in ended.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_reads_its_script(nlpctl, tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(nlpctl("completion", shell).out)
    assert subprocess.run([shell, "-n", script], capture_output=True).stderr == b""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_in_bash(nlpctl, tmp_path: Path) -> None:
    """bash calls the function as after a tab, and the program that it calls has neither Paddle nor NumPy imported."""
    program = tmp_path / "nlpctl"
    code = (
        "import atexit, sys; from nlpctl.cli.app import main\n"
        "atexit.register(lambda: open('heavy', 'a').write(' '.join({'paddle', 'numpy'} & set(sys.modules))))\n"
        "sys.exit(main())\n"
    )
    program.write_text(f"#!{sys.executable}\n{code}")
    program.chmod(0o755)
    (tmp_path / "script").write_text(nlpctl("completion", "bash").out)
    asking = (
        'source script; compopt() { blank="$1 $2"; }\n'
        'ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); blank=; '
        '_nlpctl_completion nlpctl; echo "${COMPREPLY[*]}$blank"; }\n'
        "ask nlpctl recip; ask nlpctl train --set data.max_; complete -p nlpctl"
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(["bash", "-c", asking], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.stdout.splitlines() == [
        "recipe",
        "data.max_seq_length=-o nospace",
        "complete -o default -F _nlpctl_completion nlpctl",
    ]
    assert ended.stderr == "" and (tmp_path / "heavy").read_text() == ""
