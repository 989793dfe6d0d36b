"""What the descriptions of the tasks say is there and is true."""

from __future__ import annotations

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.keys import SECTIONS, all_keys
from nlpctl.config.schema import DataSection
from nlpctl.config.tasks import KNOWN_TASKS, TaskInfo, load, task_info
from nlpctl.data.rows.task_rows import TaskRows, task_rows
from nlpctl.errors import UserError
from nlpctl.tasks.base import Task, task_class


@pytest.mark.parametrize("info", KNOWN_TASKS, ids=lambda info: info.name)
def test_the_code_of_a_task_is_there(info: TaskInfo) -> None:
    assert issubclass(task_class(info.name), Task)
    rows = task_rows(info.name, DataSection())
    assert isinstance(rows, TaskRows) and rows.labelled is info.labelled
    assert info.soft_loss is None or callable(load(info.soft_loss))
    assert not info.explainable or callable(task_class(info.name).log_odds)
    assert set(info.falling) <= set(info.metrics)


def test_the_keys_of_a_task_exist_and_some_other_task_does_not_read_them() -> None:
    for task in KNOWN_TASKS:
        for name in task.keys:
            assert name in {*all_keys(), *SECTIONS}
            assert not all(other.reads(name) for other in KNOWN_TASKS)


def test_no_two_tasks_share_what_names_one() -> None:
    for what in ("name", "task"):
        values = [value for task in KNOWN_TASKS if (value := getattr(task, what)) is not None]
        assert len(set(values)) == len(values), what
    saved = [(task.network_class, task.problem_type) for task in KNOWN_TASKS if task.network_class is not None]
    assert len(set(saved)) == len(saved)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("no_such_module:INFO", "cannot import no_such_module:INFO: ModuleNotFoundError"),
        ("nlpctl.names:INFO", "has no attribute 'INFO'"),
        ("nlpctl.names:nearest", "nlpctl.names:nearest is not an nlpctl.config.tasks.TaskInfo"),
        ("nlpctl.config.tasks:TEXT_MATCHING", "nlpctl already has a task text_matching"),
    ],
)
def test_what_is_no_task_is_refused(named: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NLPCTL_TASKS", named)
    with pytest.raises(UserError, match="NLPCTL_TASKS") as caught:
        task_info("text_matching")
    assert message in str(caught.value)
