"""Fixtures for all tests: the shared data, the command line in a process of its own, a private cache folder."""

from __future__ import annotations

import contextlib
import functools
import os
import pkgutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import warm_python
from command_lines import MARK, CommandLines, command_lines

import nlpctl  # noqa: F401  (before any test imports paddle: see nlpctl/__init__.py)
from nlpctl.runtime.machine import cpu_info
from nlpctl.spelling import spell_as_flags

ROOT = Path(__file__).resolve().parent.parent

# scripts/test.sh runs three workers on two cores. Several threads in each wait for each other most of the time: with
# one, the same tests take half as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

os.environ["LC_ALL"] = "C.UTF-8"  # pages in English, whatever the developer reads

spell_as_flags()  # tests read the messages of the command line; tests/test_spelling.py those of the Python module


class Warm:
    """A process that has imported Paddle, from which others are forked; the first one starts it."""

    modules = ("paddlenlp.trainer", "paddlenlp.transformers", "paddle.inference", "onnxruntime", "nlpctl.cli.app")
    modules += ("nlpctl.training.callbacks", "nlpctl.training.final_scores", "nlpctl.training.trainer")
    modules += ("nlpctl.engines.auto", "nlpctl.engines.parity")
    modules += ("nlpctl.training.train", "nlpctl.inference.predict", "nlpctl.inference.evaluate")
    modules += ("nlpctl.export.write_export", *warm_python.IMPORTED)
    folder: Path
    stack: contextlib.ExitStack

    @functools.cached_property
    def lines(self) -> CommandLines:
        return self.stack.enter_context(command_lines(self.folder, *self.modules))

    @functools.cached_property
    def whole_lines(self) -> CommandLines:
        """With every module of nlpctl, whose import takes most of the time of a command that is refused."""
        every = (each.name for each in pkgutil.walk_packages(nlpctl.__path__, "nlpctl."))
        modules = [name for name in every if not name.endswith("__main__")]
        (folder := self.folder / "whole").mkdir()
        return self.stack.enter_context(command_lines(folder, *self.modules, *modules))


WARM = Warm()
warm_python.use_warm_python(lambda: WARM.lines.python)

# scripts/test.sh gives each worker a file at a time, so that what the tests of a file share is made once. Those that
# take longest come first: all workers end together.
FIRST = (
    "end_to_end/test_compress.py",
    "bad_inputs/test_generated.py",
    "end_to_end/test_processes.py",
    "end_to_end/test_language_models.py",
    "end_to_end/test_several_machines.py",
    "end_to_end/test_divided.py",
    "end_to_end/test_engines.py",
    "export/test_every_task.py",
    "documents/test_notebook.py",
    "end_to_end/",
    "export/",
    "compress/",
    "bad_inputs/",
    "documents/",
    "training/",
    "convert/",
    "engines/",
    "tasks/",
)


def turn(item: pytest.Item) -> int:
    name = item.path.relative_to(ROOT / "tests").as_posix()
    return next((number for number, first in enumerate(FIRST) if name.startswith(first)), len(FIRST))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with the marker `slow` take long and rarely fail; they run before a release."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=turn)
    if "NLPCTL_SLOW" not in os.environ:
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: set NLPCTL_SLOW=1, as before a release"))


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PPNLP_HOME is a folder of this test run, so no test reads or fills the user's cache."""
    folder = tmp_path_factory.mktemp("ppnlp_home")
    os.environ["PPNLP_HOME"] = str(folder)
    return folder


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_works() -> None:
    """A shell that starts the tests in the background has them ignore SIGINT, and commands would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_signal_stays_blocked() -> Iterator[None]:
    """What a test blocks would fail others, and be inherited by every process that they start."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    after = signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert after == before


@pytest.fixture(scope="session", autouse=True)
def warm(tmp_path_factory: pytest.TempPathFactory, private_cache: Path) -> Iterator[None]:
    with contextlib.ExitStack() as WARM.stack:
        WARM.folder = tmp_path_factory.mktemp("heavy")
        yield


@pytest.fixture(scope="session")
def with_paddle(warm: None) -> CommandLines:
    """Command lines in forked processes that find Paddle imported."""
    return WARM.lines


@pytest.fixture(scope="session")
def with_all_modules(warm: None) -> CommandLines:
    """Command lines in forked processes that find Paddle and all of nlpctl imported: for thousands of them."""
    return WARM.whole_lines


@pytest.fixture(scope="session")
def native_int8() -> None:
    """Paddle's int8 graphs are tested where nlpctl runs them: without VNNI their sums saturate (docs/upstream.md)."""
    if not cpu_info().computes("int8"):
        pytest.skip("this processor does not compute in int8 natively")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the checkout."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the data sets in {folder}")
    return folder


@pytest.fixture
def device(tmp_path: Path) -> Callable[[str], Path]:
    """`device("null")`: a private null, full or zero. A test that fails would replace that of the machine."""
    minors = {"null": 3, "zero": 5, "full": 7}

    def make(name: str) -> Path:
        path = tmp_path / name
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minors[name]))
            path.open("r+b", buffering=0).close()
        except PermissionError:
            pytest.skip("devices can be made by root alone")
        return path

    return make


@pytest.fixture
def run_nlpctl(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run_nlpctl("recipe", "ls", stdin="...", env={...})`: the command line in a new process, in `tmp_path`."""

    def run(
        *args: str | Path, stdin: str = "", env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            [sys.executable, "-m", "nlpctl", *map(str, args)],
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=cwd or tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(env or {})},
            timeout=600,
        )
        assert not MARK.search(done.stdout + done.stderr), done
        return done

    return run
