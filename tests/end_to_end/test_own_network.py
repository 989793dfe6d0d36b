"""A network class of one's own: trained, stored, scored, exported; whose code runs, and when."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path

import pytest

CODE = """
    import paddle
    from paddle import nn
    from paddlenlp.transformers import BertPretrainedModel, ErnieModel, ErniePretrainedModel


    class Bag(nn.Layer):
        def __init__(self, config):
            super().__init__()
            self.pad = config.pad_token_id
            self.words = nn.Embedding(config.vocab_size, config.width)
            self.out = nn.Linear(config.width, config.num_labels)

        def forward(self, input_ids):
            mask = (input_ids != self.pad).unsqueeze(-1).astype("float32")
            return self.out((self.words(input_ids) * mask).sum(1) / mask.sum(1))


    class MeanForSequenceClassification(ErniePretrainedModel):
        def __init__(self, config):
            super().__init__(config)
            self.ernie = ErnieModel(config)
            self.out = nn.Linear(config.hidden_size, config.num_labels)

        def forward(self, input_ids, token_type_ids=None):
            return self.out(self.ernie(input_ids, token_type_ids=token_type_ids)[0].mean(1))


    class Three(Bag):
        def __init__(self, config):
            super().__init__(config)
            self.out = nn.Linear(config.width, 3)

    class Hungry(Bag):
        def forward(self, input_ids, picture):
            return super().forward(input_ids)

    class Fails(Bag):
        def forward(self, input_ids):
            return self.nothing(input_ids)

    class Adds(Bag):
        def __init__(self, config):
            super().__init__(config)
            self.mix = nn.Linear(config.width, config.width)

        def forward(self, input_ids):
            hidden = self.words(input_ids).mean(1)
            return self.out(hidden.add_(self.mix(hidden)))

    class Unmade(nn.Layer):
        def __init__(self, config):
            super().__init__()
            self.words = nn.Embedding(config.no_such_size, 4)

    class Berts(BertPretrainedModel):
        pass

    def function(config):
        return Bag(config)
"""

NAMED = ("--set", "model.network=networks:Bag")
BAG = "--set model.network=networks:Bag --set model.config.width=16 --max_steps 9 --evaluation_strategy steps"
BAG = f"{BAG} --eval_steps 3 --save_strategy steps --save_steps 3".split()


@pytest.fixture(scope="session")
def code(work) -> Path:
    (work / "networks.py").write_text(textwrap.dedent(CODE))
    return work / "networks.py"


@pytest.fixture(scope="session")
def bag(work, code) -> Path:
    return work.train("bag", *BAG, "--set", "model.config.hidden_dropout_prob=0")


def accuracy(done) -> float:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["metrics"]["test"]["accuracy"]


def test_a_plain_layer_is_trained_stored_and_scored(work, bag, weights):
    config = json.loads((bag / "model" / "config.json").read_text())
    assert config["own_network"]["class"] == "networks:Bag" and config["width"] == 16
    assert json.loads((bag / "model" / "task.json").read_text())["model"]["network"] == "networks:Bag"
    assert set(weights(bag / "model")) == {"network.words.weight", "network.out.weight", "network.out.bias"}
    metrics = json.loads((bag / "metrics.json").read_text())["test"]["accuracy"]
    for model in (bag, bag / "model", bag / "checkpoints" / "checkpoint-9"):
        scored = work.nlpctl("eval", model, work / "test.tsv", "--json", *NAMED)
        assert scored.returncode == 0, scored.stderr
        assert "model.network: networks:Bag (" in scored.stderr
    scored = json.loads(work.nlpctl("eval", bag, "--split", "test", "--json", *NAMED).stdout)["result"]["metrics"]
    assert scored["test"]["accuracy"] == pytest.approx(metrics)


def test_it_goes_on_to_the_same_bits(work, bag, weights):
    shutil.copytree(bag, work / "stopped")
    for path in (work / "stopped" / "checkpoints" / "checkpoint-9", work / "stopped" / "model"):
        shutil.rmtree(path)
    manifest = work.manifest("stopped") | {"state": "interrupted"}
    (work / "stopped" / "manifest.json").write_text(json.dumps(manifest))
    resumed = work.nlpctl("train", "recipe.yaml", "--resume", "--set", "training.output_dir=stopped", *BAG,
                          "--set", "model.config.hidden_dropout_prob=0")  # fmt: skip
    assert resumed.returncode == 0, resumed.stderr
    whole, stopped = weights(bag / "model"), weights(work / "stopped" / "model")
    assert all(whole[name].tobytes() == stopped[name].tobytes() for name in whole)


@pytest.mark.slow
def test_its_export_needs_no_code(work, bag, code, tmp_path):
    exported = work.nlpctl("export", bag, "-o", "bag_export", *NAMED)
    assert exported.returncode == 0, exported.stderr
    before = work.nlpctl("predict", bag, "test.tsv", *NAMED).stdout
    code.rename(tmp_path / "networks.py")
    try:
        after = work.nlpctl("predict", "bag_export", "test.tsv")
    finally:
        (tmp_path / "networks.py").rename(code)
    assert after.returncode == 0, after.stderr
    labels = [[json.loads(line)["label"] for line in text.splitlines()] for text in (before, after.stdout)]
    assert labels[0] == labels[1] and len(labels[0]) == 30


def test_a_class_of_paddlenlp_starts_from_an_encoder(work, base, code, weights, monkeypatch):
    from nlpctl.config.load import Override, load_recipe
    from nlpctl.graphs.to_static import reads_first_token
    from nlpctl.tasks.base import task_class

    text = (work / "recipe.yaml").read_text()
    scratch = text[text.index("  from_scratch") : text.index("  config")]
    own = "  network: networks:MeanForSequenceClassification\n  name_or_path: ./base\n"
    (work / "mean.yaml").write_text(text.replace(scratch, own))
    run = work.train("mean", "--max_steps", "2", *work.stepwise, "--learning_rate", "1e-12", recipe="mean.yaml")
    name = "ernie.encoder.layers.0.linear1.weight"
    first, second = weights(base / "model")[name], weights(run / "model")[name]
    assert abs(first - second).max() < 1e-6
    monkeypatch.chdir(work.folder)
    recipe = load_recipe(run, [Override("model.network", "networks:MeanForSequenceClassification", "--set")], "apply")
    network = task_class(recipe.task).load_trained(recipe, str(run)).network
    assert type(network).__name__ == "MeanForSequenceClassification" and not reads_first_token(network)


WRONG = [
    ("function", (), "is not a class of paddle.nn.Layer"),
    ("Three", (), "there are 2 labels"),
    ("Hungry", (), "does not take the batch (input_ids): missing a required argument: 'picture'"),
    ("Fails", (), "networks:Fails failed: AttributeError"),
    ("Unmade", (), "cannot be made: AttributeError"),
    ("Berts", (), "is built on 'bert', but the model is of the family Ernie"),
    ("Bags", (), "has no 'Bags' (did you mean 'Bag'"),
    ("Bag", ("--set", "model.from_scratch=null", "--set", "model.name_or_path=base/model"), "have no place in it"),
]


@pytest.mark.parametrize(("name", "more", "told"), WRONG, ids=[each[0] for each in WRONG])
def test_mistakes_are_told_before_a_run_begins(work, base, code, name, more, told):
    words = ["--set", f"model.network=networks:{name}", "--set", "model.config.width=8", *more]
    done = work.nlpctl("train", "recipe.yaml", "--set", "training.output_dir=wrong_network", *words)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "model.network" in done.stderr and told in " ".join(done.stderr.split()), done.stderr
    assert not (work / "wrong_network").exists()


@pytest.mark.parametrize("fast", ["true", "false"])
def test_a_change_in_place_that_spoils_a_gradient_is_told_by_the_key(work, code, fast):
    words = ["--set", "model.network=networks:Adds", "--set", "model.config.width=8", "--overwrite"]
    words += ["--set", f"training.fast_cpu={fast}", "--set", "training.output_dir=in_place"]
    done = work.nlpctl("train", "recipe.yaml", *words)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    told = "the input of a linear layer" if fast == "true" else "a tensor"
    assert f"(model.network): {told} was changed in place before the gradient that needs it" in done.stderr, done.stderr
    assert "h = h + y, not h.add_(y)" in done.stderr


def test_code_of_a_folder_is_not_run(work, bag, code, with_paddle):
    """A folder names code, which runs only where the user names it too; what changed is told."""
    source = code.read_text()
    unnamed = work.nlpctl("eval", "recipe.yaml", "test.tsv", "--set", f"training.output_dir={bag}")
    assert unnamed.returncode == 2 and "--set model.network=networks:Bag" in unnamed.stderr
    code.write_text(source + "# changed\n")
    changed = work.nlpctl("predict", bag, "test.tsv", *NAMED)
    code.unlink()
    without = work.nlpctl("predict", bag, "test.tsv", *NAMED)
    inside = bag / "networks.py"
    inside.write_text("print('it ran')\n" + source)
    try:
        refused = with_paddle.run(["predict", ".", str(work / "test.tsv")], bag)
    finally:
        inside.unlink()
        code.write_text(source)
    assert changed.returncode == 0 and "changed since the network was trained" in changed.stderr
    assert without.returncode == 2 and "(model.network): cannot import 'networks'" in without.stderr, without.stderr
    assert refused.code == 2 and "asks to run code: networks:Bag of networks.py" in " ".join(refused.err.split())
    assert "--set model.network=networks:Bag" in refused.err and "it ran" not in refused.out


def test_what_does_not_go_with_it_is_refused(work, bag, code):
    words = ["--set", "task=masked_language_model", "--set", "model.network=networks:Bag"]
    hidden = work.nlpctl("train", "recipe.yaml", *words, "--metric_for_best_model", "loss", "--output_dir", "refused")
    assert hidden.returncode == 2 and "puts a head of its own on an encoder" in hidden.stderr, hidden.stderr
    distilled = work.nlpctl("compress", bag, "--strategy", "dynabert", "-o", "bag_small", *NAMED)
    assert distilled.returncode == 2 and "model.network is a class of its own" in distilled.stderr, distilled.stderr
