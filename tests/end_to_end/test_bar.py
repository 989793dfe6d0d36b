"""The bar of a training on a real terminal: from the first step until Ctrl-C, with warnings of others in between."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from terminal import screen

ROOT = Path(__file__).resolve().parents[2]

LONG = "told at step three " * 12
CALLBACK = f"""\
import sys, time, warnings
from paddlenlp.trainer import TrainerCallback
from paddlenlp.utils.log import logger
class Teller(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            print("printed", {LONG!r}, file=sys.stderr)
            warnings.formatwarning = lambda message, *others, **more: f"{{message}}\\n"
            warnings.warn("python " + {LONG!r})
        if state.global_step == 5:
            time.sleep(4.2)
"""


def test_a_training_on_a_terminal(work):
    """Its answers are read from a pipe, in which nothing of the bar is."""
    (work / "my_teller.py").write_text(CALLBACK)
    ours, theirs = pty.openpty()
    settings = ("--set", "training.callbacks=[my_teller:Teller]", "--num_train_epochs", "5000")
    words = [sys.executable, "-m", "nlpctl", "train", "recipe.yaml", "--output_dir", "on_a_terminal", *settings]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(work.folder)])}
    environment |= {"TERM": "xterm", "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(words, cwd=work.folder, stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    shown, deadline, asked = "", time.monotonic() + 240, False
    try:
        while True:
            assert time.monotonic() < deadline, shown
            if not select.select([ours], [], [], 0.2)[0]:
                continue
            try:
                block = os.read(ours, 65536)
            except OSError:  # Linux says EIO once the other side is closed
                break
            shown += block.decode(errors="replace")
            if not asked and shown.count("dev at step") >= 2 and re.search(r"\d/40,000 .*loss", shown):
                process.send_signal(signal.SIGINT)
                asked = True
        out = process.communicate(timeout=60)[0].decode()
    finally:
        process.kill()
        os.close(ours)
    assert process.returncode == 130, shown
    bar = r"train ━*─+ [\d,]+/40,000 in \d+m\d\ds  \d+[hm]\d\d[ms] left  epoch \d+\.\d\d  loss \d\.\d{4}"
    assert re.search(bar, shown), shown
    in_a_long_step = set(re.findall(r"train ━*─+ [45]/40,000 in (\d+m\d\ds)", shown))
    assert len(in_a_long_step) >= 3, "its time goes on while nothing else does"
    assert re.search(r"dev [━─]+ \d+/\d+ .*\(train: \d+[hm]\d\d[ms]\)", shown)
    lines = screen(shown)
    assert f"printed {LONG}".rstrip() in lines and f"python {LONG}".rstrip() in lines
    assert any(line.startswith("dev at step 8: loss ") for line in lines)
    assert "interrupted: a checkpoint is saved after this step (once more: stop at once)" in lines
    assert any(re.fullmatch(r"about \d+[hm]\d\d[ms] from here to the final scores", line) for line in lines)
    assert not any("━" in line or line.startswith("step ") for line in lines), lines
    assert [line for line in lines if line][-1].lstrip().startswith("->")  # how to go on
    assert "━" not in out and "\r" not in out and "\033" not in out
