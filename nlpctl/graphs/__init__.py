"""Making and changing the files that engines run: static graphs, ONNX, int8, embeddings.

NARROW: a product with a weight of fewer columns stays fp32. It is the head: it decides, and costs almost nothing.
TABLE_ROWS: an embedding table with fewer rows (positions, token types) is not worth int8.
"""

NARROW = 16
TABLE_ROWS = 1024
