"""A trained model applied: predict, eval, embed, explain, index, calibrate, bench; in one process or several."""
