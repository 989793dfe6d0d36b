"""Workarounds for bugs in Paddle and PaddleNLP: one function each, all of them here and nowhere else.

Each docstring names the package, version, file and line, the symptom, and the test in tests/upstream
that fails when upstream mends it, which is when the workaround can go. docs/upstream.md lists them.
"""
