"""Every file that an engine runs, made or changed: static graphs, ONNX, int8, embeddings.

NARROW: a product with a weight of fewer columns stays fp32. It is the head, which decides, and costs next to nothing.
TABLE_ROWS: an embedding table with fewer rows (positions, token types) is not worth int8.
"""

NARROW = 16
TABLE_ROWS = 1024
