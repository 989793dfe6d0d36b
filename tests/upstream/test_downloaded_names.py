"""huggingface_hub takes the name of a file in its cache from the hub, unchecked."""

import json
import subprocess
import sys

import pytest
from hugging_face_server import Repository, hugging_face_server, says

CODE = """
import contextlib, sys
from huggingface_hub import snapshot_download
from nlpctl.upstream.downloaded_names import names_in_the_cache
with names_in_the_cache() if "checked" in sys.argv else contextlib.nullcontext():
    snapshot_download("org/tiny", revision=sys.argv[1])
"""


COMMIT = "c" * 40
FILE = {"type": "file", "path": "config.json", "size": 2, "oid": "a" * 40, "xetHash": "a" * 64}


def listed(oid: str):
    return says(json.dumps([FILE | {"lfs": {"oid": oid, "size": 2, "pointerSize": 1}}]).encode())


# A hostile answer of the hub, its refusal, and what is made outside of the cache without one.
OUT = "../../../../outside"
HOSTILE = {
    "an ETag": (
        {"/resolve/": says(b"{}", ETag=f'"{OUT}/x"', X_Repo_Commit=COMMIT)},
        f"its ETag can be no name of a file: '{OUT}/x'",
        "x",
    ),
    "the commit of an absent file": (
        {"/resolve/": says(b"", 404, X_Error_Code="EntryNotFound", X_Repo_Commit=OUT)},
        f"its X-Repo-Commit is no commit: '{OUT}'",
        "config.json",
    ),
    "the checksum of a file in Xet": (
        {"/tree/": listed(f"{OUT}/x")},
        f"its ETag can be no name of a file: '{OUT}/x'",
        "x.lock",
    ),
}


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_it_leads_out_of_the_cache(tmp_path, name, checked):
    answers, refusal, made = HOSTILE[name]
    outside = tmp_path / "outside"
    outside.mkdir()
    with hugging_face_server() as hub:
        hub.repositories["org/tiny"] = Repository(commits={COMMIT: {"config.json": b"{}"}}, answers=answers)
        words = [sys.executable, "-c", CODE, COMMIT, *(["checked"] if checked else [])]
        env = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
        done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert (refusal in done.stderr) == checked, done.stderr
    assert not list(outside.iterdir()) if checked else (outside / made).exists()
