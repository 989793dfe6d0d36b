"""Compression of a trained model."""
