"""`nlpctl ui` and `nlpctl runs board`: runs in the browser."""
