"""Whether a network can take sequences as long as the recipe wants."""

from __future__ import annotations

from typing import Any

from nlpctl.errors import UserError
from nlpctl.models.network import max_positions


def check_length(network: Any, max_seq_length: int, where: str) -> None:
    """UserError, blaming `where`, when `max_seq_length` tokens are more than the network has positions."""
    positions = max_positions(network)
    if positions is not None and max_seq_length > positions:
        raise UserError(
            f"{max_seq_length} tokens are more than the network's {positions} positions",
            where=where,
            hint=f"set it to {positions} or less",
        )
