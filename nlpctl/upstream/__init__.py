"""Workarounds for bugs in Paddle, PaddleNLP and their tools: one function each, only in this folder.

Each docstring names package, version, file and line, the symptom, and the test in tests/upstream that fails once
upstream fixes the bug. The workaround can then be removed. docs/upstream.md lists all of them.
"""
