"""The CUDA libraries: found where they are, linked where only pip's packages have them, named where they lack.

The libraries are stand-ins, which tell a version; loader, links and processes are real.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.config.positions import located
from nlpctl.errors import NeedsRestart, UserError
from nlpctl.runtime import cuda as cuda_libraries
from nlpctl.runtime import device
from nlpctl.runtime.cuda import MARKER, PACKAGES, SEARCH_PATH, ask_libraries, link_folder
from nlpctl.runtime.versions import pin

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build stand-in libraries with")

PROPERTY = "int {stem}GetProperty(int part, int *value) {{ int all[] = {{{parts}}}; *value = all[part]; return 0; }}"
OWN = {
    "cudnn": "unsigned long cudnnGetVersion(void) {{ return {0} * 1000 + {1} * 100 + {2}; }}",
    "nccl": "int ncclGetVersion(int *value) {{ *value = {0} * 10000 + {1} * 100 + {2}; return 0; }}",
    "nvrtc": "int nvrtcVersion(int *major, int *minor) {{ *major = {0}; *minor = {1}; return 0; }}",
}


def build(file: Path, stem: str, version: str) -> None:
    """A library that tells this version as NVIDIA's does."""
    parts = [*version.split("."), "0", "0"][:3]
    source = OWN[stem].format(*parts) if stem in OWN else PROPERTY.format(stem=stem, parts=", ".join(parts))
    file.parent.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", f"-Wl,-soname,{file.name}", "-o", str(file)]
    subprocess.run(command, input=source, text=True, check=True)


def stem_of(name: str) -> str:
    return name.removeprefix("lib").removesuffix(".so")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A site folder with NVIDIA's packages as pip installs them."""
    site = tmp_path_factory.mktemp("site-packages")
    files: dict[str, list[str]] = {"nvidia-cuda-runtime-cu11": []}
    for name, package in PACKAGES.items():
        wanted = pin(package).bounds.removeprefix("==")
        file = f"nvidia/{stem_of(name)}/lib/{name}.{wanted.partition('.')[0]}"
        build(site / file, stem_of(name), wanted)
        files.setdefault(package, []).append(file)
    for package, held in files.items():
        about = site / f"{package.replace('-', '_')}-{pin(package).bounds.removeprefix('==')}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        (about / "RECORD").write_text("".join(f"{file},,\n" for file in held))
    return site


@pytest.fixture
def installed(site, monkeypatch):
    monkeypatch.syspath_prepend(str(site))


@pytest.fixture
def environ(tmp_path):
    """An environment without CUDA, and with a cache of its own."""
    return {"PATH": os.environ["PATH"], "PPNLP_HOME": str(tmp_path / "cache")}


def test_pip_s_packages_are_linked_under_the_names_that_paddle_opens(installed, environ, site):
    found = cuda_libraries.cuda_libraries(environ)
    assert found.lacking == "" and found.variables[SEARCH_PATH] == found.variables[MARKER]
    links = Path(found.variables[MARKER])
    assert links.is_relative_to(environ["PPNLP_HOME"])
    assert {path.name for path in links.iterdir()} >= {*PACKAGES, "libcudnn.so.8", "libnccl.so.2"}
    assert found.loaded["libcudnn.so"].version.startswith("8.6") and str(site) in found.loaded["libcudnn.so"].folder
    # In the process that is started with them nothing is left to do.
    again = cuda_libraries.cuda_libraries({**environ, **found.variables})
    assert (again.variables, again.lacking, again.loaded) == ({}, "", found.loaded)


def test_without_the_packages_it_is_said_what_lacks(environ):
    found = cuda_libraries.cuda_libraries(environ)
    assert found.variables == {} and "libcudnn.so is not found; libcublas.so is not found" in found.lacking
    assert "libnccl.so" not in found.lacking  # one card needs none
    assert found.remedy.startswith("pip install 'nvidia-cudnn-cu11==8.6.0.163' 'nvidia-cublas-cu11==11.11.3.6' '")


def test_a_process_is_not_started_a_third_time(installed, environ):
    found = cuda_libraries.cuda_libraries({**environ, MARKER: "/gone"})
    assert found.variables == {} and "libcudnn.so is not found" in found.lacking


def test_what_the_environment_has_in_the_right_release_stays(installed, environ, tmp_path):
    system = tmp_path / "cuda"
    for name in ("libcudnn.so", "libcublas.so", "libcublasLt.so"):
        build(system / name, stem_of(name), "8.9.7" if "dnn" in name else "11.5.1")
    found = cuda_libraries.cuda_libraries({**environ, SEARCH_PATH: str(system)})
    assert found.loaded["libcudnn.so"].version == "8.9.7" and found.loaded["libcublas.so"].folder == str(system)
    assert found.variables[SEARCH_PATH].endswith(f":{system}") and found.passed_over == ""


def test_what_the_environment_has_in_another_release_is_passed_over(installed, environ, tmp_path):
    system = tmp_path / "cuda"
    build(system / "libcublas.so", "cublas", "12.4.5")
    found = cuda_libraries.cuda_libraries({**environ, SEARCH_PATH: str(system)})
    assert found.loaded["libcublas.so"].version.startswith("11.")
    assert found.passed_over == f"not libcublas.so 12.4.5 from {system}"


def test_another_release_without_the_packages_is_named(environ, tmp_path):
    build(tmp_path / "cuda" / "libcublas.so", "cublas", "12.4.5")
    found = cuda_libraries.cuda_libraries({**environ, SEARCH_PATH: str(tmp_path / "cuda")})
    assert f"libcublas.so in {tmp_path / 'cuda'} is 12.4.5, and release 11 is needed" in found.lacking


def test_a_library_that_kills_its_process_counts_as_none(environ, tmp_path):
    source = "__attribute__((constructor)) void die(void) { __builtin_trap(); }"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(tmp_path / "libcudnn.so")]
    subprocess.run(command, input=source, text=True, check=True)
    assert ask_libraries({**environ, SEARCH_PATH: str(tmp_path)})["libcudnn.so"].version == ""


def test_the_folder_follows_the_packages_and_is_made_by_one_of_many(environ, tmp_path):
    target = tmp_path / "libcudnn.so.8"
    target.write_bytes(b"one")
    links, made = {"libcudnn.so": target}, []
    threads = [threading.Thread(target=lambda: made.append(link_folder(links, environ))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(made) == 8 and len(set(made)) == 1
    assert [path.name for path in made[0].parent.iterdir()] == [made[0].name]  # no leftovers
    target.write_bytes(b"another")
    assert link_folder(links, environ) != made[0]


def test_a_cache_that_cannot_be_written_is_named(environ, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="PPNLP_HOME: cannot write to the cache folder"):
        link_folder({"libcudnn.so": tmp_path / "file"}, {**environ, "PPNLP_HOME": str(tmp_path / "file")})


# A command line as on a machine with the GPU build, a driver and a card, none of which it takes to see it restart.
COMMAND = """
import os, sys
from nlpctl.cli import app, doctor
from nlpctl.runtime import device
from nlpctl.runtime.doctor import Check

device.installed_version = lambda name: {"paddlepaddle-gpu": "2.6.2"}.get(name)
device.ask_driver = lambda environ: device.Driver("12.2", "", ("A card",), ((8, 6),))

def checks():
    print("started", file=sys.stderr)
    chosen = device.choose_device(os.environ["WANTED"], ())
    yield Check("device", "ok", chosen)
    yield Check("links", "ok", os.environ.get("NLPCTL_CUDA_LINKS", ""))

doctor.run_checks = checks
sys.exit(app.main())
"""


def command_line(site: Path, environ: dict[str, str], wanted: str) -> tuple[dict[str, str], int]:
    """The details of the checks above by name, and how often the command was started."""
    environ = {**environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path]), "WANTED": wanted}
    command = [sys.executable, "-c", COMMAND, "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    answer = json.loads(done.stdout)
    assert answer["ok"], answer
    return {check["name"]: check["detail"] for check in answer["result"]["checks"]}, done.stderr.count("started")


def test_the_command_line_starts_itself_again_once(site, environ):
    told, starts = command_line(site, environ, "gpu")
    assert told["device"] == "gpu" and Path(told["links"]).is_dir() and starts == 2


def test_the_cpu_costs_nothing(site, environ, tmp_path):
    assert command_line(site, environ, "cpu") == ({"device": "cpu", "links": ""}, 1)
    assert not (tmp_path / "cache").exists()


def test_python_code_is_told_how_to_start(installed, environ):
    probes = device.Probes(
        lambda name: "2.6.2" if name == "paddlepaddle-gpu" else None,
        lambda environ: device.Driver("12.2", "", ("A card",), ((8, 6),)),
        lambda: None,
        lambda _: cuda_libraries.cuda_libraries(environ),
    )
    with pytest.raises(NeedsRestart, match=f"start Python with LD_LIBRARY_PATH={environ['PPNLP_HOME']}"):
        with located(load_recipe("quickstart")):  # as every command of a recipe
            device.choose_device("gpu", (), probes)
