"""What every command that takes a recipe shares: field flags, --set, the runtime shorthands, and loading."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from nlpctl.cli.field_flags import COMPRESSION, TRAINING, field_flags, take_overrides
from nlpctl.config.keys import all_keys
from nlpctl.config.load import Override
from nlpctl.config.refused_keys import MANAGED, UNSUPPORTED
from nlpctl.config.schema import Purpose, Recipe
from nlpctl.errors import UserError
from nlpctl.models.ready_models import PREFIX, ready_model
from nlpctl.spelling import SHORTHANDS

EPILOG = (
    "Any TrainingArguments or CompressionArguments field is a flag too (--learning_rate 3e-5, --no-fp16): "
    "`nlpctl recipe flags [PATTERN]` lists them."
)
_OVERRIDES = "nlpctl.overrides"
TASK_FLAG = "--task"

MODEL_HELP = (
    "Run, model folder, export, recipe of a run; task:NAME, python:PACKAGE/PATH, hf:ORG/NAME@REVISION, or a name of "
    "PaddleNLP's hub."
)
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)]

# Options of every command that applies a model; `engine_overrides` turns them into recipe values.
EngineOption = Annotated[
    str | None, typer.Option("--engine", metavar="ENGINE", help="auto, dygraph, paddle or onnxruntime.")
]
PrecisionOption = Annotated[
    str | None, typer.Option("--precision", metavar="PRECISION", help="auto, fp32, bf16, fp16 or int8.")
]

MinConfidenceOption = Annotated[
    str | None,
    typer.Option(
        "--min-confidence", metavar="P", help="Withhold what is less probable, such as 0.9: null labels, no entities."
    ),
]

WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, metavar="N", help="Divide the input among N processes; the result is the same."),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS", help="Divide it on a Ray cluster: auto, or ray://HOST:PORT."),
]


def engine_overrides(engine: str | None, precision: str | None, min_confidence: str | None = None) -> list[Override]:
    """The values of --engine, --precision and --min-confidence, for load_command_recipe's `given`."""
    given = {"engine": engine, "precision": precision, "min_confidence": min_confidence}
    return [
        Override(f"inference.{name}", text, f"--{name.replace('_', '-')}")
        for name, text in given.items()
        if text is not None
    ]


def scored_data(file: str | None, splits: Sequence[str]) -> tuple[Override, ...]:
    """A labelled FILE in place of the recipe's test data, for load_command_recipe's `given`; none without a file.

    UserError if a split is named, too.
    """
    if file is None:
        return ()
    if splits:
        raise UserError("--split does not apply to a file", "--split", "leave one of them out")
    return (Override("data.test", file, "FILE", literal=True), Override("data.dataset", "null", "FILE"))


def flags_of(ctx: typer.Context) -> list[Override]:
    """The changes of recipes that the flags of this command line make (`RecipeCommand.parse_args`)."""
    return ctx.meta[_OVERRIDES]


def load_command_recipe(
    source: str | Path, ctx: typer.Context, given: Sequence[Override] = (), *, purpose: Purpose = "train"
) -> Recipe:
    """The recipe that `source` names, overridden by `given` and then by the command's flags.

    `purpose`: see Purpose (config/schema.py). `source` may be whatever inference/named_model.py lists. Raises
    UserError with every problem.
    """
    from nlpctl.inference.named_model import load_model_recipe

    return load_model_recipe(source, [*given, *flags_of(ctx)], purpose)


def load_data_recipe(recipe: str, file: str | None, ctx: typer.Context) -> Recipe:
    """The recipe, with its data replaced by `file` if one is given."""
    if file is None:
        return load_command_recipe(recipe, ctx, purpose="apply")
    given = [Override("data.train", file, "FILE", literal=True)]
    given += [Override(f"data.{key}", "null", "FILE") for key in ("dev", "test", "dataset")]
    return load_command_recipe(recipe, ctx, given, purpose="apply")


class RecipeCommand(TyperCommand):
    """A command that accepts any recipe field as a flag, before or after its own arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.epilog = EPILOG

    # ctx is Any in these: typer.Context is a subclass of the one that the methods of TyperCommand take.

    def get_params(self, ctx: Any) -> list[Any]:
        """The command's own parameters; for the help, also the flags that are removed from argv beforehand."""
        own = super().get_params(ctx)
        taken = {option for param in own for option in param.opts} | (set() if self._takes_model(ctx) else {TASK_FLAG})
        shared = [param for param in _shared_options() if not taken & set(param.opts)]
        if ctx.resilient_parsing:  # a shell asks what could be typed next
            from nlpctl.cli.completion import offer

            for param in shared:
                offer(param)
            taken |= {option for param in shared for option in param.opts}
            shared += [param for param in _field_options(_section(ctx)) if not taken & set(param.opts)]
        return [*own, *shared]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the flags of recipes out of `args`, and let Typer read the rest. `--task NAME` means task:NAME."""
        if ctx.resilient_parsing:
            ctx.meta[_OVERRIDES] = []
            return super().parse_args(ctx, args)
        own: dict[str, int] = {}
        positionals = 0
        if self._takes_model(ctx) and any(word.partition("=")[0] == TASK_FLAG for word in args):
            own, positionals = {TASK_FLAG: 1}, -1
        params: list[Any] = super().get_params(ctx)
        for param in params:
            if param.param_type_name == "argument":
                positionals += int(param.required)
            else:
                count = 0 if param.is_flag or param.count else param.nargs
                own |= {option: count for option in (*param.opts, *param.secondary_opts)}
        words, ctx.meta[_OVERRIDES] = take_overrides(args, own, positionals, _section(ctx))
        return super().parse_args(ctx, _with_ready_model(words) if TASK_FLAG in own else words)

    def _takes_model(self, ctx: typer.Context) -> bool:
        """Whether the first argument is one trained model."""
        return any(param.metavar == "MODEL" for param in super().get_params(ctx) if param.param_type_name == "argument")


def _section(ctx: typer.Context) -> str:
    """The section of a flag that training and compression both have."""
    return COMPRESSION if ctx.info_name == "compress" else TRAINING


def _with_ready_model(words: list[str]) -> list[str]:
    """`--task NAME` in `words` moved to the front as task:NAME. UserError if NAME is none, or missing."""
    place = next(i for i, word in enumerate(words) if word.partition("=")[0] == TASK_FLAG)
    _, equals, name = words[place].partition("=")
    rest = words[place + 1 :]
    if not equals:
        name, rest = (rest[0], rest[1:]) if rest else ("", [])
    return [PREFIX + ready_model(name).name, *words[:place], *rest]


@functools.cache
def _shared_options() -> tuple[Any, ...]:
    """Typer options that only appear in the help; take_overrides reads their values."""
    metavars = {"device": "cpu|gpu|auto", "devices": "0,1,...", "nproc": "N", "threads": "N", "cache_dir": "FOLDER"}
    metavars["labels"] = "NAMES"
    options = []
    for name, dotted in SHORTHANDS.items():
        flag, kind = f"--{name.replace('_', '-')}", str if name in metavars else bool
        options.append(_help_option(flag, kind, metavars.get(name), all_keys()[dotted].help))
    help = "A ready model instead of MODEL, such as lexical_analysis; docs/tasks.md lists them."
    options.append(_help_option(TASK_FLAG, str, "NAME", help))
    return (*options, _help_option("--set", str, "KEY=VALUE", "Any other key of the recipe; may be repeated."))


@functools.cache
def _field_options(section: str) -> tuple[Any, ...]:
    """Every field that is a flag, as an option with its values; for completion only. `section`: as in field_flags."""
    from nlpctl.cli.completion import offered

    kinds = {truth: _help_option("--flag", bool if truth else str, None, "") for truth in (True, False)}
    options = []
    for name, key in field_flags(section).items():
        if key.dotted not in MANAGED and key.dotted not in UNSUPPORTED:
            option = copy.copy(kinds[key.scalar is bool])  # Typer needs a millisecond to make one, and there are 200
            option.name, option.opts, option.help = name, [f"--{name}"], key.help
            option.secondary_opts = []
            options.append(offered(option, key.choices))
    return tuple(options)


def _help_option(flag: str, kind: type, metavar: str | None, help: str) -> Any:
    """A Typer option for help and completion; its value is not passed to the command.

    Typer makes options from signatures only, so a command is declared for it and thrown away.
    """

    def command(value: Any = typer.Option(None, flag, metavar=metavar, help=help, show_default=False)) -> None:
        pass

    command.__annotations__ = {"value": kind | None, "return": None}
    holder = typer.Typer(add_completion=False)
    holder.command()(command)
    option = next(param for param in typer.main.get_command(holder).params if flag in param.opts)
    option.name, option.expose_value = flag.strip("-"), False
    return option
