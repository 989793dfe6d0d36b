"""Every task can be served: the answers are those of predict."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
import warm_python

from nlpctl.config.load import Override, load_recipe
from nlpctl.config.tasks import KNOWN_TASKS
from nlpctl.data.predict_input import open_input
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.engines import speeds
from nlpctl.export.export import export
from nlpctl.export.request import ExportRequest
from nlpctl.inference.predict import predict
from nlpctl.models import engine_speeds
from nlpctl.models.engine_speeds import EngineSpeeds
from nlpctl.models.find import find_trained_model
from nlpctl.runtime.process import ProcessSetup, set_up_process
from nlpctl.serve.service import make_service
from nlpctl.serve.settings import ServeSettings
from nlpctl.tasks.base import task_class

ROWS = 40


def test_engines_are_timed_in_a_new_interpreter(classifier, tmp_path, monkeypatch):
    """Other tests fork a process that has imported Paddle in its place."""
    monkeypatch.setattr(speeds, "run_python", warm_python.new_interpreter)
    folder = tmp_path / "export"
    export(classifier, find_trained_model(classifier), ExportRequest(("paddle",), rows=8), output=folder)
    setup = ProcessSetup("cpu", 1, 0, 1)
    request = speeds.BenchmarkRequest(str(folder), ("paddle fp32",), "cpu", 1, seconds=20.0)
    timed = speeds.measure(request, speeds.conditions(setup))
    assert timed.rows_per_second["paddle fp32"][1] > 0 and not timed.failed


@pytest.mark.slow
def test_a_service_whose_export_was_timed_elsewhere_answers_first_and_times_then(classifier, tmp_path, monkeypatch):
    monkeypatch.setenv("PPNLP_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(engine_speeds, "BUSY", 1.0)  # the figures hold, however busy this machine is
    folder = tmp_path / "export"
    export(classifier, find_trained_model(classifier), ExportRequest(("paddle", "onnx"), rows=8), output=folder)
    recipe, settings = load_recipe(folder, (), "apply"), ServeSettings(batch_size=8)
    service = make_service(recipe, set_up_process(recipe), str(folder), settings)
    rows = [{"text": f"some words {number}"} for number in range(20)]

    async def answers():
        read = service.reader.read(json.dumps(rows).encode())
        return [each["label"] for each in read.response(await service.batcher.submit(read.rows))]

    async def served():
        service.batcher.start()
        try:
            before, settling = await answers(), asyncio.create_task(asyncio.to_thread(service.find_faster))
            while not settling.done():
                assert await answers() == before
                await asyncio.sleep(0.05)
            return before, await answers()
        finally:
            await service.batcher.close()

    before, after = asyncio.run(served())
    assert before == after
    (kept,) = (tmp_path / "cache").rglob("engines/*.json")
    timed = EngineSpeeds.from_json(json.loads(kept.read_text()))
    fastest = max(timed.rows_per_second, key=lambda name: timed.speed(name, 8))
    assert " ".join(service.facts()[key] for key in ("engine", "precision")) == fastest
    assert make_service(recipe, set_up_process(recipe), str(folder), settings).find_faster is None


def test_requests_that_meet_are_computed_side_by_side_and_answered_as_alone(classifier, tmp_path):
    folder = tmp_path / "export"
    export(classifier, find_trained_model(classifier), ExportRequest(("onnx",), rows=8), output=folder)
    recipe = load_recipe(folder, [Override("inference.engine", "onnxruntime", "--engine")], "apply")
    setup = replace(set_up_process(recipe), threads=2)
    service = make_service(recipe, setup, str(folder), ServeSettings(batch_size=8))
    texts = [" ".join(f"word{number * each}" for each in range(1 + number % 9)) for number in range(40)]

    async def answer(text):
        read = service.reader.read(json.dumps({"text": text}).encode())
        return read.response(await service.batcher.submit(read.rows))

    async def served():
        service.batcher.start()
        try:
            alone = [await answer(text) for text in texts]
            while service.batcher._side_by_side.streams.count == 1:
                await asyncio.gather(*map(answer, texts[:3]))
            return alone, [await asyncio.gather(*map(answer, texts)) for _ in range(5)]
        finally:
            await service.batcher.close()

    alone, together = asyncio.run(asyncio.wait_for(served(), 60))
    assert len({answer["label"] for answer in alone}) > 1
    for found in together:
        for one, same in zip(found, alone, strict=True):
            assert one["label"] == same["label"]
            assert one["probabilities"] == pytest.approx(same["probabilities"], abs=2e-6)


@pytest.mark.parametrize("task", [info.name for info in KNOWN_TASKS])
def test_served_answers_are_those_of_predict(made_run, tmp_path, task):
    recipe = made_run(task, "ernie", "linear")
    rows = [json.loads(line) for line in (tmp_path / "dev.jsonl").read_text(encoding="utf-8").splitlines()]
    if task == "masked_language_model":
        rows = [{"text": f"the [MASK] {row['text']}"} for row in rows]
    asked = tmp_path / "asked.jsonl"
    asked.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    source = open_input(task_rows(task, recipe.data), str(asked), "auto")
    predict(recipe, source, tmp_path / "out", batch_size=ROWS, truncated=True)  # a service always says it to its app
    expected = [json.loads(line) for line in (tmp_path / "out").read_text(encoding="utf-8").splitlines()]
    assert len(expected) == ROWS

    async def served():
        source, settings = find_trained_model(recipe), ServeSettings(batch_size=ROWS)
        service = make_service(recipe, set_up_process(recipe), source, settings)
        service.batcher.start()
        try:
            read = service.reader.read(json.dumps(rows).encode())
            return service, read.response(await service.batcher.submit(read.rows))
        finally:
            await service.batcher.close()

    assert set(expected[0]) >= set(task_class(task).answer_keys) != set()
    service, answers = asyncio.run(served())
    assert json.loads(json.dumps(answers)) == expected
    assert service.find_faster is None
    assert service.facts() == {"task": task, "engine": "dygraph", "precision": "fp32"}
