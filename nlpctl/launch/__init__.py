"""Several processes and several machines for one training."""
