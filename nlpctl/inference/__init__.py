"""A trained model applied: predict, eval, embed, explain, index; in one process or several."""
