"""Process set-up before and right after the import of Paddle.

    setup = set_up_process(recipe)                  # once, at the top of a command or of a worker process

or `set_up_to_answer` (inference/open_model.py) for an export, which may need no Paddle; or in two steps (`nlpctl train`
reads its data in between, which may be wrong):

    setup = prepare_process(recipe.runtime, seed)   # before the first `import paddle`
    configure_paddle(setup, seed)                   # imports it

Code that needs device or threads gets the ProcessSetup as an argument; nothing below sets up the process again.

Precedence: a value in the recipe or a flag; else the existing environment variable; else nlpctl's default (threads, the
AMD setting, log level).

PYTHONHASHSEED only matters when Python starts, so nothing in nlpctl may depend on the order of a set or
on hash(); prepare_process sets it for processes started later.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import io
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from nlpctl import console
from nlpctl.config.environment import (
    DETERMINISTIC_WORKSPACES,
    FALSE_WORDS,
    WORKSPACE,
    Scalar,
    checked_environment,
    flag_environment,
    known_variables,
)
from nlpctl.config.schema import Recipe, RuntimeSection
from nlpctl.errors import Problem, UserError
from nlpctl.paddle_version import OLD_FORMAT, installed_paddle, release
from nlpctl.runtime.cache import refuse_unreadable_variables, usable_cache_folder
from nlpctl.runtime.device import choose_device, paddle_wheel, visible_devices
from nlpctl.runtime.machine import CpuInfo, cpu_info, physical_cores
from nlpctl.runtime.ranks import is_child, local_size, rank, world_size
from nlpctl.runtime.versions import require_known_paddle
from nlpctl.upstream.eager_mode import keep_eager_mode

# Both are known to GPU builds only; a CPU build ignores them and is deterministic without.
DETERMINISTIC_FLAGS = {"FLAGS_cudnn_deterministic": "1", "FLAGS_embedding_deterministic": "1"}
MKL_SLOW_PATH = {"MKL_DEBUG_CPU_TYPE": "0"}  # MKL's own default

# Known useless output: users cannot act on it.
_USELESS_WARNINGS = (
    r"Setuptools is replacing distutils",
    r"pkg_resources is deprecated",
    r"No ccache found",
    r"You are using GPU version Paddle, but your CUDA device is not set properly",  # nlpctl hid the GPUs itself
    r"full_graph=False don't support input_spec",
    r"Current global rank \d+ is not in group",  # of training.sharding: a group of one process
)
_USELESS_LINES = ("WARNING: OMP_NUM_THREADS set to", "PLEASE USE OMP_NUM_THREADS WISELY")


@dataclass(frozen=True)
class ProcessSetup:
    """The set-up of this process: Paddle's device name, threads, and its rank among the processes.

    `spin_us`: microseconds that ONNX Runtime's idle threads wait in a loop before they sleep.
    """

    device: str  # "cpu", "gpu:0", ...
    threads: int
    rank: int
    world_size: int
    spin_us: int = 100  # longer than the pause between two operators, shorter than between two batches


@dataclass(frozen=True)
class Setting:
    """One environment variable; `explicit`: the recipe or a flag sets it."""

    name: str
    value: str
    explicit: bool


def set_up_process(recipe: Recipe) -> ProcessSetup:
    """Set up this process by the recipe's runtime section, import Paddle and PaddleNLP, and seed random generators.

    UserError as in `prepare_process`.
    """
    setup = prepare_process(one_process(recipe.runtime), recipe.training.seed)
    configure_paddle(setup, recipe.training.seed)
    import_paddlenlp()
    return setup


def one_process(runtime: RuntimeSection) -> RuntimeSection:
    """`runtime` for a command that runs in this process alone, whatever trained the model: at most one card."""
    cards = () if runtime.device == "cpu" else runtime.devices[:1]
    return dataclasses.replace(runtime, devices=cards, nproc=1)


def prepare_process(runtime: RuntimeSection, seed: int, *, needs_paddle: bool = True) -> ProcessSetup:
    """Apply the recipe's runtime settings. Call it before anything imports Paddle.

    In a process that is already set up nothing changes, e.g. if Python code calls several commands. Raises UserError
    where there is no Paddle and `needs_paddle`, for a Paddle that nlpctl was never tried with, for settings that this
    machine does not support, and, if Paddle is already imported, for explicit settings that are not in effect.
    """
    if needs_paddle:
        paddle_wheel()
    require_known_paddle(installed_paddle(), anyway=runtime.any_paddle)
    _require_old_format(runtime.flags, os.environ)
    cards = () if is_child() else runtime.devices  # a rank takes the card that its variables name
    device = choose_device(runtime.device, cards, needs_paddle=needs_paddle)
    settings = plan_environment(runtime, device, seed, os.environ, cpu_info(), physical_cores())
    if "paddle" in sys.modules:
        _require_in_effect(settings)
    else:
        for name, value in runtime.env.items():
            if os.environ.get(name, value) != value:
                console.note(f"runtime.env: {name}={value} replaces {os.environ[name]} from the environment")
        os.environ.update({each.name: each.value for each in settings})
        _drop_useless_warnings()
    if needs_paddle:
        _check_variables()
    if device == "gpu":  # whoever starts ranks tells each its own
        device = f"gpu:{os.environ.get('FLAGS_selected_gpus', '0')}"
    try:  # as Paddle reads it
        threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    except ValueError:
        threads = 1
    return ProcessSetup(device, threads, rank(), world_size())


# -- the environment that Paddle is imported in ----------------------------------------------


def plan_environment(
    runtime: RuntimeSection, device: str, seed: int, environ: Mapping[str, str], cpu: CpuInfo, cores: int
) -> list[Setting]:
    """The variables to set, without those that the environment already has. Creates the cache folder, nothing else."""
    explicit = {**_device_variables(runtime, device, environ), **_recipe_variables(runtime, cpu)}
    automatic = {"GLOG_minloglevel": "2", "PYTHONHASHSEED": str(seed % 2**32)}
    if runtime.threads is None:
        automatic["OMP_NUM_THREADS"] = str(max(1, cores // local_size()))
    if runtime.amd_fast_math is None and cpu.is_amd:
        automatic |= amd_variables(cpu)
    settings = [Setting(name, value, True) for name, value in explicit.items()]
    return settings + [Setting(name, value, False) for name, value in automatic.items() if name not in environ]


def library_environment(runtime: RuntimeSection, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of CUDA, cuBLAS, cuDNN and NCCL in effect under `runtime`, also those that the user exported."""
    asked = checked_environment(runtime.env)
    if runtime.deterministic:
        asked |= _deterministic_variables(asked)
    return known_variables({**environ, **asked})


def amd_variables(cpu: CpuInfo) -> dict[str, str]:
    """The variables that make the bundled MKL use its fast kernels on non-Intel processors; {} without AVX2.

    MKL_DEBUG_CPU_TYPE is undocumented: 5 selects the AVX2 kernels, 7 the AVX-512 ones. On a Zen 5 EPYC a
    2000x2000 product takes 1.75 CPU seconds without, 0.72 with 5 and 0.38 with 7, with the same error.
    """
    if "avx512f" in cpu.instruction_sets:
        return {"MKL_DEBUG_CPU_TYPE": "7"}
    return {"MKL_DEBUG_CPU_TYPE": "5"} if "avx2" in cpu.instruction_sets else {}


def _device_variables(runtime: RuntimeSection, device: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The visible GPUs. "" hides all of them, as Paddle itself tests for; "-1" would make CUDA report an error."""
    if device == "cpu":
        return {"CUDA_VISIBLE_DEVICES": ""}
    if is_child():  # the parent has already selected the GPU
        return {}
    visible = visible_devices(runtime.devices, environ)
    return {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}


def _recipe_variables(runtime: RuntimeSection, cpu: CpuInfo) -> dict[str, str]:
    """The variables that the recipe sets explicitly, except the device."""
    asked = {**flag_environment(runtime.flags), **checked_environment(runtime.env)}
    if runtime.deterministic:
        asked |= _deterministic_variables(asked)
    if runtime.threads is not None:
        if runtime.threads < 1:
            raise UserError("threads must be at least 1", "runtime.threads", "leave it out for all physical cores")
        # MKL_NUM_THREADS, if set, overrides OMP_NUM_THREADS for matrix products.
        asked |= {"OMP_NUM_THREADS": str(runtime.threads), "MKL_NUM_THREADS": str(runtime.threads)}
    if runtime.amd_fast_math is not None:
        asked |= amd_variables(cpu) if runtime.amd_fast_math else MKL_SLOW_PATH
    if runtime.cache_dir is not None:
        asked["PPNLP_HOME"] = str(usable_cache_folder(Path(runtime.cache_dir), "runtime.cache_dir"))
    return asked


def _require_old_format(flags: Mapping[str, Scalar], environ: Mapping[str, str]) -> None:
    """UserError unless Paddle 3 writes programs in the format that nlpctl reads (nlpctl/__init__.py asks it to)."""
    if release() < (3, 0):
        return
    if OLD_FORMAT not in environ:  # nothing was asked of a Paddle that was there before
        hint = "import nlpctl before paddle"
        raise UserError("Paddle is already imported, too late for its old program format", "runtime", hint)
    where = f"runtime.flags.{OLD_FORMAT}" if OLD_FORMAT in flags else OLD_FORMAT
    if str(flags.get(OLD_FORMAT, environ[OLD_FORMAT])).lower() not in FALSE_WORDS:
        message = f"nlpctl needs the old program format of Paddle {installed_paddle()}, which this flag switches off"
        raise UserError(message, where, "leave it out, or unset it in the environment")


def _deterministic_variables(asked: Mapping[str, str]) -> dict[str, str]:
    """What runtime.deterministic sets beside `asked`, the variables of runtime.flags and runtime.env.

    Raises UserError if these contradict it.
    """
    problems = [
        Problem(
            f"{name} is switched off, but runtime.deterministic is true", f"runtime.flags.{name}", "drop one of them"
        )
        for name, value in DETERMINISTIC_FLAGS.items()
        if name in asked and asked[name] != value
    ]
    workspace = asked.get(WORKSPACE, DETERMINISTIC_WORKSPACES[0])
    if workspace not in DETERMINISTIC_WORKSPACES:
        message = f"cuBLAS is not deterministic with {workspace}, but runtime.deterministic is true"
        hint = f"write one of {', '.join(DETERMINISTIC_WORKSPACES)}, or drop one of them"
        problems.append(Problem(message, f"runtime.env.{WORKSPACE}", hint))
    if problems:
        raise UserError(problems=problems)
    return {**DETERMINISTIC_FLAGS, WORKSPACE: workspace}


def _require_in_effect(settings: list[Setting]) -> None:
    """Paddle has already read its environment: explicit settings must be in effect, defaults may be missing.

    The device is not checked: configure_paddle chooses it, and Paddle itself refuses an invisible GPU.
    """
    missing = [
        f"{each.name}={each.value} (is {os.environ.get(each.name, 'unset')})"
        for each in settings
        if each.explicit and each.name != "CUDA_VISIBLE_DEVICES" and os.environ.get(each.name) != each.value
    ]
    if missing:
        raise UserError(
            f"Paddle is already imported, too late for {', '.join(missing)}",
            "runtime",
            "call nlpctl before anything imports paddle, or start a new Python process for this recipe",
        )


# -- Paddle is imported, without its useless output ------------------------------------------


def configure_paddle(setup: ProcessSetup, seed: int) -> None:
    """Import Paddle without its useless output, choose the device and seed Python, NumPy and Paddle. After
    prepare_process."""
    import_paddle(setup)
    import paddle

    seed_python(seed)
    paddle.seed(seed)


def import_paddle(setup: ProcessSetup) -> None:
    """Import Paddle without its useless output and choose the device. After prepare_process."""
    with _sigterm_kept(), quiet_import():
        import paddle

    keep_eager_mode()
    paddle.set_device(setup.device)


def import_paddlenlp() -> None:
    """Import PaddleNLP, and with it Paddle, without their useless output. After prepare_process.

    UserError for a variable of the environment that does not let it be imported.
    """
    _check_variables()
    with _sigterm_kept(), quiet_import():
        import paddlenlp  # noqa: F401  (quiet_libraries needs its logger)
    keep_eager_mode()
    quiet_libraries()


def _check_variables() -> None:
    """UserError for variables with which PaddleNLP cannot be imported. An empty PPNLP_HOME is none: PaddleNLP would
    make its folders in the current one."""
    if os.environ.get("PPNLP_HOME") == "":
        del os.environ["PPNLP_HOME"]
    refuse_unreadable_variables(os.environ)


@contextlib.contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Around an import of Paddle, whose own handler of SIGTERM prints a C++ stack: the handler stays what it was."""
    if threading.current_thread() is threading.main_thread():
        terminated = signal.getsignal(signal.SIGTERM)
        yield
        # getsignal gives None for a handler that was not installed from Python.
        signal.signal(signal.SIGTERM, terminated or signal.SIG_DFL)
        return
    # Python allows signal() in the main thread only. The buffer is larger than any system's struct sigaction.
    libc, kept = ctypes.CDLL(None), ctypes.create_string_buffer(1024)
    libc.sigaction(signal.SIGTERM, None, kept)
    yield
    libc.sigaction(signal.SIGTERM, kept, None)


def seed_python(seed: int) -> None:
    """Seed the random numbers of Python and NumPy."""
    import numpy

    random.seed(seed)
    numpy.random.seed(seed % 2**32)


@contextlib.contextmanager
def quiet_import() -> Iterator[None]:
    """Around `import paddle` or `import paddlenlp`: known useless lines and warnings do not reach stderr."""
    _drop_useless_warnings()
    with contextlib.redirect_stderr(_WithoutNoise(sys.stderr)):
        yield


def quiet_libraries() -> None:
    """PaddleNLP logs only warnings, Paddle's fleet only errors; known useless Python warnings are dropped. After the
    imports."""
    _drop_useless_warnings()
    fleet = sys.modules.get("paddle.distributed.fleet.utils.log_util")
    if fleet is not None:  # a filter, always the same one, since fleet.init sets the level again
        fleet.logger.addFilter(_is_error)
    if "paddlenlp" in sys.modules:
        from paddlenlp.utils.log import logger

        logger.set_level("WARNING")


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


class _WithoutNoise(io.TextIOBase):
    """Replaces stderr and forwards everything but _USELESS_LINES.

    It keeps forwarding after the import, because loggers created meanwhile keep a reference to it.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._dropped = False

    def write(self, text: str) -> int:
        # print() writes the line and its end apart.
        drop = text.startswith(_USELESS_LINES) or (self._dropped and text == "\n")
        self._dropped = drop and not text.endswith("\n")
        if not drop:
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()


def _drop_useless_warnings() -> None:
    for message in _USELESS_WARNINGS:
        warnings.filterwarnings("ignore", message=message)
