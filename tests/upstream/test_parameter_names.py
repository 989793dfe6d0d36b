import paddle
import pytest

from nlpctl.upstream.parameter_names import fresh_parameter_names


def train_once(state=None):
    """One step of a new network with a new optimizer; returns (parameter name, optimizer state)."""
    layer = paddle.nn.Linear(2, 2)
    optimizer = paddle.optimizer.AdamW(parameters=layer.parameters())
    if state is not None:
        optimizer.set_state_dict(state)
    layer(paddle.ones([1, 2])).sum().backward()
    optimizer.step()
    return layer.weight.name, optimizer.state_dict()


def test_names_still_come_from_a_counter_of_the_process():
    assert train_once()[0] != train_once()[0]


def test_resuming_in_the_same_process_still_breaks():
    with fresh_parameter_names():
        _, state = train_once()
    with fresh_parameter_names():
        layer = paddle.nn.Linear(2, 2)
    optimizer = paddle.optimizer.AdamW(parameters=layer.parameters())  # its moments are named outside
    optimizer.set_state_dict(state)
    layer(paddle.ones([1, 2])).sum().backward()
    for _ in range(2):  # the counter outside may stand at 0 the first time
        try:
            optimizer.step()
        except AssertionError as error:
            assert "should in state dict" in str(error)
            return
        optimizer = paddle.optimizer.AdamW(parameters=layer.parameters())
        optimizer.set_state_dict(state)
    pytest.fail("Paddle no longer names moments from a counter: fresh_parameter_names may go")


def test_inside_the_guard_all_of_it_repeats():
    with fresh_parameter_names():
        first, state = train_once()
    with fresh_parameter_names():
        second, _ = train_once(state)
    assert first == second
