"""Whether the failure is still Paddle's cannot be asked: only some processors show it, on a large network."""

from __future__ import annotations

from nlpctl.upstream.shapes_of_batches import needs_empty_cache


def test_only_the_failure_of_mixed_shapes():
    assert needs_empty_cache(RuntimeError("could not reshape a memory descriptor"))
    assert not needs_empty_cache(RuntimeError("could not execute a primitive"))
