"""What is told before a training begins: how many rows are cut."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from nlpctl.config.schema import DataSection
from nlpctl.data.rows.text_rows import TextRows
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.units import PAD, SEP, UNK, UnitEncoder, UnitSettings, UnitTokenizer
from nlpctl.data.training_data import read_training_data
from nlpctl.training.prepare import warn_of_truncated_rows


@dataclass
class FourTokens:
    """What is asked of a task."""

    data: DataSection

    def overhead(self, encoder: TextEncoder, pair: bool) -> int:
        return encoder.overhead(pair)


@pytest.mark.parametrize(
    ("rows", "uncut", "streaming", "told"),
    [
        (300, 299, False, "1 of 300 training rows; 0.3 % of all tokens"),
        (9000, 4500, False, "about 50.0 % of the training rows; 33.3 % of all tokens"),
        (9000, 1, False, "nearly all of the training rows; 50.0 % of all tokens"),  # one may fit into the sample
        (9000, 200, True, "100 of the first 300 training rows; 25.0 % of their tokens"),
        (30, 20, True, "10 of the first 30 training rows"),
    ],
)
def test_how_many_are_cut(tmp_path, capfd, rows, uncut, streaming, told):
    lines = [f"{'aaaa' if i < uncut else 'aaaaaaaa'}\t{i % 2}\n" for i in range(rows)]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "".join(lines))
    data = DataSection(
        train=(str(tmp_path / "train.tsv"),), streaming=streaming, labels=("0", "1"), max_seq_length=4,
        on_bad_row="stop",
    )  # fmt: skip
    encoder = UnitEncoder(UnitTokenizer([PAD, UNK, SEP, "a"], UnitSettings()))
    network = SimpleNamespace(config=SimpleNamespace())  # without a limit of its own
    prepared = SimpleNamespace(task=FourTokens(data), encoder=encoder, model=SimpleNamespace(network=network))
    found = warn_of_truncated_rows(prepared, read_training_data(TextRows(data)))
    assert found is not None and 0 < found.truncated <= found.rows <= rows and found.unread > 0
    assert f"cut to 4 tokens: {told}" in " ".join(capfd.readouterr().err.split())
