"""The CUDA libraries that paddlepaddle-gpu 2.6 opens by name, and the pip packages of the extra `gpu` that have them.

Its wheel brings none. It opens `libcudnn.so`, but NVIDIA's packages hold `libcudnn.so.8`, in folders that the loader
does not search. So links by the names that Paddle asks for are put into a folder of the cache, and the command is
started again with that folder first on LD_LIBRARY_PATH, which the loader reads only when a process starts. A library
that is loaded beforehand does not help, since the loader knows it by its own name, libcudnn.so.8. Paddle 2.6 has flags
for these folders (FLAGS_cudnn_dir), but does not read them from the environment.

What the environment or the system already has in the right version is left as it is. Paddle 3 names the packages itself
and finds them. Nothing here runs for `--device cpu`. Imports no Paddle.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nlpctl.parent import python_until_parent_ends
from nlpctl.runtime.cache import cache_folder, usable_cache_folder
from nlpctl.runtime.versions import pin

SEARCH_PATH = "LD_LIBRARY_PATH"
MARKER = "NLPCTL_CUDA_LINKS"  # the folder that this process was started with: it is not started a third time
PROBE_SECONDS = 60

# The name that Paddle opens -> the package of the extra gpu that has it. A version fits if it begins as the pin does.
PACKAGES = {
    "libcudnn.so": "nvidia-cudnn-cu11",
    "libcublas.so": "nvidia-cublas-cu11",
    "libcublasLt.so": "nvidia-cublas-cu11",
    "libnvrtc.so": "nvidia-cuda-nvrtc-cu11",
    "libcufft.so": "nvidia-cufft-cu11",
    "libcurand.so": "nvidia-curand-cu11",
    "libcusolver.so": "nvidia-cusolver-cu11",
    "libcusparse.so": "nvidia-cusparse-cu11",
    "libnccl.so": "nvidia-nccl-cu11",
}
OPTIONAL = frozenset({"libnccl.so"})  # one card needs none
ALWAYS = ("nvidia-cuda-runtime-cu11",)  # Paddle's own code has it built in; ONNX Runtime opens it
_UNRELATED = "libOpenCL"  # comes with the runtime


@dataclass(frozen=True)
class Library:
    """A library as the loader finds it: its version such as "8.6.0", and its folder; "" if it is not found."""

    version: str
    folder: str


@dataclass(frozen=True)
class CudaLibraries:
    """What a process under some environment finds, and what is to be done.

    `variables`: the environment that a process must be started with to find the rest; {} if there is no need.
    `passed_over`: what the environment has in a release that Paddle cannot use, as a phrase; "" if nothing.
    `lacking`: what is not found either way, as a phrase; "" if nothing. `remedy`: what to do about that.
    """

    found: Mapping[str, Library]
    variables: Mapping[str, str]
    passed_over: str = ""
    lacking: str = ""
    remedy: str = ""


def cuda_libraries(environ: Mapping[str, str]) -> CudaLibraries:
    """The libraries for paddlepaddle-gpu 2.6 under `environ`. Makes the folder of links if one is needed.

    Raises UserError if the cache folder cannot be written to.
    """
    found = ask_libraries(environ)
    unfit = _unfit(found)
    links = _links([*(PACKAGES[name] for name in unfit), *ALWAYS]) if unfit and MARKER not in environ else {}
    if links:
        folder = link_folder(links, environ)
        variables = {SEARCH_PATH: _first(str(folder), environ.get(SEARCH_PATH)), MARKER: str(folder)}
        linked = ask_libraries({**environ, **variables})
        still = _unfit(linked)
        if OPTIONAL.issuperset(still):
            passed_over = [_passed_over(name, found[name]) for name in unfit if found[name].version]
            return CudaLibraries(linked, variables, ", ".join(passed_over))
        unfit = still
    needed = [name for name in unfit if name not in OPTIONAL]
    if not needed:
        return CudaLibraries(found, {})
    packages = dict.fromkeys(PACKAGES[name] for name in needed)
    remedy = "pip install " + " ".join(f"'{pin(package)}'" for package in packages)
    return CudaLibraries(found, {}, lacking="; ".join(_lack(name, found[name]) for name in needed), remedy=remedy)


def _unfit(found: Mapping[str, Library]) -> list[str]:
    """The names that are not found in the release that Paddle was built for."""
    return [name for name in PACKAGES if found[name].version.partition(".")[0] != _wanted(name)]


def _wanted(name: str) -> str:
    """The first number of the version that Paddle was built for, which the extra gpu pins."""
    return pin(PACKAGES[name]).bounds.removeprefix("==").partition(".")[0]


def _first(folder: str, searched: str | None) -> str:
    """A search path with `folder` in front. An empty one would search the current folder too."""
    return f"{folder}{os.pathsep}{searched}" if searched else folder


def ask_libraries(environ: Mapping[str, str]) -> dict[str, Library]:
    """What a process that starts under `environ` gets by the names of PACKAGES, asked in such a process."""
    script = Path(__file__).with_name("cuda_library_probe.py")
    command = python_until_parent_ends("-I", "-S", str(script), *PACKAGES)
    found: dict[str, list[str]] = {}
    with contextlib.suppress(subprocess.TimeoutExpired, ValueError):  # it crashed or hangs: none is usable
        done = subprocess.run(command, capture_output=True, text=True, env=dict(environ), timeout=PROBE_SECONDS)
        found = json.loads(done.stdout)
    return {name: Library(*found.get(name, ("", ""))) for name in PACKAGES}


def link_folder(links: Mapping[str, Path], environ: Mapping[str, str]) -> Path:
    """The folder of the cache with these links, made if it does not exist.

    It is named after what the links point to, so new packages get a new one, and it is never changed: another process
    may be using it. Of two processes that make it at once one wins.
    """
    facts = [(name, str(target), (stat := target.stat()).st_size, stat.st_mtime_ns) for name, target in links.items()]
    digest = hashlib.sha256(json.dumps(sorted(facts)).encode()).hexdigest()[:16]
    parent = usable_cache_folder(cache_folder(environ) / "nlpctl" / "cuda", "PPNLP_HOME")
    folder = parent / digest
    if folder.is_dir():
        return folder
    made = Path(tempfile.mkdtemp(prefix=f".{digest}-", dir=parent))
    for name, target in links.items():
        (made / name).symlink_to(target)
    made.chmod(0o755)
    try:
        made.rename(folder)
    except OSError:
        shutil.rmtree(made)
        if not folder.is_dir():
            raise
    return folder


def _links(packages: Iterable[str]) -> dict[str, Path]:
    """Link name to file: every library of the installed packages under its own name and without its version."""
    links: dict[str, Path] = {}
    for package in dict.fromkeys(packages):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            for file in importlib.metadata.files(package) or []:
                target = Path(str(file.locate()))
                if ".so" in file.name and not file.name.startswith(_UNRELATED) and target.is_file():
                    links |= {file.name: target, file.name.partition(".so")[0] + ".so": target}
    return links


def _passed_over(name: str, found: Library) -> str:
    return f"not {name} {found.version} from {found.folder}"


def _lack(name: str, found: Library) -> str:
    if not found.version:
        return f"{name} is not found"
    return f"{name} in {found.folder} is {found.version}, and release {_wanted(name)} is needed"
