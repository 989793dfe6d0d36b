"""--json and NLPCTL_PROGRESS=json where models work: what a program reads is what people read."""

from __future__ import annotations

import json

import jsonschema

from nlpctl.cli.output import PROGRESS_SCHEMA, SCHEMA

TEXTS = "the room was clean\nbad food\n"


def test_predictions_in_one_object(work, base):
    plain = work.nlpctl("predict", base, stdin=TEXTS)
    done = work.nlpctl("predict", base, "--json", stdin=TEXTS)
    printed = json.loads(done.stdout)
    jsonschema.validate(printed, json.loads(SCHEMA.read_text()))
    result = printed["result"]
    assert printed["command"] == "predict" and (result["rows"], result["bad_rows"], result["output"]) == (2, 0, None)
    assert result["answers"] == [json.loads(line) for line in plain.stdout.splitlines()]

    words = ("predict", base, "test.tsv", "-o", "in_a_file.jsonl", "--json")
    result = json.loads(work.nlpctl(*words).stdout)["result"]
    assert result["rows"] == 30 and result["output"] == "in_a_file.jsonl" and "answers" not in result
    again = json.loads(work.nlpctl(*words).stdout)
    assert again["exit_code"] == 2 and again["error"]["message"] == "the output file exists"
    assert again["error"]["where"] == "in_a_file.jsonl" and "--overwrite" in again["error"]["hint"]


def test_the_events_of_a_training(work, monkeypatch):
    monkeypatch.setenv("NLPCTL_PROGRESS", "json")
    words = ("--max_steps", "4", "--logging_steps", "2", "--set", "training.output_dir=told_as_events", *work.stepwise)
    done = work.nlpctl("train", "recipe.yaml", *words, "--json")
    assert done.returncode == 0 and "dev" in json.loads(done.stdout)["result"]["metrics"], done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    schema = json.loads(PROGRESS_SCHEMA.read_text())
    for line in lines:
        jsonschema.validate(line, schema)
    steps = [line for line in lines if line.get("what") == "train"]
    ends = ("started", "finished")
    # Between the lines of the log there is one a second, with the figures of a bar.
    steps = [line for line in steps if line["event"] in ends or "learning_rate" in line.get("figures", {})]
    assert [(each["event"], each["done"], each["total"]) for each in steps] == [
        ("started", 0, 4), ("progress", 2, 4), ("progress", 4, 4), ("finished", 4, 4)
    ]  # fmt: skip
    assert steps[1]["left"] > 0 and steps[1]["figures"]["loss"] > 0
