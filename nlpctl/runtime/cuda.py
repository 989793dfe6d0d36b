"""CUDA for paddlepaddle-gpu: the libraries that release 2.6 opens by name, and the cards that its code runs on.

The wheel of 2.6 brings no libraries. It opens `libcudnn.so`, but NVIDIA's packages hold `libcudnn.so.8`, in folders
that the loader does not search. So links by the names that Paddle asks for are put into a folder of the cache, and the
command is started again with that folder first on LD_LIBRARY_PATH, which the loader reads only when a process starts.
A library that is loaded beforehand does not help, since the loader knows it by its own name, libcudnn.so.8. Paddle 2.6
has flags for these folders (FLAGS_cudnn_dir), but does not read them from the environment.

What the environment or the system already has in the right version is left as it is. Paddle 3 names the packages itself
and finds them. Nothing here runs for `--device cpu`. Imports no Paddle.

Which cards the installed Paddle has machine code for is read from its library, without loading it (`installed_code`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import json
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nlpctl.checksums import sha256_of_text
from nlpctl.parent import python_until_parent_ends
from nlpctl.runtime.cache import cache_folder, usable_cache_folder
from nlpctl.runtime.versions import pin

# -- the libraries: found, linked, or missing --------------------------------------------------

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
    """The libraries that a process under some environment loads, and what is to be done about the others.

    `variables`: the environment that a process must be started with to find the rest; {} if there is no need.
    `passed_over`: what the environment has in a release that Paddle cannot use, as a phrase; "" if nothing.
    `lacking`: what is not found either way, as a phrase; "" if nothing. `remedy`: what to do about that.
    """

    loaded: Mapping[str, Library]
    variables: Mapping[str, str]
    passed_over: str = ""
    lacking: str = ""
    remedy: str = ""


def cuda_libraries(environ: Mapping[str, str]) -> CudaLibraries:
    """The libraries for paddlepaddle-gpu 2.6 under `environ`. Makes the folder of links if one is needed.

    Raises UserError if the cache folder cannot be written to.
    """
    loaded = ask_libraries(environ)
    unfit = _unfit(loaded)
    # With MARKER this process has the folder already: what is missing now, links do not bring.
    links = _package_links([*(PACKAGES[name] for name in unfit), *ALWAYS]) if unfit and MARKER not in environ else {}
    if links:
        folder = str(link_folder(links, environ))
        searched = environ.get(SEARCH_PATH)  # an empty entry would search the current folder too
        variables = {SEARCH_PATH: f"{folder}{os.pathsep}{searched}" if searched else folder, MARKER: folder}
        linked = ask_libraries({**environ, **variables})
        still_unfit = _unfit(linked)
        if OPTIONAL.issuperset(still_unfit):
            others = {name: loaded[name] for name in unfit if loaded[name].version}
            passed_over = [f"not {name} {library.version} from {library.folder}" for name, library in others.items()]
            return CudaLibraries(linked, variables, ", ".join(passed_over))
        unfit = still_unfit
    needed = [name for name in unfit if name not in OPTIONAL]
    if not needed:
        return CudaLibraries(loaded, {})
    packages = dict.fromkeys(PACKAGES[name] for name in needed)
    remedy = "pip install " + " ".join(f"'{pin(package)}'" for package in packages)
    lacking = []
    for name in needed:
        library = loaded[name]
        lacking.append(
            f"{name} in {library.folder} is {library.version}, and release {_wanted_release(name)} is needed"
            if library.version
            else f"{name} is not found"
        )
    return CudaLibraries(loaded, {}, lacking="; ".join(lacking), remedy=remedy)


def _unfit(loaded: Mapping[str, Library]) -> list[str]:
    """The names under which the loader has nothing of the release that Paddle was built for."""
    return [name for name in PACKAGES if loaded[name].version.partition(".")[0] != _wanted_release(name)]


def _wanted_release(name: str) -> str:
    """The first number of the version that Paddle was built for, which the extra gpu pins."""
    return pin(PACKAGES[name]).bounds.removeprefix("==").partition(".")[0]


def ask_libraries(environ: Mapping[str, str]) -> dict[str, Library]:
    """The libraries that a process under `environ` loads by the names of PACKAGES; asked in one (cuda_probe.py)."""
    script = Path(__file__).with_name("cuda_probe.py")
    command = python_until_parent_ends("-I", "-S", str(script), "libraries", *PACKAGES)
    answers: dict[str, list[str]] = {}
    with contextlib.suppress(subprocess.TimeoutExpired, ValueError):  # it crashed or hangs: none is usable
        done = subprocess.run(command, capture_output=True, text=True, env=dict(environ), timeout=PROBE_SECONDS)
        answers = json.loads(done.stdout)
    return {name: Library(*answers.get(name, ("", ""))) for name in PACKAGES}


def link_folder(links: Mapping[str, Path], environ: Mapping[str, str]) -> Path:
    """The folder of the cache with these links, made if it does not exist.

    It is named after what the links point to, so new packages get a new one, and it is never changed: another process
    may be using it. Of two processes that make it at once one wins.
    """
    facts = [(name, str(target), (stat := target.stat()).st_size, stat.st_mtime_ns) for name, target in links.items()]
    digest = sha256_of_text(json.dumps(sorted(facts)))[:16]
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


def _package_links(packages: Iterable[str]) -> dict[str, Path]:
    """Link name to file: every library of the installed packages under its own name and without its version."""
    links: dict[str, Path] = {}
    for package in dict.fromkeys(packages):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            for file in importlib.metadata.files(package) or []:
                target = Path(str(file.locate()))
                if ".so" in file.name and not file.name.startswith(_UNRELATED) and target.is_file():
                    links |= {file.name: target, file.name.partition(".so")[0] + ".so": target}
    return links


# -- the cards that Paddle has code for ----------------------------------------------------------

# nvcc puts the code into the section .nv_fatbin: one container per source file, each with an entry per compute
# capability. NVIDIA publishes no description of it. Code for a capability X.Y runs on cards X.Z with Z of at least Y;
# PTX, which the driver compiles, on every newer card.
#
# The first containers are read, which takes 2 ms. Of the 666 in libphi.so of paddlepaddle-gpu 2.6.2 all but one hold
# machine code for 6.1, 7.0, 7.5, 8.0 and 8.6; none holds PTX.

CONTAINERS = 20  # read per library
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
_ENTRY = struct.Struct("<HHIQ12xI")  # kind, version, size of this header, size of the code, 10 * capability
_MAGIC = 0xBA55ED50
_PTX, _MACHINE = 1, 2
_SECTION = struct.Struct("<IIQQQQ")  # name, type, flags, address, offset, size
_CODE = b".nv_fatbin"

Capability = tuple[int, int]


@dataclass(frozen=True)
class CudaCode:
    """The compute capabilities for which there is machine code, and those for which there is PTX; sorted."""

    machine: tuple[Capability, ...]
    ptx: tuple[Capability, ...] = ()

    def runs_on(self, card: Capability) -> bool:
        """Whether a card of this compute capability can run the machine code, or what the driver makes of the PTX."""
        exact = any(major == card[0] and minor <= card[1] for major, minor in self.machine)
        return exact or any(each <= card for each in self.ptx)

    @property
    def newest(self) -> Capability:
        return max((*self.machine, *self.ptx))


@functools.cache
def installed_code() -> CudaCode | None:
    """The code in the installed Paddle; None for a CPU build, and where it cannot be read."""
    spec = importlib.util.find_spec("paddle")  # does not import it
    if spec is None or spec.origin is None:
        return None
    for library in sorted((Path(spec.origin).parent / "libs").glob("libphi*.so")):
        code = code_of(library)
        if code is not None:
            return code
    return None


def code_of(library: Path) -> CudaCode | None:
    """The code in a shared library; None if it holds none, or is not what nvcc writes."""
    try:
        with library.open("rb") as file:
            containers = list(_containers(file))
    except (OSError, struct.error, ValueError):
        return None
    if not containers:
        return None
    common = set.intersection(*containers)
    return CudaCode(_of_kind(common, _MACHINE), _of_kind(common, _PTX)) if common else None


def _of_kind(entries: set[tuple[int, int]], wanted: int) -> tuple[Capability, ...]:
    return tuple(sorted((number // 10, number % 10) for kind, number in entries if kind == wanted))


def _containers(file: BinaryIO) -> Iterator[set[tuple[int, int]]]:
    """For each of the first containers its entries, as (kind, 10 * capability)."""
    position, size = _code_section(file)
    end = position + size
    for _ in range(CONTAINERS):
        if position + _CONTAINER.size > end:
            return
        magic, _, header, length = _CONTAINER.unpack(_read(file, position, _CONTAINER.size))
        if magic != _MAGIC:
            return
        entry, position = position + header, position + header + length
        entries = set()
        while entry < position:
            kind, _, header, length, number = _ENTRY.unpack(_read(file, entry, _ENTRY.size))
            if header < _ENTRY.size:
                raise ValueError("no entry")
            entries.add((kind, number))
            entry += header + length
        yield entries
        position += -position % 8


def _code_section(file: BinaryIO) -> tuple[int, int]:
    """Offset and size of the section with the code. ValueError if the file is no 64-bit ELF file with one."""
    head = _read(file, 0, 64)
    if not head.startswith(b"\x7fELF\x02\x01"):
        raise ValueError("no ELF file")
    (table,) = struct.unpack_from("<Q", head, 40)
    size, count, names_at = struct.unpack_from("<HHH", head, 58)
    raw = _read(file, table, size * count)
    sections = [_SECTION.unpack_from(raw, size * index) for index in range(count)]
    names = _read(file, sections[names_at][4], sections[names_at][5])
    for name, _, _, _, offset, length in sections:
        if names[name : names.index(b"\0", name)] == _CODE:
            return offset, length
    raise ValueError("no CUDA code")


def _read(file: BinaryIO, position: int, size: int) -> bytes:
    file.seek(position)
    return file.read(size)
