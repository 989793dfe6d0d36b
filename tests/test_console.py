"""Results go to stdout, all else to stderr; a terminal gets a drawing, a pipe plain lines."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from terminal import screen

from nlpctl import console
from nlpctl.errors import Problem, UserError
from nlpctl.report.model import Table
from nlpctl.report.text import show_table


def test_streams_are_kept_apart(capsys):
    console.result("positive")
    console.note("reading")
    console.warn("careful")
    console.error(UserError("wrong", "a.yaml:3", "fix it"))
    out, err = capsys.readouterr()
    assert out == "positive\n"
    assert err == "reading\nwarning: careful\nerror: a.yaml:3: wrong\n  -> fix it\n"


def test_every_problem_of_an_error_is_shown(capsys):
    console.error(UserError(problems=[Problem("one"), Problem("two")]))
    assert capsys.readouterr().err == "error: one\nerror: two\n"


def test_a_thousand_problems_are_counted(capsys):
    """And the same one is told once."""
    problems = [Problem(f"bad entry {i // 2}", where="a.yaml:1", hint="delete it") for i in range(2000)]
    console.error(UserError(problems=problems))
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 12 and told[-2:] == ["  -> delete it", "and 990 more problems"]


def test_a_service_goes_on_when_nobody_reads_its_messages(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "stderr", open(writer, "w", encoding="utf-8"))
    with pytest.raises(BrokenPipeError):
        console.note("read by nobody")
    with console.unread_dropped():
        console.warn("read by nobody")
        console.note("neither")
    sys.stderr.close()


def test_other_ranks_stay_quiet_but_warn(capsys, monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    console.result("x")
    show_table(Table(["a"], [[1]], "t"))
    console.note("x")
    with console.progress(10, "read") as bar:
        bar.advance(10)
    console.warn("seen")
    assert capsys.readouterr() == ("", "warning: seen\n")


def test_progress_in_a_log_writes_a_line_every_ten_seconds():
    now = [0.0]
    stream = io.StringIO()
    bar = console.Progress("predict", 400, "rows", console.LineSink(stream), clock=lambda: now[0])
    for second in range(1, 21):
        now[0] = second
        bar.advance(10)
    bar.finish()
    assert stream.getvalue().splitlines() == [
        "predict: 100/400 rows (25%), 10.0 rows/s, 0m30s left",
        "predict: 200/400 rows (50%), 10.0 rows/s, 0m20s left",
        "predict: 200 rows in 20.0 s, 10.0 rows/s",
    ]


def test_the_time_left_goes_by_the_last_half():
    """The first piece, which prepares the others, and what was slower long ago say nothing."""
    now = [0.0]
    bar = console.Progress("predict", 1000, "rows", console.ProgressSink(), clock=lambda: now[0])
    now[0] = 50.0
    bar.advance(10)
    assert bar.left() == pytest.approx(50.0 / 10 * 990)
    for done in range(20, 501, 10):  # at constant speed exact, from the second on
        now[0] += 1.0
        bar.advance(10)
        assert bar.left() == pytest.approx((1000 - done) / 10)
    for _ in range(60):  # half as fast, for more than as long as before
        now[0] += 1.0
        bar.advance(5)
    assert bar.left() == pytest.approx((1000 - bar.done) / 5)


def test_what_takes_longer_is_worth_more():
    """The longest rows come first: a bar counts the rows, and the time left goes by what they take."""
    now = [0.0]
    bar = console.Progress("score", 40, "rows", console.ProgressSink(), clock=lambda: now[0])
    for seconds in (32.0, 24.0, 16.0, 8.0):
        now[0] += seconds
        bar.advance(10, worth=seconds / 2)
        assert bar.left() == pytest.approx(80.0 - now[0])
    assert bar.done == bar.worth == 40


def test_progress_in_a_log_without_total():
    now = [0.0]
    stream = io.StringIO()
    bar = console.Progress("read", None, "rows", console.LineSink(stream), clock=lambda: now[0])
    now[0] = 10.0
    bar.advance(50)
    assert stream.getvalue() == "read: 50 rows, 5.0 rows/s\n"


def test_one_row_has_no_plural():
    stream = io.StringIO()
    bar = console.Progress("predict", None, "rows", console.LineSink(stream))
    bar.advance()
    bar.finish()
    assert stream.getvalue().startswith("predict: 1 row in ")


def test_one_of_one_has_no_plural():
    now = [0.0]
    stream = io.StringIO()
    bar = console.Progress("compare", 1, "engines", console.LineSink(stream), clock=lambda: now[0])
    now[0] = 10.0
    bar.advance()
    assert stream.getvalue() == "compare: 1/1 engine (100%), 0.1 engines/s\n"


def test_a_failure_inside_progress_passes_through(capsys):
    with pytest.raises(ValueError), console.progress(1, "read"):
        raise ValueError
    assert "read" not in capsys.readouterr().err  # no closing line that claims success


TERMINAL_SCRIPT = """
from nlpctl import console
from nlpctl.errors import Problem
from nlpctl.report.model import Table
from nlpctl.report.text import show_table
console.set_up_streams()
show_table(Table(["label"], [["[red]good"]], "scores [x]"))
with console.progress(3, "read") as bar:
    for _ in range(3):
        bar.advance()
console.error(Problem("broken"))
"""


def on_terminal(script: str, columns: int = 80, code: int = 0, locale: str = "C.UTF-8") -> str:
    """What a terminal gets of a script in Python, which ends with `code`."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {**os.environ, "TERM": "xterm", "LC_ALL": locale, "PYTHONUTF8": "1"}
    child = subprocess.Popen([sys.executable, "-c", script], stdout=terminal, stderr=terminal, env=env)
    os.close(terminal)
    shown = b""
    while True:
        try:
            block = os.read(controller, 65536)
        except OSError:  # Linux says EIO once the other side is closed
            break
        if not block:
            break
        shown += block
    os.close(controller)
    assert child.wait() == code
    return shown.decode()


def test_terminal_draws_and_takes_brackets_literally():
    text = on_terminal(TERMINAL_SCRIPT)
    assert "[red]good" in text and "scores [x]" in text and "━" in text and "3/3" in text
    assert "\033[31merror:\033[0m broken" in text


@pytest.mark.parametrize("locale", ["zh_CN.UTF-8", "ja_JP.UTF-8", "ko_KR.UTF-8"])
def test_a_bar_has_signs_of_one_column_where_others_may_take_two(locale):
    drawn = re.findall(r"\rread ([^ ]+) [123]/3", on_terminal(TERMINAL_SCRIPT, locale=locale))
    assert drawn and all(re.fullmatch("=*-*", bar) for bar in drawn)


def test_a_program_of_the_users_gets_lines():
    """What it prints would land in a bar."""
    text = on_terminal("""
from nlpctl import console
with console.progress(3, "read") as bar:
    bar.advance(1)
    print("printed")
    bar.report(2, "step 2")
""")
    lines = text.splitlines()
    assert lines[:2] == ["printed", "step 2"] and lines[2].startswith("read: 2 rows in ") and len(lines) == 3


def test_a_forked_process_writes_while_another_thread_did():
    code = """
import os, threading
from nlpctl import console
held, ended = threading.Event(), threading.Event()
def writer():
    with console._bar.taken_off():
        held.set()
        ended.wait()
thread = threading.Thread(target=writer)
thread.start()
held.wait()
child = os.fork()
if not child:
    console.note("from the child")
    os._exit(0)
_, status = os.waitpid(child, 0)
ended.set()
thread.join()
raise SystemExit(status)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "from the child")


WRITERS = """
import logging, sys, time, warnings
from nlpctl import console
console.set_up_streams()
logger = logging.getLogger("library")
logger.addHandler(logging.StreamHandler())  # made before there is a bar, it keeps the stream
warnings.formatwarning = lambda message, *others, **more: f"{message}\\n"
LONG = "".join(f"word{i} " for i in range(30))
with console.progress(40, "train", "steps", left=lambda done: 90.0, lines=False) as bar:
    bar.advance(10, "loss 0.4312  210.5 samples/s")
    console.note(f"note {LONG}")
    bar.advance(0)
    warnings.warn(f"python {LONG}")
    bar.advance(0)
    logger.error(f"logged {LONG}")
    bar.advance(0)
    print("printed in ", end="", file=sys.stderr)
    bar.advance(0)
    print("two parts", file=sys.stderr)
    bar.advance(0)
    console.result(f"result {LONG}")
    with console.progress(8, "dev", lines=False) as part:
        part.advance(2)
        console.warn("in a part")
    END
"""


@pytest.mark.parametrize("columns", [40, 120])
@pytest.mark.parametrize(
    ("end", "code", "last"),
    [("bar.advance(30)", 0, []), ("console.error('broken'); sys.exit(1)", 1, ["error: broken"])],
)
def test_what_is_written_stands_whole_above_a_bar(columns, end, code, last):
    """Also where the terminal breaks a long line; and nothing is left of the bar."""
    text = on_terminal(WRITERS.replace("END", end), columns, code)
    assert "━" in text and "10/40" in text and "1m30s left" in text and "dev" in text and "2/8" in text
    assert ("loss 0.4312" in text and "0m90s" not in text) or columns == 40
    long = "".join(f"word{i} " for i in range(30))
    written = [f"{kind} {long}" for kind in ("note", "python", "logged")]
    written += ["printed in two parts", f"result {long}", "warning: in a part", *last]
    assert [line for line in screen(text) if line] == [line.rstrip() for line in written]


def test_a_bar_goes_on_when_nothing_was_written():
    script = """
import sys
from nlpctl import console
console.set_up_streams()
with console.progress(40, "train", "steps", lines=False) as bar:
    sys.stderr.write("")
    bar.advance(10)
"""
    assert "10/40" in on_terminal(script)


def test_a_bar_fits_into_its_line_and_ends_with_ctrl_c():
    script = """
import os, signal, time
from nlpctl import console
console.set_up_streams()
try:
    with console.progress(40, "sweep", "trials", left=lambda done: 3700.0) as whole:
        with console.progress(1000, "训练" * 9, "steps", left=lambda done: 59.0) as bar:
            for _ in range(500):
                bar.advance(1, "epoch 1.00  loss 0.4312")
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
except KeyboardInterrupt:
    console.error(console.Problem("interrupted"))
"""
    for columns in (30, 60, 200):
        text = on_terminal(script, columns)
        drawn = re.findall(r"\r([^\r\n]+)\033\[K", text)
        assert drawn and all(console.display_width(line) < columns for line in drawn), drawn
        assert [line for line in screen(text) if line] == ["error: interrupted"]
    assert "0m59s left (sweep: 1h01m)" in text and "loss 0.4312" in text


def test_the_time_of_a_bar_goes_on_while_nothing_advances():
    """Also that of a part; and nothing is drawn after the end."""
    script = """
import time
from nlpctl import console
console.set_up_streams()
with console.progress(40, "train", "steps", left=lambda done: 90.0, lines=False) as bar:
    bar.advance(3)
    console.note("a note")
    time.sleep(2.6)
    with console.progress(8, "dev", lines=False) as part:
        time.sleep(2.6)
time.sleep(1.2)
print("the end")
"""
    text = on_terminal(script)
    assert re.search(r"3/40 in 0m01s  1m2[89]s left|3/40 in 0m02s  1m2[78]s left", text)
    assert re.search(r"0/8 in 0m0[12]s", text)
    assert [line for line in screen(text) if line] == ["a note", "the end"]


def test_a_terminal_that_knows_no_codes_gets_lines():
    text = on_terminal("import os; os.environ['TERM'] = 'dumb'" + TERMINAL_SCRIPT)
    assert "\r" not in text.replace("\r\n", "") and "read: 3 rows in" in text


def test_importing_the_console_does_not_import_rich():
    code = "import sys, nlpctl.report.text; print([m for m in ('rich', 'paddle', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_chinese_results_survive_an_ascii_locale():
    code = "from nlpctl import console; console.set_up_streams(); console.result('好'); console.note('坏')"
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, check=True)
    assert (done.stdout, done.stderr) == ("好\n".encode(), "坏\n".encode())


HOSTILE = "\x1b[2J\x1b]0;title\x07 \x9b31m \r \u202eexe"
SHOWN = r"\x1b[2J\x1b]0;title\x07 \u009b31m \x0d \u202eexe"


def test_what_a_terminal_would_obey_is_written_out(capsys):
    console.note(f"a {HOSTILE}\n\tb")
    console.warn(HOSTILE)
    console.error(UserError(HOSTILE, f"{HOSTILE}.tsv:3", HOSTILE))
    show_table(Table(["text"], [[HOSTILE]], HOSTILE))
    out, err = capsys.readouterr()
    assert err == f"a {SHOWN}\n\tb\nwarning: {SHOWN}\nerror: {SHOWN}.tsv:3: {SHOWN}\n  -> {SHOWN}\n"
    assert out.splitlines()[-1] == SHOWN


def test_a_program_gets_results_as_they_are(capsys, monkeypatch):
    console.result(HOSTILE)
    assert capsys.readouterr().out == f"{HOSTILE}\n"
    monkeypatch.setenv(console.PROGRESS, "json")
    console.note(HOSTILE)
    assert json.loads(capsys.readouterr().err)["message"] == HOSTILE


def test_results_and_tables_on_a_terminal_give_no_orders():
    code = f"""
from nlpctl import console
from nlpctl.report.model import Table
from nlpctl.report.text import show_table
console.set_up_streams()
console.result({HOSTILE!r})
show_table(Table([{HOSTILE!r}], [[{HOSTILE!r}]], {HOSTILE!r}))
with console.progress(1, {HOSTILE!r}) as bar: bar.advance()
"""
    text = on_terminal(code)
    assert SHOWN in text and "\x1b[2J" not in text and "\x1b]0" not in text
    assert not {"\x9b", "\u202e", "\x07"} & {*text}


def test_a_process_that_shares_the_terminal_writes_above_the_bar():
    """As one of compress, which exports or trains while its parent shows a bar."""
    child = """
import sys, time
from nlpctl import console
console.share_terminal()
with console.progress(3, "compare") as bar:
    time.sleep(1.2)
    bar.advance(3)
console.warn("of the child")
"""
    script = f"""
import subprocess, sys
from nlpctl import console
console.set_up_streams()
with console.progress(2, "compress", "steps", lines=False) as bar:
    bar.advance(1)
    subprocess.run([sys.executable, "-c", {child!r}], check=True)
"""
    lines = [line for line in screen(on_terminal(script)) if line]
    assert lines[0].startswith("compare: 3 rows in ") and lines[1:] == ["warning: of the child"]
    for command in (child, script):  # a log gets no signs for a terminal
        logged = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stderr
        assert "warning: of the child" in logged and "\033" not in logged
