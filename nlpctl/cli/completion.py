"""Completion of command lines by the shell: commands, recipes, runs, flags and their values, keys of --set.

Typer does the talking with the shells. This module says what an argument or option may be, by the name it has in the
help. Nothing here imports Paddle or NumPy: an answer takes as long as `nlpctl --help`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import completion as typer_completion

from nlpctl import console
from nlpctl.cli import ASKED
from nlpctl.compress.strategies import STRATEGIES
from nlpctl.config.hub_names import HF_PREFIX, cached_on_disk
from nlpctl.config.json_schema import recipe_json_schema
from nlpctl.config.keys import all_keys
from nlpctl.config.library import shipped_recipes
from nlpctl.config.refused_keys import MANAGED, UNSUPPORTED
from nlpctl.errors import EXIT_FAILED, UserError
from nlpctl.layout import MANIFEST
from nlpctl.models.ready_models import ready_models
from nlpctl.names import did_you_mean

SHELLS = ("bash", "zsh", "fish")
_RUNS = Path("outputs")
_DEEPEST = 3  # folders below outputs in which runs are looked for

# Typer's own, but a folder or KEY= is not finished: bash would put a blank after it.
_BASH = """\
_nlpctl_completion() {
    local IFS=$'\\n'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \\
                   _NLPCTL_COMPLETE=complete_bash "$1" 2>/dev/null ) )
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/] ]] && compopt -o nospace
    return 0
}

complete -o default -F _nlpctl_completion nlpctl"""


@dataclass(frozen=True)
class Candidate:
    """One word that would fit, as Typer passes it to the shell."""

    value: str
    help: str | None = None
    type: str = "plain"


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
) -> None:
    """Print the script that lets a shell complete commands, recipes, runs, flags and keys.

    Examples:

      nlpctl completion bash >> ~/.bashrc

      nlpctl completion zsh > ~/.zfunc/_nlpctl        (with fpath+=~/.zfunc before compinit in ~/.zshrc)

      nlpctl completion fish > ~/.config/fish/completions/nlpctl.fish
    """
    if shell not in SHELLS:
        hint = f"nlpctl completion {'|'.join(SHELLS)}"
        raise UserError(f"no completion for {shell!r}{did_you_mean(shell, SHELLS)}", "completion", hint)
    if shell == "bash":
        console.result(_BASH)
    else:
        console.result(typer_completion.get_completion_script(prog_name="nlpctl", complete_var=ASKED, shell=shell))


def answer(root: Any) -> int:
    """Print what fits the line that the shell asks about, as its variables say. Any error is silence."""
    typer_completion.completion_init()
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            root.main([], prog_name="nlpctl", standalone_mode=False)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else EXIT_FAILED
    except Exception:  # a traceback in the middle of a command line helps nobody
        return EXIT_FAILED
    return EXIT_FAILED


def with_candidates(command: Any) -> Any:
    """`command`, whose arguments and options (those of its own commands too) offer what they may be."""
    for param in command.params:
        offer(param)
    for inner in vars(command).get("commands", {}).values():
        with_candidates(inner)
    return command


def offer(param: Any) -> None:
    """Let `param` offer what its name in the help, or its flag, stands for; else the shell offers files."""
    metavar = (param.metavar or "").strip("[].").partition(" ")[0].removesuffix("...")
    named = {flag: _BY_FLAG[flag] for flag in param.opts if flag in _BY_FLAG}
    if metavar == "TASK":  # of a recipe; elsewhere --task is a ready model
        offered(param, _tasks)
    elif named:
        offered(param, next(iter(named.values())))
    elif param.param_type_name == "argument" and metavar in _BY_METAVAR:
        offered(param, _BY_METAVAR[metavar])
    elif "|" in metavar:
        offered(param, [word for word in metavar.split("|") if word.isalnum() and not word.isupper()])  # not auto|FILE


def offered(param: Any, values: Iterable[str] | Callable[[str], Iterable[Candidate]]) -> Any:
    """`param`, offering `values`, or what a function of the word so far gives."""

    def fitting(ctx: Any, incomplete: str) -> list[Candidate]:
        candidates = values(incomplete) if callable(values) else map(Candidate, values)
        fit = {each.value: each for each in candidates if each.value.startswith(incomplete)}  # each word once
        return list(fit.values())

    param.shell_complete = fitting
    return param


# -- what an argument or option may be ---------------------------------------------------------------------------


def _tasks(incomplete: str) -> Iterable[Candidate]:
    return map(Candidate, recipe_json_schema()["properties"]["task"]["enum"])


def _recipes(incomplete: str) -> Iterable[Candidate]:
    """The recipes that come with nlpctl, recipe files, and folders."""
    yield from _shipped(incomplete)
    yield from _paths(incomplete, (".yaml", ".yml"))


def _shipped(incomplete: str) -> Iterable[Candidate]:
    """The recipes that come with nlpctl, by the last part of the name until a folder is typed."""
    for each in shipped_recipes():
        yield Candidate(each.name if "/" in incomplete else each.name.rpartition("/")[2], each.title)


def _recipes_and_runs(incomplete: str) -> Iterable[Candidate]:
    yield from _recipes(incomplete)
    yield from _runs(incomplete)


def _runs(incomplete: str) -> Iterable[Candidate]:
    """The runs in outputs, and folders; once hf: is typed, the repositories in the cache of the Hugging Face hub."""
    if incomplete.startswith(HF_PREFIX):
        yield from (Candidate(str(name)) for name in cached_on_disk())
    patterns = ("/".join(["*"] * depth) for depth in range(1, _DEEPEST + 1))
    runs = [path.parent for pattern in patterns for path in _RUNS.glob(f"{pattern}/{MANIFEST}")]
    yield from (Candidate(str(run)) for run in sorted(runs))
    yield from _paths(incomplete, ())


def _paths(incomplete: str, endings: tuple[str, ...]) -> Iterable[Candidate]:
    """Folders, and files with one of the `endings`, that begin as the word does."""
    folder, begun = os.path.split(incomplete)
    with contextlib.suppress(OSError), os.scandir(os.path.expanduser(folder) or ".") as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if not entry.name.startswith(begun) or (entry.name.startswith(".") and not begun):
                continue
            path = os.path.join(folder, entry.name)
            if entry.is_dir():
                yield Candidate(f"{path}/")
            elif entry.name.endswith(endings) and endings:
                yield Candidate(path)


def _keys(incomplete: str) -> Iterable[Candidate]:
    """The keys of --set, each with the sign that its value follows."""
    return (
        Candidate(f"{dotted}=", key.help)
        for dotted, key in all_keys().items()
        if not key.section and dotted not in MANAGED and dotted not in UNSUPPORTED
    )


def _ready(incomplete: str) -> Iterable[Candidate]:
    return (Candidate(each.name, each.help) for each in ready_models())


def _choices(dotted: str) -> Callable[[str], Iterable[Candidate]]:
    return lambda incomplete: map(Candidate, all_keys()[dotted].choices)


def _strategies(incomplete: str) -> Iterable[Candidate]:
    return (Candidate(each.name) for each in STRATEGIES)


# By the name in the help, and by the flag.
_BY_METAVAR = {
    "RECIPE": _recipes_and_runs,
    "NAME": _shipped,
    "MODEL": _runs,
    "RUN": _runs,
    "OUTPUTS": _runs,
}
_BY_FLAG = {
    "--set": _keys,
    "--task": _ready,
    "--strategy": _strategies,
    "--engine": _choices("inference.engine"),
    "--precision": _choices("inference.precision"),
}
