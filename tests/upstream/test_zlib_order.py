import subprocess
import sys

import pytest

from nlpctl.paddle_version import release

WORK = """
import sys
{first}
print("bound", "zlib" in sys.modules)
import paddle
import gzip, os
data = os.urandom(1000) * 1000
assert gzip.decompress(gzip.compress(data)) == data
"""


def run(first: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", WORK.format(first=first)], capture_output=True, text=True)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux wheels export zlib's symbols")
def test_zlib_after_paddle_still_breaks():
    done = run("pass")
    if done.stdout.startswith("bound True"):
        pytest.skip("this Python loads zlib at start-up")
    crashed = done.returncode < 0 or "zlib.error" in done.stderr
    # Paddle 3 no longer exports zlib. Once nlpctl needs no 2.6, `import zlib` in nlpctl/__init__ can go.
    assert crashed == (release() < (3, 0))


def test_importing_nlpctl_first_mends_it():
    done = run("import nlpctl")
    assert done.stdout.startswith("bound True")
    assert done.returncode == 0, done.stderr
