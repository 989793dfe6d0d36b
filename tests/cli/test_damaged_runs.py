"""Runs with damaged files: every command shows what it can, and names what it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SCORES = {"dev": {"rows": 2, "accuracy": 0.5, "labels": {
    name: {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 1} for name in ("a", "b")
}, "confusion": [[1, 0], [1, 0]]}}  # fmt: skip
WORST = {"where": "dev.tsv:2", "texts": {"text": "x"}, "expected": "a", "given": "b", "size": 1.0}
MISTAKES = {"split": "dev", "rows": 2, "wrong": 1, "worst": [WORST]}

DAMAGE = {
    "empty": lambda text: b"",
    "cut": lambda text: text[: len(text) // 2 - 3],
    "binary": lambda text: b"\x80\x04\x95\xff\xfe\x00" * 9,
    "a list": lambda text: b"[1, 2]\n",
    "a number": lambda text: b"7\n",
    "null": lambda text: b"null\n",
    "nested": lambda text: b"[" * 100_000 + b"\n",
    "no keys": lambda text: b"{}\n",
    "other keys": lambda text: b'{"format": 1, "state": "finished", "event": "log", "dev": [1]}\n',
}
VALUES = [None, True, -1, "x", [], {}, [[]], [{}], {"a": 1}, {"a": {}}, float("nan"), float("inf")]
COMMANDS = {
    "ls": ("runs", "ls", "outputs"),
    "ls --json": ("runs", "ls", "outputs", "--json", "--sort", "dev"),
    "show": ("runs", "show", "outputs/one"),
    "show --json": ("runs", "show", "outputs/one", "--json"),
    "diff": ("runs", "diff", "outputs/two", "outputs/one"),
    "report": ("report", "outputs/one"),
}


@pytest.fixture
def runs(made, tmp_path, monkeypatch):
    """Two finished runs; gives the folder of the one that is to be damaged."""
    for name in ("one", "two"):
        run = made(name, dev=0.5)
        run.metrics_file.write_text(json.dumps(SCORES))
        run.mistakes_file.write_text(json.dumps(MISTAKES))
        run.update_manifest(parameters={"total": 7})
    monkeypatch.chdir(tmp_path)
    return Path("outputs/one")


def no_constant(name):
    raise AssertionError(f"{name} is no JSON")


def check(nlpctl, command, file):
    """The command ends well, names `file` unless it does not read it, and shows the rest."""
    ended = nlpctl(*COMMANDS[command])
    assert ended.code == 0 and "internal" not in ended.err, ended.err
    if file != "mistakes.json" or command == "report":
        assert f"one/{file}: cannot be read" in ended.err
        assert f"damaged: {file}" in ended.out or command not in ("ls", "show")
    if "--json" in command:
        json.loads(ended.out, parse_constant=no_constant)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("file", "damage"),
    [
        (file, damage)
        for file in ("manifest.json", "events.jsonl", "metrics.json", "mistakes.json")
        for damage in DAMAGE
        if (file, damage) != ("metrics.json", "no keys")  # {} is sound: a run without dev and test data has no scores
    ],
)
def test_a_damaged_file(nlpctl, runs, file, damage, command):
    (runs / file).write_bytes(DAMAGE[damage]((runs / file).read_bytes()))
    check(nlpctl, command, file)


def places(value, place=()):
    """Where something stands in a JSON value."""
    yield place
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, entry in entries:
        yield from places(entry, (*place, name))


def changed(value, place, new):
    """`value` with `new` at `place`."""
    if not place:
        return new
    copy = value.copy()
    copy[place[0]] = changed(value[place[0]], place[1:], new)
    return copy


@pytest.mark.parametrize("file", ["manifest.json", "metrics.json", "mistakes.json"])
@pytest.mark.slow
def test_any_value_of_another_type(nlpctl, runs, file):
    """No command fails, whatever stands in the place of a value."""
    whole = json.loads((runs / file).read_text())
    for place in places(whole):
        for new in VALUES:
            (runs / file).write_text(json.dumps(changed(whole, place, new)))
            for command in ("ls --json", "show", "report"):
                ended = nlpctl(*COMMANDS[command])
                assert ended.code == 0, (place, new, command, ended.err)


@pytest.mark.slow
def test_any_event_of_another_type(nlpctl, runs):
    lines = (runs / "events.jsonl").read_text().splitlines()
    save = {"time": 1.0, "event": "save", "step": 8, "checkpoint": "checkpoint-8", "best": "checkpoint-8"}
    for event in (json.loads(lines[0]), save):
        for name in event:
            for new in VALUES:
                (runs / "events.jsonl").write_text("\n".join([*lines, json.dumps({**event, name: new})]) + "\n")
                for command in ("ls", "show", "report"):
                    ended = nlpctl(*COMMANDS[command])
                    assert ended.code == 0, (name, new, command, ended.err)


def test_the_lines_that_can_be_read_are_shown(nlpctl, runs):
    with (runs / "events.jsonl").open("ab") as stream:
        stream.write(b'{"event": "log"}\n\xff\n{"event": "out_of_memory", "step": 9, "parts": 2}\n')
    ended = nlpctl("runs", "show", runs)
    assert "events.jsonl: cannot be read completely (2 of its 5 lines are not events" in ended.err
    assert "first at line 3" in ended.err
    assert "out of memory" in ended.out and "last loss:       0.25" in ended.out


def test_a_cut_last_line_of_a_run_that_was_killed_is_no_damage(nlpctl, made, tmp_path):
    run = made("killed")
    with run.events_file.open("ab") as stream:
        stream.write(b'{"event": "lo')
    ended = nlpctl("runs", "ls", tmp_path / "outputs")
    assert ended.err == "" and "running" in ended.out


@pytest.mark.parametrize("gone", ["manifest.json", "recipe.yaml"])
def test_a_run_that_lost_a_file_is_listed(nlpctl, runs, gone):
    (runs / gone).unlink()
    ended = nlpctl("runs", "ls", "outputs")
    assert ended.code == 0 and f"damaged: {gone}" in ended.out and f"one/{gone}: " in ended.err


OTHERS = {
    "an index": ({"index.faiss": "", "texts.jsonl": "", "recipe.yaml": "task: semantic_indexing",
                  "manifest.json": '{"format": 1, "kind": "flat"}'}, "nlpctl index search"),
    "an export": ({"export.json": "{}", "task.json": "{}", "labels.json": "{}"}, "nlpctl eval"),
    "a model folder": ({"task.json": "{}", "config.json": "{}", "manifest.json": '{"format": 1, "files": {}}'},
                       "nlpctl eval"),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_no_run(nlpctl, runs, kind):
    other = Path("outputs/other")
    other.mkdir()
    for name, text in OTHERS[kind][0].items():
        (other / name).write_text(text)
    ended = nlpctl("runs", "ls", "outputs")
    assert ended.code == 0 and ended.err == "" and "other" not in ended.out and "one" in ended.out
    for command in (("runs", "show", other), ("runs", "diff", runs, other), ("report", other)):
        ended = nlpctl(*command)
        assert ended.code == 2 and ended.err.count("error:") == 1
        assert f"this is not a run but {kind}" in ended.err and OTHERS[kind][1] in ended.err


def test_a_candidate_is_no_run(nlpctl, runs):
    candidate = runs / "compress" / "candidates" / "ptq"
    candidate.mkdir(parents=True)
    (candidate / "export.json").write_text("{}")
    ended = nlpctl("runs", "show", candidate)
    assert ended.code == 2 and "a candidate of `nlpctl compress`" in ended.err
