"""PaddleNLP's own Trainer, as it is: what nlpctl/training does otherwise, and why."""

import numpy as np
import paddle
import pytest
from paddlenlp.trainer import Trainer, TrainingArguments

from nlpctl.paddle_version import release
from nlpctl.upstream.parameter_names import fresh_parameter_names


class Rows(paddle.io.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return {"x": np.full([4], index / 12, "float32"), "labels": np.int64(index % 2)}


class Network(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(4, 2)
        self.dropout = paddle.nn.Dropout(0.5)

    def forward(self, x):
        return self.linear(self.dropout(x))


def train(folder, resume=None, **arguments):
    """Eight steps of two rows; returns the weight."""
    with fresh_parameter_names():
        paddle.seed(0)
        np.random.seed(0)
        network = Network()
        defaults = {"save_steps": 100, "max_steps": 8, "learning_rate": 0.1, "per_device_train_batch_size": 2}
        trainer = Trainer(
            model=network,
            args=TrainingArguments(output_dir=str(folder), disable_tqdm=True, report_to=[], **(defaults | arguments)),
            train_dataset=Rows(),
            criterion=paddle.nn.CrossEntropyLoss(),
        )
        trainer.label_names = ["labels"]
        trainer.train(resume_from_checkpoint=resume)
        return network.linear.weight.numpy()


def test_checkpoints_are_still_not_rotated_on_one_process(tmp_path):
    train(tmp_path, save_steps=2, save_total_limit=1)
    assert len(list(tmp_path.glob("checkpoint-*"))) == 4


def test_resuming_still_gives_other_weights(tmp_path):
    whole = train(tmp_path / "a", save_steps=4)
    np.testing.assert_array_equal(train(tmp_path / "b"), whole)  # a plain repetition is exact
    resumed = train(tmp_path / "c", resume=str(tmp_path / "a" / "checkpoint-4"))
    if release() < (3, 0):
        assert np.abs(resumed - whole).max() > 1e-3
    else:  # mended there
        np.testing.assert_array_equal(resumed, whole)


def test_bf16_on_cpu_is_still_float32_in_silence(tmp_path):
    if paddle.device.is_compiled_with_cuda():
        pytest.skip("a GPU build may have a card")
    np.testing.assert_array_equal(train(tmp_path / "a", bf16=True), train(tmp_path / "b"))


def test_fp16_on_cpu_still_crashes(tmp_path):
    if paddle.device.is_compiled_with_cuda():
        pytest.skip("a GPU build may have a card")
    with pytest.raises(AttributeError, match="'GradScaler' object has no attribute"):
        train(tmp_path, fp16=True)
