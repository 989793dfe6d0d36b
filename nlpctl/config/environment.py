"""Paddle's FLAGS_*: which exist, and how a recipe's value is written into the environment.

Paddle ignores an unknown FLAGS_ variable without a word, and reads a bad value ("yes", "maybe") as false.
So both are checked here against data/paddle_flags-RELEASE.json of the installed Paddle, which
scripts/update_paddle_flags.py writes.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from nlpctl.errors import Problem, UserError
from nlpctl.names import nearest
from nlpctl.paddle_version import KNOWN, release

# --------------------------------------------------------------------------------------------------
# Environment variables of CUDA, cuBLAS, cuDNN and NCCL: which `runtime.env` accepts, and how their values look.
#
# These libraries ignore a misspelt variable without a word, so only names from NVIDIA's manuals are accepted. Variables
# by which a recipe would load code or write files (NCCL_NET_PLUGIN, CUDA_INJECTION64_PATH, LD_PRELOAD) are not among
# them: whoever wants one exports it. Those that another key of the recipe sets are refused in favour of that key.

NUMBERS = """
    CUDA_LAUNCH_BLOCKING CUDA_CACHE_DISABLE CUDA_CACHE_MAXSIZE CUDA_FORCE_PTX_JIT CUDA_DISABLE_PTX_JIT
    CUDA_FORCE_JIT CUDA_DISABLE_JIT CUDA_DEVICE_MAX_CONNECTIONS CUDA_MANAGED_FORCE_DEVICE_ALLOC CUDA_AUTO_BOOST
    CUDA_DEVICE_WAITS_ON_EXCEPTION CUDA_GRAPHS_USE_NODE_PRIORITY CUDA_BINARY_LOADER_THREAD_COUNT
    NVIDIA_TF32_OVERRIDE CUDNN_LOGINFO_DBG CUDNN_LOGWARN_DBG CUDNN_LOGERR_DBG CUBLAS_LOGINFO_DBG
    NCCL_P2P_DISABLE NCCL_P2P_DIRECT_DISABLE NCCL_P2P_USE_CUDA_MEMCPY NCCL_P2P_NET_CHUNKSIZE NCCL_SHM_DISABLE
    NCCL_SHM_USE_CUDA_MEMCPY NCCL_SHM_CUDA_MEMCPY_MODE NCCL_BUFFSIZE NCCL_NTHREADS NCCL_MIN_NCHANNELS
    NCCL_MAX_NCHANNELS NCCL_MIN_CTAS NCCL_MAX_CTAS NCCL_CHECKS_DISABLE NCCL_CHECK_POINTERS NCCL_CROSS_NIC
    NCCL_SOCKET_NTHREADS NCCL_NSOCKS_PERTHREAD NCCL_SOCKET_RETRY_CNT NCCL_SOCKET_RETRY_SLEEP_MSEC NCCL_IB_DISABLE
    NCCL_IB_TIMEOUT NCCL_IB_RETRY_CNT NCCL_IB_GID_INDEX NCCL_IB_SL NCCL_IB_TC NCCL_IB_FIFO_TC NCCL_IB_AR_THRESHOLD
    NCCL_IB_QPS_PER_CONNECTION NCCL_IB_SPLIT_DATA_ON_QPS NCCL_IB_CUDA_SUPPORT NCCL_IB_PCI_RELAXED_ORDERING
    NCCL_IB_ADAPTIVE_ROUTING NCCL_IB_ECE_ENABLE NCCL_IB_MERGE_VFS NCCL_IB_MERGE_NICS NCCL_IB_ROCE_VERSION_NUM
    NCCL_IB_RETURN_ASYNC_EVENTS NCCL_OOB_NET_ENABLE NCCL_UID_STAGGER_THRESHOLD NCCL_UID_STAGGER_RATE
    NCCL_NET_GDR_READ NCCL_NET_GDR_C2C NCCL_NET_SHARED_BUFFERS NCCL_NET_SHARED_COMMS NCCL_SINGLE_RING_THRESHOLD
    NCCL_LL_THRESHOLD NCCL_TREE_THRESHOLD NCCL_IGNORE_CPU_AFFINITY NCCL_IGNORE_DISABLED_P2P NCCL_NVB_DISABLE
    NCCL_PXN_DISABLE NCCL_P2P_PXN_LEVEL NCCL_NVLS_ENABLE NCCL_MNNVL_ENABLE NCCL_CUMEM_ENABLE NCCL_CUMEM_HOST_ENABLE
    NCCL_COMM_BLOCKING NCCL_CGA_CLUSTER_SIZE NCCL_MAX_CGA_CLUSTER_SIZE NCCL_DMABUF_ENABLE NCCL_COLLNET_ENABLE
    NCCL_COLLNET_NODE_THRESHOLD NCCL_GRAPH_MIXING_SUPPORT NCCL_GRAPH_REGISTER NCCL_LOCAL_REGISTER
    NCCL_SET_STACK_SIZE NCCL_SET_THREAD_NAME NCCL_WORK_FIFO_DEPTH NCCL_PROGRAM_TRANSFER_LIMIT NCCL_RAS_ENABLE
    NCCL_RAS_TIMEOUT_FACTOR NCCL_LAUNCH_ORDER_IMPLICIT NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE
""".split()

TEXTS = """
    CUDA_DEVICE_ORDER CUDA_MODULE_LOADING CUDA_MODULE_DATA_LOADING CUDA_SCALE_LAUNCH_QUEUES
    CUBLAS_WORKSPACE_CONFIG
    NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_ALGO NCCL_PROTO NCCL_P2P_LEVEL NCCL_NET NCCL_NET_GDR_LEVEL NCCL_SOCKET_IFNAME
    NCCL_SOCKET_FAMILY NCCL_HOSTID NCCL_IB_HCA NCCL_IB_ADDR_FAMILY NCCL_IB_ADDR_RANGE
    NCCL_OOB_NET_IFNAME NCCL_LAUNCH_MODE NCCL_NETDEVS_POLICY NCCL_NVLS_CHUNKSIZE
""".split()

PLACES = "NCCL_TOPO_FILE NCCL_COMM_ID NCCL_RAS_ADDR".split()  # a file and addresses

KNOWN_VARIABLES = frozenset((*NUMBERS, *TEXTS, *PLACES))

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
# cuBLAS sums in a fixed order with these alone; :4096:2 and :16:8 come from cuDNN's notes, :4096:8 from cuBLAS's.
DETERMINISTIC_WORKSPACES = (":4096:8", ":4096:2", ":16:8")

# A variable that another key sets -> that key.
_OTHER_KEYS = {
    "CUDA_VISIBLE_DEVICES": "runtime.devices (@[runtime.devices=0,1]) or runtime.device",
    "OMP_NUM_THREADS": "runtime.threads (@[runtime.threads])",
    "MKL_NUM_THREADS": "runtime.threads (@[runtime.threads])",
    "MKL_DEBUG_CPU_TYPE": "runtime.amd_fast_math",
    "PPNLP_HOME": "runtime.cache_dir (@[runtime.cache_dir])",
    "PYTHONHASHSEED": "training.seed",
}

# What loads code into the process, or changes where programs and modules come from.
_RUNS_CODE = re.compile(
    r"LD_.*|DYLD_.*|PATH|PYTHON.*|HOME|SHELL|IFS|BASH_ENV|ENV|.*_PLUGIN|.*_PRELOAD.*|.*INJECTION.*|.*_CONF_FILE|GCONV_PATH"
)
_WORKSPACE = re.compile(r"(:\d+:\d+)+")
_WHOLE = re.compile(r"-?\d+")


def checked_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """`runtime.env` as variables to set. Raises UserError naming every refused variable and every bad value."""
    problems = [problem for name, value in variables.items() if (problem := _problem(name, value)) is not None]
    if problems:
        raise UserError(problems=problems)
    return dict(variables)


def known_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Those of `environ` that runtime.env could set, by name: what a run's manifest records."""
    return {name: environ[name] for name in sorted(KNOWN_VARIABLES & environ.keys())}


def _problem(name: str, value: str) -> Problem | None:
    where = f"runtime.env.{name}"
    if name not in KNOWN_VARIABLES:
        return Problem(*_refused(name, where))
    if not value.strip() or not value.isprintable():
        return Problem(f"{value!r} is no value for {name}", where, "give it a value, or delete the line")
    if name in NUMBERS and not _WHOLE.fullmatch(value):
        return Problem(f"{value!r} is no value for {name}", where, f"{name} takes a whole number; 1 is on, 0 is off")
    if name == WORKSPACE and not _WORKSPACE.fullmatch(value):
        hint = 'write pairs of KiB and count, such as ":4096:8" or ":16:8"'
        return Problem(f"{value!r} is no value for {name}", where, hint)
    return None


def _refused(name: str, where: str) -> tuple[str, str, str]:
    """Message, place and remedy for a variable that is not in KNOWN."""
    if name.startswith("FLAGS_"):
        return f"{name} is a flag of Paddle", where, f"set runtime.flags.{name}"
    if name in _OTHER_KEYS:
        return f"{name} has a key of its own", where, f"use {_OTHER_KEYS[name]}"
    if _RUNS_CODE.fullmatch(name):
        message = f"a recipe may not set {name}: it decides which code runs"
        return message, where, "if you want that, export it yourself before the command"
    near = nearest(name, KNOWN_VARIABLES, cutoff=0.8)
    if near is not None:
        return f"no library of NVIDIA is known to read {name}", where, f"did you mean {near}?"
    message = f"{name} is none of the variables of CUDA, cuBLAS, cuDNN and NCCL that nlpctl knows"
    return message, where, "export it yourself before the command"



Scalar = str | int | float | bool | None

TRUE_WORDS = ("true", "1", "yes", "on")
FALSE_WORDS = ("false", "0", "no", "off")

_WORD_FLAGS = ("FLAGS_allocator_strategy", "FLAGS_stop_check_timeout")  # texts to Paddle: a word, and seconds


def known_flags() -> dict[str, str]:
    """Flag name to type ("bool", "int", "float", "str") of the installed Paddle, CPU and GPU build together.

    Those of the newest known release if the installed one is not known.
    """
    return flags_of(_release_listed())


def _release_listed() -> tuple[int, int]:
    return release() if release() in KNOWN else KNOWN[-1]


@functools.cache
def _listed(paddle: tuple[int, int]) -> dict[str, Any]:
    file = resources.files("nlpctl.config") / f"data/paddle_flags-{_number(paddle)}.json"
    return json.loads(file.read_text(encoding="utf-8"))


@functools.cache
def flags_of(paddle: tuple[int, int]) -> dict[str, str]:
    """The flags of a known release, as in `known_flags`."""
    known = _listed(paddle)
    # gpu_flags are compiled in only under PADDLE_WITH_CUDA; the CPU build ignores them in the environment.
    return {**{name: "str" for name in known["python_flags"]}, **known["flags"], **known["gpu_flags"]}


def may_name_a_place(key: str, name: str, value: Scalar) -> bool:
    """Whether a flag ("runtime.flags") or variable ("runtime.env") may be a file, a folder or an address. Of texts only
    those count as other that were looked at: Paddle 3.1 loads libraries from the folder in FLAGS_mklml_dir.
    """
    if key == "runtime.env":
        return name not in (*NUMBERS, *TEXTS)
    if name in _listed(_release_listed())["python_flags"]:  # of which no type is known
        return isinstance(value, str) and name not in _WORD_FLAGS
    return known_flags().get(name) == "str" and name not in _WORD_FLAGS  # one that Paddle has not is refused anyway


def flag_environment(flags: Mapping[str, Scalar]) -> dict[str, str]:
    """Environment variables for `runtime.flags`, such as {"FLAGS_benchmark": "1"}.

    Raises UserError naming every unknown flag (with the nearest known one) and every bad value.
    """
    problems: list[Problem] = []
    environment: dict[str, str] = {}
    for name, value in flags.items():
        where = f"runtime.flags.{name}"
        kind = known_flags().get(name)
        if kind is None:
            problems.append(Problem(f"Paddle has no flag {name}", where, _nearest(name)))
            continue
        text = render(value, kind)
        if text is None:
            problems.append(Problem(f"{value!r} is no value for {name}", where, f"{name} takes {_EXPECTED[kind]}"))
        else:
            environment[name] = text
    if problems:
        raise UserError(problems=problems)
    return environment

_EXPECTED = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text"}


def render(value: Scalar, kind: str) -> str | None:
    """`value` as the text that Paddle reads from the environment; None if it does not fit `kind`."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(int(value)) if kind != "float" else None
    text = str(value).strip()
    if kind == "bool":
        return "1" if text.lower() in TRUE_WORDS else "0" if text.lower() in FALSE_WORDS else None
    if kind == "str":
        return text
    try:
        return str(int(text) if kind == "int" else float(text))
    except ValueError:
        return None


def _number(paddle: tuple[int, int]) -> str:
    return ".".join(map(str, paddle))


def _nearest(name: str) -> str:
    others = [_number(each) for each in KNOWN if name in flags_of(each)]
    if others:
        return f"remove it: Paddle {others[0]} has it, the installed {_number(release())} does not"
    if name.upper() in KNOWN_VARIABLES:
        return f"it is an environment variable: set runtime.env.{name.upper()}"
    known = sorted(known_flags())
    bare = name if name.startswith("FLAGS_") else f"FLAGS_{name}"
    close = bare if bare in known else nearest(bare, known)
    return f"did you mean {close}?" if close else "remove it; the known flags are in Paddle's documentation of FLAGS"
