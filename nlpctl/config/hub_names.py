"""The names of PaddleNLP's built-in text encoders, such as ernie-3.0-medium-zh.

Asking PaddleNLP imports Paddle, and a mistyped path must be told at once. scripts/update_catalogue.py writes the list.
Models that others put on the hub (somebody/model) are not in it: a recipe names them, as model.name_or_path.
"""

from __future__ import annotations

import functools
import json

from nlpctl.config.catalogue import DATA

FILE = "hub_names.json"


@functools.cache
def hub_names() -> frozenset[str]:
    """Every built-in name of a family with a classifier."""
    return frozenset(json.loads((DATA / FILE).read_text(encoding="utf-8"))["names"])
