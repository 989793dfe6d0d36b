import subprocess
import sys

import pytest

IMPORTED_IN_A_THREAD = """
import threading

def work():
    import nlpctl, paddle
    from nlpctl.upstream.eager_mode import keep_eager_mode
    if {mended}:
        keep_eager_mode()
        paddle.enable_static()
        paddle.disable_static()
        keep_eager_mode()

thread = threading.Thread(target=work)
thread.start()
thread.join()
import paddle
print(paddle.in_dynamic_mode())
"""


@pytest.mark.parametrize("mended", [False, True])
def test_the_end_of_a_thread_still_ends_eager_mode(mended):
    code = IMPORTED_IN_A_THREAD.format(mended=mended)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{mended}\n" and "Traceback" not in done.stderr
