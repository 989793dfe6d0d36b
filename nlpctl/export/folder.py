"""What an export holds beside its graphs: config, tokenizer, labels, task, and files that the recipe names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nlpctl.models.folder import ModelCard, save_description


def write_description(folder: Path, network: Any, tokenizer: Any, card: ModelCard) -> None:
    """Everything that turns text into the graphs' input and their output into answers."""
    network.config.architectures = [type(network).__name__]
    network.config.save_pretrained(str(folder))
    save_description(folder, tokenizer, card)
