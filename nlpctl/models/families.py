"""The network families of PaddleNLP and nlpctl: selects the network class for a config and a task."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from nlpctl.config.saved_model import written_classes
from nlpctl.errors import UserError
from nlpctl.models.huggingface_layout import known_types
from nlpctl.models.user_network import user_class
from nlpctl.names import nearest
from nlpctl.upstream.roberta_tagger import translatable

# nlpctl's own small networks over characters or words: class prefix to module under nlpctl/models/networks.
OWN: Mapping[str, str] = {
    "BiLSTM": "bilstm",
    "TextCNN": "textcnn",
    "BagOfEmbeddings": "bag_of_embeddings",
    "BiGRU": "bigru",
    "Ensemble": "ensemble",
}
# Families of Transformers that PaddleNLP lacks, in the same place.
ADDED: Mapping[str, str] = {"ModernBert": "modernbert"}
# Families that are computed as Transformers computes them (nlpctl/models/networks/encoders.py): class prefix to
# model_type. A folder in Hugging Face's layout gets these; PaddleNLP's hub has the classes without HF.
ENCODERS: Mapping[str, str] = {
    "HFAlbert": "hf_albert",
    "HFConvBert": "hf_convbert",
    "HFDebertaV2": "hf_deberta_v2",
    "HFMPNet": "hf_mpnet",
    "HFNezha": "hf_nezha",
    "HFRoFormer": "hf_roformer",
}
# PaddleNLP's classes for vocabularies of WordPiece, where one of these has another than BERT's.
TOKENIZERS = {"HFConvBert": "ConvBertTokenizer", "HFMPNet": "MPNetTokenizer", "HFRoFormer": "RoFormerTokenizer"}
SHARED_LAYERS = ("albert", "hf_albert")  # model_types of networks whose layers have the same weights


@dataclass(frozen=True)
class Head:
    """The head that a task puts on an encoder.

    `name`: the end of PaddleNLP's class name (ForSequenceClassification without "For"), or "Model" for the
    bare encoder. `adapt` makes the class into the one that is built. `labelled`: its width is the label set's.
    `predicts_words`: it is a language model's, which any task may take from any file that has it. `user_class`:
    module:Class of model.network, which is built in its place. `matches`: its two outputs say whether two texts match,
    so a head with one logit, as of a CrossEncoder, is taken for one with 0 beside it: softmax gives its sigmoid.
    `projects_to`: the outputs of a linear layer over the encoder's states, where it adds one; else 0.
    """

    name: str
    adapt: Callable[[type], type] | None = None
    labelled: bool = True
    predicts_words: bool = False
    user_class: str | None = None
    matches: bool = False
    projects_to: int = 0


@dataclass(frozen=True)
class Family:
    """One family, such as Ernie."""

    name: str  # class prefix: "Ernie"
    model_type: str  # its module, and model_type in config.json: "ernie"
    module: ModuleType

    @property
    def encoder_class(self) -> Any:
        """The bare encoder, such as ErnieModel."""
        return vars(self.module)[f"{self.name}Model"]

    @property
    def prefix(self) -> str:
        """The prefix of the encoder's parameter names, without the dot."""
        return self.encoder_class.base_model_prefix

    @property
    def config_class(self) -> Any:
        return self.encoder_class.config_class

    @property
    def hub_configs(self) -> Mapping[str, Any]:
        """The built-in models of the family: hub name to config."""
        return self.encoder_class.pretrained_init_configuration

    def has(self, head: str) -> bool:
        return self._class_name(head) in vars(self.module)

    def network_class(self, head: Head, where: str) -> type:
        """Encoder and head, such as ErnieForSequenceClassification. UserError if the family lacks it."""
        if head.user_class is not None:
            return user_class(head.user_class, self)
        if not self.has(head.name):
            raise UserError(
                f"there is no {self._class_name(head.name)}: a {self.name} network cannot do this task",
                where=where,
                hint="use an encoder such as ernie-3.0-medium-zh, bert-base-chinese or a RoBERTa or ELECTRA model",
            )
        network = translatable(vars(self.module)[self._class_name(head.name)])
        return network if head.adapt is None else head.adapt(network)

    def _class_name(self, head: str) -> str:
        return f"{self.name}Model" if head == "Model" else f"{self.name}For{head}"


def family_by_type(model_type: str, where: str) -> Family:
    """The family of a `model_type`. Raises UserError when there is none."""
    by_type = {module: name for name, module in _names().items()}
    # Hugging Face writes deberta-v2 where PaddleNLP's module is deberta_v2.
    normal = model_type.lower().replace("-", "_")
    if normal not in by_type:
        near = nearest(normal, by_type)
        hint = f"did you mean {near}? " if near else ""
        hint += f"Of Transformers nlpctl reads {', '.join(known_types())}; of PaddleNLP all that it has"
        raise UserError(f"there is no network family {model_type!r}", where=where, hint=hint)
    return _family(by_type[normal])


def family_of_config(config: Mapping[str, Any], where: str) -> Family:
    """The family that a config.json asks for: by model_type, in old folders by the class it names."""
    if isinstance(config.get("model_type"), str):
        return family_by_type(config["model_type"], where)
    for class_name in written_classes(config):
        matches = [name for name in _names() if class_name.startswith(name)]
        if matches:  # ErnieModel is Ernie + Model, although ErnieM is longer
            whole = [name for name in matches if class_name.removeprefix(name).startswith(("Model", "For"))]
            return _family(max(whole or matches, key=len))
    raise UserError(
        "names no network: model_type, architectures and init_class are all missing or unknown",
        where=where,
        hint='add "model_type", such as "model_type": "bert"',
    )


def family_of_hub_name(name: str) -> Family | None:
    """The family that knows `name` as a built-in model; None when no family does."""
    return next((family for family in _encoders() if name in family.hub_configs), None)


def known_hub_names() -> list[str]:
    """Every built-in model name that has a classification network."""
    return sorted({name for family in _encoders() for name in family.hub_configs})


def _names() -> dict[str, str]:
    """Class prefix to module, for example Ernie: ernie."""
    from paddlenlp.transformers.auto.modeling import MAPPING_NAMES

    return {**MAPPING_NAMES, **OWN, **ADDED, **ENCODERS}


def _encoders() -> Iterator[Family]:
    """The families of text encoders, that is, those with a classifier; others generate text or read images."""
    families = (_family(name) for name in _names() if name not in OWN and name not in ENCODERS)
    return (family for family in families if family.has("SequenceClassification"))


def _family(name: str) -> Family:
    if name in ENCODERS:
        return Family(name, ENCODERS[name], importlib.import_module("nlpctl.models.networks.encoders"))
    module = _names()[name]
    is_here = name in OWN or name in ADDED
    place = f"nlpctl.models.networks.{module}" if is_here else f"paddlenlp.transformers.{module}.modeling"
    return Family(name, module, importlib.import_module(place))
