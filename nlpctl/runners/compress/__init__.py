"""`nlpctl compress`."""
