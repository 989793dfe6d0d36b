"""What an unknown flag is answered with."""

from __future__ import annotations

import pytest

from nlpctl.cli.app import main


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--max_seq_length", "--set data.max_seq_length=VALUE"),
        ("--epochs", "did you mean --num_train_epochs"),
        ("--lr", "did you mean --learning_rate"),
        ("--batch-size", "--per_device_train_batch_size or --per_device_eval_batch_size"),
        ("--learnin_rate", "did you mean --learning_rate?"),
        ("--resum", "did you mean --resume"),
        ("--qqqq", "nlpctl recipe flags"),
    ],
)
def test_unknown_flags_are_answered_with_the_nearest(flag: str, hint: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["train", "quickstart", flag, "3"]) == 2
    assert hint in capsys.readouterr().err
