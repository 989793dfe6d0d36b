"""The recipe of a run that goes on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from nlpctl.training.continued import overrides_for_more_epochs


@pytest.mark.parametrize(
    ("path", "steps", "epochs", "more", "total", "folder"),
    [
        ("/data/exp-10-epochs/b-3-epochs-large", -1, 3.0, 2, "5", "/data/exp-10-epochs/b-3-epochs-large-5-epochs"),
        ("/data/bert-5-epochs", -1, 5.0, 1, "6", "/data/bert-6-epochs"),
        ("/data/bert", -1, 2.5, 1, "3.5", "/data/bert-3.5-epochs"),
        ("/data/bert", 1234567, 3.0, 1, "1234568", "/data/bert-1234568-steps"),
    ],
)
def test_the_total_is_exact_and_ends_the_name_of_the_folder(path, steps, epochs, more, total, folder):
    recipe = SimpleNamespace(training=SimpleNamespace(max_steps=steps, num_train_epochs=epochs))
    wanted, output = overrides_for_more_epochs(recipe, Path(path), more)
    assert (wanted.text, output.text) == (total, folder)
