import inspect
import subprocess
import sys

from paddle.io.dataloader import worker

LOADING = """
import multiprocessing
import nlpctl, numpy as np, paddle
from nlpctl.upstream.loader_workers import ended_with_parent

class Rows(paddle.io.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return np.zeros(2, "float32")

for _ in paddle.io.DataLoader(Rows(), batch_size=1, num_workers=2, worker_init_fn=ended_with_parent()):
    print(len(multiprocessing.active_children()), flush=True)
    input()
"""


def test_the_check_of_the_parent_still_waits_for_ever():
    """Seconds as the first argument of Queue.get, which is `block`."""
    assert "indices_queue.get(MP_STATUS_CHECK_INTERVAL)" in inspect.getsource(worker._worker_loop)


def test_workers_end_with_a_killed_parent():
    """Their copies of its standard output tell: it has no end while one of them is there."""
    parent = subprocess.Popen([sys.executable, "-c", LOADING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "2\n"
    parent.kill()
    assert parent.communicate(timeout=60)[0] == ""
