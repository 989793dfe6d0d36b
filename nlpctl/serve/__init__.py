"""`nlpctl serve`: a trained model as an HTTP service."""
