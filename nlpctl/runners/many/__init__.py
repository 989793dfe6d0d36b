"""Several trainings of one recipe: folds, seeds, growing shares of the rows."""
