"""A predictor that takes several times the memory once a batch is larger than those before it."""

from __future__ import annotations

_AS_LARGE = 128  # tokens in a row for which attention takes about as much memory as the rest of a layer


def size_of(shapes: tuple[tuple[int, ...], ...]) -> int:
    """What the tensors of a layer are proportional to: tokens, and pairs of tokens of a row. `shapes`: of the arrays of
    a batch, (rows, tokens) or (rows,). A batch of a larger size than all before it needs a new predictor.

    paddlepaddle 2.6.2 and 3.1.1: `enable_memory_optim` lets the operators of a graph write to the same few tensors, but
    only in the sizes of the first batch. Whatever a larger one needs is kept for every operator: an export of
    multilingual-e5-small takes 1.2 GB for 32 rows of 384 tokens, and 6.7 GB for the same after 8 rows of 300. A new
    predictor takes 1.2 GB again, and is faster: 1.9 s for that batch in place of 2.7 s. `clear_intermediate_tensor`
    leaves it at 3.6 GB, `try_shrink_memory` frees nothing. Test: tests/upstream/test_growing_batches.py.
    """
    rows = max(shape[0] for shape in shapes)
    tokens = max(shape[1] if len(shape) > 1 else 1 for shape in shapes)
    return rows * tokens * (_AS_LARGE + tokens)
