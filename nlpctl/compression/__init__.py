"""Smaller and faster models of a trained one."""
