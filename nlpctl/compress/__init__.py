"""`nlpctl compress`: smaller and faster candidates of a trained model, scored, timed and chosen."""
