"""Ranks of one machine compute together, fail with the right message, and never outlive the command.

Ranks write their process ids (and those of a helper each starts) to a folder, where the tests look them up.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.config.schema import RuntimeSection
from nlpctl.errors import UserError
from nlpctl.launch import rank_monitor
from nlpctl.launch.launch import launch, processes_wanted, rank_environment
from nlpctl.runtime.device import usable_gpu
from nlpctl.runtime.ranks import without_launchers
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.runtime.worker import is_alive
from nlpctl.training.refusals import check_before_reading
from nlpctl.training.run_setup import TrainOptions

ALL_REDUCE = """
import os, sys
from nlpctl.config.schema import RuntimeSection
from nlpctl import console
from nlpctl.runtime import ranks
from nlpctl.runtime.process import configure_paddle, prepare_process
setup = prepare_process(RuntimeSection(nproc=2), 7)
configure_paddle(setup, 7)
import paddle
paddle.distributed.init_parallel_env()
total = paddle.to_tensor([float(setup.rank + 1)])
paddle.distributed.all_reduce(total)
assert ranks.is_child()
words, proxy = sys.argv[1:], os.environ["http_proxy"]
print(f"rank {setup.rank} of {setup.world_size} sum {float(total)} words {words} proxy {proxy}")
console.note("a note")
"""


def test_two_processes_reduce_and_rank_0_is_relayed(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # Paddle's launcher drops it
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")  # some platforms set it for a single process
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "1")
    script = tmp_path / "reduce.py"
    script.write_text(ALL_REDUCE)
    logs = tmp_path / "logs"
    assert launch(["--words", "a b"], 2, (), logs, (str(script),)) == 0
    out, err = capfd.readouterr()
    said = "of 2 sum 3.0 words ['--words', 'a b'] proxy http://127.0.0.1:9\n"
    assert out == f"rank 0 {said}"
    assert "a note\n" in err
    assert sorted(path.name for path in logs.iterdir()) == ["rank-0.log", "rank-1.log"]
    other = (logs / "rank-1.log").read_text()
    assert f"rank 1 {said}" in other and "a note" not in other


RANK = """
import os, pathlib, signal, subprocess, sys, time
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # as the command line does
rank, folder = os.environ["PADDLE_TRAINER_ID"], pathlib.Path(sys.argv[1])
helper = subprocess.Popen(["sleep", "600"])  # stands for a data loader worker
(folder / f"{rank}.new").write_text(f"{os.getpid()} {helper.pid}")
(folder / f"{rank}.new").rename(folder / f"{rank}.processes")
def wait_for(number):
    while not (folder / f"{number}.processes").exists():
        time.sleep(0.01)
"""


@pytest.fixture
def ranks(tmp_path):
    """Write the ranks' program; `started` waits for their process ids."""
    return Ranks(tmp_path)


class Ranks:
    def __init__(self, folder: Path):
        self.folder = folder
        self.logs = folder / "logs"

    def program(self, body: str) -> tuple[str, ...]:
        script = self.folder / "rank.py"
        script.write_text(RANK + body)
        return (str(script),)

    def launch(self, body: str) -> int:
        return launch([str(self.folder)], 2, (), self.logs, self.program(body))

    def started(self) -> list[int]:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            files = sorted(self.folder.glob("*.processes"))
            if len(files) == 2:
                return [int(number) for path in files for number in path.read_text().split()]
            time.sleep(0.02)
        raise AssertionError("the ranks did not start")

    def assert_gone(self) -> None:
        deadline = time.monotonic() + 10  # helpers were killed, which takes the kernel a moment
        while any(is_alive(number) for number in self.started()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert [number for number in self.started() if is_alive(number)] == []


def test_a_failing_rank_is_named_with_its_last_lines(ranks, capfd):
    body = """
wait_for(1 - int(rank))
if rank == "1":
    for number in range(30):
        print("line", number, file=sys.stderr)
    sys.exit(2)
time.sleep(600)
"""
    assert ranks.launch(body) == 2
    err = capfd.readouterr().err
    assert f"error: {ranks.logs}/rank-1.log: process 1 of 2 failed (exit code 2)\n" in err
    assert "line 29\n" in err and "line 10\n" in err and "line 9\n" not in err
    ranks.assert_gone()


def test_a_port_that_was_taken_is_no_failure(ranks, capfd):
    """All ranks start again; the launcher takes other ports than outgoing connections do."""
    body = """
from nlpctl.runtime.ranks import meeting
assert 20000 <= int(os.environ["PADDLE_MASTER"].rpartition(":")[2]) <= 32000
if (folder / "met").exists():
    sys.exit(0)
wait_for(1 - int(rank))
if rank == "0":
    (folder / "met").touch()
    with meeting():
        raise RuntimeError("(Unavailable) Bind network on 127.0.0.1:20000 failed.")
time.sleep(600)
"""
    assert ranks.launch(body) == 0
    err = capfd.readouterr().err
    assert "all of them start again, with another port" in err and "process 0 of 2 failed" not in err


@pytest.mark.slow
def test_a_port_that_another_program_has(tmp_path, capfd):
    script = tmp_path / "reduce.py"
    taken = """
import os, pathlib, socket
mark = pathlib.Path(__file__).with_name("taken")
if not mark.exists() and os.environ["PADDLE_TRAINER_ID"] == "0":
    mark.touch()
    other = socket.create_server(("0.0.0.0", int(os.environ["PADDLE_MASTER"].rpartition(":")[2])))
"""
    meets = ALL_REDUCE.replace("paddle.distributed.init", "with ranks.meeting(): paddle.distributed.init", 1)
    script.write_text(taken + meets.replace('os.environ["http_proxy"]', "0"))
    assert launch(["x"], 2, (), tmp_path / "logs", (str(script),)) == 0
    out, err = capfd.readouterr()
    assert "sum 3.0" in out and "start again, with another port" in err


def test_a_user_error_of_all_ranks_is_shown_once(ranks, capfd):
    body = """
wait_for(1 - int(rank))
if rank == "0":
    time.sleep(0.2)  # not the first to fail, yet the one whose message the user has seen
print("error: a.tsv:3: bad row", file=sys.stderr)
sys.exit(2)
"""
    assert ranks.launch(body) == 2
    err = capfd.readouterr().err
    assert err.count("a.tsv:3: bad row") == 1 and "process 0 of 2 failed" in err
    ranks.assert_gone()


def test_a_killed_rank_is_told_from_those_that_fail_with_it(ranks, capfd):
    body = """
wait_for(1 - int(rank))
if rank == "1":
    os.kill(os.getpid(), signal.SIGKILL)
while pathlib.Path(f"/proc/{(folder / '1.processes').read_text().split()[0]}/stat").read_text().split()[2] != "Z":
    time.sleep(0.01)
raise ConnectionError("lost my peer")
"""
    assert ranks.launch(body) == 1
    err = capfd.readouterr().err
    assert "process 1 of 2 failed (it was killed or crashed)" in err
    ranks.assert_gone()


@pytest.mark.slow
def test_an_exception_is_exit_1_and_stubborn_ranks_are_killed(ranks, capfd):
    body = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
wait_for(1 - int(rank))
if rank == "0":
    raise ValueError("broken here")
time.sleep(600)
"""
    assert ranks.launch(body) == 1
    err = capfd.readouterr().err
    assert err.count("ValueError: broken here") == 1 and "process 0 of 2 failed (exit code 1)" in err
    ranks.assert_gone()


DRIVER = """
import pathlib, sys
from nlpctl.launch.launch import launch
sys.exit(launch([sys.argv[2]], 2, (), pathlib.Path(sys.argv[2], "logs"), (sys.argv[1],)))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_everything(ranks, number):
    body = """
try:
    (folder / f"{rank}.ready").write_text("")
    time.sleep(600)
except KeyboardInterrupt:
    (folder / f"{rank}.told").write_text("")
    sys.exit(130)
"""
    command = [sys.executable, "-c", DRIVER, *ranks.program(body), str(ranks.folder)]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    ranks.started()
    while len(list(ranks.folder.glob("*.ready"))) < 2:
        assert driver.poll() is None
        time.sleep(0.02)
    driver.send_signal(number)
    err = driver.communicate(timeout=120)[1]
    if number == signal.SIGKILL:
        # The helpers are no ranks: the kernel ends those with their parents only where they ask for it.
        processes = ranks.started()
        deadline = time.monotonic() + 60
        while any(is_alive(each) for each in (processes[0], processes[2])):
            assert time.monotonic() < deadline, "a rank outlived the killed command"
            time.sleep(0.02)
        for helper in (processes[1], processes[3]):
            os.kill(helper, signal.SIGKILL)
    else:
        assert driver.returncode == 130 and "interrupted" in err and "Traceback" not in err
        assert sorted(path.name for path in ranks.folder.glob("*.told")) == ["0.told", "1.told"]
        ranks.assert_gone()


@pytest.mark.parametrize(("end", "code"), [("os.kill(os.getpid(), signal.SIGKILL)", 1), ("sys.exit(note_exit(0))", 0)])
def test_the_end_of_a_rank_is_seen_where_sigchld_is_ignored(ranks, end, code):
    """As whoever started the command may have left it; the system then forgets exit codes."""
    body = f"""
from nlpctl.runtime.ranks import note_exit
if rank == "1" or {code} == 0:
    {end}
time.sleep(600)
"""
    ignoring = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" + DRIVER
    command = [sys.executable, "-c", ignoring, *ranks.program(body), str(ranks.folder)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert ("process 1 of 2 failed (it was killed or crashed)" in done.stderr) == (code == 1)
    ranks.assert_gone()


def test_sigterm_in_the_middle_of_a_start_leaves_no_rank(tmp_path, monkeypatch):
    """Python raises KeyboardInterrupt between two lines: also when a process is there, and nobody knows of it yet."""
    started = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *arguments, **more):
            super().__init__(*arguments, **more)
            started.append(self.pid)
            os.kill(os.getpid(), signal.SIGTERM)

    script = tmp_path / "sleeps.py"
    script.write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch([], 2, (), tmp_path / "logs", (str(script),))
    assert len(started) == 1 and not is_alive(started[0])


def test_a_rank_that_cannot_be_started_ends_those_before_it(tmp_path, monkeypatch):
    started = []

    class OneOnly(subprocess.Popen):
        def __init__(self, *arguments, **more):
            if started:
                raise BlockingIOError(11, "Resource temporarily unavailable")
            super().__init__(*arguments, **more)
            started.append(self.pid)

    monkeypatch.setattr(subprocess, "Popen", OneOnly)
    with pytest.raises(BlockingIOError):
        launch([], 2, (), tmp_path / "logs", ("-c", "import time; time.sleep(600)"))
    assert len(started) == 1 and not is_alive(started[0])


def test_all_output_arrives_however_much_it_is(ranks, capfd, monkeypatch):
    """A poll reads a part of it; a rank that has ended is asked until nothing is left."""
    monkeypatch.setattr(rank_monitor, "_CHUNK", 1000)
    body = """
while rank == "1" and not (folder / "written").exists():
    time.sleep(0.01)
print("x" * 50_000 + rank, flush=True)
print("e" * 50_000, "the end of", rank, file=sys.stderr, flush=True)
(folder / "written").touch()
sys.exit(2 * int(rank))
"""
    assert ranks.launch(body) == 2
    out, err = capfd.readouterr()
    assert out == "x" * 50_000 + "0\n"
    assert err.count("e" * 50_000 + " the end of 0\n") == 1
    assert "process 1 of 2 failed (exit code 2)" in err and "e" * 50_000 + " the end of 1\n" in err


def test_a_log_that_someone_removes(ranks, capfd):
    """The ranks go on, and what they say is still read."""
    body = """
wait_for(1 - int(rank))
if rank == "0":
    for number in (0, 1):
        (folder / "logs" / f"rank-{number}.log").unlink()
    pathlib.Path(os.environ["NLPCTL_EXCHANGE"], "output").unlink()
    print("a result", flush=True)
    print("a note", file=sys.stderr, flush=True)
    (folder / "removed").touch()
    time.sleep(600)
while not (folder / "removed").exists():
    time.sleep(0.01)
print("broken here", file=sys.stderr)
sys.exit(2)
"""
    assert ranks.launch(body) == 2
    out, err = capfd.readouterr()
    assert out == "a result\n" and "a note\n" in err
    assert "process 1 of 2 failed (exit code 2)" in err and "broken here\n" in err


def test_processes_that_cannot_start_are_told(tmp_path, capfd):
    assert launch([], 2, (), tmp_path, ("-m", "no_such_module")) == 1
    err = capfd.readouterr().err
    assert "of 2 failed (exit code 1)" in err and "No module named no_such_module" in err


def test_a_rank_that_does_not_end_after_its_exit_code(tmp_path, capfd):
    """As one whose threads wait for the others in NCCL: what it has noted counts, also where all others wait for it."""
    script = tmp_path / "hangs.py"
    script.write_text(
        "import os, sys, threading, time\n"
        "from nlpctl.runtime.ranks import note_exit, rank\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "time.sleep(600 * (1 - rank()))\n"
        "print('broken here', file=sys.stderr)\n"
        "sys.exit(note_exit(1))\n"
    )
    assert launch([], 2, (), tmp_path / "logs", (str(script),)) == 1
    err = capfd.readouterr().err
    assert "process 1 of 2 failed (exit code 1)" in err and "broken here" in err


def test_how_many_processes(monkeypatch):
    assert processes_wanted(RuntimeSection()) == 1
    assert processes_wanted(RuntimeSection(nproc=3)) == 3
    assert processes_wanted(RuntimeSection(devices=(0, 2))) == 2
    with pytest.raises(UserError, match="each card gets one process"):
        processes_wanted(RuntimeSection(devices=(0, 1), nproc=3))
    with pytest.raises(UserError, match="list the cards"):
        processes_wanted(RuntimeSection(device="gpu", nproc=2))
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    assert processes_wanted(RuntimeSection(nproc=3)) == 1


def test_a_range_of_ports_that_is_none_is_told_before_anything_is_made_and_to_those_alone_that_meet(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PORT_RANGE", "20000-30000")
    (tmp_path / "train.tsv").write_text("text\tlabel\nx\ta\ny\tb\n")
    recipe = "task: sequence_classification\ndata: {train: train.tsv, dev: train.tsv}\n"
    recipe += "model: {from_scratch: {architecture: textcnn}}\n"
    recipes = {}
    for nproc in (1, 2):
        (tmp_path / "r.yaml").write_text(f"{recipe}runtime: {{nproc: {nproc}}}\n")
        recipes[nproc] = load_recipe(tmp_path / "r.yaml")
    run = RunDirectory(tmp_path / "run")
    assert check_before_reading(recipes[1], run, TrainOptions())[0] == 1
    assert processes_wanted(recipes[2].runtime) == 2  # `nlpctl data show` meets nobody
    with pytest.raises(UserError, match="PORT_RANGE: '20000-30000' is no range of ports"):
        check_before_reading(recipes[2], run, TrainOptions())
    assert not run.path.exists()


DUMP = """
import json, os, pathlib
rank = os.environ["PADDLE_TRAINER_ID"]
pathlib.Path(__file__).with_name(f"{rank}.json").write_text(json.dumps(dict(os.environ)))
"""
# What the launcher sets besides is for its own use, or comes from its imports: Paddle's and OpenCV's.
OWN = {"POD_NAME", "PADDLE_LOG_DIR", "PADDLE_BACKUP_ENV_PATH", "PADDLE_AUTO_CLUSTER", "OMP_NUM_THREADS",
       "LD_LIBRARY_PATH", "CUSTOM_DEVICE_ROOT", "QT_QPA_FONTDIR", "QT_QPA_PLATFORM_PLUGIN_PATH"}  # fmt: skip


@pytest.mark.parametrize("devices, visible, seen", [((), None, None), ((1, 0), "4,7", "7,4"), ((0, 2), None, "0,2")])
def test_ranks_get_the_variables_of_the_launcher_of_paddle(tmp_path, monkeypatch, devices, visible, seen):
    """Where CUDA_VISIBLE_DEVICES names cards, the launcher looks at none of them."""
    if not devices and usable_gpu().count:
        pytest.skip("the launcher would take the cards of this machine")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    script = tmp_path / "dump.py"
    script.write_text(DUMP)
    options = ["--nproc_per_node", "2", "--host", "127.0.0.1", "--log_dir", str(tmp_path / "logs")]
    command = [sys.executable, "-m", "paddle.distributed.launch", *options, str(script)]
    theirs_sees = {} if seen is None else {"CUDA_VISIBLE_DEVICES": seen}
    subprocess.run(command, env=without_launchers(os.environ) | theirs_sees, check=True, capture_output=True)
    ours_sees = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    for rank in (0, 1):
        theirs = json.loads((tmp_path / f"{rank}.json").read_text())
        ours = rank_environment(rank, 2, devices, 25_000, {**os.environ, **ours_sees})
        if devices:
            assert (ours["CUDA_VISIBLE_DEVICES"], ours["FLAGS_selected_gpus"]) == (seen, str(rank))
        else:
            assert ours.pop("CUDA_VISIBLE_DEVICES") == ""  # a GPU build would look at the cards
        assert without_ports(ours) == without_ports(theirs)
        assert len({ours["PADDLE_MASTER"], *ours["PADDLE_TRAINER_ENDPOINTS"].split(",")}) == 3


def without_ports(environ: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environ.items() if name not in OWN and not name.startswith("NLPCTL_")}
    return {name: re.sub(r"127\.0\.0\.1:\d+", "HERE", kept[name]) if name.startswith("PADDLE_") else kept[name]
            for name in kept}  # fmt: skip


def test_variables_of_other_launchers_do_not_reach_the_ranks():
    names = ("PADDLE_BACKUP_ENV_PATH", "PADDLE_TRAINERS_ENDPOINTS", "PADDLE_WITH_GLOO", "FLAGS_selected_gpus")
    ours = rank_environment(0, 2, (), 25_000, {**dict.fromkeys(names, "1"), "http_proxy": "http://127.0.0.1:9"})
    assert not ours.keys() & set(names) and ours["http_proxy"] == "http://127.0.0.1:9"


def test_missing_cards_are_refused_before_anything_starts(tmp_path):
    if usable_gpu().count > 1:
        pytest.skip("this machine has cards")
    with pytest.raises(UserError, match="no usable GPU"):
        launch([], 2, (0, 1), tmp_path / "logs")
    assert not (tmp_path / "logs").exists()
