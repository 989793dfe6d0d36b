"""A text cut into characters, with one tag per character."""

from __future__ import annotations

import dataclasses

from nlpctl.config.schema import DataSection
from nlpctl.data.tagged_rows import TaggedRows


class LexicalRows(TaggedRows):
    """Rows of lexical analysis: tagged characters; plain text is cut into characters whatever data.unit says."""

    def __init__(self, data: DataSection):
        super().__init__(dataclasses.replace(data, unit="characters"))
