"""Making and changing the files that engines run: static graphs, ONNX, int8, embeddings.

NARROW: a product with a weight of fewer columns stays fp32. It is the head: it decides, and costs almost nothing.
NO_PRODUCT: what messages say of a graph without wider ones.
TABLE_ROWS: an embedding table with fewer rows (positions, token types) is not worth int8.
"""

NARROW = 16
NO_PRODUCT = f"it has no product with a weight of {NARROW} columns or more"
TABLE_ROWS = 1024
