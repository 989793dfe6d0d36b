"""What may be wrong in labelled data, found by predictions of models that did not see it; and corrected copies."""
