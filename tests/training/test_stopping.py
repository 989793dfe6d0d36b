"""A signal at any moment of a training: the last completed step is saved, and a resumed run ends with the same bits."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

import nlpctl  # noqa: F401  before paddle
from nlpctl.errors import Interrupted, RunFailed
from nlpctl.layout import checkpoint_step, checkpoints_in
from nlpctl.models import folder as model_folder
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.sequence_classification import SequenceClassification
from tests.training.conftest import weights

EPOCHS = ("training.evaluation_strategy=epoch", "training.save_strategy=epoch", "training.load_best_model_at_end=true")
PARTS = ("training.per_device_train_batch_size=4", "training.gradient_accumulation_steps=2")
LOGGED = ("training.logging_steps=3",)
SHORT = (*EPOCHS, "training.max_steps=9")  # it ends within an epoch; evaluation and save are due nevertheless


@pytest.fixture
def signal_at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`signal_at(training=k)`: Ctrl-C, or another signal, while the k-th batch is trained on, or while the first is
    scored."""
    loss = SequenceClassification.loss

    def install(
        training: int | None = None, scoring: bool = False, times: int = 1, number: int = signal.SIGINT
    ) -> None:
        batches: list[bool] = []

        def interrupted(self, network, outputs, batch):
            batches.append(network.training)
            hit = batches.count(False) == 1 if scoring else batches.count(True) == training and network.training
            if hit:
                for _ in range(times):
                    os.kill(os.getpid(), number)
            return loss(self, network, outputs, batch)

        monkeypatch.setattr(SequenceClassification, "loss", interrupted)

    return install


def events(run) -> list[tuple[str, int]]:
    return [(event["event"], event["step"]) for event in EventLog(run.events_file).read()]


def losses(run) -> list[tuple[int, float]]:
    return [(event["step"], event["loss"]) for event in EventLog(run.events_file).read() if "loss" in event]


def steps_saved(run) -> list[int]:
    return [checkpoint_step(path) for path in checkpoints_in(run.checkpoints)]


@pytest.mark.parametrize(
    ("settings", "when", "saved"),
    [
        ((), {"training": 1}, [1]),
        ((), {"training": 3}, [3]),
        (LOGGED, {"training": 4}, [4]),  # the last line of the log was at step 3, the next is at 6
        ((), {"training": 6}, [6]),  # evaluation and save are due after it
        ((), {"scoring": True}, [6]),  # it ends what it does
        ((), {"training": 7}, [6, 7]),
        ((), {"training": 12}, [6, 12]),  # the last
        (PARTS, {"training": 5}, [3]),  # the first part of the third step
        (EPOCHS, {"training": 6}, [6]),
        (SHORT, {"training": 9}, [6, 9]),
    ],
)
def test_resumed_with_the_same_bits(tiny, signal_at, monkeypatch, difference, settings, when, saved):
    name = f"{len(settings)}-{'-'.join(map(str, when.items()))}"
    with monkeypatch.context():
        signal_at(**when)
        with pytest.raises(Interrupted, match=f"goes on from checkpoint-{saved[-1]}"):
            tiny(name, *settings)
        monkeypatch.undo()
    whole_name = f"whole-{'-'.join(settings)}"
    run = RunDirectory(tiny.folder / name)
    assert steps_saved(run) == saved and run.read_manifest().state == "interrupted"
    assert events(run)[-1] == ("save", saved[-1]) and not run.model.exists()

    whole = RunDirectory(tiny.folder / whole_name)
    if not whole.path.exists():
        tiny(whole_name, *settings)
    tiny(name, *settings, resume=True)
    assert difference(run.model, whole.model) == 0.0
    extra = [("save", step) for step in saved if step not in steps_saved(whole)]
    assert [event for event in events(run) if event not in extra] == events(whole)
    assert losses(run) == losses(whole)
    assert run.metrics_file.read_text() == whole.metrics_file.read_text()


def test_texts_are_read_as_before_the_stop(tiny, signal_at, monkeypatch, difference):
    """Whatever this version makes of the tokenizer files of the encoder: an earlier one read some otherwise."""
    folder = Path(__file__).parents[1] / "models" / "huggingface" / "bert-encoder"
    encoder = Path(shutil.copytree(folder, tiny.folder / "cased"))
    pieces = {piece: number for number, piece in enumerate((encoder / "vocab.txt").read_text().split())}
    (encoder / "vocab.txt").unlink()
    made = Tokenizer(WordPiece(pieces, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = BertNormalizer(lowercase=True), BertPreTokenizer()
    made.post_processor = BertProcessing(("[SEP]", pieces["[SEP]"]), ("[CLS]", pieces["[CLS]"]))
    made.save(str(encoder / "tokenizer.json"))
    read = json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    (encoder / "tokenizer_config.json").write_text(read)
    rows = [f"{chance} {chance.upper()}\t{label}\n" for chance, label in (("a b", "neg"), ("c a", "pos"))]
    cases = tiny.folder / "case.tsv"
    cases.write_text("text\tlabel\n" + "".join(rows * 10))
    settings = ("model.from_scratch=null", f"model.name_or_path={encoder}", f"data.train={cases}", f"data.dev={cases}")
    whole = tiny("case-whole", *settings)
    with monkeypatch.context():
        signal_at(training=2)
        with pytest.raises(Interrupted):
            tiny("case", *settings)
        monkeypatch.undo()
    (encoder / "tokenizer_config.json").write_text(read.replace("true", "false"))
    run = tiny("case", *settings, resume=True)
    assert difference(run.model, whole.model) == 0.0
    assert json.loads((run.model / "tokenizer_config.json").read_text())["do_lower_case"] is True
    assert run.metrics_file.read_text() == whole.metrics_file.read_text()


def test_what_a_checkpoint_replaces_is_not_called_new(tiny, signal_at, monkeypatch, capsys):
    encoder = Path(__file__).parents[1] / "models" / "huggingface" / "bert-encoder"
    settings = ("model.from_scratch=null", f"model.name_or_path={encoder}")
    with monkeypatch.context():
        signal_at(training=1)
        with pytest.raises(Interrupted):
            tiny("new-head", *settings)
        monkeypatch.undo()
    assert "newly initialised: classifier.weight, classifier.bias" in capsys.readouterr().err
    tiny("new-head", *settings, resume=True)
    told = capsys.readouterr().err
    assert "resuming from" in told and "newly initialised" not in told


PARTLY = """
from paddle import nn, optimizer

class Partly(nn.Layer):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, 8)
        self.sometimes, self.late = nn.Linear(8, 8), nn.Linear(8, 8)
        self.out = nn.Linear(8, config.num_labels)

    def forward(self, input_ids):
        hidden = self.words(input_ids).mean(1)
        if int(input_ids.sum()) % 2:
            hidden = hidden + self.sometimes(hidden)
        if len(input_ids) == 5:  # the last batch of an epoch
            hidden = hidden + self.late(hidden)
        return self.out(hidden)

def adam(model, args):
    return optimizer.AdamW(args.learning_rate, parameters=model.parameters(), weight_decay=0.1)
"""


@pytest.mark.parametrize("own", [(), ("training.optimizer=partly_used:adam",)], ids=["ours", "own"])
def test_layers_that_some_batches_use_go_on_with_the_same_bits(tiny, signal_at, monkeypatch, own):
    """`late` has its first gradient in step 6; `sometimes` has none in some steps before and after each stop."""
    (tiny.folder / "partly_used.py").write_text(PARTLY)
    monkeypatch.chdir(tiny.folder)
    settings = ("model.network=partly_used:Partly", "training.weight_decay=0.1", *own)
    whole = tiny(f"partly-{len(own)}", *settings)
    for step in (5, 7):
        name = f"partly-{len(own)}-{step}"
        with monkeypatch.context():
            signal_at(training=step)
            with pytest.raises(Interrupted):
                tiny(name, *settings)
            monkeypatch.undo()
        monkeypatch.chdir(tiny.folder)
        resumed = tiny(name, *settings, resume=True)
        found, expected = weights(resumed.model), weights(whole.model)
        assert {name: each.tobytes() for name, each in found.items()} == {
            name: each.tobytes() for name, each in expected.items()
        }


def test_the_second_signal_stops_at_once(tiny, signal_at):
    signal_at(training=3, times=2)
    with pytest.raises(Interrupted, match="goes on from the start, since there is no checkpoint yet"):
        tiny("twice")
    assert steps_saved(RunDirectory(tiny.folder / "twice")) == []


def test_a_checkpoint_that_takes_too_long_is_absent(tiny, signal_at, monkeypatch):
    """The time is up while it is written: many systems kill 30 seconds after SIGTERM."""
    signal_at(training=7, number=signal.SIGTERM)
    save, written = model_folder.save_model_folder, []

    def slow(folder, *rest):
        save(folder, *rest)
        written.append(folder)
        if len(written) == 2:
            signal.raise_signal(signal.SIGALRM)

    monkeypatch.setattr(model_folder, "save_model_folder", slow)
    with pytest.raises(Interrupted, match="goes on from checkpoint-6"):
        tiny("slow")
    run = RunDirectory(tiny.folder / "slow")
    assert len(written) == 2 and steps_saved(run) == [6] and not list(run.path.rglob(".staging-*"))
    assert events(run)[-1][0] == "log"


def test_a_run_that_is_deleted_while_it_trains_ends_at_once(tiny, monkeypatch):
    loss, batches = SequenceClassification.loss, []

    def deleting(self, network, outputs, batch):
        batches.append(network.training)
        if len(batches) == 2:
            shutil.rmtree(tiny.folder / "deleted")
        return loss(self, network, outputs, batch)

    monkeypatch.setattr(SequenceClassification, "loss", deleting)
    with pytest.raises(RunFailed, match="the run directory was deleted"):
        tiny("deleted")
    assert len(batches) == 2 and not (tiny.folder / "deleted" / "model").exists()
