"""Rows into examples: what each task expects of a row."""
