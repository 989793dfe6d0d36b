"""Which heads and neurons count."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from made_runs import make_run

from nlpctl.compress.networks.dynabert import Importance, measure_importance
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.training_data import read_training_data
from nlpctl.models.pruned import PrunedShape, encoder_layers
from nlpctl.tasks.base import make_task, task_class


class Opened:
    """A network that was made, its task, and the features of its training rows."""

    def __init__(self, folder, task: str, *words: str):
        self.recipe = make_run(folder, task, *words)
        model = task_class(task).load_trained(self.recipe, str(self.recipe.run_dir))
        self.network = model.network
        self.task = make_task(self.recipe, LabelSet(model.labels))
        encoder = build_encoder(model.tokenizer)
        rows = read_training_data(task_rows(task, self.recipe.data)).train
        self.features = [feature for row in rows for feature in self.task.features(row, encoder)]
        self.collate = self.task.collator(encoder, labelled=True)

    def importance(self, count: int, batch_size: int) -> Importance:
        features = self.features[:count]
        return measure_importance(self.network, self.task, features, self.collate, self.task.loss, batch_size)

    def loss(self, feature) -> float:
        tensors = {name: paddle.to_tensor(array) for name, array in self.collate([feature]).items()}
        labels = {name: tensors.pop(name) for name in self.task.label_names}
        with paddle.no_grad():
            outputs = self.network(**tensors)
        return float(self.task.loss(self.network, outputs if isinstance(outputs, tuple) else (outputs,), labels))


def changed_loss(opened: Opened, layer, feature, places: slice, factor: float) -> float:
    """The loss with what passes into `layer` at `places` multiplied by `factor`."""

    def scale(_, inputs):
        mask = np.ones(inputs[0].shape[-1], np.float32)
        mask[places] = factor
        return inputs[0] * paddle.to_tensor(mask)

    hook = layer.register_forward_pre_hook(scale)
    try:
        return opened.loss(feature)
    finally:
        hook.remove()


@pytest.mark.parametrize(
    "words", [("sequence_classification", "bert"), ("token_classification", "roberta", "crf"),
              ("question_answering", "electra")]  # fmt: skip
)
def test_it_is_the_derivative_by_the_share_of_a_part(tmp_path, words) -> None:
    """Michel et al., equation 2: the derivative of a row's loss by a factor on the part, at 1, without its sign."""
    opened = Opened(tmp_path, *words)
    opened.network.eval()
    found = opened.importance(2, 1)
    step = 0.02
    for number, layer in enumerate(encoder_layers(opened.network)):
        cases = [(layer.self_attn.out_proj, slice(16 * head, 16 * head + 16), found.heads[number][head])
                 for head in range(2)]  # fmt: skip
        strongest = int(found.neurons[number].argmax())
        cases.append((layer.linear2, slice(strongest, strongest + 1), found.neurons[number][strongest]))
        for linear, places, importance in cases:
            slopes = [
                (changed_loss(opened, linear, feature, places, 1 + step)
                 - changed_loss(opened, linear, feature, places, 1 - step)) / (2 * step)
                for feature in opened.features[:2]
            ]  # fmt: skip
            assert importance == pytest.approx(np.abs(slopes).mean(), rel=0.05, abs=2e-4)
    assert max(values.max() for values in found.heads) > 0.01 < max(values.max() for values in found.neurons)


def test_batches_do_not_matter_and_nothing_is_left_behind(tmp_path) -> None:
    opened = Opened(tmp_path, "sequence_classification")
    opened.network.train()
    before = {name: value.numpy() for name, value in opened.network.state_dict().items()}
    one, several = opened.importance(20, 1), opened.importance(20, 7)
    for first, second in zip(one.heads + one.neurons, several.heads + several.neurons, strict=True):
        np.testing.assert_allclose(first, second, rtol=2e-3, atol=1e-6)
        assert first.min() >= 0 and first.max() > 0
    assert opened.network.training
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in opened.network.parameters())
    assert all((value.numpy() == before[name]).all() for name, value in opened.network.state_dict().items())
    assert not any(layer.linear2._forward_pre_hooks for layer in encoder_layers(opened.network))


def test_two_texts_of_a_row_are_both_counted(tmp_path) -> None:
    opened = Opened(tmp_path, "semantic_indexing")
    found = opened.importance(8, 8)
    assert all(values.min() > 0 for values in found.heads) and found.neurons[1].shape == (64,)


def test_the_largest_are_kept_in_their_order() -> None:
    importance = Importance(
        (np.array([1.0, 3.0, 2.0]), np.array([5.0, 5.0, 5.0])), (np.array([0.0, 9.0, 8.0, 9.0]), np.arange(4.0))
    )
    kept = importance.keep(PrunedShape((2, 1), (3, 2)))
    assert kept.heads == ((1, 2), (0,)) and kept.neurons == ((1, 2, 3), (2, 3))
