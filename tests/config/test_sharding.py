"""An optimizer is spread over all processes of a training, or not at all."""

from __future__ import annotations

import pytest

from nlpctl.config.checks import refuse_wrong_sharding
from nlpctl.errors import UserError

GOOD = """\
task: sequence_classification
model: {name_or_path: ernie-3.0-nano-zh}
data: {train: train.tsv}
"""


@pytest.mark.parametrize(
    ("text", "on_one", "on_several"),
    [
        ("training: {sharding: stage1}", "needs several processes", ""),
        ("training: {sharding: stage1, sharding_parallel_degree: 2}\nruntime: {nproc: 4}", "over all", "over all"),
        ("training: {sharding: stage1, sharding_parallel_degree: 2}\nruntime: {nproc: 2}", "", "over all"),
        ("training: {sharding: stage1}\nruntime: {nproc: 2}", "", ""),
    ],
)
def test_sharding_is_over_all_processes(load, text: str, on_one: str, on_several: str) -> None:
    """How many there are depends on the nodes, which a recipe does not name."""
    recipe = load(GOOD + text)
    for told, several in ((on_one, False), (on_several, True)):
        if told:
            with pytest.raises(UserError, match=rf"recipe.yaml:4: .*{told}"):
                refuse_wrong_sharding(recipe, several)
        else:
            refuse_wrong_sharding(recipe, several)
