"""Networks: sources, loading, and the model folder."""
