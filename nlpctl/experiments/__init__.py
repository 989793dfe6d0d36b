"""Several trainings of one recipe: sweeps, folds, seeds, learning curves, ensembles."""
