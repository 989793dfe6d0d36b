"""Making trained networks smaller and faster: quantisers of graphs.

NARROW: a product with a weight of fewer columns stays fp32. It is the head, which decides, and costs next to nothing.
"""

NARROW = 16
