"""A threshold that is asked for now, and those that were tuned."""

from __future__ import annotations

import json

from made_runs import make_run

from nlpctl.config.load import Override, load_recipe
from nlpctl.engines.trained import open_network
from nlpctl.files import read_json
from nlpctl.runtime.process import set_up_process


def test_a_threshold_that_is_asked_for_counts_where_others_were_tuned(tmp_path):
    run = make_run(tmp_path, "multi_label_classification")
    model = run.run_dir / "model"
    labels = read_json(model / "labels.json")
    tuned = {**labels, "thresholds": [0.9] * len(labels["labels"])}
    (model / "labels.json").write_text(json.dumps(tuned))

    def thresholds(*flags):
        overrides = [Override("runtime.trust_edits", "true", "--set"), *flags]
        recipe = load_recipe(run.run_dir, overrides, "apply")
        return open_network(recipe, set_up_process(recipe), str(model)).task.thresholds

    assert thresholds() == (0.9,) * len(labels["labels"])
    assert thresholds(Override("decode.threshold", "0.2", "--set")) is None
