"""Several trained networks as one: their answers are averaged (`nlpctl ensemble`).

    classes, tags    the mean of the probabilities
    several labels   the mean of the probabilities of each label
    CRF, answers     the mean of the scores, which multiplies the distributions (Smith, Cohn, Osborne: Logarithmic
                     opinion pools for conditional random fields, 2005)

Outputs are logits of the mean, so that all that reads a network's logits reads these. Members whose vocabularies differ
read the ids of a common one by a table of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

from nlpctl.models.crf import with_crf
from nlpctl.models.families import Head, family_of_config
from nlpctl.models.network import build_layers, make_config
from nlpctl.models.networks.common import NetworkConfig, NetworkModel
from nlpctl.models.padding import counts_from_padding

SHARES, ODDS, SCORES = "probabilities", "odds", "scores"
LEAST = 1e-9  # probability whose logarithm is still taken, in float32


class EnsembleConfig(NetworkConfig):
    """`members`: the config of each network. `pool`: how outputs are averaged. `tables`: members have vocabularies of
    their own. `crf`: members end in a CRF."""

    model_type = "ensemble"

    def __init__(
        self,
        members: Sequence[Mapping[str, Any]] = (),
        pool: str = SHARES,
        tables: bool = False,
        crf: bool = False,
        max_position_embeddings: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if pool not in (SHARES, ODDS, SCORES) or type(max_position_embeddings) is not int:
            raise ValueError("pool or max_position_embeddings are none of an ensemble")
        self.members = [dict(each) for each in members]
        self.pool, self.tables, self.crf = pool, tables, crf
        self.max_position_embeddings = max_position_embeddings


class Member(nn.Layer):
    """A network, and the table from the ensemble's ids to its own where it has other ones."""

    def __init__(self, network: nn.Layer, entries: int | None):
        super().__init__()
        self.network = network
        if entries is not None:
            self.register_buffer("table", paddle.zeros([entries], "int64"))
        self.reads_table = entries is not None

    def forward(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None) -> Any:
        ids = input_ids
        if self.reads_table:
            ids = paddle.gather(self.table, input_ids.flatten()).reshape(paddle.shape(input_ids))
        if token_type_ids is None:
            return self.network(ids)
        return self.network(ids, token_type_ids=token_type_ids)


class EnsembleModel(NetworkModel):
    """The base of the classes below, each of which has members of one kind of head."""

    config_class = EnsembleConfig
    base_model_prefix = "members"  # of the parameters of the trained networks: all there are
    of_members = True  # a CRF is the members' own
    head = ""

    def __init__(self, config: EnsembleConfig):
        super().__init__(config)
        head = Head(self.head, adapt=with_crf if config.crf else None)
        entries = config.vocab_size if config.tables else None
        built = []
        for values in config.members:
            where = "members of config.json"
            family = family_of_config(values, where)
            if not (config.tables or counts_from_padding(family)):  # all read the ids of one tokenizer
                values = {**values, "pad_token_id": config.pad_token_id}
            names = [config.id2label[i] for i in sorted(config.id2label)] if self.head != "QuestionAnswering" else []
            built.append(Member(build_layers(family, head, make_config(family, values, names, {}), where), entries))
        self.members = nn.LayerList(built)

    @property
    def base_model(self) -> nn.Layer:
        """Itself: what it takes is what the members take."""
        return self

    def get_input_embeddings(self) -> Any:
        """An object with `weight` [entries, width of all]: the members' vectors of each entry, side by side."""
        tables = []
        for member in self.members:
            weight = member.network.base_model.get_input_embeddings().weight
            tables.append(weight[member.table] if member.reads_table else weight)
        return SimpleNamespace(weight=paddle.concat(tables, axis=1))

    def forward(self, input_ids: paddle.Tensor, token_type_ids: paddle.Tensor | None = None) -> Any:
        outputs = [member(input_ids, token_type_ids) for member in self.members]
        if isinstance(outputs[0], tuple | list):
            return tuple(mean([each[i] for each in outputs]) for i in range(len(outputs[0])))
        return pooled(outputs, self.config.pool)


class EnsembleForSequenceClassification(EnsembleModel):
    head = "SequenceClassification"


class EnsembleForTokenClassification(EnsembleModel):
    head = "TokenClassification"


class EnsembleForQuestionAnswering(EnsembleModel):
    head = "QuestionAnswering"


def mean(values: Sequence[paddle.Tensor]) -> paddle.Tensor:
    """The mean of tensors of one shape."""
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total / float(len(values))


def pooled(logits: Sequence[paddle.Tensor], pool: str) -> paddle.Tensor:
    """Logits [..., labels] of the mean over members; those of probabilities have the mean 0, as of most networks."""
    if pool == SCORES:
        return mean(logits)
    if pool == ODDS:
        yes, no = mean([F.sigmoid(each) for each in logits]), mean([F.sigmoid(-each) for each in logits])
        return paddle.log(yes + LEAST) - paddle.log(no + LEAST)
    found = paddle.log(mean([F.softmax(each, axis=-1) for each in logits]) + LEAST)
    return found - found.mean(axis=-1, keepdim=True)
