"""The command `nlpctl`: its commands, and how errors become exit codes.

Commands are imported when they are called, so that help and mistyped names answer at once.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import nlpctl
from nlpctl import console
from nlpctl.cli import ASKED
from nlpctl.cli.output import FLAG, json_output
from nlpctl.cli.values import check_values
from nlpctl.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USER,
    NeedsRestart,
    NlpctlError,
    Problem,
    UserError,
    is_failure,
    remedy,
)
from nlpctl.extras import of_extra
from nlpctl.names import nearest, refuse_not_utf8
from nlpctl.spelling import spell_as_flags


@dataclass(frozen=True)
class Command:
    """A command and where its code is: a function, or a Typer app with commands of its own."""

    name: str
    target: str  # "module:attribute"
    help: str
    takes_recipe: bool = False


COMMANDS = (
    Command("new", "nlpctl.cli.new:new", "Write a recipe for data files of your own."),
    Command("train", "nlpctl.cli.train:train", "Train a model, keep the best, score it on dev and test.", True),
    Command("sweep", "nlpctl.cli.sweep:sweep", "Find the best values of a recipe's keys by many trainings.", True),
    Command("eval", "nlpctl.cli.evaluate:evaluate", "Score a trained model on labelled data.", True),
    Command("predict", "nlpctl.cli.predict:predict", "Label a file or stdin with a trained model.", True),
    Command("ensemble", "nlpctl.cli.ensemble:ensemble", "Make one model of several, whose answers are averaged.", True),
    Command("calibrate", "nlpctl.cli.calibrate:calibrate", "Fit the probabilities in answers to labelled data.", True),
    Command("export", "nlpctl.cli.export:export", "Write a trained model as graphs for other engines.", True),
    Command("compress", "nlpctl.cli.compress:compress", "Make a trained model smaller and faster.", True),
    Command("bench", "nlpctl.cli.bench:bench", "Time models and exports in every engine that runs here.", True),
    Command("serve", "nlpctl.cli.serve:serve", "Serve a trained model over HTTP.", True),
    Command("explain", "nlpctl.cli.explain:explain", "Show what each token contributes to the label of a text.", True),
    Command("index", "nlpctl.cli.index:app", "Build an index of texts by meaning, and search it."),
    Command("data", "nlpctl.cli.data:app", "Inspect data, split it, augment it."),
    Command("params", "nlpctl.cli.params:app", "List, change and compare the parameters of a model."),
    Command("convert-static", "nlpctl.cli.convert_static:convert_static", "Turn static-graph parameters into a model."),
    Command("runs", "nlpctl.cli.runs:app", "List, show and compare runs."),
    Command("ui", "nlpctl.cli.ui:ui", "Show runs in the browser, and try their models."),
    Command("report", "nlpctl.cli.report:report", "Write a run as one HTML page with curves and errors."),
    Command("card", "nlpctl.cli.card:card", "Write a model card in the format of the Hugging Face hub."),
    Command("recipe", "nlpctl.cli.recipe:app", "List, show, copy and check recipes; list the flags."),
    Command("completion", "nlpctl.cli.completion:completion", "Print the script for completion by the shell."),
    Command("doctor", "nlpctl.cli.doctor:doctor", "Check this machine: versions, device, threads, disk."),
)


# -- the tree of commands --------------------------------------------------------------------


class _ReaderLeft(Exception):
    """The reader of a pipe has gone. Replaces a BrokenPipeError, which Typer would turn into exit 1."""


@contextlib.contextmanager
def _reader_may_leave() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise _ReaderLeft from None


class LazyGroup(TyperGroup):
    """Shows COMMANDS in the help; imports only the one that is called."""

    # ctx is Any in these: typer.Context is a subclass of the one that the methods of TyperGroup take.

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        with _reader_may_leave():  # --help and --version are printed here
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        with _reader_may_leave():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        return [command.name for command in COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A placeholder with name and help, for the help page; None if there is no such command."""
        listed = _find(cmd_name)
        return None if listed is None else TyperCommand(listed.name, help=listed.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str, Any, list[str]]:
        """Name, command and further arguments of what `args` call. UserError if there is no such command."""
        listed = _find(args[0])
        if listed is None:
            near = nearest(args[0], self.list_commands(ctx))
            hint = f"did you mean `nlpctl {near}`?" if near else "`nlpctl --help` lists the commands"
            raise UserError(f"there is no command {args[0]!r}", hint=hint)
        command = _load(listed)
        check_values(command)
        if ctx.resilient_parsing:  # a shell asks what could be typed next
            from nlpctl.cli.completion import with_candidates

            command = with_candidates(command)
        return listed.name, command, args[1:]


def _root() -> Any:
    """The Typer command `nlpctl`."""
    root = typer.Typer(
        name="nlpctl",
        cls=LazyGroup,
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    root.callback(
        epilog="`nlpctl COMMAND --help` shows details. Exit codes: 0 done, 1 failed, 2 wrong input, 130 stopped."
    )(_nlpctl)
    return typer.main.get_command(root)


def _print_version(wanted: bool) -> None:
    if wanted:
        console.result(f"nlpctl {nlpctl.__version__}")
        raise typer.Exit()


def _nlpctl(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; works at any position.")] = False,
) -> None:
    """Train, evaluate and ship PaddleNLP models from one recipe."""


def _find(name: str) -> Command | None:
    return next((command for command in COMMANDS if command.name == name), None)


def _load(command: Command) -> Any:
    """Import the command's code and make the Typer command of it."""
    module, attribute = command.target.split(":")
    target = vars(importlib.import_module(module))[attribute]
    if isinstance(target, typer.Typer):
        return typer.main.get_command(target)
    holder = typer.Typer(add_completion=False, rich_markup_mode=None)
    settings = {"help_option_names": ["-h", "--help"]}
    if command.takes_recipe:
        from nlpctl.cli.options import RecipeCommand

        holder.command(command.name, cls=RecipeCommand, context_settings=settings)(target)
    else:
        holder.command(command.name, context_settings=settings)(target)
    return typer.main.get_command(holder)


# -- one command line ------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code: 0 done, 1 failed, 2 wrong input, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    end = _end_of_flags(words)
    debug = "--debug" in words[:end]
    words[:end] = [word for word in words[:end] if word != "--debug"]
    restarts = argv is None
    spell_as_flags()
    console.set_up_streams()
    if os.environ.get(ASKED):
        from nlpctl.cli.completion import answer

        return answer(_root())
    code = EXIT_OK
    try:
        if not _asks_for_json(words):
            return _outcome(words, debug, restarts)[0]
        with json_output(_command_name(words)) as envelope:
            code, failure = _outcome(words, debug, restarts)
        console.result(envelope.text(code, failure))
        return code
    except (BrokenPipeError, _ReaderLeft):  # `nlpctl ... | head`: the reader closed the pipe, which is no error
        return code
    except OSError as error:  # the object cannot be written
        _show(_system_problem(error), debug)
        return code or EXIT_USER
    finally:
        console.drop_unwritten()


def _outcome(words: list[str], debug: bool, restarts: bool) -> tuple[int, NlpctlError | Problem | None]:
    """Run one command line. Returns its exit code, and why it could not do its work, which is shown; None if it could.

    `restarts`: this process does nothing else, so it may be started again in another environment.
    """
    try:
        # From here on Ctrl-C is answered. A rank of a training is started with SIGINT blocked (launch/rank_monitor.py).
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        progress = os.environ.get(console.PROGRESS, "")
        if progress not in ("", "json"):
            hint = "set it to json, or unset it"
            raise UserError(f"there is no progress format {progress!r}", console.PROGRESS, hint)
        _refuse_names_not_utf8(words)
        if restarts:
            _stay_alone(words)
        code = _root().main(words, prog_name="nlpctl", standalone_mode=False)
        with console.standard_output():
            sys.stdout.flush()
        return _interrupted() if code == EXIT_INTERRUPTED else (code if isinstance(code, int) else EXIT_OK, None)
    except (BrokenPipeError, _ReaderLeft):
        raise
    except NeedsRestart as needed:
        if restarts:  # this command line again, in place of this process; nothing was read or written yet
            sys.stdout.flush()
            sys.stderr.flush()
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **needed.variables})
        return needed.exit_code, _show(needed, debug)
    except NlpctlError as error:
        return error.exit_code, _show(error, debug)
    except typer.TyperException as error:  # a usage error
        return EXIT_USER, _show(_usage_problem(error), debug)
    except KeyboardInterrupt:
        return _interrupted()
    except OSError as error:  # where nobody expected one: a name too long, a folder without rights, a full disk
        return EXIT_USER, _show(_system_problem(error), debug)
    except MemoryError:
        hint = "give smaller inputs, or free memory"
        return EXIT_FAILED, _show(Problem("there is not enough memory for this", hint=hint), debug)
    except BaseException as error:
        if not is_failure(error):
            raise
        if isinstance(error, ImportError) and (lacking := of_extra(error)) is not None:
            return EXIT_USER, _show(lacking, debug)
        hint = "this is a bug in nlpctl" if debug else "this is a bug in nlpctl: `--debug` shows where it happened"
        return EXIT_FAILED, _show(Problem(f"internal error {type(error).__name__}: {error}", hint=hint), debug)


# -- what the arguments ask for --------------------------------------------------------------


def _asks_for_json(words: list[str]) -> bool:
    """Whether the command is to print JSON, and not its help."""
    return FLAG in words[: _end_of_flags(words)] and not _asks_for_help(words)


def _asks_for_help(words: list[str]) -> bool:
    return not words or not {"--help", "-h", "--version"}.isdisjoint(words[: _end_of_flags(words)])


def _end_of_flags(words: list[str]) -> int:
    return words.index("--") if "--" in words else len(words)


def _command_name(words: list[str]) -> str:
    """The command in `words`, such as "runs ls"; an unknown one as it was typed; "" if none is named."""
    named = [word for word in words if not word.startswith("-")]
    listed = _find(named[0]) if named else None
    if listed is None:
        return named[0] if named else ""
    inner = named[1:2] if listed.target.endswith(":app") else []  # a group of commands
    return " ".join([listed.name, *inner])


def _refuse_names_not_utf8(words: list[str]) -> None:
    """UserError for an argument, or the folder that paths are relative to, of which the name is not UTF-8."""
    for word in words:
        refuse_not_utf8(word, what="this argument")
    if _asks_for_help(words):
        return
    with contextlib.suppress(FileNotFoundError):  # it was deleted, which whatever needs it reports
        refuse_not_utf8(os.getcwd(), what="the name of the current folder")


def _stay_alone(words: list[str]) -> None:
    """Forget that another launcher numbered this process, unless --nnodes asks for the others: Paddle and the console
    would go by it."""
    if not any(name.startswith("PADDLE_") for name in os.environ):
        return
    from nlpctl.runtime.ranks import (  # not for --help
        CARD_OF_RANK,
        WORLD_SIZE,
        forget_launchers,
        is_of_launcher,
        not_started_here,
        world_size,
    )

    joins = any(word.split("=")[0] == "--nnodes" for word in words[: _end_of_flags(words)])
    if joins or _asks_for_help(words) or not is_of_launcher():
        return
    if words[:1] == ["train"] and world_size() > 1:
        raise not_started_here(f"--nnodes auto lets them train together; to train alone: unset {WORLD_SIZE}")
    card = os.environ.get(CARD_OF_RANK)
    forget_launchers()
    if card is not None:  # no number of a process
        os.environ[CARD_OF_RANK] = card


# -- how errors are shown --------------------------------------------------------------------


def _usage_problem(error: typer.TyperException) -> Problem | str:
    """The problem as Typer puts it; a text, the help, where a command was called with nothing."""
    text = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        return text
    ctx = vars(error).get("ctx")  # only errors of arguments know their command
    path = "nlpctl" if ctx is None else ctx.command_path
    return Problem(text.rstrip("."), hint=f"`{path} --help` shows what it takes")


def _system_problem(error: OSError) -> Problem:
    """What the system refused, by the name of the file."""
    unopened = error.filename == console.STANDARD_OUTPUT and error.errno == errno.EBADF
    hint = "let it be written to: > FILE, or | PROGRAM" if unopened else remedy(error)
    return Problem(error.strerror or str(error), where=str(error.filename or ""), hint=hint)


def _show(problem: NlpctlError | Problem | str, debug: bool) -> NlpctlError | Problem:
    """Show `problem` on standard error and return it. A text is the help of a command that was called with nothing."""
    with console.unread_dropped():  # where standard error is full or closed, the exit code tells
        if debug:
            with contextlib.suppress(OSError):
                traceback.print_exc()
        if isinstance(problem, str):
            console.note(problem)
            return Problem(problem)
        console.error(problem)
        return problem


def _interrupted() -> tuple[int, Problem]:
    with console.unread_dropped():
        console.note("interrupted")
    return EXIT_INTERRUPTED, Problem("interrupted")
