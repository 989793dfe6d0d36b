"""What run directories hold: lists, comparisons, reports, model cards, MLflow."""
