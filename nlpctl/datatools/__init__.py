"""`nlpctl new` and `nlpctl data`: look at data, split, augment, audit, correct, choose what to label."""
