"""Ask the loader for libraries by name, and each for its version. Prints one line of JSON: {name: [version, folder]}.

Run as a script in a separate process, which starts with the environment that is asked about: the loader reads
LD_LIBRARY_PATH only then, and what is opened here would stay open. Standard library only; it runs with -I -S.
"""

import ctypes
import json
import os
import sys
from collections.abc import Callable


def found(name: str) -> tuple[str, str] | None:
    """Version and folder of the library that the loader opens as `name`; None if it cannot."""
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None
    stem = name.removeprefix("lib").removesuffix(".so")
    return _VERSIONS.get(stem, _by_property)(library, stem), _folder(name)


def _by_property(library: ctypes.CDLL, stem: str) -> str:
    """As the libraries of the CUDA toolkit tell it."""
    numbers = [ctypes.c_int() for _ in range(3)]
    tell = getattr(library, f"{stem}GetProperty")
    for part, number in enumerate(numbers):
        tell(part, ctypes.byref(number))
    return ".".join(str(number.value) for number in numbers)


def _cudnn(library: ctypes.CDLL, stem: str) -> str:
    library.cudnnGetVersion.restype = ctypes.c_size_t
    return _parts(library.cudnnGetVersion(), newer=90000)


def _nccl(library: ctypes.CDLL, stem: str) -> str:
    number = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(number))
    return _parts(number.value, newer=10000)


def _nvrtc(library: ctypes.CDLL, stem: str) -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def _parts(number: int, newer: int) -> str:
    """8600 is 8.6.0; from `newer` on there are two digits for the second number."""
    width = 10000 if number >= newer else 1000
    return f"{number // width}.{number % width // 100}.{number % 100}"


_VERSIONS: dict[str, Callable[[ctypes.CDLL, str], str]] = {
    "cudnn": _cudnn,
    "nccl": _nccl,
    "nvrtc": _nvrtc,
}


def _folder(name: str) -> str:
    """Where the file is from that was opened as `name`, links resolved."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = [line.split(maxsplit=5)[5].strip() for line in maps if "/" in line]
    for path in paths:
        if os.path.basename(path).startswith(name):
            return os.path.dirname(path)
    return ""


if __name__ == "__main__":
    print(json.dumps({name: answer for name in sys.argv[1:] if (answer := found(name)) is not None}))
