"""`nlpctl convert-static`: parameters of static graphs become model folders."""
