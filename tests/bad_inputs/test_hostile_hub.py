"""A hub that is hostile, or a portal in its place: whatever it answers ends in a message, or in a folder of the cache.

huggingface_hub reads HF_ENDPOINT once, so all models are asked for in one process of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hugging_face_server import Answer, Hub, Repository, files_of, git_sum, hugging_face_server, says

TINY = files_of(Path(__file__).parent.parent / "models" / "huggingface" / "bert-classifier")
del TINY["expected.json"]
COMMIT = hashlib.sha1(b"tiny").hexdigest()
HTML = b"<!doctype html><title>Sign in to this network</title>"
ASK = """
import json, sys, traceback
from nlpctl.errors import UserError
from nlpctl.models.source import resolve_source
for name in sys.argv[1:]:
    try:
        print(json.dumps([str(resolve_source(name).folder)]), flush=True)
    except UserError as error:
        print(json.dumps(str(error)), flush=True)
    except BaseException:
        print(json.dumps(traceback.format_exc()), flush=True)
"""

def info(**values: Any) -> Answer:
    """What the hub says of a repository, with other values."""
    siblings = [{"rfilename": name} for name in TINY]
    return says(json.dumps({"id": "a/b", "modelId": "a/b", "sha": COMMIT, "siblings": siblings} | values).encode())


def tree(*entries: Any, **headers: str) -> Answer:
    right = [{"type": "file", "path": name, "size": len(file), "oid": git_sum(file)} for name, file in TINY.items()]
    return says(json.dumps([*right, *entries]).encode(), **headers)


def file(name: str = "config.json", **headers: str) -> Mapping[str, Answer]:
    content = TINY[name]
    return {f"/{name}": says(content, **{"X_Repo_Commit": COMMIT, "ETag": f'"{git_sum(content)}"', **headers})}


def absent(commit: str) -> Mapping[str, Answer]:
    return {"/config.json": says(b"", 404, X_Error_Code="EntryNotFound", X_Error_Message="x", X_Repo_Commit=commit)}


def in_xet(oid: Any, size: Any = 1) -> Answer:
    """A listing by which config.json is kept in Xet, under the checksum `oid`: no headers are asked for it."""
    lfs = {"oid": oid, "size": size, "pointerSize": 1}
    return tree({"type": "file", "path": "config.json", "size": 1, "oid": "a" * 40, "xetHash": "a" * 64, "lfs": lfs})


def redirected(place: str) -> Mapping[str, Answer]:
    return {"/config.json": says(b"", 302, Location=place, X_Repo_Commit=COMMIT, ETag='"x"')}


def models(outside: Path) -> dict[str, Mapping[str, Answer]]:
    """Each hostile repository, and what it does in place of the right answers. `outside`: no file may come there."""
    up = "../" * 20 + str(outside).lstrip("/")
    revision, listing = "/api/models/[^/]+/[^/]+$", "/tree/"
    return {
        "portal": {"/": says(HTML, Content_Type="text/html")},
        "portal-of-files": {"/resolve/": says(HTML, Content_Type="text/html")},
        "html-listing": {listing: says(HTML)},
        "deep": {revision: says(b"[" * 100_000)},
        "a-list": {revision: says(b"[1, 2]")},
        **{f"sha-{n}": {revision: info(sha=sha)} for n, sha in enumerate(
            [up, f"{up}/x", "a/b", "..", "", None, 7, ["x"], "main", "A" * 40, "0" * 39, "\0", "x" * 5000]
        )},
        **{f"siblings-{n}": {revision: info(siblings=siblings)} for n, siblings in enumerate(
            [None, {}, [], 7, [7], ["config.json"], [{}], [{"rfilename": None}], [{"rfilename": 7}],
             [{"rfilename": f"{up}/model.safetensors"}, {"rfilename": "/model.safetensors"}],
             [{"rfilename": "model.safetensors"}, {"rfilename": f"1_x/../../{up}/config.json"}],
             [{"rfilename": f"{n}_x/config.json"} for n in range(50_000)] + [{"rfilename": "model.safetensors"}]]
        )},
        **{f"tree-{n}": {listing: answer} for n, answer in enumerate(
            [tree({"type": "file", "path": f"{up}/config.json", "size": 1, "oid": "x"}), tree({"type": "file"}),
             tree(7), tree({"type": "file", "path": None, "size": None, "oid": None}), says(b"{}"), says(b"7"),
             tree({"type": "file", "path": "model.safetensors", "size": 10**30, "oid": "../x"})]
        )},
        "next-page-of-files": {listing: tree(Link='<file:///etc/passwd>; rel="next"')},
        **{f"etag-{n}": file(ETag=etag) for n, etag in enumerate([f'"{up}/blob"', '".."', '""', "", "e" * 300])},
        **{f"commit-{n}": file(X_Repo_Commit=commit) for n, commit in enumerate([up, "..", "a/b", ""])},
        **{f"absent-{n}": absent(commit) for n, commit in enumerate([up, "../../refs/evil", "..", "a/b", "", COMMIT])},
        **{f"xet-{n}": {listing: in_xet(oid)} for n, oid in enumerate(
            [f"{up}/blob", f"{up}/secret", "..", "a/b", "", "\0", None, 7, ["x"], "e" * 300]
        )},
        **{f"xet-size-{n}": {listing: in_xet("e" * 64, size)} for n, size in enumerate([None, "x", -1, 10**30, [1]])},
        **{f"xet-hash-{n}": file(X_Xet_Hash=of, X_Xet_Refresh_Route="/x") for n, of in enumerate([up, "", "a" * 64])},
        **{f"size-{n}": file(Content_Length=size) for n, size in enumerate(["0", "3", "999999", "-1", "x", "9" * 30])},
        **{f"linked-{n}": file(X_Linked_Size=size) for n, size in enumerate(["0", "3", "-1", "x", "9" * 30])},
        **{f"redirect-{n}": redirected(place) for n, place in enumerate(
            ["file:///etc/passwd", "/absent", "//", "http://", "data:text/plain,x", "\\\\x", "gopher://x"]
        )},
    }  # fmt: skip


def asked(names: Iterable[str], hub: Hub, home: Path, here: Path, **env: str) -> dict[str, Any]:
    """What a process that is asked for the models `org/NAME` tells of each: its folder in a list, or a message."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    kept |= {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), **env}
    words = [sys.executable, "-c", ASK, *(f"hf:org/{name}" for name in names)]
    done = subprocess.run(words, capture_output=True, text=True, env=kept, cwd=here, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(names, map(json.loads, done.stdout.splitlines()), strict=True))


def test_whatever_a_hub_answers(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    outside.mkdir()
    hostile = models(outside)
    with hugging_face_server() as hub:
        for name, answers in {**hostile, "right": {}}.items():
            repository = hub.repositories[f"org/{name}"] = Repository(answers=answers)
            repository.commits[COMMIT], repository.refs["main"] = TINY, COMMIT
        # Some answers break off, and nobody waits long for them; the right one may take its time.
        answers = asked(hostile, hub, home, outside, HF_HUB_DOWNLOAD_TIMEOUT="2")
        right = asked(["right"], hub, home, outside)["right"]
    assert not list(outside.iterdir()) and {each.name for each in tmp_path.iterdir()} == {"home", "outside"}
    wrong = {}
    for name, told in {**answers, "right": right}.items():
        if isinstance(told, list):
            folder = Path(told[0])
            if not folder.resolve().is_relative_to(home / "hub" / f"models--org--{name}" / "snapshots"):
                wrong[name] = f"a folder elsewhere: {folder}"
        elif not told.startswith((f"hf:org/{name}: ", f"{home}/hub/models--org--{name}/")) or "\n  -> " not in told:
            wrong[name] = told[-1500:]
    assert isinstance(right, list), right
    assert not wrong, "\n".join(f"{name}: {told}" for name, told in wrong.items())
    for repository in (home / "hub").glob("models--*"):  # and inside of it only where the cache has such names
        absent = [each.name for each in (repository / ".no_exist").glob("*")]
        assert set(absent) <= {COMMIT} and not (repository / "refs" / "evil").exists(), (repository, absent)
