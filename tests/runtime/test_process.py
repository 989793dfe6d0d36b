"""Settings are in effect before Paddle is imported, each winning over the right others.

The plan is tested as data; what Paddle makes of it, in fresh processes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_lines import run_in_a_new_interpreter

from nlpctl.config.schema import RuntimeSection
from nlpctl.errors import UserError
from nlpctl.runtime.machine import CpuInfo, physical_cores
from nlpctl.runtime.process import library_environment, plan_environment

ZEN5 = CpuInfo("AuthenticAMD", "EPYC", ("avx2", "avx512f"))
ZEN3 = CpuInfo("AuthenticAMD", "EPYC", ("avx2",))
INTEL = CpuInfo("GenuineIntel", "Xeon", ("avx2", "avx512f"))


def plan(runtime: RuntimeSection, device: str = "cpu", environ: dict[str, str] | None = None, cpu: CpuInfo = INTEL):
    return {each.name: each.value for each in plan_environment(runtime, device, 7, environ or {}, cpu, 8)}


def test_defaults_on_cpu_hide_the_cards_and_use_the_cores():
    assert plan(RuntimeSection()) == {
        "CUDA_VISIBLE_DEVICES": "",
        "GLOG_minloglevel": "2",
        "PYTHONHASHSEED": "7",
        "OMP_NUM_THREADS": "8",
    }


def test_gpu_leaves_the_cards_visible_unless_some_are_chosen():
    assert "CUDA_VISIBLE_DEVICES" not in plan(RuntimeSection(), "gpu")
    assert plan(RuntimeSection(devices=(1,)), "gpu")["CUDA_VISIBLE_DEVICES"] == "1"
    assert plan(RuntimeSection(devices=(1,)), "gpu", {"CUDA_VISIBLE_DEVICES": "4,5"})["CUDA_VISIBLE_DEVICES"] == "5"


def test_a_launched_process_keeps_its_parents_cards_and_shares_the_cores(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_LOCAL_SIZE", "2")
    planned = plan(RuntimeSection(devices=(4, 5)), "gpu", {"CUDA_VISIBLE_DEVICES": "4,5"})
    assert "CUDA_VISIBLE_DEVICES" not in planned and planned["OMP_NUM_THREADS"] == "4"


def test_environment_wins_over_defaults_and_the_recipe_over_both():
    environ = {"OMP_NUM_THREADS": "3", "GLOG_minloglevel": "0", "FLAGS_benchmark": "0", "CUDA_VISIBLE_DEVICES": "0"}
    planned = plan(RuntimeSection(), environ=environ)
    assert "OMP_NUM_THREADS" not in planned and "GLOG_minloglevel" not in planned
    assert planned["CUDA_VISIBLE_DEVICES"] == ""
    planned = plan(RuntimeSection(threads=2, flags={"FLAGS_benchmark": True}), environ=environ)
    assert planned["OMP_NUM_THREADS"] == planned["MKL_NUM_THREADS"] == "2"
    assert planned["FLAGS_benchmark"] == "1"


@pytest.mark.parametrize(
    ("cpu", "asked", "environ", "value"),
    [
        (ZEN5, None, {}, "7"),
        (ZEN3, None, {}, "5"),
        (INTEL, None, {}, None),
        (ZEN5, None, {"MKL_DEBUG_CPU_TYPE": "4"}, None),
        (ZEN5, False, {"MKL_DEBUG_CPU_TYPE": "4"}, "0"),
        (ZEN3, True, {"MKL_DEBUG_CPU_TYPE": "4"}, "5"),
    ],
)
def test_amd_setting(cpu, asked, environ, value):
    assert plan(RuntimeSection(amd_fast_math=asked), environ=environ, cpu=cpu).get("MKL_DEBUG_CPU_TYPE") == value


def test_deterministic():
    planned = plan(RuntimeSection(deterministic=True), "gpu", {"FLAGS_cudnn_deterministic": "0"})
    assert planned["FLAGS_cudnn_deterministic"] == planned["FLAGS_embedding_deterministic"] == "1"
    assert planned["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    contradiction = RuntimeSection(deterministic=True, flags={"FLAGS_cudnn_deterministic": False})
    with pytest.raises(UserError, match="runtime.flags.FLAGS_cudnn_deterministic: .* is switched off"):
        plan(contradiction)


def test_deterministic_keeps_a_workspace_that_is():
    def workspace(value: str) -> RuntimeSection:
        return RuntimeSection(deterministic=True, env={"CUBLAS_WORKSPACE_CONFIG": value})

    assert plan(workspace(":16:8"), "gpu")["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    with pytest.raises(UserError, match="runtime.env.CUBLAS_WORKSPACE_CONFIG: cuBLAS is not deterministic with :0:0"):
        plan(workspace(":0:0"))


def test_the_recipes_variables_replace_the_users():
    runtime = RuntimeSection(env={"NCCL_DEBUG": "INFO"})
    exported = {"NCCL_DEBUG": "WARN", "NCCL_SHM_DISABLE": "1", "HOME": "/root"}
    planned = plan(runtime, environ=exported)
    assert planned["NCCL_DEBUG"] == "INFO" and "NCCL_SHM_DISABLE" not in planned
    assert library_environment(runtime, exported) == {"NCCL_DEBUG": "INFO", "NCCL_SHM_DISABLE": "1"}
    deterministic = library_environment(RuntimeSection(deterministic=True), {})
    assert deterministic == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def test_cache_folder_is_made_and_must_be_ascii_and_writable(tmp_path):
    folder = tmp_path / "new" / "cache"
    assert plan(RuntimeSection(cache_dir=str(folder)))["PPNLP_HOME"] == str(folder)
    assert folder.is_dir() and not list(folder.iterdir())
    with pytest.raises(UserError, match="runtime.cache_dir: .* outside ASCII"):
        plan(RuntimeSection(cache_dir=str(tmp_path / "缓存")))
    assert not (tmp_path / "缓存").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to the cache folder"):
        plan(RuntimeSection(cache_dir=str(tmp_path / "file")))


def test_threads_below_one_are_refused():
    with pytest.raises(UserError, match="runtime.threads"):
        plan(RuntimeSection(threads=0))


SHOW = """
import ctypes, json, os
import nlpctl
from nlpctl.config.schema import RuntimeSection
from nlpctl.runtime.process import configure_paddle, prepare_process, quiet_import, quiet_libraries
setup = prepare_process(RuntimeSection(**{runtime}), 7)
configure_paddle(setup, 7)
import paddle, random, numpy
libs = os.path.join(os.path.dirname(paddle.__file__), "libs")
print(json.dumps({{
    "setup": [setup.device, setup.threads, setup.rank, setup.world_size],
    "device": paddle.get_device(),
    "mkl": ctypes.CDLL(libs + "/libmklml_intel.so").MKL_Get_Max_Threads(),
    "omp": ctypes.CDLL(libs + "/libiomp5.so").omp_get_max_threads(),
    "flag": paddle.get_flags("FLAGS_check_nan_inf")["FLAGS_check_nan_inf"],
    "amd": os.environ.get("MKL_DEBUG_CPU_TYPE"),
    "nccl": os.environ.get("NCCL_DEBUG"),
    "numbers": [random.random(), float(numpy.random.rand()), float(paddle.rand([1]))],
}}))
"""


def show(runtime: dict, **environ: str) -> tuple[dict, str]:
    """What is in effect in a fresh process, and what it wrote to stderr."""
    env = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")}
    code = SHOW.format(runtime=repr(runtime))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**env, **environ})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_in_effect_in_paddle_without_noise():
    runtime = {"device": "cpu", "threads": 2, "flags": {"FLAGS_check_nan_inf": True}, "amd_fast_math": False}
    seen, stderr = show(runtime, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="0")
    assert seen["setup"] == ["cpu", 2, 0, 1]
    assert (seen["device"], seen["omp"], seen["flag"], seen["amd"]) == ("cpu", 2, True, "0")
    assert seen["mkl"] == min(2, physical_cores())  # MKL itself starts no more threads than there are cores
    assert stderr == ""
    again, stderr = show({**runtime, "env": {"NCCL_DEBUG": "INFO"}}, NCCL_DEBUG="WARN")
    assert again["numbers"] == seen["numbers"]
    assert again["nccl"] == "INFO"
    assert stderr == "runtime.env: NCCL_DEBUG=INFO replaces WARN from the environment\n"


LATE = """
import nlpctl, paddle
from nlpctl.config.schema import RuntimeSection
from nlpctl.errors import UserError
from nlpctl.runtime.process import prepare_process
assert prepare_process(RuntimeSection(device="cpu"), 7).threads == 1
assert prepare_process(RuntimeSection(device="cpu", threads=1), 7).threads == 1
try:
    prepare_process(RuntimeSection(device="cpu", threads=4, flags={"FLAGS_benchmark": True}), 7)
except UserError as error:
    print(error)
"""


def test_too_late_after_import_is_told():
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, env=env)
    assert done.stdout.startswith(
        "runtime: Paddle is already imported, too late for FLAGS_benchmark=1 (is unset), OMP_NUM_THREADS=4 (is 1)"
    ), done.stderr


QUIET = """
import logging, nlpctl
from nlpctl.config.schema import RuntimeSection
from nlpctl.runtime.process import configure_paddle, prepare_process, quiet_import, quiet_libraries
configure_paddle(prepare_process(RuntimeSection(device="cpu", threads=2), 7), 7)
with quiet_import():
    import paddlenlp
quiet_libraries()
from paddlenlp.utils.log import logger
logger.info("chatter")
logger.warning("heard")
"""


@pytest.mark.slow
def test_paddlenlp_only_warns():
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, check=True)
    assert done.stdout == "" and "chatter" not in done.stderr
    assert done.stderr.count("\n") == 1 and "heard" in done.stderr


def test_nothing_heavy_is_imported_by_preparing():
    code = (
        "import sys; from nlpctl.config.schema import RuntimeSection;"
        "from nlpctl.runtime.process import prepare_process;"
        "prepare_process(RuntimeSection(device='cpu'), 7); print([m for m in ('paddle', 'numpy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_the_import_of_paddle_leaves_sigterm_as_it_was():
    """Paddle's own handler prints a C++ stack and says FatalError."""
    told = (
        "import os, signal, nlpctl\n"
        "from nlpctl.config.schema import RuntimeSection\n"
        "from nlpctl.runtime.process import configure_paddle, prepare_process\n"
        "configure_paddle(prepare_process(RuntimeSection(device='cpu'), 1), 1)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    ended = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGTERM and "FatalError" not in ended.stderr and "Signal" not in ended.stderr


KEPT = """
import os, signal, threading, time
import nlpctl
from nlpctl.runtime.process import ProcessSetup, import_paddle
signal.signal(signal.SIGTERM, lambda number, frame: (print("asked to stop"), os._exit(0)))
thread = threading.Thread(target=import_paddle, args=[ProcessSetup("cpu", 1, 0, 1)])
thread.start()
thread.join()
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(5)
"""


def test_an_import_of_paddle_in_a_thread_leaves_the_handler_of_sigterm() -> None:
    done = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "asked to stop\n"), done.stderr


@pytest.mark.parametrize(
    "model, name, value, message",
    [
        ("folder", "PPNLP_HOME", "file", "PPNLP_HOME: the cache folder {folder}/file is none: it is a file"),
        ("folder", "HF_HUB_ETAG_TIMEOUT", "1.5", "HF_HUB_ETAG_TIMEOUT: '1.5' is no number of seconds"),
        ("hf:a/b", "HF_HUB_DOWNLOAD_TIMEOUT", "", "HF_HUB_DOWNLOAD_TIMEOUT: '' is no number of seconds"),
        ("hf:a/b", "HF_HUB_DOWNLOAD_TIMEOUT", "9" * 5000, "is no number of seconds"),
    ],
)
def test_a_variable_that_lets_no_library_be_imported_is_told(tmp_path, model, name, value, message):
    (tmp_path / "file").touch()
    shutil.copytree(Path(__file__).parent.parent / "models/huggingface/bert-classifier", tmp_path / "folder")
    ended = run_in_a_new_interpreter(["params", "ls", model], tmp_path, {name: value}, 300)
    assert ended.code == 2 and message.format(folder=tmp_path) in ended.err and "\n  -> " in ended.err, ended.err


def test_an_empty_cache_folder_is_none(tmp_path):
    code = "from nlpctl.runtime.process import import_paddlenlp as run; run()"
    env = {**os.environ, "PPNLP_HOME": "", "HOME": str(tmp_path / "home")}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, check=True, capture_output=True)
    assert [each.name for each in tmp_path.iterdir()] == ["home"] and (tmp_path / "home/.paddlenlp").is_dir()
