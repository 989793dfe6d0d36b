"""A training step that does not fit into memory is repeated in smaller parts, and the run goes on from there."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
import paddle

from nlpctl.data.batches.batching import LengthGroupedBatchSampler
from nlpctl.errors import Interrupted, RunFailed, UserError
from nlpctl.runtime.event_log import EventLog
from nlpctl.tasks.sequence_classification import SequenceClassification
from nlpctl.training import fast_cpu
from nlpctl.training.oom import MicroBatching, is_out_of_memory, record_division, recorded_division
from nlpctl.training.trainer import RecipeTrainer
from tests.training.conftest import weights

# As Paddle 2.6.2 words it on a GPU (fluid/memory/allocation/cuda_allocator.cc) and, with CUDA's libraries, elsewhere.
ON_GPU = (
    "(ResourceExhausted) \n\nOut of memory error on GPU 0. Cannot allocate 1.500000GB memory on GPU 0, 14.733521GB "
    "memory has been allocated and available memory is only 1.037537GB.\n\nPlease check whether there is any other "
    "process using GPU 0.\n1. If yes, please stop them, or start PaddlePaddle on another GPU.\n2. If no, please "
    "decrease the batch size of your model. \n (at /paddle/paddle/fluid/memory/allocation/cuda_allocator.cc:86)\n"
)
CUDA = "(External) CUDA error(2), out of memory. \n  [Hint: 'cudaErrorMemoryAllocation'.] (at gpu_info.cc:109)"
CUBLAS = "(External) CUBLAS error(3). \n  [Hint: 'CUBLAS_STATUS_ALLOC_FAILED'. ] (at blas_impl.cu.h:35)"
NO_DROPOUT = ("model.config.hidden_dropout_prob=0", "model.config.attention_probs_dropout_prob=0")
PARTS = ("training.per_device_train_batch_size=4", "training.gradient_accumulation_steps=2")


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """`no_room(most, once_at=k)`: a loss over more than `most` rows finds no memory, from its k-th call on, or only
    then. The gradients of a part before it are there already. Returns the sizes that were asked for."""
    loss = SequenceClassification.loss

    def install(most: int, first: int = 0) -> list[int]:
        sizes: list[int] = []

        def limited(self, network, outputs, batch):
            rows = batch["labels"].shape[0]
            if not network.training:
                return loss(self, network, outputs, batch)
            sizes.append(rows)
            if rows > most and len(sizes) > first:
                raise MemoryError(ON_GPU)
            return loss(self, network, outputs, batch)

        monkeypatch.setattr(SequenceClassification, "loss", limited)
        return sizes

    return install


def divisions(run) -> list[tuple[int, int, int]]:
    found = [event for event in EventLog(run.events_file).read() if event["event"] == "out_of_memory"]
    return [
        (each["step"], each["per_device_train_batch_size"], each["gradient_accumulation_steps"]) for each in found
    ]


@pytest.fixture(scope="module")
def parts(tiny):
    """Never out of memory: batches of 4 in two parts from the beginning, with dropout."""
    return tiny("parts", *PARTS)


@pytest.fixture(scope="module")
def plain_parts(tiny):
    """The same without dropout, whose masks depend on how a batch is cut."""
    return tiny("plain-parts", *PARTS, *NO_DROPOUT)


def test_in_the_first_step_it_becomes_the_run_with_that_accumulation(tiny, parts, no_room, difference):
    sizes = no_room(4)
    run = tiny("first")
    assert sizes[:4] == [8, 4, 4, 4] and max(sizes[1:]) == 4
    assert divisions(run) == [(0, 4, 2)]
    assert difference(run.model, parts.model) == 0.0


@pytest.mark.parametrize("k", [6, 9])  # the first step of the second epoch, and one within it
def test_from_step_k_on_it_is_the_run_with_that_accumulation(tiny, plain_parts, no_room, difference, k):
    """Before step k the sums of 8 rows and of 4 + 4 differ by their rounding, and only by that."""
    no_room(4, first=k)
    run = tiny(f"later-{k}", *NO_DROPOUT)
    assert divisions(run) == [(k, 4, 2)]
    assert 0.0 < difference(run.model, plain_parts.model) < 1e-5
    assert [event["step"] for event in EventLog(run.events_file).read() if event["event"] == "log"] == [*range(1, 13)]


BATCH_NORM = """
from paddle import nn

class Normed(nn.Layer):
    def __init__(self, config):
        super().__init__()
        self.words, self.norm = nn.Embedding(config.vocab_size, 8), nn.BatchNorm1D(8)
        self.out = nn.Linear(8, config.num_labels)

    def forward(self, input_ids):
        return self.out(self.norm(self.words(input_ids).mean(1)))
"""


def test_what_the_failed_forward_pass_changed_is_undone(tiny, no_room, monkeypatch):
    """The moving means of batch normalisation, which no gradient trains."""
    (tiny.folder / "batch_norm.py").write_text(BATCH_NORM)
    monkeypatch.chdir(tiny.folder)
    expected = tiny("normed-parts", *PARTS, "model.network=batch_norm:Normed")
    no_room(4)
    found = tiny("normed", "model.network=batch_norm:Normed")
    assert divisions(found) == [(0, 4, 2)]
    one, other = (weights(run.model) for run in (found, expected))
    assert "network.norm._mean" in one and all((one[name] == other[name]).all() for name in one)


def test_resumed_it_ends_with_the_same_bits(tiny, no_room, difference, monkeypatch):
    """Going on in memory is going on from a checkpoint of the last completed step: with dropout, in every bit."""
    no_room(4, first=6)
    run = tiny("halved")  # lacked memory in step 7, after checkpoint-6
    monkeypatch.undo()
    stopped = tiny.folder / "stopped"
    with pytest.raises(RunFailed), monkeypatch.context() as broken:
        broken.setattr(SequenceClassification, "loss", _fails_after(6))
        tiny("stopped")
    record_division(EventLog(stopped / "events.jsonl"), 6, MicroBatching(4, 2))
    resumed = tiny("stopped", resume=True)
    assert divisions(resumed) == divisions(run) == [(6, 4, 2)]
    assert difference(resumed.model, run.model) == 0.0


def _fails_after(steps: int):
    calls, loss = [], SequenceClassification.loss

    def failing(self, network, outputs, batch):
        if network.training:
            calls.append(1)
            if len(calls) > steps:
                raise RunFailed("the test ends it here")
        return loss(self, network, outputs, batch)

    return failing


def test_halved_again_and_again_within_a_step(tiny, no_room, difference):
    """The second part of step 4 lacks memory when the first has left its gradients: they must not count twice."""
    sizes = no_room(2, first=7)
    run = tiny("again", *PARTS, *NO_DROPOUT, "training.max_steps=5")
    assert sizes[:8] == [4] * 8 and sizes[8:] == [2] * 8
    assert divisions(run) == [(3, 2, 4)]
    reference = tiny("again-reference", *NO_DROPOUT, "training.max_steps=5")
    assert difference(run.model, reference.model) < 1e-5


def test_a_stream(tiny, no_room, difference):
    stream = ("data.streaming=true", "data.labels=[neg,pos]", "data.shuffle_buffer=20", "training.max_steps=9")
    no_room(4)
    run = tiny("stream", *stream)
    assert divisions(run) == [(0, 4, 2)]
    assert difference(run.model, tiny("stream-parts", *stream, *PARTS).model) == 0.0


def test_masks_of_the_repeated_step_are_those_of_the_run_with_that_accumulation(tiny, difference, monkeypatch):
    from nlpctl.tasks.masked_language_model import MaskedLanguageModel

    masked = ("task=masked_language_model", "training.max_steps=4", "data.dev=[]", "training.evaluation_strategy=no")
    reference = tiny("masked-parts", *masked, *PARTS)
    loss = MaskedLanguageModel.loss

    def limited(self, network, outputs, batch):
        if outputs[0].shape[0] > 4:
            raise MemoryError(ON_GPU)
        return loss(self, network, outputs, batch)

    monkeypatch.setattr(MaskedLanguageModel, "loss", limited)
    assert difference(tiny("masked", *masked).model, reference.model) == 0.0


def test_it_fails_where_that_is_wanted_and_goes_on_when_resumed_otherwise(tiny, parts, no_room, difference):
    no_room(4)
    told = "(?s)out of memory in step 1, with micro-batch 8.*Out of memory error on GPU.*"
    with pytest.raises(RunFailed, match=f"{told}nlpctl train .*/fails --resume --set runtime.on_oom=halve"):
        tiny("fails", "runtime.on_oom=fail")
    assert tiny("fails", "runtime.on_oom=halve", resume=True).read_manifest().state == "finished"
    assert difference(tiny.folder / "fails" / "model", parts.model) == 0.0


def test_a_single_row_that_does_not_fit(tiny, no_room):
    sizes = no_room(0)
    with pytest.raises(RunFailed, match="(?s)with micro-batch 1.*max_seq_length"):
        tiny("too-much")
    assert sizes == [8, 4, 2, 1]


def test_other_errors_are_not_taken_for_it(tiny, monkeypatch):
    def broken(self, network, outputs, batch):
        raise OSError("No space left on device")

    monkeypatch.setattr(SequenceClassification, "loss", broken)
    with pytest.raises((RunFailed, UserError), match="No space left"):
        tiny("other")
    assert not [event for event in EventLog(tiny.folder / "other" / "events.jsonl").read() if "batch" in str(event)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(ON_GPU), True),
        (MemoryError(), True),
        (OSError(CUDA), True),
        (OSError(CUBLAS), True),
        (OSError("(External) CUDNN error(8), CUDNN_STATUS_EXECUTION_FAILED."), False),
        (OSError(28, "No space left on device"), False),
        (RuntimeError("out of memory"), False),
    ],
)
def test_what_counts_as_out_of_memory(error, expected):
    assert is_out_of_memory(error) is expected


def test_paddle_raises_what_is_caught():
    with pytest.raises(MemoryError, match=r"\(ResourceExhausted\) Fail to alloc memory of \d+ size") as caught:
        paddle.empty([2**44], dtype="float32")
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [((8, 1), (4, 2)), ((6, 2), (3, 4)), ((9, 1), (3, 3)), ((7, 2), (1, 14)), ((2, 3), (1, 6)), ((1, 8), None)],
)
def test_the_product_stays(sizes, expected):
    smaller = MicroBatching(*sizes).smaller()
    assert (smaller and (smaller.batch_size, smaller.parts)) == expected


@pytest.mark.parametrize("rows", [61, 48, 5])
def test_the_updates_of_an_epoch_stay_the_same(rows):
    """Their examples, in the same order: what makes going on within an epoch exact."""
    lengths = np.random.default_rng(3).integers(1, 99, rows)
    division, found = MicroBatching(12, 1), []
    while division is not None:
        sampler = LengthGroupedBatchSampler(lengths, division.batch_size, accumulation_steps=division.parts, seed=5)
        found.append([batch.tolist() for batch in sampler.global_batches()])
        division = division.smaller()
    assert len(found) == 4 and all(each == found[0] for each in found)


def test_the_last_division_up_to_a_step(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    assert recorded_division(log, 10) is None
    for step, division in ((3, MicroBatching(8, 2)), (7, MicroBatching(4, 4))):
        record_division(log, step, division)
    assert [recorded_division(log, step) for step in (2, 3, 6, 7)] == [
        None, MicroBatching(8, 2), MicroBatching(8, 2), MicroBatching(4, 4)
    ]  # fmt: skip


def test_nothing_of_the_failed_step_is_kept(tiny, monkeypatch):
    """Its activations would take the room that the smaller parts need."""
    loss, failed, alive = SequenceClassification.loss, [], []

    def limited(self, network, outputs, batch):
        if network.training and failed:
            alive.append(failed[0]() is not None)
        if outputs[0].shape[0] > 4 and network.training:
            failed.append(weakref.ref(outputs[0]))
            raise MemoryError(ON_GPU)
        return loss(self, network, outputs, batch)

    monkeypatch.setattr(SequenceClassification, "loss", limited)
    tiny("freed", "training.max_steps=2", "training.dataloader_num_workers=1")
    assert len(failed) == 1 and len(alive) == 4 and not any(alive)


@pytest.mark.parametrize(
    ("given", "planned", "recorded", "processes", "expected"),
    [
        (
            MicroBatching(8, 1),
            2,
            MicroBatching(4, 4),
            2,
            MicroBatching(4, 2),
        ),  # recorded with one process of the planned two
        (MicroBatching(8, 1), 1, MicroBatching(4, 1), 1, MicroBatching(4, 2)),  # with two of the planned one
        (MicroBatching(8, 1), 2, MicroBatching(4, 2), 2, MicroBatching(4, 2)),
        (MicroBatching(8, 1), 2, None, 2, None),
        (MicroBatching(8, 1), 2, None, 1, MicroBatching(8, 2)),
    ],
)
def test_a_step_has_its_rows_whoever_ran_out_of_memory(given, planned, recorded, processes, expected):
    divided = []
    args = SimpleNamespace(
        per_device_train_batch_size=given.batch_size,
        gradient_accumulation_steps=given.parts,
        dataset_world_size=processes,
    )
    run = SimpleNamespace(read_manifest=lambda: SimpleNamespace(processes=planned, planned_processes=None))
    trainer = SimpleNamespace(args=args, directory=run, divide=divided.append)
    RecipeTrainer._divide_as_before(trainer, recorded)
    assert divided == ([] if expected is None else [expected])


def test_lack_of_memory_in_a_gradient_is_caught():
    class Greedy(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return paddle.empty([2**44], dtype="float32")

    x = paddle.ones([3])
    x.stop_gradient = False
    with pytest.raises(OSError) as caught:
        Greedy.apply(x).sum().backward()
    assert is_out_of_memory(caught.value)


def test_an_interruption_in_a_gradient_is_one(tiny, monkeypatch):
    def interrupted(ctx, gradient):
        raise KeyboardInterrupt

    monkeypatch.setattr(fast_cpu._Gelu, "backward", staticmethod(interrupted))
    with pytest.raises(Interrupted):
        tiny("interrupted")
