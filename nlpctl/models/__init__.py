"""Networks: where they come from, how they are loaded, and the model folder they are saved in."""
