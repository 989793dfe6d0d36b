"""`nlpctl ui`: the runs of a folder in the browser."""

from __future__ import annotations

import html
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import pytest

from nlpctl.errors import UserError

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def get(address: str, host: str | None = None, form: dict[str, str] | None = None) -> tuple[int, str]:
    """Status and page. `form`: what is sent."""
    body = None if form is None else urlencode(form).encode()
    request = urllib.request.Request(address, body, {} if host is None else {"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=60) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture(scope="session")
def runs(work, base) -> Path:
    """A folder of two runs, one that is damaged, and an index. Read only."""
    folder = work / "ui"
    for name in ("first", "second", "damaged"):
        shutil.copytree(base, folder / name)
    (folder / "damaged" / "recipe.yaml").write_text("task: [")
    (folder / "second" / "nested").mkdir()
    return folder


@pytest.fixture(scope="module")  # it is ended with its time limit, which a session outlasts
def address(work, runs):
    process = work.start("ui", runs, "--port", "0")
    yield re.search(r"http://[^ ]+", process.stderr.readline())[0]
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 and err.strip().endswith("stopped") and "Traceback" not in err


def test_a_client_that_leaves_before_its_form_is_whole(address):
    """No traceback on standard error (see `address`), and the next one is answered."""
    where = address.removeprefix("http://").rstrip("/").split(":")
    head = f"POST /run HTTP/1.1\r\nHost: {':'.join(where)}\r\nContent-Length: 100\r\n"
    with socket.create_connection((where[0], int(where[1]))) as connection:
        connection.sendall(f"{head}Content-Type: application/x-www-form-urlencoded\r\n\r\nrun=first".encode())
    assert get(address)[0] == 200


def test_the_list_has_all_runs(address):
    status, page = get(address)
    assert status == 200 and 'href="/run?run=first"' in page and 'value="second"' in page
    assert "damaged: recipe.yaml" in page and "http-equiv" not in page


def test_the_page_of_a_run_is_its_report(address, runs):
    status, page = get(f"{address}/run?run=first")
    assert status == 200 and "<h2>Curves</h2>" in page and "<h2>Manifest</h2>" in page
    assert '<textarea name="text"' in page and not (runs / "first" / "report.html.new").exists()


def test_two_runs_compared(address):
    status, page = get(f"{address}/compare?run=first&run=second")
    assert status == 200 and "dev, the same 40 rows" in page and "+0.0000" in page
    status, page = get(f"{address}/compare?run=first")
    assert status == 400 and "two runs or more" in page


@pytest.mark.parametrize("name", ["gone", "../base", "/etc", "second/nested", ""])
def test_nothing_but_runs_of_the_folder_is_shown(address, name):
    status, page = get(f"{address}/run?{urlencode({'run': name})}")
    assert status == 400 and "there is no run" in page


def test_other_paths_and_hosts_are_refused(address):
    assert get(f"{address}/recipe.yaml")[0] == 404
    assert get(address, host="evil.example")[0] == 400


def test_a_long_text_is_taken(address):
    """The run has no field of this name, so no model is loaded."""
    assert get(f"{address}/run?run=first&other={'x' * 100_000}")[0] == 200


def test_models_do_not_end_each_other(tmp_path, monkeypatch):
    """The three that were tried last stay; one that does not end when it is asked is killed."""
    from nlpctl.ui import ui

    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    started = subprocess.Popen
    monkeypatch.setattr(ui, "_END", 0.5)
    monkeypatch.setattr(ui.subprocess, "Popen", lambda words, **more: started([words[0], "-c", stubborn], **more))
    with ui.TriedModels() as models:
        tried = [models.open(tmp_path / name) for name in "abc"]
        assert models.open(tmp_path / "a") is tried[0]
        time.sleep(0.5)
        models.open(tmp_path / "d")
        assert models.open(tmp_path / "a") is tried[0] and models.open(tmp_path / "c") is tried[2]
        began = time.monotonic()
    assert not any(each.running for each in tried) and time.monotonic() - began < 60


def test_a_model_that_was_replaced_is_started_again(tmp_path, monkeypatch):
    """After --overwrite or a calibration: the page shows its scores, so it must answer, too."""
    from nlpctl.ui import ui

    started, asleep = subprocess.Popen, "import time; time.sleep(60)"
    monkeypatch.setattr(ui.subprocess, "Popen", lambda words, **more: started([words[0], "-c", asleep], **more))
    model = tmp_path / "run" / "model"
    model.mkdir(parents=True)
    for name in ("config.json", "task.json", "vocab.txt", "model_state.pdparams"):
        (model / name).write_text("{}")
    with ui.TriedModels() as models:
        first = models.open(tmp_path / "run")
        assert models.tried(tmp_path / "run") is models.open(tmp_path / "run") is first
        (model / "model_state.pdparams").write_text("other weights")
        assert models.tried(tmp_path / "run") is None
        assert models.open(tmp_path / "run") is not first and models.tried(tmp_path / "run") is not None


def test_a_form_sends_back_what_was_typed():
    """Also characters that the page makes visible elsewhere."""
    from nlpctl.ui.pages import try_section

    typed = "a\nb \U0001f468\u200d\U0001f469 <b>"
    page = "".join(try_section("r\u200dun", ["text"], {"text": typed}).parts)
    assert typed in html.unescape(page) and 'value="r\u200dun"' in page and "<b>" not in page


SERVICE = """
import socket, sys, time
listening = socket.create_server(("127.0.0.1", 0))
time.sleep(0.3)
port = listening.getsockname()[1]
print(f"starting on http://127.0.0.1:{port}; every request gets 503", file=sys.stderr, flush=True)
time.sleep(600)
"""


def test_an_answer_that_takes_too_long_is_told(tmp_path, monkeypatch):
    """The service chooses its port itself and tells it; until then the model is being loaded."""
    from nlpctl.ui import ui

    started, asked = subprocess.Popen, []

    def start(words, **more):
        asked.append(words)
        return started([words[0], "-c", SERVICE], **more)

    monkeypatch.setattr(ui, "_SECONDS", 0.2)
    monkeypatch.setattr(ui.subprocess, "Popen", start)
    with ui.TriedModels() as models:
        model = models.open(tmp_path)
        assert asked[0][-2:] == ["--port", "0"] and model.answer({"text": "x"}) is None
        ends = time.monotonic() + 120
        with pytest.raises(UserError, match="has not answered within 0.2 s"):
            while time.monotonic() < ends:
                assert model.answer({"text": "x"}) is None
        model.terminate()
        model.end(60)
        with pytest.raises(UserError, match="cannot be served: starting on http"):
            model.answer({"text": "x"})


def test_only_a_form_starts_a_model(base, tmp_path):
    """A page that is fetched starts none, neither does a form on another web site."""
    from starlette.testclient import TestClient

    from nlpctl.ui.ui import TriedModels, make_ui

    class Started(TriedModels):
        def open(self, run):
            started.append(run.name)

    shutil.copytree(base, tmp_path / "first")
    started, form = [], {"run": "first", "text": "a clean room"}
    client = TestClient(make_ui(tmp_path, Started(), ["testserver"]))
    page = client.get("/run", params=form)
    assert page.status_code == 200 and ">a clean room</textarea>" in page.text and 'method="post"' in page.text
    long = {**form, "text": "x" * 2_000_000}
    elsewhere = ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://testserver.example"}, {"Origin": "null"})
    for sent, headers in (*((form, each) for each in elsewhere), (long, {})):
        assert client.post("/run", data=sent, headers=headers).status_code == 400
    assert not started and client.post("/run", data={"run": "first"}).status_code == 200 and not started
    own = {"Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"}
    led = client.post("/run", data=form, headers=own, follow_redirects=False)
    assert led.status_code == 303 and led.headers["location"] == f"/run?{urlencode(form)}" and started == ["first"]


def test_hosts_are_as_a_request_has_them():
    from nlpctl.ui.ui import hosts_of

    assert hosts_of("fd00::5")[0] == "[fd00::5]" and hosts_of("box")[0] == "box" and hosts_of("::") == ["*"]


def test_a_model_is_tried(address):
    """It is loaded at the first text, and the page asks again until it answers."""
    asked = f"{address}/run?{urlencode({'run': 'first', 'text': 'a very clean room'})}"
    ends = time.monotonic() + 240
    assert "The model is being loaded" in get(f"{address}/run", form={"run": "first", "text": "a very clean room"})[1]
    while (page := get(asked)[1]) and "The model is being loaded" in page and time.monotonic() < ends:
        assert 'http-equiv="refresh"' in page
        time.sleep(0.5)
    answer = html.unescape(page.partition("<h2>Answer</h2><pre>")[2].partition("</pre>")[0])
    assert '"text": "a very clean room"' in answer and '"label": "pos"' in answer and "http-equiv" not in page


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, which this machine lacks")
def test_a_browser_shows_the_pages(address):
    words = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    for path, told in (("", "compare the marked runs"), ("/run?run=first", "Worst errors")):
        done = subprocess.run([*words, f"{address}{path}"], capture_output=True, text=True, timeout=120)
        assert told in done.stdout, done.stderr[-2000:]


def test_the_page_of_a_running_run_renews_itself(work, base, tmp_path):
    """A run whose process is alive: that of this test."""
    import json
    import os

    from starlette.testclient import TestClient

    from nlpctl.ui.ui import TriedModels, make_ui

    run = shutil.copytree(base, tmp_path / "going")
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "state": "running", "ended": None, "pid": os.getpid()}))
    shutil.rmtree(run / "model")
    with TriedModels() as models:
        client = TestClient(make_ui(tmp_path, models, ["testserver"]))
        assert 'http-equiv="refresh"' in client.get("/").text
        page = client.get("/run", params={"run": "going"}).text
        assert 'http-equiv="refresh"' in page and "There is no model yet" in page


def test_refused_early(work, runs):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = work.nlpctl("ui", runs, "--port", str(taken.getsockname()[1]))
    assert ended.returncode == 2 and "--port: cannot listen" in ended.stderr
    assert "there is no such folder" in work.nlpctl("ui", work / "gone").stderr
