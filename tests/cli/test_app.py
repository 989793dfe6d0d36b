"""The command itself: help, errors and exit codes."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer

import nlpctl as package
from nlpctl.cli import app
from nlpctl.cli.app import COMMANDS, Command
from nlpctl.cli.options import load_command_recipe
from nlpctl.errors import Interrupted, Problem, RunFailed, UserError

ROOT = Path(package.__file__).parent.parent


def probe(
    ctx: typer.Context,
    recipe: Annotated[str, typer.Argument(metavar="RECIPE")],
    fail: Annotated[str, typer.Option("--fail")] = "",
    seed: Annotated[int, typer.Option("--seed")] = 0,
    strict: Annotated[bool, typer.Option("--strict/--lenient")] = True,
) -> None:
    """A command for tests."""
    errors = {
        "user": UserError("bad row", where="a.tsv:3", hint="fix it"),
        "many": UserError(problems=[Problem("one"), Problem("two", "here", "do this")]),
        "run": RunFailed("disk full"),
        "stopped": Interrupted("stopped at step 3"),
        "bug": KeyError("x"),
        "panic": type("PanicException", (BaseException,), {})("index out of bounds"),
        "disk": OSError(28, "No space left on device", "new.tsv"),
        "memory": MemoryError(),
        "keyboard": KeyboardInterrupt(),
        "pipe": BrokenPipeError(),
        "exit": typer.Exit(1),
    }
    if fail:
        raise errors[fail]
    loaded = load_command_recipe(recipe, ctx)
    print(loaded.training.learning_rate, loaded.training.seed, loaded.runtime.device, seed, strict)


@pytest.fixture(autouse=True)
def with_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "COMMANDS", (*COMMANDS, Command("probe", f"{__name__}:probe", "A probe.", True)))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])


def test_help_lists_every_command(nlpctl) -> None:
    ended = nlpctl("--help")
    assert ended.code == 0 and not ended.err
    for command in COMMANDS:
        assert f"  {command.name} " in ended.out and command.help.rstrip(".") in ended.out


def test_version(nlpctl) -> None:
    assert nlpctl("--version") == (0, f"nlpctl {package.__version__}\n", "")


def test_nothing_is_a_usage_error_with_the_help(nlpctl) -> None:
    ended = nlpctl()
    assert ended.code == 2 and "Commands:" in ended.err and not ended.out


@pytest.mark.parametrize(("word", "near"), [("trian", "nlpctl train"), ("recipes", "nlpctl recipe"), ("zz", "--help")])
def test_an_unknown_command_has_the_nearest_name(nlpctl, word: str, near: str) -> None:
    ended = nlpctl(word, "x")
    assert ended.code == 2 and near in ended.err and not ended.out


A_BUG = "  -> this is a bug in nlpctl: `--debug` shows where it happened"


@pytest.mark.parametrize(
    ("fail", "code", "lines"),
    [
        ("user", 2, ["error: a.tsv:3: bad row", "  -> fix it"]),
        ("many", 2, ["error: one", "error: here: two", "  -> do this"]),
        ("run", 1, ["error: disk full"]),
        ("stopped", 130, ["error: stopped at step 3"]),
        ("keyboard", 130, ["interrupted"]),
        ("exit", 1, []),
        ("disk", 2, ["error: new.tsv: No space left on device", "  -> free space on this disk"]),
        ("memory", 1, ["error: there is not enough memory for this", "  -> give smaller inputs, or free memory"]),
        ("bug", 1, ["error: internal error KeyError: 'x'", A_BUG]),
        ("panic", 1, ["error: internal error PanicException: index out of bounds", A_BUG]),  # of a library in Rust
    ],
)
def test_errors_are_messages_and_exit_codes(nlpctl, fail: str, code: int, lines: list[str]) -> None:
    ended = nlpctl("probe", "r.yaml", "--fail", fail)
    assert (ended.code, ended.out, ended.err.splitlines()) == (code, "", lines)


def test_debug_shows_the_traceback_from_anywhere(nlpctl) -> None:
    for words in (["--debug", "probe", "r.yaml"], ["probe", "r.yaml", "--debug"]):
        ended = nlpctl(*words, "--fail", "bug")
        assert ended.code == 1 and "Traceback" in ended.err and "KeyError" in ended.err
    assert "Traceback" not in nlpctl("probe", "r.yaml", "--fail", "bug").err


def test_flags_reach_the_recipe(nlpctl, recipe: Path) -> None:
    ended = nlpctl("probe", "--learning-rate", "1/4", recipe, "--device=cpu", "--lenient", "--seed", "9")
    assert (ended.code, ended.out) == (0, "0.25 3 cpu 9 False\n"), ended.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["probe"], "Missing argument"),
        (["probe", "a", "b"], "unexpected extra argument"),
        (["probe", "a", "--seed", "x"], "--seed"),
        (["probe", "a", "-z"], "-z"),
        (["--nope"], "--nope"),
        (["recipe", "nope"], "nope"),
        (["probe", "a", "--learning_rat", "3"], "did you mean --learning_rate?"),
        (["probe", "gone.yaml"], "no such recipe"),
    ],
)
def test_usage_errors_exit_2(nlpctl, words: list[str], message: str) -> None:
    ended = nlpctl(*words)
    assert ended.code == 2 and message in ended.err and ended.err.startswith("error: ") and not ended.out


def test_help_of_a_recipe_command(nlpctl) -> None:
    ended = nlpctl("probe", "--help")
    assert ended.code == 0
    runtime = ("--device", "--devices", "--nproc", "--threads", "--deterministic", "--cache-dir", "--trust-edits")
    for flag in ("--seed", *runtime, "--set"):
        assert f"{flag} " in ended.out
    text = " ".join(ended.out.split())
    assert text.endswith("is a flag too (--learning_rate 3e-5, --no-fp16): `nlpctl recipe flags [PATTERN]` lists them.")


def test_every_command_that_has_landed_has_help(nlpctl) -> None:
    for command in COMMANDS:
        if (ROOT / (command.target.split(":")[0].replace(".", "/") + ".py")).is_file():
            ended = nlpctl(command.name, "--help")
            assert ended.code == 0, (command.name, ended.err)


def python(code: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)


HEAVY = "('paddle', 'paddlenlp', 'paddleslim', 'numpy', 'torch', 'transformers', 'tokenizers')"


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["trian"],
        ["recipe", "ls"],
        ["recipe", "validate", "chnsenticorp"],
        ["recipe", "show", "chnsenticorp", "--origins", "--all"],
        ["recipe", "schema"],
        ["recipe", "flags"],
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_imported(words: list[str]) -> None:
    ended = python(
        f"import sys\nfrom nlpctl.cli.app import main\nmain({words!r})\n"
        f"print('HEAVY', [name for name in {HEAVY} if name in sys.modules])"
    )
    assert ended.stdout.splitlines()[-1:] == ["HEAVY []"], ended.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m nlpctl recipe flags | head -1"
    ended = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=str(ROOT))
    )
    assert ended.stdout and ended.stderr == ""


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("recipe ls > /dev/full", 2, "error: standard output: No space left on device\n  -> free space on this disk\n"),
        ("recipe ls --json > /dev/full", 2, "error: standard output: No space left on device\n  -> free space on this"),
        ("--help > /dev/full", 2, "error: No space left on device\n"),
        ("recipe ls 1< /dev/null", 2, "error: standard output: Bad file descriptor\n  -> let it be written to"),
        ("nope --json > /dev/full", 2, "error: there is no command 'nope'\n"),
        ("nope 2> /dev/full", 2, ""),
        ("--help | true", 0, ""),
        ("recipe ls --json | true", 0, ""),
        ("nope --json 2> /dev/null | true", 2, ""),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written(command: str, code: int, told: str, unbuffered: str) -> None:
    """One message, if there is anything to tell it on, and an exit code of nlpctl's own, not Python's 120."""
    line = f"{sys.executable} -m nlpctl {command}; exit ${{PIPESTATUS[0]}}"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=env)
    assert ended.returncode == code
    assert ended.stderr.startswith(told) and ("Traceback" not in ended.stderr) and bool(told) == bool(ended.stderr)


def test_module_and_exit_code() -> None:
    ended = subprocess.run([sys.executable, "-m", "nlpctl", "nope"], capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 2 and "there is no command 'nope'" in ended.stderr


def test_closed_streams_are_no_error(tmp_path: Path) -> None:
    """`nlpctl ... >&- 2>&- <&-`: nothing is printed, and no file gets their numbers."""
    for closed in (">&-", "<&- >&- 2>&-"):
        command = f"{sys.executable} -m nlpctl recipe ls {closed}"
        ended = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=dict(os.environ, PYTHONPATH=str(ROOT)))
        assert ended.returncode == 0


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 always looks in the current folder first")
def test_further_processes_take_no_modules_of_the_current_folder(tmp_path: Path) -> None:
    """In the folder of a stranger's run a json.py would run."""
    for name in ("json", "multiprocessing"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('it ran')\n")
    assert processes_of_each_kind(tmp_path, "import json, multiprocessing") == {"command": 0, "worker": 0}


def test_the_user_s_own_processes_find_the_modules_beside_their_scripts(tmp_path: Path) -> None:
    """A reader may run `python tools/prep.py`, which imports tools/shared.py."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "shared.py").touch()
    (tmp_path / "tools" / "prep.py").write_text("import shared\n")
    code = "import subprocess, sys; subprocess.run([sys.executable, 'tools/prep.py'], check=True)"
    assert processes_of_each_kind(tmp_path, code) == {"command": 0, "worker": 0}


def processes_of_each_kind(folder: Path, code: str) -> dict[str, int]:
    """The exit codes of `code`, run in `folder` in processes of each kind that a command line starts."""
    (folder / "bin").mkdir()
    (folder / "bin" / "part.py").write_text("def opened():\n    return lambda code: exec(code) or 0\n")
    (folder / "bin" / "main.py").write_text(f"""
import sys
import part
from nlpctl.cli.app import main
from nlpctl.runtime.worker import Worker, run_python

if __name__ == "__main__":
    sys.argv[1:] = ["--version"]
    main()
    worker = Worker(part.opened, grace=5, daemon=True)
    worker.start()
    print({{"command": run_python("-c", {code!r}).code, "worker": worker.ask({code!r}, "worker")}})
    worker.end()
""")
    done = subprocess.run([sys.executable, "bin/main.py"], cwd=folder, capture_output=True, text=True)
    return ast.literal_eval(done.stdout.splitlines()[-1]) if done.returncode == 0 else {done.stderr: done.returncode}


def test_help_loads_nothing_that_it_does_not_need():
    """Each of these would make every command slower to begin, and --help by a third."""
    code = "import sys; from nlpctl.cli.app import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = ("paddle", "numpy", "yaml", "multiprocessing", "hashlib")
    heavy += ("nlpctl.config", "nlpctl.report", "nlpctl.runtime")
    assert not set(heavy) & set(done.stderr.split())


def test_a_process_that_another_launcher_has_numbered_stays_alone() -> None:
    """Else only process 0 would print, and Paddle would wait for the others."""
    variables = {"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "2", "PADDLE_LOCAL_SIZE": "2"}

    def run(*words: str, **more: str) -> subprocess.CompletedProcess:
        environment = os.environ | variables | more
        return subprocess.run([sys.executable, "-m", "nlpctl", *words], capture_output=True, text=True, env=environment)

    assert "quickstart" in run("recipe", "ls").stdout
    done = run("train", "nonesuch.yaml", PADDLE_TRAINER_ID="")
    assert done.returncode == 2 and "nlpctl has not started them" in done.stderr
    assert "--nnodes auto lets them train together" in done.stderr
    assert "no such recipe" in run("train", "nonesuch.yaml", PADDLE_TRAINERS_NUM="1").stderr
    assert "--max_steps" in run("train", "--help").stdout
    assert "--master: where the processes are to meet" in run("train", "nonesuch.yaml", "--nnodes", "auto").stderr


def test_a_process_alone_keeps_the_card_that_a_launcher_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "2", "FLAGS_selected_gpus": "3"}.items():
        monkeypatch.setenv(name, value)
    app._stay_alone(["predict", "a", "b"])
    assert os.environ["FLAGS_selected_gpus"] == "3" and "PADDLE_TRAINER_ID" not in os.environ
