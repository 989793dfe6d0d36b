"""The file that predict writes to before it has its name."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.load import load_recipe
from nlpctl.errors import UserError
from nlpctl.inference import predict as runner
from nlpctl.inference.predict import PartialOutput, answer_settings
from nlpctl.runtime.lock import take_lock

IDENTITY = {"model": "m", "files": [["weights", 3, 1.5]], "batch_size": 2}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "new" / "folder" / "out.jsonl"


def write(output: Path, lines: list[str]) -> PartialOutput:
    partial = PartialOutput(output)
    assert partial.begin(IDENTITY, resume=False, chunk=4) == (0, 0, 0)
    with partial.file.open("a", encoding="utf-8") as stream:
        stream.writelines(lines)
    partial.let_go()  # as when the process ends
    return partial


def test_two_predictions_do_not_share_a_file(output):
    first = PartialOutput(output)
    first.begin(IDENTITY, resume=False, chunk=4)
    with pytest.raises(UserError, match="another prediction is writing"):
        PartialOutput(output).begin(IDENTITY, resume=False, chunk=4)
    first.finish()
    PartialOutput(output).begin(IDENTITY, resume=False, chunk=4, overwrite=True)


def test_what_another_prediction_finished_meanwhile_is_kept(output):
    first, second = PartialOutput(output), PartialOutput(output)
    first.begin(IDENTITY, resume=False, chunk=4)
    first.file.write_text("first\n")
    first.finish()
    with pytest.raises(UserError, match="exists"):
        second.begin(IDENTITY, resume=False, chunk=4)
    assert output.read_text() == "first\n" and [path.name for path in output.parent.iterdir()] == ["out.jsonl"]
    second.begin(IDENTITY, resume=False, chunk=4, overwrite=True)
    second.finish()


def test_the_file_is_not_locked_under_another_name(output, monkeypatch):
    """Another prediction ends between the touch and the lock."""
    first, renamed = PartialOutput(output), []
    first.begin(IDENTITY, resume=False, chunk=4)

    def late(path: Path) -> int | None:
        if not renamed:
            renamed.append(first.finish())
        return take_lock(path)

    monkeypatch.setattr(runner, "take_lock", late)
    second = PartialOutput(output)
    second.begin(IDENTITY, resume=False, chunk=4, overwrite=True)
    assert second._lock.is_of(second.file)
    second.finish()


def answers(count: int) -> list[str]:
    """Every third is bad; separators of Unicode, which are no line ends, among the texts."""
    return [
        json.dumps({"error": f"{i}"} if i % 3 == 2 else {"text": "好\u2028"}, ensure_ascii=False) + "\n"
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (answers(0), 0),
        (answers(3), 0),
        (answers(4), 4),
        (answers(11), 8),
        ([*answers(8), '{"text": "cut'], 8),
        ([*answers(7), '{"text": "cut'], 4),  # a line without its end does not count
    ],
)
def test_whole_chunks_are_kept(output, lines, kept):
    partial = write(output, lines)
    again = PartialOutput(output)
    assert again.begin(IDENTITY, resume=True, chunk=4) == (kept, len([i for i in range(kept) if i % 3 == 2]), 0)
    assert partial.file.read_text(encoding="utf-8").count("\n") == kept
    again.finish()
    assert output.read_text(encoding="utf-8") == "".join(answers(kept))
    assert [path.name for path in output.parent.iterdir()] == ["out.jsonl"]


def test_rows_that_were_cut_count_with_the_chunks_that_are_kept(output):
    """What is noted of a chunk whose lines were not written counts again when they are."""
    partial = write(output, answers(9))
    for end, count in ((4, 1), (8, 2), (12, 4)):
        partial.note_truncated(end, count)
    for _ in range(2):
        again = PartialOutput(output)
        assert again.begin(IDENTITY, resume=True, chunk=4)[2] == 3
        again.let_go()
    assert PartialOutput(output).begin(IDENTITY, resume=False, chunk=4) == (0, 0, 0)
    assert sorted(path.name for path in output.parent.iterdir()) == ["out.jsonl.partial", "out.jsonl.partial.json"]


def test_without_resume_it_starts_over(output):
    partial = write(output, answers(8))
    assert PartialOutput(output).begin(IDENTITY, resume=False, chunk=4) == (0, 0, 0)
    assert partial.file.read_bytes() == b""


@pytest.mark.parametrize("change", [{"batch_size": 3}, {"files": [["weights", 3, 1.6]]}, {"input": "other.txt"}])
def test_answers_to_something_else_are_refused_and_stay(output, change):
    partial = write(output, answers(8))
    before = partial.file.read_bytes()
    with pytest.raises(UserError, match="another input or model, or with other settings") as caught:
        PartialOutput(output).check({**IDENTITY, **change}, resume=True)
    assert "--resume" in str(caught.value) and partial.file.read_bytes() == before


def test_resume_without_a_beginning(output):
    assert PartialOutput(output).begin(IDENTITY, resume=True, chunk=4) == (0, 0, 0)
    assert not output.exists()


def test_a_resumed_prediction_asks_the_same_question(tmp_path):
    """A template, a verbalizer or a separator given on the command line makes other answers."""
    recipe = tmp_path / "recipe.yaml"
    noted = []
    for template in ("It was {'mask'}.", "It is {'mask'}.", "It is {'mask'}."):
        lines = ("task: few_shot_classification", "prompt:", "  verbalizer: {neg: bad, pos: good}", "  template: |-")
        recipe.write_text("\n".join([*lines, f"    {{'text': 'text'}} {template}"]))
        noted.append(answer_settings(load_recipe(recipe, purpose="apply")))
    assert noted[0] != noted[1] == json.loads(json.dumps(noted[2]))


def test_another_engine_does_not_go_on(output):
    first = PartialOutput(output)
    first.begin(IDENTITY | {"engine": ["paddle", "bf16"]}, resume=False, chunk=4)
    first.let_go()
    PartialOutput(output).check(IDENTITY, resume=True)  # the engine is not known yet
    PartialOutput(output).check(IDENTITY | {"engine": ["paddle", "bf16"]}, resume=True)
    with pytest.raises(UserError, match="computed by paddle bf16, and would resume in onnxruntime fp32") as told:
        PartialOutput(output).check(IDENTITY | {"engine": ["onnxruntime", "fp32"]}, resume=True)
    assert "--engine paddle --precision bf16" in told.value.problems[0].hint


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    (tmp_path / "recipe.yaml").write_text("task: sequence_classification\n", encoding="utf-8")
    model = SimpleNamespace(predictor=SimpleNamespace(engine="paddle", precision="fp32"))

    def full(self, stream, skip, total, note):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runner, "find_model", lambda recipe: "m")
    monkeypatch.setattr(runner, "set_up_to_answer", lambda recipe, source: None)
    monkeypatch.setattr(runner, "model_fingerprint", lambda source: {})
    monkeypatch.setattr(runner, "open_trained_model", lambda recipe, setup, source, size, rows: model)
    monkeypatch.setattr(runner.PredictionRun, "write", full)
    source = SimpleNamespace(path=None, format="text", rereadable=True, check=lambda *_: 1, identity=dict)
    recipe = load_recipe(tmp_path / "recipe.yaml", purpose="apply")
    with pytest.raises(UserError, match="No space left on device") as told:
        runner.predict(recipe, source, tmp_path / "out.jsonl")
    assert "--resume" in told.value.problems[0].hint
    assert (tmp_path / "out.jsonl.partial").exists()
