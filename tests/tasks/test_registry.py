"""The lists of tasks agree: what recipes may name, what reads the rows, what does the work."""

from __future__ import annotations

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.tasks import KNOWN_TASKS
from nlpctl.data.kinds import KINDS
from nlpctl.tasks.registry import TASKS


def test_every_list_names_the_same_tasks():
    assert [info.name for info in KNOWN_TASKS] == list(TASKS) == list(KINDS)
    assert all(task.name == name for name, task in TASKS.items())
