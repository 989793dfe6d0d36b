"""The command lines of every page run in order, as printed, in a folder that is empty at the start.

Only what makes them long is cut: a training takes two steps, and graphs are compared on few rows. A line that needs a
network, a card or files of the reader's says so in the page; it is not run, and a warning repeats its reason.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import pages
import pytest
from command_lines import CommandLines, needs_a_fresh_interpreter

from nlpctl.config.keys import all_keys, find_key
from nlpctl.config.library import shipped_recipes

# Stands in for `nlpctl`: adds what makes a command short, and has it run in a process that finds Paddle imported.
SHIM = """\
#!{python} -IS
import json, os, socket, subprocess, sys
OWN = ("bench", "compress", "doctor", "serve", "ui")  # long, or with processes of their own
words = sys.argv[1:]
def want(flag, value):
    if flag not in words:
        words.extend([flag, value])
whole = bool(os.environ.get("WHOLE"))
trains = words[0] in ("train", "sweep") or words[:2] == ["data", "curve"]
if trains and not whole and not {{"--resume", "--continue", "--overfit-batch"}} & {{*words}}:
    want("--max_steps", "2")
if words[0] in ("export", "bench"):
    want("--rows", "16")
if words[0] == "bench":
    want("--rounds", "1")
if words[0] == "compress":
    want("--batch_sizes", "1")
    if any(name in " ".join(words) for name in ("dynabert", "distill", "qat")):
        want("--max_steps", "2")
own = [{python!r}, "-m", "nlpctl", *words]
if whole or {{"--resume", "--nnodes"}} & {{*words}} or words[0] in OWN or words[:2] == ["runs", "board"]:
    os.execv(own[0], own)
given = sys.stdin.read()
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    asked = {{"words": words, "folder": os.getcwd(), "stdin": given, "env": dict(os.environ)}}
    line.sendall(json.dumps(asked).encode() + b"\\n")
    answer = json.loads(line.makefile("rb").readline())
if answer is None:
    sys.exit(subprocess.run(own, input=given, text=True).returncode)
sys.stdout.write(answer["out"])
sys.stderr.write(answer["err"])
sys.exit(answer["code"] if answer["code"] >= 0 else 128 - answer["code"])
"""
# Each line ends with the folder and the exported variables for the next one.
AFTER = '\nended=$?\n{ pwd; export -p; } > "$STATE"\nexit $ended'


class NotRun(UserWarning):
    """A line that was left out, and what it needs."""


def english(page: str) -> str:
    """The English page that a Chinese one translates."""
    return page.replace("docs/zh-CN/", "docs/").replace(".zh-CN.md", ".md")


def bare(line: pages.Line) -> str:
    """The line without its comment, which is translated."""
    return re.sub(r"\s+#.*", "", line.text)


@pytest.mark.parametrize("page", [page for page in pages.pages() if english(page) != page])
def test_a_translated_page_prints_the_same_commands(page: str) -> None:
    """So they are run once, from the English page. Files that both write may differ in language alone."""
    ours, theirs = pages.lines_of(page), pages.lines_of(english(page))
    assert [bare(line) for line in ours] == [bare(line) for line in theirs]
    assert [line.needs is None for line in ours] == [line.needs is None for line in theirs]


def test_no_page_relies_on_variables_of_the_reader() -> None:
    """A line that is not marked finds its data: no recipe that reads a variable, and no $NAME_DIR."""
    reading = {each.name for each in shipped_recipes() if "${env:" in each.path.read_text(encoding="utf-8")}
    for page in pages.pages():
        for line in pages.lines_of(page):
            words = {word for pipeline in pages.pipelines(line.text) for command in pipeline for word in command}
            named = {word.removeprefix("recipes/").removesuffix(".yaml") for word in words} & reading
            assert line.needs is not None or not (named or "_DIR" in line.text), line.where


@pytest.mark.parametrize("page", pages.pages())
def test_keys_that_a_page_names_exist(page: str) -> None:
    sections = {key.partition(".")[0] for key in all_keys() if "." in key}
    text = (pages.ROOT / page).read_text(encoding="utf-8")
    named = re.findall(rf"`(?:--set )?((?:{'|'.join(sections)})\.\w+(?:\.\w+)*)(?=[`:=])", text)
    files = re.compile(r".*\.(pdmodel|pdiparams|onnx|safetensors|info|py)")
    assert not {name for name in named if find_key(name) is None and not files.fullmatch(name)}


def test_every_recipe_of_a_question_is_in_the_answers() -> None:
    text = (pages.ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    shipped = [recipe.name for recipe in shipped_recipes() if recipe.name.startswith("faq/")]
    assert len(shipped) > 10
    assert not [name for name in shipped if f" {name}" not in text]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in pages.pages() if english(page) == page and pages.lines_of(page)])
def test_the_commands_of_a_page_run_in_order(page: str, tmp_path: Path, with_paddle: CommandLines) -> None:
    shell = Shell(tmp_path, with_paddle)
    try:
        for line in pages.lines_of(page):
            if line.needs is not None:
                warnings.warn(NotRun(f"{line.where} {line.needs}"), stacklevel=1)
                continue
            done = shell.run(line.text)
            assert done.returncode == 0, f"{line.where}: {line.text}\nexit {done.returncode}\n{done.stderr[-1500:]}"
            assert "Traceback" not in done.stderr, line.where
    finally:
        shell.close()
        shell.listening.close()


class Shell:
    """Runs lines one after the other; each starts where the last one ended."""

    def __init__(self, scratch: Path, lines: CommandLines):
        (scratch / "bin").mkdir()
        (scratch / "work").mkdir()
        self.scratch, self.lines, self.servers = scratch, lines, []
        self.listening = socket.socket(socket.AF_UNIX)
        address = tempfile.mktemp(prefix="nlpctl-")  # the path of a socket has at most 107 bytes
        self.listening.bind(address)
        self.listening.listen()
        threading.Thread(target=self.answer, daemon=True).start()
        shim = scratch / "bin" / "nlpctl"
        shim.write_text(SHIM.format(python=sys.executable, address=address))
        shim.chmod(0o755)
        self.state = scratch / "state"
        self.state.write_text(f"{scratch / 'work'}\n")
        search = os.pathsep.join([str(scratch / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
        paths = os.pathsep.join([str(pages.ROOT), os.environ.get("PYTHONPATH", "")])
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
        self.env = {**os.environ, **proxies, "NO_PROXY": "localhost,127.0.0.1", "no_proxy": "localhost,127.0.0.1",
                    "PATH": search, "PYTHONPATH": paths, "STATE": str(self.state)}  # fmt: skip

    def answer(self) -> None:
        """Run what the shim asks for, until the socket closes."""
        while True:
            try:
                line, _ = self.listening.accept()
            except OSError:
                return
            with line:
                asked = json.loads(line.makefile("rb").readline())
                ended = self.lines.run(asked["words"], Path(asked["folder"]), asked["stdin"], asked["env"])
                result = {"code": ended.code, "out": ended.out, "err": ended.err}
                line.sendall(json.dumps(None if needs_a_fresh_interpreter(ended) else result).encode() + b"\n")

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        folder, _, exported = self.state.read_text().partition("\n")
        whole = "1" if "timeout" in text else ""  # what is stopped early has to be there long enough
        text = f"{exported}WHOLE={whole}; export WHOLE\n{text}{AFTER}"
        if re.search(r"nlpctl (serve|ui|runs board)", text):
            return self.serve(text, folder)
        with open(os.devnull) as nothing:
            return subprocess.run(
                ["bash", "-c", text], cwd=folder, env=self.env, stdin=nothing, capture_output=True, text=True
            )

    def serve(self, text: str, folder: str) -> subprocess.CompletedProcess[str]:
        """Start a line that serves, and leave it running until the next one that does, or the end of the page."""
        self.close()
        log = self.scratch / "served"
        with log.open("w") as stream:
            server = subprocess.Popen(["bash", "-c", text], cwd=folder, env=self.env, stdout=stream, stderr=stream,
                                      start_new_session=True)  # fmt: skip
        self.servers.append(server)
        for _ in range(240):
            if re.search(r"https?://", log.read_text()):
                return subprocess.CompletedProcess(text, 0, "", log.read_text())
            try:
                code = server.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
            if code != 0:
                return subprocess.CompletedProcess(text, code, "", log.read_text())
        return subprocess.CompletedProcess(text, 99, "", "it never said where it listens: " + log.read_text())

    def close(self) -> None:
        """End what serves."""
        for server in self.servers:
            try:
                os.killpg(server.pid, signal.SIGINT)
                server.wait(60)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
        self.servers = []
