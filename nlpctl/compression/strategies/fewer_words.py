"""compression.prune_embeddings: a network without the vocabulary entries that no training text uses; others are made of
it.

No word of --strategy, but a setting, which holds for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nlpctl.compression.strategies.base import NetworkStrategy, Step
from nlpctl.config.schema import Recipe
from nlpctl.data.open_split import has_split
from nlpctl.errors import UserError

if TYPE_CHECKING:
    from nlpctl.runtime.process import ProcessSetup
    from nlpctl.runtime.run_directory import RunDirectory

FEWER_WORDS = "fewer-words"


class FewerWords(NetworkStrategy):
    name = "prune_embeddings"
    stem = FEWER_WORDS
    help = "a network without the vocabulary entries that no training text uses"
    key = "compression.prune_embeddings"
    in_names = ("prune_embeddings",)

    @property
    def reads_rows(self) -> bool:
        return True

    @property
    def on_network(self) -> str:
        return "dropping vocabulary entries changes a network"

    def networks(self, section: Any, base: Step | None) -> Iterator[Step]:
        if section.prune_embeddings:
            yield self.network(FEWER_WORDS, base)

    def refuse_missing(self, recipe: Recipe) -> None:
        if not has_split(recipe.data, "train"):
            message = "dropping vocabulary entries needs training rows, and there are none"
            raise UserError(message, "data.train", "give them: --set data.train=FILE")

    def check(self, recipe: Recipe, config: Mapping[str, Any]) -> None:
        from nlpctl.compression.networks.vocabulary import check

        check(recipe)

    def make_network(self, recipe: Recipe, source: str, step: Step, run: RunDirectory, setup: ProcessSetup) -> None:
        from nlpctl.compression.networks.vocabulary import prune_vocabulary

        prune_vocabulary(recipe, source, run, setup)
