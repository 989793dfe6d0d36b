"""The parameters of the target network, each once, with all of its names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nlpctl.models.parameters import named


@dataclass(frozen=True)
class TargetParameter:
    """A parameter, or a buffer that is saved with them.

    `names`: all of them, as in the state dict; recurrent layers and tied ones have several. `aliases`: the same with
    the encoder's prefix put before them or taken away, as a network with another head has them. `internal`: the name
    that Paddle's counter gave it, such as linear_3.w_0.
    """

    names: tuple[str, ...]
    aliases: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    internal: str

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def is_integer(self) -> bool:
        """Whether it holds indices, such as position ids."""
        return "int" in self.dtype

    def is_needed(self, encoder: str) -> bool:
        """Whether every graph of the network has it: all of the encoder but a pooler, which taggers do not use.

        `encoder`: the encoder's prefix.
        """
        names = {*self.names, *self.aliases}
        return any(name.startswith(f"{encoder}.") and not name.startswith(f"{encoder}.pooler.") for name in names)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for length in self.shape:
            count *= length
        return count


def target_parameters(network: Any, prefix: str) -> list[TargetParameter]:
    """The parameters of `network` in its order. `prefix`: of its encoder, without the dot."""
    # named() leaves buffers out, which files hold too.
    state = {**named(network), **network.state_dict()}
    names: dict[int, list[str]] = {}
    for name, value in state.items():
        names.setdefault(id(value), []).append(name)
    bare = not any(name.startswith(f"{prefix}.") for name in state)
    return [
        TargetParameter(
            tuple(each),
            tuple(f"{prefix}.{name}" if bare else name.removeprefix(f"{prefix}.") for name in each),
            tuple(state[each[0]].shape),
            str(state[each[0]].dtype).rpartition(".")[2],
            state[each[0]].name,
        )
        for each in names.values()
    ]


def by_name(parameters: Iterable[TargetParameter]) -> Mapping[str, TargetParameter]:
    """Every name and alias; where they clash, a real name wins."""
    found: dict[str, TargetParameter] = {}
    for parameter in parameters:
        found.update(dict.fromkeys(parameter.names, parameter))
    for parameter in parameters:
        for alias in parameter.aliases:
            found.setdefault(alias, parameter)
    return found
