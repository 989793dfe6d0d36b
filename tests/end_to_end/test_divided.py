"""`nlpctl predict --workers`: the answers of one process, whatever is killed on the way."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet
import pytest

from nlpctl.inference.parquet_parts import common_schema, schema_of, write_part

SKIP = ("--set", "data.on_bad_row=skip")


def read_part(path):
    """The answers of a part, as a reader has them: some columns are JSON texts, which their metadata tells."""
    table = pyarrow.parquet.read_table(path)
    coded = [field.name for field in table.schema if (field.metadata or {}).get(b"nlpctl") == b"JSON"]
    rows = table.to_pylist()
    return [row | {name: None if row[name] is None else json.loads(row[name]) for name in coded} for row in rows]


@pytest.fixture(scope="session")
def export(work, base) -> Path:
    done = work.nlpctl("export", base, "-o", "divided/export", "--format", "onnx", "--precision", "fp32")
    assert done.returncode == 0, done.stderr
    return work / "divided/export"


def write_rows(folder: Path, count: int, seed: int, bad_every: int) -> list[str]:
    """Three files, one of them packed: `count` rows of many lengths in all, bad ones and blank lines among them."""
    chance = random.Random(seed)
    words = "the room bed was staff view food very a and good bad clean dirty 好吃".split()
    names, files = ["a.jsonl", "b.csv", "c.txt.gz"], [[], ["number,text"], []]
    for i in range(count):
        text = " ".join(chance.choices(words, k=chance.randint(1, 14)))
        bad = i % bad_every == 7
        which = min(2, i * 3 // count)
        if which == 0:
            files[0].append("{broken" if bad else json.dumps({"id": i, "text": text}))
        elif which == 1:
            files[1].append(f"{i}" if bad else f'{i},"{text}\nand ""more"" text"' if i % 5 == 0 else f"{i},{text}")
        else:
            files[2].append("" if bad else text)
    folder.mkdir(parents=True)
    for name, lines in zip(names, files, strict=True):
        raw = "".join(f"{line}\n" for line in lines).encode()
        (folder / name).write_bytes(gzip.compress(raw, 1) if name.endswith(".gz") else raw)
    return [f"{folder.name}/{name}" for name in names]


@pytest.fixture(scope="session")
def rows(work) -> list[str]:
    return [f"divided/{name}" for name in write_rows(work / "divided/rows", 3000, 1, 100)]


def words(files: list[str], output: str, *more: str) -> tuple[str, ...]:
    """Batches of 2, so chunks of 64 rows, of which a shard has one."""
    return "predict", "divided/export", *files, "-o", output, "--batch-size", "2", *SKIP, *more


@pytest.fixture(scope="session")
def whole(work, export, rows) -> bytes:
    """What one process writes."""
    done = work.nlpctl(*words(rows, "divided/whole.jsonl"))
    assert done.returncode == 0 and "3,000 rows (20 bad)" in done.stderr, done.stderr
    return (work / "divided/whole.jsonl").read_bytes()


def test_the_answers_are_those_of_one_process(work, rows, whole):
    done = work.nlpctl(*words(rows, "divided/two.jsonl", "--workers", "2", "--json"))
    assert done.returncode == 0, done.stderr
    assert (work / "divided/two.jsonl").read_bytes() == whole and whole.count(b'"error"') == 20
    result = json.loads(done.stdout)["result"]
    assert (result["rows"], result["bad_rows"], result["shards"]) == (3000, 20, 47)
    assert sum(each["rows"] for each in result["workers"]) == 3000
    assert not list((work / "divided").glob("*.shards"))


def test_a_folder_of_parts(work, rows, whole):
    out = work / "divided/parts"
    done = work.nlpctl(*words(["divided/rows/[ab].*", rows[2]], "divided/parts", "--parts", "jsonl"))
    assert done.returncode == 0, done.stderr
    manifest = json.loads((out / "manifest.json").read_text())
    assert b"".join((out / part["file"]).read_bytes() for part in manifest["parts"]) == whole
    assert [sha256((out / part["file"]).read_bytes()).hexdigest() == part["sha256"] for part in manifest["parts"]]
    assert (manifest["rows"], manifest["bad_rows"]) == (3000, 20)
    assert len(list(out.iterdir())) == len(manifest["parts"]) + 1
    done = work.nlpctl(*words(rows, "divided/parts", "--parts", "jsonl"))
    assert done.returncode == 2 and "--overwrite" in done.stderr
    done = work.nlpctl(*words(rows, "divided/parts", "--parts", "parquet", "--overwrite"))
    assert done.returncode == 0, done.stderr
    listed = json.loads((out / "manifest.json").read_text())["parts"]
    assert {path.name for path in out.iterdir()} == {"manifest.json", *(part["file"] for part in listed)}
    found = [row for part in listed for row in read_part(out / part["file"])]
    told = [json.loads(line) for line in whole.decode().splitlines()]
    names = list(pyarrow.parquet.read_schema(out / listed[0]["file"]).names)
    assert sorted(names) == ["error", "id", "label", "probabilities", "text"]
    assert [list(row) for row in found] == [names] * 3000
    assert [{name: row[name] for name in one} for row, one in zip(found, told, strict=True)] == told
    again = work.nlpctl("predict", "divided/export", "divided/parts", "-o", "divided/again.jsonl", *SKIP)
    assert again.returncode == 0 and "3,000 rows" in again.stderr, again.stderr  # none of them is manifest.json
    (out / "mine.txt").touch()
    done = work.nlpctl(*words(rows, "divided/parts", "--parts", "jsonl", "--overwrite"))
    assert done.returncode == 2 and "mine.txt" in done.stderr
    done = work.nlpctl(*words(rows, "divided/rows", "--parts", "jsonl", "--overwrite"))
    assert done.returncode == 2 and "this holds an input" in done.stderr
    (out.parent / "other").mkdir()
    (out.parent / "other" / "mine.txt").touch()
    done = work.nlpctl(*words(rows, "divided/other", "--parts", "jsonl", "--overwrite"))
    assert done.returncode == 2 and "not a folder of parts" in done.stderr


def test_columns_of_parquet_hold_what_answers_hold(tmp_path):
    """Types that differ between parts are one type that holds both, or JSON."""
    parts = [
        [{"a": 1, "b": None, "c": {}, "d": [1, "x"], "e": {"x": 1}}, {"a": 2, "f": "only here", "g": 2**53 + 1}],
        [{"a": 1.5, "b": ["t"], "c": {"y": 1}, "d": "text", "e": {"z": 2.5}, "g": 0.5, "h": [2**60 + 1]}, {"h": [1]}],
        [],
    ]
    schema = common_schema(map(schema_of, parts))
    for number, rows in enumerate(parts):
        write_part(tmp_path / f"{number}.parquet", rows, schema)
        found = read_part(tmp_path / f"{number}.parquet")
        assert [{name: row[name] for name in one if name != "e"} for row, one in zip(found, rows, strict=True)] == [
            {name: value for name, value in one.items() if name != "e"} for one in rows
        ]
    assert read_part(tmp_path / "1.parquet")[0]["e"] == {"x": None, "z": 2.5}


def test_a_large_packed_file_is_unpacked_once(work, export):
    """Its rows are long, so that it is large enough, and stays in the folder as long as shards need it."""
    chance = random.Random(4)
    lines = [json.dumps({"id": chance.randbytes(3000).hex(), "text": "a good room"}) for _ in range(1500)]
    lines[700] = "{broken"
    (work / "divided/large.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode(), 1))
    command = ("predict", "divided/export", "divided/large.jsonl.gz", "--batch-size", "2", *SKIP)
    one = work.nlpctl(*command, "-o", "divided/large1.jsonl")
    assert one.returncode == 0, one.stderr
    started = work.start(*command, "-o", "divided/large2.jsonl", "--workers", "1")
    work.end(started, lambda: finished(work, "divided/large2.jsonl") > 3, signal.SIGKILL)
    (work / "divided/large2.jsonl.shards/input-0").unlink()
    two = work.nlpctl(*command, "-o", "divided/large2.jsonl", "--workers", "2", "--resume")
    assert two.returncode == 0 and "unpacking 1 file\n" in two.stderr and "resuming after" in two.stderr, two.stderr
    assert (work / "divided/large2.jsonl").read_bytes() == (work / "divided/large1.jsonl").read_bytes()
    assert "large.jsonl.gz:701: not JSON" in (work / "divided/large2.jsonl").read_text()
    assert not list((work / "divided").glob("large*.shards"))


def test_bad_rows_are_told_as_by_one_process(work, export, rows):
    command = ("predict", "divided/export", *rows, "-o", "divided/none.jsonl")
    one, two = work.nlpctl(*command), work.nlpctl(*command, "--workers", "2")
    assert one.returncode == two.returncode == 2 and one.stderr == two.stderr
    assert "a.jsonl:8: not JSON" in one.stderr and "stopped at the tenth" in one.stderr
    keep = (*words(rows[1:2], "divided/none.jsonl"), "--keep", "nonesuch")
    one, two = work.nlpctl(*keep), work.nlpctl(*keep, "--workers", "2")
    assert one.returncode == two.returncode == 2
    assert one.stderr.splitlines()[-2:] == two.stderr.splitlines() and "no 'nonesuch' to keep" in two.stderr
    assert not list((work / "divided").glob("none*.shards*"))


def test_what_cannot_be_divided(work, export):
    (work / "divided/some.txt").write_text("good\n")
    for more, told in (
        (("-", "-o", "divided/x.jsonl"), "a pipe is answered by one process"),
        (("divided/some.txt",), "name it: -o FILE"),
        (("divided/some.txt", "-o", "divided/x.jsonl", "--flush"), "--flush"),
        (("divided/some.txt", "-o", "divided/some.txt"), "this is an input (INPUT...), and is not replaced"),
        (("divided/some.txt", "-o", "/dev/null"), "a divided prediction cannot be written to it"),
        (("divided/some.txt", "-", "-o", "divided/x.jsonl"), "beside files"),
    ):
        done = work.nlpctl("predict", "divided/export", *more, "--workers", "2")
        assert done.returncode == 2 and told in done.stderr, done.stderr


def children(pid: int) -> list[int]:
    """The worker processes of a command."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            command = Path(f"/proc/{child}/cmdline")
            if command.exists() and b"spawn_main" in command.read_bytes():
                found.append(int(child))
    return found


def finished(work, output: str) -> int:
    return len(list((work / f"{output}.shards").glob("part-*.json")))


def test_killed_workers_and_a_killed_command(work, rows, whole):
    output = "divided/killed.jsonl"
    command = words(rows, output, "--workers", "2")
    started = work.start(*command)
    wait(started, lambda: finished(work, output) > 3)
    os.kill(children(started.pid)[0], signal.SIGKILL)
    alive = children(started.pid)
    work.end(started, lambda: finished(work, output) > 15, signal.SIGKILL)
    assert not (work / output).exists() and (done := finished(work, output)) < 47
    wait(None, lambda: not any(Path(f"/proc/{pid}/fd").exists() for pid in alive))  # none goes on alone

    again = work.nlpctl(*command, "--resume", "--batch-size", "4")
    assert again.returncode == 2 and "other settings" in again.stderr, again.stderr
    again = work.nlpctl(*words(rows, output), "--resume")
    assert again.returncode == 2 and "--workers" in again.stderr, again.stderr
    damaged = work / f"{output}.shards/part-000001.jsonl"
    damaged.write_bytes(damaged.read_bytes()[:-5])
    again = work.nlpctl(*words(rows, output, "--workers", "1"), "--resume")
    assert again.returncode == 0 and f"resuming after {64 * (done - 1):,} answered rows" in again.stderr, again.stderr
    assert (work / output).read_bytes() == whole


def test_an_input_that_changes_is_not_resumed(work, rows, whole, export):
    copied = work / "divided/changing.jsonl"
    copied.write_bytes((work / rows[0]).read_bytes())
    command = words(["divided/changing.jsonl"], "divided/changed.jsonl", "--workers", "1")
    started = work.start(*command)
    work.end(started, lambda: finished(work, "divided/changed.jsonl") > 0, signal.SIGINT)
    assert started.returncode == 130
    with copied.open("a") as stream:
        stream.write("{}\n")
    done = work.nlpctl(*command, "--resume")
    assert done.returncode == 2 and "made from another input" in done.stderr, done.stderr
    done = work.nlpctl(*command)  # without --resume it starts over
    assert done.returncode == 0 and (work / "divided/changed.jsonl").read_bytes().count(b"\n") == 1001, done.stderr


def wait(process, when: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not when():
        assert process is None or process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_million_rows_and_a_kill_at_any_moment(work, export, million, seed):
    """Workers and the command die at random moments; no answer is lost, doubled or moved."""
    files, expected = million
    chance, output = random.Random(seed), f"divided/million-{seed}.jsonl"
    command = ("predict", "divided/export", *files, "-o", output, *SKIP, "--workers", "2")
    for attempt in range(2):
        started = work.start(*command, *(("--resume",) if attempt else ()))
        until = time.monotonic() + chance.uniform(2, 12)
        while time.monotonic() < until and started.poll() is None:
            time.sleep(chance.uniform(0.1, 3))
            if workers := children(started.pid):
                os.kill(chance.choice(workers), signal.SIGKILL)
        if started.poll() is None:
            started.kill()
            started.communicate()
    done = work.nlpctl(*command, "--resume", "--overwrite")
    assert done.returncode == 0, done.stderr
    digest = sha256((work / output).read_bytes()).hexdigest()
    (work / output).unlink()
    assert digest == expected


@pytest.fixture(scope="session")
def million(work, export) -> tuple[list[str], str]:
    files = [f"divided/{name}" for name in write_rows(work / "divided/million", 1_000_000, 2, 1000)]
    done = work.nlpctl("predict", "divided/export", *files, "-o", "divided/million.jsonl", *SKIP)
    assert done.returncode == 0 and "1,000,000 rows" in done.stderr, done.stderr
    return files, sha256((work / "divided/million.jsonl").read_bytes()).hexdigest()


def test_on_a_ray_cluster(work, export, rows, whole, cluster):
    done = work.fresh(*words(rows, "divided/ray.jsonl", "--cluster", cluster.address))
    assert done.returncode == 0, done.stderr
    assert (work / "divided/ray.jsonl").read_bytes() == whole and "worker 1:" in done.stderr
    done = work.fresh(*words(rows, "divided/ray2.jsonl", "--cluster", cluster.address, "--workers", "3"))
    assert done.returncode == 2 and "room for 2 workers" in done.stderr, done.stderr


@pytest.mark.slow
def test_scores_on_a_ray_cluster(work, export, cluster):
    scored = [work.fresh("eval", "divided/export", "test.tsv", "--json", *more)
              for more in ((), ("--cluster", cluster.address))]  # fmt: skip
    one, two = (json.loads(each.stdout)["result"]["metrics"] for each in scored)
    assert one == two and "worker 1:" in scored[1].stderr, scored[1].stderr


def test_scores_are_those_of_one_process(work, export):
    """More rows than are sorted by length together, bad ones among them; a worker is killed on the way."""
    chance, words = random.Random(3), "the room bed was staff view food very a and good bad clean dirty".split()
    with (work / "divided/labelled.tsv").open("w") as stream:
        stream.write("text\tlabel\n")
        for number in range(17_000):
            text, label = " ".join(chance.choices(words, k=chance.randint(1, 9))), chance.choice(("neg", "pos"))
            stream.write("no tab\n" if number % 1000 == 7 else f"{text}\t{label}\n")
    command = ("eval", "divided/export", "divided/labelled.tsv", *SKIP, "--json")
    one = work.nlpctl(*command)
    assert one.returncode == 0, one.stderr
    expected = json.loads(one.stdout)["result"]
    assert expected["metrics"]["test"]["rows"] == 16_983 and expected["metrics"]["test"]["intervals"]
    started = work.start(*command, "--workers", "2")
    wait(started, lambda: children(started.pid))
    os.kill(children(started.pid)[0], signal.SIGKILL)
    out, err = started.communicate(timeout=120)
    assert started.returncode == 0 and "another one takes its place" in err, err
    found = json.loads(out)["result"]
    workers = found.pop("workers")
    assert found == expected
    assert sum(each["rows"] for each in workers) == 16_983 and sum(each["losses"] for each in workers) == 1
    (work / "divided/wrong.tsv").write_text("text\tlabel\ngood\tpos\nbad\tnone\n")
    one, two = (work.nlpctl("eval", "divided/export", "divided/wrong.tsv", *more) for more in ((), ("--workers", "2")))
    assert one.returncode == two.returncode == 2 and "wrong.tsv:3" in two.stderr
    assert two.stderr.splitlines()[-2:] == one.stderr.splitlines()[-2:]
