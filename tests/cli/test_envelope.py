"""--json: every command prints one object of one form, also where it fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer

import nlpctl as package
from nlpctl import console
from nlpctl.cli.app import COMMANDS, main
from nlpctl.cli.options import RecipeCommand
from nlpctl.cli.output import FLAG, PROGRESS_SCHEMA, SCHEMA

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = {
    "serve": "it answers over HTTP until it is stopped",
    "ui": "it shows pages until it is stopped",
    "runs board": "it shows a page until it is stopped",
    "completion": "it prints a script for a shell",
    "recipe schema": "what it prints is JSON already, for an editor",
}


def every_command() -> Iterator[tuple[str, Any]]:
    """Name and Typer command of all of them, those of groups too."""
    from nlpctl.cli.app import _load

    for command in COMMANDS:
        loaded = _load(command)
        inner = vars(loaded).get("commands")
        if inner is None:
            yield command.name, loaded
        else:
            yield from ((f"{command.name} {name}", each) for name, each in inner.items())


def own_options(command: Any) -> set[str]:
    params = super(RecipeCommand, command).get_params if isinstance(command, RecipeCommand) else command.get_params
    return {option for param in params(typer.Context(command)) for option in param.opts}


def test_every_command_takes_json() -> None:
    """A command that prints a result takes --json; one that cannot stands above with the reason."""
    found = {name: FLAG in own_options(command) for name, command in every_command()}
    assert len(found) > 25
    assert {name for name, takes in found.items() if not takes} == set(WITHOUT)


@pytest.mark.parametrize("page", ["docs/json.md", "docs/zh-CN/json.md"])
def test_the_page_lists_every_command(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip().strip("`") for line in text.splitlines() if line.startswith("| `")}
    names = {name for name, _ in every_command()}
    assert names - set(WITHOUT) == rows & names


def envelope(text: str) -> dict[str, Any]:
    printed = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    jsonschema.validate(printed, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert printed["nlpctl"] == package.__version__ and printed["ok"] == (printed["exit_code"] == 0)
    return printed


def test_the_schemas_are_shipped() -> None:
    for schema in (SCHEMA, PROGRESS_SCHEMA):
        jsonschema.Draft202012Validator.check_schema(json.loads(schema.read_text(encoding="utf-8")))
        assert files("nlpctl.cli").joinpath(schema.name).is_file()


def test_a_result(nlpctl, made, tmp_path) -> None:
    run = made("one", dev=0.5)
    printed = envelope(nlpctl("runs", "show", run.path, "--json").out)
    assert printed["command"] == "runs show" and printed["error"] is None and printed["warnings"] == []
    assert printed["result"]["metrics"]["dev"]["accuracy"] == 0.5
    ended = nlpctl("report", run.path, "-o", tmp_path / "page.html", "--json")
    assert envelope(ended.out)["result"] == {"report": str(tmp_path / "page.html")}
    printed = envelope(nlpctl("recipe", "copy", "quickstart", tmp_path / "copy", "--json").out)
    assert str(tmp_path / "copy" / "quickstart.yaml") in printed["result"]["files"]


def test_a_warning_is_in_it(nlpctl, made, tmp_path) -> None:
    made("broken").manifest_file.write_text("{")
    ended = nlpctl("runs", "ls", tmp_path / "outputs", "--json")
    (warning,) = envelope(ended.out)["warnings"]
    assert "broken/manifest.json: cannot be read" in warning and f"warning: {warning}" in ended.err


@pytest.mark.parametrize(
    ("words", "command", "code", "message"),
    [
        (("runs", "show", "nowhere"), "runs show", 2, "there is no run here"),
        (("eval", "nowhere"), "eval", 2, "no such recipe"),
        (("eval",), "eval", 2, "Missing argument"),
        (("trian", "x"), "trian", 2, "there is no command 'trian'"),
        (("runs",), "runs", 2, "No such option: --json"),
        (("serve", "x"), "serve", 2, "there is no such flag"),
    ],
)
def test_an_error(nlpctl, tmp_path, monkeypatch, words, command, code, message) -> None:
    monkeypatch.chdir(tmp_path)
    ended = nlpctl(*words, "--json")
    printed = envelope(ended.out)
    assert (ended.code, printed["exit_code"], printed["command"]) == (code, code, command)
    assert message in printed["error"]["message"] and printed["result"] is None
    assert ended.err and printed["error"]["problems"][0]["message"] == printed["error"]["message"]


def test_every_problem_is_in_it(nlpctl, tmp_path) -> None:
    (tmp_path / "bad.yaml").write_text("task: sequence_classification\ntraining: {seed: x}\ndata: {trian: a}\n")
    printed = envelope(nlpctl("recipe", "show", tmp_path / "bad.yaml", "--json").out)
    places = [problem["where"] for problem in printed["error"]["problems"]]
    assert len(places) == 2 and all("bad.yaml:" in place for place in places)


def test_a_bug_and_a_signal_are_errors_too(nlpctl, monkeypatch) -> None:
    from nlpctl.cli import recipe

    for raised, code, told in ((KeyError("x"), 1, "internal error KeyError"), (KeyboardInterrupt(), 130, "interrupt")):
        monkeypatch.setattr(recipe, "shipped_recipes", lambda raised=raised: (_ for _ in ()).throw(raised))
        ended = nlpctl("recipe", "ls", "--json")
        assert ended.code == code and told in envelope(ended.out)["error"]["message"]


def test_nothing_else_is_on_standard_output(capsys, monkeypatch) -> None:
    """What a user's function prints would spoil the object."""
    from nlpctl.cli import recipe

    known = recipe.shipped_recipes()
    monkeypatch.setattr(recipe, "shipped_recipes", lambda: print("hello") or known)
    assert main(["recipe", "ls", "--json"]) == 0
    printed = capsys.readouterr()
    assert len(envelope(printed.out)["result"]) == len(known) and "hello" in printed.err
    assert main(["recipe", "ls"]) == 0 and "hello" in capsys.readouterr().out


def test_help_stays_help(nlpctl) -> None:
    assert "Usage" in nlpctl("runs", "ls", "--json", "--help").out


def test_what_json_cannot_hold() -> None:
    held = {"a": (Path("x"), float("inf")), 1: [float("nan"), True, None, "文"]}
    assert console.json_ready(held) == {"a": ["x", None], "1": [None, True, None, "文"]}


def events(err: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in err.splitlines()]
    for line in lines:
        jsonschema.validate(line, json.loads(PROGRESS_SCHEMA.read_text(encoding="utf-8")))
    return lines


def test_progress_as_json_lines(capsys, monkeypatch) -> None:
    monkeypatch.setenv("NLPCTL_PROGRESS", "json")
    now = [0.0]
    monkeypatch.setitem(console.Progress.__init__.__kwdefaults__, "clock", lambda: now[0])
    with console.progress(100, "predict") as bar:
        for _ in range(40):
            now[0] += 0.1
            bar.advance(2)
    console.note("a note")
    course = console.Progress("train", 10, "steps", console.EventSink(), begun=4)
    now[0] += 3
    course.report(7, "step 7/10", figures={"loss": 0.5})
    course.finish()
    started, *between, finished, note, begun, step, ended = events(capsys.readouterr().err)
    assert (started["event"], started["total"], started["left"]) == ("started", 100, None)
    assert 3 <= len(between) <= 5 and all(each["event"] == "progress" for each in between)
    assert (finished["event"], finished["done"], finished["unit"]) == ("finished", 80, "rows")
    assert note["message"] == "a note"
    assert (begun["done"], step["done"], step["left"], step["figures"]) == (4, 7, 3.0, {"loss": 0.5})
    assert (ended["event"], ended["left"]) == ("finished", 0)


def test_a_note_of_a_signal_handler_is_an_event_too(capfd, monkeypatch) -> None:
    monkeypatch.setenv("NLPCTL_PROGRESS", "json")
    console.note_at_once("interrupted")
    (note,) = events(capfd.readouterr().err)
    assert (note["event"], note["message"]) == ("note", "interrupted")


def test_errors_are_events_too(nlpctl, monkeypatch) -> None:
    monkeypatch.setenv("NLPCTL_PROGRESS", "json")
    (error,) = events(nlpctl("eval", "nowhere").err)
    assert error["event"] == "error" and "no such recipe" in error["message"]
    monkeypatch.setenv("NLPCTL_PROGRESS", "xml")
    ended = nlpctl("recipe", "ls")
    assert ended.code == 2 and "NLPCTL_PROGRESS: there is no progress format 'xml'" in ended.err
