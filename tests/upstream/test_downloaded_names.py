"""huggingface_hub takes the name of a file in its cache from the hub, unchecked."""

import subprocess
import sys

import pytest
from hugging_face_server import Repository, hugging_face_server

CODE = """
import contextlib, sys
from huggingface_hub import snapshot_download
from nlpctl.upstream.downloaded_names import names_in_the_cache
with names_in_the_cache() if "checked" in sys.argv else contextlib.nullcontext():
    snapshot_download("org/tiny", revision=sys.argv[1])
"""


@pytest.mark.parametrize("checked", [False, True])
def test_an_etag_leads_out_of_the_cache(tmp_path, checked):
    repository = Repository()
    commit = repository.commit({"config.json": b"{}"})
    outside = tmp_path / "outside"
    outside.mkdir()

    def hostile(handler):
        handler.send_response(200)
        for name, value in {"ETag": '"../../../../outside/x"', "X-Repo-Commit": commit, "Content-Length": "2"}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(b"{}")

    repository.answers = {"/resolve/": hostile}
    with hugging_face_server() as hub:
        hub.repositories["org/tiny"] = repository
        words = [sys.executable, "-c", CODE, commit, *(["checked"] if checked else [])]
        env = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
        done = subprocess.run(words, env=env, capture_output=True, text=True)
    if checked:
        assert "its ETag can be no name of a file: '../../../../outside/x'" in done.stderr
        assert not list(outside.iterdir())
    else:
        assert done.returncode == 0, done.stderr
        assert (outside / "x").read_bytes() == b"{}"
