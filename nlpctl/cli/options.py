"""What every command that takes a recipe shares: field flags, --set, the runtime shorthands, and loading."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from nlpctl.cli.field_flags import SHORTHANDS, take_overrides
from nlpctl.config.checks import Purpose
from nlpctl.config.keys import all_keys
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.schema import Recipe

EPILOG = (
    "Any TrainingArguments or CompressionArguments field is a flag too (--learning_rate 3e-5, --no-fp16): "
    "`nlpctl recipe flags [PATTERN]` lists them."
)
_OVERRIDES = "nlpctl.overrides"

# Options of every command that applies a model; `engine_overrides` turns them into recipe values.
EngineOption = Annotated[
    str | None, typer.Option("--engine", metavar="ENGINE", help="auto, dygraph, paddle or onnxruntime.")
]
PrecisionOption = Annotated[
    str | None, typer.Option("--precision", metavar="PRECISION", help="auto, fp32, bf16, fp16 or int8.")
]


def engine_overrides(engine: str | None, precision: str | None) -> list[Override]:
    """The values of --engine and --precision, for load_command_recipe's `given`."""
    given = {"engine": engine, "precision": precision}
    return [Override(f"inference.{name}", text, f"--{name}") for name, text in given.items() if text is not None]


def load_command_recipe(
    source: str | Path, ctx: typer.Context, given: Sequence[Override] = (), *, purpose: Purpose = "train"
) -> Recipe:
    """The recipe that `source` names, overridden by `given` and then by the command's flags.

    `purpose`: see load_recipe. Raises UserError with every problem.
    """
    return load_recipe(source, [*given, *ctx.meta[_OVERRIDES]], purpose)


class RecipeCommand(TyperCommand):
    """A command that accepts any recipe field as a flag, before or after its own arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.epilog = EPILOG

    def get_params(self, ctx: typer.Context) -> list[Any]:
        """The command's own parameters; for the help, also the flags that are removed from argv beforehand."""
        own = super().get_params(ctx)
        taken = {option for param in own for option in param.opts}
        return [*own, *(param for param in _shared_options() if not taken & set(param.opts))]

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
        own: dict[str, int] = {}
        positionals = 0
        for param in super().get_params(ctx):
            if param.param_type_name == "argument":
                positionals += int(param.required)
            else:
                count = 0 if param.is_flag or param.count else param.nargs
                own |= {option: count for option in (*param.opts, *param.secondary_opts)}
        words, ctx.meta[_OVERRIDES] = take_overrides(args, own, positionals)
        return super().parse_args(ctx, words)


@functools.cache
def _shared_options() -> tuple[Any, ...]:
    """Typer options that only appear in the help; take_overrides reads their values."""
    metavars = {"device": "cpu|gpu|auto", "devices": "0,1,...", "nproc": "N", "threads": "N", "cache_dir": "FOLDER"}
    metavars["labels"] = "NAMES"
    shown = [
        _shown(f"--{name}", str if name in metavars else bool, metavars.get(name), all_keys()[dotted].help)
        for name, dotted in SHORTHANDS.items()
    ]
    return (*shown, _shown("--set", str, "KEY=VALUE", "Any other key of the recipe; may be repeated."))


def _shown(flag: str, kind: type, metavar: str | None, help: str) -> Any:
    """One Typer option, whose value is not passed to the command."""

    def command(value: Any = typer.Option(None, flag, metavar=metavar, help=help, show_default=False)) -> None:
        pass

    command.__annotations__ = {"value": kind | None, "return": None}
    holder = typer.Typer(add_completion=False)
    holder.command()(command)
    option = next(param for param in typer.main.get_command(holder).params if flag in param.opts)
    option.name, option.expose_value = flag.strip("-"), False
    return option
