"""The index of texts: exact answers, folders that are damaged, and faiss beside Paddle."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest

from nlpctl.errors import UserError
from nlpctl.inference import index as index_build
from nlpctl.inference.index import IndexBuild, TextIndex, new_index, save_index
from nlpctl.inference.index_folder import IndexManifest, check_model, model_files, read_manifest, write_manifest

TEXTS = [f"text {i}\nwith a second line" for i in range(300)]


@pytest.fixture
def vectors():
    made = np.random.default_rng(3).normal(size=(300, 16)).astype("float32")
    return made / np.linalg.norm(made, axis=1, keepdims=True)


@pytest.fixture
def folder(tmp_path, vectors):
    """A function that writes an index."""

    def write(kind="flat"):
        index = new_index(kind, 16)
        index.add(vectors)
        save_index(index, tmp_path)
        (tmp_path / "texts.jsonl").write_text("".join(json.dumps(text) + "\n" for text in TEXTS))
        write_manifest(tmp_path, IndexManifest(kind, 300, 16, "some-hub-name", {}))
        return tmp_path

    return write


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
@pytest.mark.parametrize("different", [1, 7, 250, 10_000])
def test_an_index_made_on_disk_is_that_of_faiss(tmp_path, monkeypatch, kind, different):
    """Repeated texts, within a portion and across, leave; the rest is added in the same portions."""
    monkeypatch.setattr(index_build, "BLOCK", 33)
    chance, expected, seen, texts = np.random.default_rng(5), new_index(kind, 16), set(), []
    with IndexBuild(tmp_path, kind) as build:
        for size in (64, 0, 64, 1, 71):
            portion = [f"text {i}\n é" for i in chance.integers(0, different, size)]
            made = chance.normal(size=(size, 16)).astype("float32")
            build.add(portion, made)
            new = [i for i, text in enumerate(portion) if text not in seen and not seen.add(text)]
            texts += [portion[i] for i in new]
            expected.add(made[new])
        assert build.finish() == len(texts)
    faiss.write_index(expected, str(tmp_path / "expected"))
    assert (tmp_path / "index.faiss").read_bytes() == (tmp_path / "expected").read_bytes()
    assert [json.loads(line) for line in (tmp_path / "texts.jsonl").read_text().splitlines()] == texts
    assert {path.name for path in tmp_path.iterdir()} == {"index.faiss", "texts.jsonl", "expected"}


def test_memory_does_not_grow_with_the_texts(tmp_path):
    """Four times as many cost a byte each, and not their vectors, of 1 kB."""
    script = (
        "import sys, resource, numpy as np; from pathlib import Path\n"
        "from nlpctl.inference.index import IndexBuild\n"
        "with IndexBuild(Path(sys.argv[1]), 'flat') as build:\n"
        "  for start in range(0, int(sys.argv[2]), 2048):\n"
        "    build.add([f'text {i % 15000}' for i in range(start, start + 2048)], np.zeros((2048, 256), np.float32))\n"
        "  build.finish()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peaks = []
    for count in (20_000, 80_000):
        (folder := tmp_path / str(count)).mkdir()
        words = [sys.executable, "-c", script, folder, str(count)]
        root = Path(__file__).resolve().parents[2]
        peaks.append(int(subprocess.run(words, check=True, capture_output=True, cwd=root).stdout) >> 10)
    assert peaks[1] - peaks[0] < 20, peaks  # MB; the vectors take 60


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_the_nearest_texts_are_found(folder, vectors, kind):
    place = folder(kind)
    found = TextIndex(place, read_manifest(place)).search(vectors[:50], 5)
    right = 0
    for i, hits in enumerate(found):
        assert [hit["rank"] for hit in hits] == [1, 2, 3, 4, 5]
        assert hits[0] == {"text": TEXTS[i], "score": pytest.approx(1.0, abs=1e-5), "rank": 1}
        best = np.sort(vectors @ vectors[i])[::-1][:5]
        right += np.allclose([hit["score"] for hit in hits], best, atol=1e-5)
    assert right == 50 if kind == "flat" else right >= 48  # hnsw is approximate


def test_no_more_hits_than_texts(folder, vectors):
    place = folder()
    ((*hits,),) = TextIndex(place, read_manifest(place)).search(vectors[:1], 1000)
    assert len(hits) == 300 and len({hit["text"] for hit in hits}) == 300


def test_a_folder_that_is_no_index(tmp_path):
    with pytest.raises(UserError, match="not an index"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("manifest.json", '{"format": 2}', "reads format 1"),
        ("manifest.json", '{"format": 1, "kind": "flat"}', "incomplete or damaged"),
        (
            "manifest.json",
            '{"format": 1, "kind": "flat", "texts": 300, "dim": 16, "model": "m", "model_files": null}',
            "incomplete or damaged",
        ),
        ("manifest.json", "{", "not valid JSON"),
        ("index.faiss", "x", "cannot be read"),
        ("texts.jsonl", '"one"\n', "300 vectors of width 16 and 1 text,"),
        ("texts.jsonl", '"one\n', "cannot be read"),
    ],
)
def test_damage_is_told(folder, file, content, message):
    place = folder()
    (place / file).write_text(content)
    with pytest.raises(UserError, match=message):
        TextIndex(place, read_manifest(place))


def test_a_text_without_end_does_not_take_all_memory(folder):
    place = folder()
    with (place / "texts.jsonl").open("r+b") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(UserError, match="texts.jsonl:301: the line is longer than 16 MiB"):
        TextIndex(place, read_manifest(place))


def test_a_pipe_that_nobody_writes_holds_no_texts(folder):
    place = folder()
    (place / "texts.jsonl").unlink()
    os.mkfifo(place / "texts.jsonl")
    with pytest.raises(UserError, match="it is a pipe or a device"):
        TextIndex(place, read_manifest(place))


def test_a_changed_model_is_refused(folder, paddle_model):
    place = folder()
    model = str(paddle_model)
    manifest = dataclasses.replace(read_manifest(place), model=model, model_files=model_files(model))
    check_model(place, manifest)
    os.utime(paddle_model / "model_state.pdparams", (1, 1))  # copied: other times, same bytes
    check_model(place, manifest)
    (paddle_model / "README.md").write_text("written later, by nlpctl card")
    check_model(place, manifest)
    older = {**manifest.model_files, "README.md": "0" * 64}  # of a version that listed the card, too
    check_model(place, dataclasses.replace(manifest, model_files=older))
    weights = bytearray((paddle_model / "model_state.pdparams").read_bytes())
    weights[-1] ^= 1
    (paddle_model / "model_state.pdparams").write_bytes(weights)
    with pytest.raises(UserError, match="has changed since this index was built: model_state.pdparams"):
        check_model(place, manifest)


@pytest.fixture
def paddle_model(tmp_path) -> Path:
    place = tmp_path / "model"
    place.mkdir()
    for name in ("model_state.pdparams", "vocab.txt"):
        (place / name).write_text(name)
    (place / "config.json").write_text("{}")
    return place


ORDER = """
import nlpctl, numpy as np, sys
def use_faiss():
    import faiss
    vectors = np.random.default_rng(0).normal(size=(2000, 32)).astype("float32")
    index = faiss.IndexHNSWFlat(32, 16, faiss.METRIC_L2)
    index.add(vectors)
    flat = faiss.IndexFlatIP(32)
    flat.add(vectors)
    flat.search(vectors, 5)
    return (index.search(vectors, 1)[1][:, 0] == np.arange(2000)).mean()
def use_paddle():
    import paddle
    layer = paddle.nn.Linear(256, 256)
    loss = layer(paddle.ones([512, 256])).mean()
    loss.backward()
    return float(layer.weight.grad.sum())
for step in sys.argv[1]:
    print({"f": use_faiss, "p": use_paddle}[step]())
"""


@pytest.mark.parametrize("order", ["fpf", "pfp"])
def test_faiss_and_paddle_live_in_one_process_in_either_order(order):
    """Two OpenMP runtimes, libgomp and libiomp5, with more than one thread each."""
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", ORDER, order],
        env={**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split()
    found = [float(value) for step, value in zip(order, printed, strict=True) if step == "f"]
    gradients = [float(value) for step, value in zip(order, printed, strict=True) if step == "p"]
    assert min(found) > 0.99 and all(abs(value - 256) < 1e-2 for value in gradients)
