"""Made-up batches, which engines are timed with, are such as the graphs of each task take."""

from __future__ import annotations

import pytest

from nlpctl.config.recipe_of import recipe_of
from nlpctl.export.export import export
from nlpctl.export.request import ExportRequest
from nlpctl.models.export_folder import read_manifest
from nlpctl.models.find import find_trained_model
from nlpctl.runtime.process import set_up_process


@pytest.mark.parametrize("task", ["question_answering", "few_shot_classification", "masked_language_model"])
def test_samples_suit_the_graph(made_run, task):
    recipe = made_run(task)
    folder = export(recipe, find_trained_model(recipe), ExportRequest(("paddle",), ("fp32",))).folder
    manifest, setup = read_manifest(folder), set_up_process(recipe)
    from nlpctl.engines.choice import open_choice, runnable_here
    from nlpctl.engines.samples import sample_batches

    for batch_size in (1, 7):
        batches = sample_batches(folder, recipe_of(folder), batch_size, 20)
        assert {len(batch["input_ids"]) for batch in batches} == {batch_size}
        widths = [batch["input_ids"].shape[1] for batch in batches]
        assert len(set(widths)) > 1 and max(widths) <= manifest.max_seq_length
        predictor = open_choice(folder, manifest, runnable_here(manifest, setup)[0], setup, batch_size)
        for batch in batches:
            assert list(batch) == [spec.name for spec in manifest.inputs]
            assert len(predictor.outputs(batch)) == len(manifest.outputs)
