"""Every check can fail, says why, and names the remedy; one real run of the whole."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from nlpctl.cli import doctor as command
from nlpctl.runtime import doctor
from nlpctl.runtime.cuda import CudaLibraries, Library
from nlpctl.runtime.device import Driver, GpuReport, Probes
from nlpctl.runtime.doctor import Check
from nlpctl.runtime.machine import CpuInfo

ZEN5 = CpuInfo("AuthenticAMD", "EPYC", ("avx2", "avx512f"))
GIB = 2**30
PACKAGES = "/venv/lib/python3.11/site-packages/nvidia"
LIBRARIES = CudaLibraries(
    {"libcudnn.so": Library("8.6.0", f"{PACKAGES}/cudnn/lib"), "libnccl.so": Library("2.19.3", f"{PACKAGES}/nccl/lib")},
    {"LD_LIBRARY_PATH": "/links"},
    passed_over="not libcudnn.so 9.1.0 from /opt/cuda",
)


def machine(*wheels: str, cards: tuple[str, ...] = ()) -> Probes:
    driver = Driver("12.2", "", cards) if cards else Driver("", "libcuda.so.1: not found", ())
    return Probes(lambda name: "2.6.2" if name in wheels else None, lambda _: driver, lambda: None, lambda _: LIBRARIES)


def test_python_version():
    assert doctor.python_version((3, 11)).status == "ok"
    assert doctor.python_version((3, 12)).status == "warning"


def test_packages_against_the_pins():
    versions = {"paddlenlp": "2.8.1", "numpy": "2.1.0", "paddlepaddle-gpu": "2.6.2.post118", "rich": "15"}
    checks = {check.name: check for check in doctor.pinned_packages(versions.get)}
    assert checks["paddlenlp"] == Check("paddlenlp", "ok", "2.8.1 (==2.8.1)")
    assert checks["numpy"] == Check("numpy", "failure", "2.1.0, but numpy<2 is needed", "pip install 'numpy<2'")
    assert checks["pyarrow"].status == "failure" and "not installed" in checks["pyarrow"].detail
    assert checks["paddlepaddle-gpu"].status == "ok" and "paddlepaddle" not in checks and "pytest" not in checks
    assert checks["onnxruntime"].status == "failure"
    on_cards = doctor.pinned_packages({"onnxruntime-gpu": "1.31.1"}.get)
    assert Check("onnxruntime-gpu", "ok", "1.31.1, in place of onnxruntime") in on_cards


@pytest.mark.parametrize(
    ("wheel", "version", "status", "told"),
    [
        ("paddlepaddle", "2.6.2", "ok", "2.6.2 (==2.6.2, extra cpu)"),
        ("paddlepaddle", "3.1.1", "ok", "3.1.1 (==3.1.1, extra paddle3)"),
        ("paddlepaddle", "3.1.0", "warning", "3.1.0, close to a tested version"),
        ("paddlepaddle-gpu", "2.6.2.post118", "ok", "2.6.2.post118 (==2.6.2, extra gpu)"),
        ("paddlepaddle-gpu", "3.1.1", "warning", "3.1.1, close to a tested version"),
        ("paddlepaddle", "3.3.1", "failure", "nlpctl was never tried with Paddle 3.3.1: from 3.2 on, "),
    ],
)
def test_versions_of_paddle(wheel, version, status, told):
    check = doctor.paddle_version(wheel, version)
    assert (check.name, check.status) == (wheel, status) and check.detail.startswith(told)
    assert ("paddlepaddle==3.1.1" in check.remedy) == (status != "ok")


def test_two_paddles_fail():
    check = doctor.paddle_package(machine("paddlepaddle", "paddlepaddle-gpu"))
    assert check.status == "failure" and "pip uninstall" in check.remedy
    assert doctor.paddle_package(machine("paddlepaddle")) == Check("paddle package", "ok", "paddlepaddle")


def test_import_health(tmp_path, monkeypatch):
    (tmp_path / "brokenpackage.py").write_text("import no_such_module_here")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert doctor.import_health("json") == Check("import json", "ok", "works")
    check = doctor.import_health("brokenpackage")
    assert check.status == "failure" and check.remedy
    assert check.detail == "ModuleNotFoundError: No module named 'no_such_module_here'"


def test_the_precisions_of_a_processor_are_told():
    older = doctor.processor(CpuInfo("GenuineIntel", "Core", ("avx2",)))
    assert older.detail.endswith("avx2: Paddle Inference computes fp32")
    newer = dataclasses.replace(ZEN5, instruction_sets=("avx2", "avx512_vnni", "avx512_bf16"))
    assert doctor.processor(newer).detail.endswith("computes fp32, bf16, int8")


@pytest.mark.parametrize(
    ("check", "status"),
    [
        (doctor.processor(ZEN5), "ok"),
        (doctor.processor(CpuInfo("GenuineIntel", "Old", ())), "warning"),
        (doctor.threads(8, {}), "ok"),
        (doctor.threads(8, {"OMP_NUM_THREADS": "1"}), "warning"),
        (doctor.amd_setting(ZEN5, {}), "ok"),
        (doctor.amd_setting(ZEN5, {"MKL_DEBUG_CPU_TYPE": "7"}), "ok"),
        (doctor.amd_setting(ZEN5, {"MKL_DEBUG_CPU_TYPE": "0"}), "warning"),
        (doctor.amd_setting(CpuInfo("GenuineIntel", "", ("avx2",)), {}), "ok"),
        (doctor.disk("disk", Path("/"), 10 * GIB), "ok"),
        (doctor.disk("disk", Path("/"), 3 * GIB), "warning"),
        (doctor.disk("disk", Path("/"), GIB // 2), "failure"),
        (doctor.disk("disk", Path("/no/such/folder"), 10 * GIB), "ok"),
    ],
)
def test_machine(check, status):
    assert check.status == status and bool(check.remedy) == (status != "ok")


def test_memory(tmp_path):
    assert doctor.memory(tmp_path).detail == "unknown"
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 8388608 kB\nMemAvailable: 1048576 kB\n")
    assert doctor.memory(tmp_path).status == "warning"
    assert doctor.memory(tmp_path).detail == "1.0 GiB available of 8.0"


def test_cache_folder(tmp_path):
    assert doctor.cache({"PPNLP_HOME": str(tmp_path / "c")}) == Check("cache folder", "ok", str(tmp_path / "c"))
    assert doctor.cache({"PPNLP_HOME": str(tmp_path / "缓存")}).status == "failure"
    (tmp_path / "file").touch()
    assert doctor.cache({"PPNLP_HOME": str(tmp_path / "file")}).status == "failure"


def test_device_without_a_card():
    (check,) = doctor.device_checks(machine("paddlepaddle"))
    assert check.status == "ok" and "CPU build" in check.detail
    check, libraries = doctor.device_checks(machine("paddlepaddle-gpu"))
    assert check.status == "warning" and "no NVIDIA driver" in check.detail and check.remedy
    told = f"cudnn 8.6.0, nccl 2.19.3 from {PACKAGES}; not libcudnn.so 9.1.0 from /opt/cuda"
    assert libraries == Check("CUDA libraries", "ok", told)
    (check,) = doctor.device_checks(machine())  # the core, which answers exports
    assert check.status == "ok" and "ONNX Runtime is the CPU build" in check.detail


def test_onnx_runtime_is_tried_out_on_a_card(monkeypatch):
    monkeypatch.setattr(doctor, "onnx_runtime_works", lambda: Check("ONNX Runtime on the card", "ok", "works"))
    core, tried = doctor.device_checks(machine("onnxruntime-gpu", cards=("H100",)))
    assert core == Check("device", "ok", "gpu, 1 visible: H100; driver for CUDA 12.2") and tried.detail == "works"
    (check,) = doctor.device_checks(machine("onnxruntime-gpu"))
    assert check.status == "warning" and "no NVIDIA driver" in check.detail
    training, tried = doctor.device_checks(machine("paddlepaddle", "onnxruntime-gpu", cards=("H100",)))
    assert "CPU build" in training.detail and tried.detail == "works"
    (tried,) = doctor.device_checks(
        machine("paddlepaddle", "paddlepaddle-gpu", "onnxruntime-gpu", cards=("H100",))  # two Paddles: told elsewhere
    )
    assert tried.detail == "works"
    _, tried = doctor.device_checks(machine("paddlepaddle", "onnxruntime", "onnxruntime-gpu", cards=("H100",)))
    assert tried.status == "warning" and "overwrite each other" in tried.detail


def test_an_onnx_runtime_without_cuda_is_told():
    """What it runs in is this machine's, which has no card."""
    check = doctor.onnx_runtime_works()
    assert check.status == "failure" and "pip install 'onnxruntime-gpu[cuda,cudnn]'" in check.remedy


def test_cards_are_tried_out(monkeypatch):
    asked = []
    monkeypatch.setattr(doctor, "cuda_works", lambda *words: asked.append(words) or Check("CUDA", "ok", "fine"))
    monkeypatch.setattr(doctor, "all_reduce", lambda *words: asked.append(words) or Check("NCCL", "ok", "fine"))
    checks = doctor.device_checks(machine("paddlepaddle-gpu", cards=("V100", "V100")))
    assert checks[0] == Check("device", "ok", "gpu, 2 visible: V100, V100; driver for CUDA 12.2")
    links = LIBRARIES.variables  # the processes that try them out are started with the links
    assert asked == [(links,), ("NCCL all-reduce", 2, (0, 1), links)]
    checks = doctor.device_checks(machine("paddlepaddle-gpu", cards=("V100",)))
    assert "skipped" in checks[3].detail and len(asked) == 3


def test_unusable_cuda_libraries_are_told(monkeypatch):
    monkeypatch.setattr(doctor, "_CUDA_CODE", "raise OSError('Error: cannot load libcudnn.so')")
    check = doctor.cuda_works({})
    assert check.status == "failure" and "libcudnn" in check.detail and "LD_LIBRARY_PATH" in check.remedy


def test_missing_cuda_libraries_are_worth_a_warning():
    lacking = CudaLibraries(dict(LIBRARIES.loaded), {}, lacking="libcublas.so is not found", remedy="pip install it")
    check = doctor.cuda_libraries(lacking)
    told = f"libcublas.so is not found; cudnn 8.6.0, nccl 2.19.3 from {PACKAGES}"
    assert check == Check("CUDA libraries", "warning", told, "pip install it")


def test_a_card_without_code_among_others_is_worth_a_warning():
    report = GpuReport(True, "", "", 2, ("H100", "A100"), "12.4", {0: "H100 is of compute capability 9.0"}, {})
    check = doctor.device(report, expected=True)
    assert check.status == "warning" and "H100 is of compute capability 9.0" in check.detail


def test_all_reduce_really_runs():
    assert doctor.all_reduce("gloo", 2, ()) == Check("gloo", "ok", "2 processes agree")


def test_command_prints_lines_and_exits_1_on_failure(monkeypatch, capsys):
    checks = [Check("python", "ok", "3.11"), Check("numpy", "failure", "2.0, but numpy<2 is needed", "pip install it")]
    monkeypatch.setattr(command, "run_checks", lambda: iter(checks))
    assert command.doctor() == 1
    out, err = capsys.readouterr()
    assert out == "ok       python: 3.11\nfailure  numpy: 2.0, but numpy<2 is needed\n         -> pip install it\n"
    assert err == "1 ok, 0 warnings, 1 failure\n"
    monkeypatch.setattr(command, "run_checks", lambda: iter(checks[:1]))
    assert command.doctor() == 0


@pytest.mark.slow
def test_whole_run_imports_nothing_heavy_itself():
    code = (
        "import sys; from nlpctl.cli.app import main; code = main(['doctor', '--json']);"
        "print(code, 'paddle' in sys.modules, 'numpy' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)["result"]
    found = {check["name"]: check for check in report["checks"]}
    assert {"python", "paddlenlp", "processor", "threads", "disk", "cache folder", "device"} <= found.keys()
    assert found["import paddle"]["status"] == found["zlib with paddle"]["status"] == "ok"
    assert sum(report["counts"].values()) == len(report["checks"])
    assert done.stderr.splitlines()[-1] == f"{int(report['counts']['failure'] > 0)} False False"


def test_cards_that_cannot_be_used_are_refused_before_the_nodes_meet(run_nlpctl):
    """The CPU build stands in for any reason."""
    words = ("--nnodes", "2", "--master", "127.0.0.1:9", "--node_rank", "1", "--devices", "0")
    done = run_nlpctl("doctor", *words)
    assert done.returncode == 2, done.stderr
    assert "no usable GPU: the installed Paddle is the CPU build" in done.stderr and "runtime.devices" in done.stderr
