"""The target network of a conversion, given as a model folder, a config, a model name or a class.

Nothing is downloaded: of a hub name only the config that PaddleNLP carries, and the tokenizer if it is in the cache.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nlpctl.config.hub_names import PYTHON_PREFIX
from nlpctl.config.saved_model import written_class
from nlpctl.config.schema import Recipe
from nlpctl.data.readers.lines import read_lines
from nlpctl.errors import UserError
from nlpctl.files import read_json
from nlpctl.layout import MANIFEST, TASK
from nlpctl.models.crf import CRF_SUFFIX, with_crf
from nlpctl.models.families import OWN, Family, Head, family_of_config, family_of_hub_name, known_hub_names
from nlpctl.models.folder import COPIED, ModelDescription, read_description
from nlpctl.models.head_labels import are_names, config_labels, numbered
from nlpctl.models.network import build_network, make_config
from nlpctl.models.source import VOCABULARY_FILES, read_config, resolve_source, weights_file
from nlpctl.models.tokenizer import agree_on_inputs, check_vocabulary, load_tokenizer
from nlpctl.names import nearest
from nlpctl.tasks.base import task_class

LABELLED = ("SequenceClassification", "TokenClassification")
_CLASS = re.compile(r"[A-Z]\w*(Model|For[A-Z]\w*)")
_CONFIG_NAME = re.compile(r"(\w+?)_config\.json")  # ernie_config.json: how Paddle 1.x called it


@dataclass(frozen=True)
class Target:
    """A network to be built, and what of a model folder is known next to it.

    `labels`: empty where the head has none; `labels_known`: False where only their number is, or not even that.
    `description`: of a model folder of nlpctl.
    """

    name: str
    family: Family
    head: Head
    config: Mapping[str, Any]
    labels: tuple[str, ...]
    labels_known: bool
    tokenizer: Any | None
    description: ModelDescription | None = None

    @property
    def where(self) -> str:
        return f"@[to] {self.name}"

    def build(self, overrides: Mapping[str, Any]) -> Any:
        """The network, newly initialised. UserError: `overrides` or the config describe none."""
        config = make_config(self.family, self.config, self.labels, overrides)
        if self.tokenizer is not None:
            check_vocabulary(len(self.tokenizer), config.vocab_size, self.where)
        network = build_network(self.family, self.head, config, self.where)
        if self.tokenizer is not None:
            agree_on_inputs(self.tokenizer, network, self.where)
        return network


def target_folder(to: str) -> Path | None:
    """The folder of a trained model of nlpctl where `to` names one: it has a recipe. None: find_target needs none.

    UserError: `to` is a run or a package without a model.
    """
    path = Path(to).expanduser()
    if not path.is_dir() and not to.startswith(PYTHON_PREFIX):
        return None
    folder = _model_folder(to, path)
    return folder if (folder / TASK).is_file() else None


def find_target(to: str, class_name: str | None, own: Recipe | None = None) -> Target:
    """The target named `to`: a model folder or run, a config file, a built-in model of PaddleNLP, or a class.

    `class_name`: the class to build, where it is another one than the config says. `own`: the recipe of the
    `target_folder` of `to`, where it has one. UserError: there is no such thing.
    """
    path = Path(to).expanduser()
    if path.is_dir() or to.startswith(PYTHON_PREFIX):
        return _of_folder(to, _model_folder(to, path), class_name, own)
    if path.is_file():
        return _of_config(to, _config_of_file(path, class_name), class_name)
    if _CLASS.fullmatch(to):
        family = family_of_class(to, "@[to]")
        return _of_config(to, {"model_type": family.model_type}, class_name or to)
    named = family_of_hub_name(to)
    if named is None:
        near = nearest(to, known_hub_names())
        hint = f"did you mean {near}? " if near else ""
        raise UserError(
            "no such folder or config file, and no model that PaddleNLP knows",
            where=f"@[to] {to}",
            hint=f"{hint}give a model folder, a config.json, a name such as ernie-1.0, or a class of PaddleNLP",
        )
    values = {**named.hub_configs[to], "model_type": named.model_type}
    return _of_config(to, values, class_name, tokenizer=_cached_tokenizer(to, named))


def family_of_class(name: str, where: str) -> Family:
    """The family of ErnieForSequenceClassification and the like. UserError: there is no such class."""
    return family_of_config({"architectures": [name]}, where)


def head_of_class(name: str, family: Family, where: str) -> Head:
    """The head that the class `name` puts on its encoder. UserError: the class is of another family."""
    stem = name.removesuffix(CRF_SUFFIX)
    kind = stem.removeprefix(family.name).removeprefix("For")
    if not stem.startswith(family.name) or not family.has(kind):
        raise UserError(
            f"{name} is no {family.name} network",
            where=where,
            hint=f"such as {family.name}Model, {family.name}ForSequenceClassification, {family.name}ForMaskedLM",
        )
    return Head(kind, adapt=with_crf if name.endswith(CRF_SUFFIX) else None, labelled=kind in LABELLED)


# -- the ways to name a target ----------------------------------------------------------------------------------------


def _of_config(to: str, values: Mapping[str, Any], class_name: str | None, tokenizer: Any | None = None) -> Target:
    where = f"@[to] {to}"
    family = family_of_config(values, where)
    written = class_name or written_class(values)
    head = head_of_class(written or f"{family.name}Model", family, "@[class]" if class_name else where)
    labels = (config_labels(values) or numbered(2)) if head.labelled else ()
    return Target(to, family, head, values, labels, are_names(labels), tokenizer)


def _of_folder(to: str, folder: Path, class_name: str | None, own: Recipe | None) -> Target:
    values = read_config(folder)
    family = family_of_config(values, str(folder / "config.json"))
    has_vocabulary = any((folder / name).is_file() for name in VOCABULARY_FILES)
    tokenizer = load_tokenizer(folder, family) if has_vocabulary else None
    if class_name is not None or own is None:
        return _of_config(to, values, class_name, tokenizer)
    description = read_description(folder)
    files = {name: str(folder / name) for _, _, name in COPIED if (folder / name).is_file()}
    description = replace(description, files=files)
    head = task_class(description.task).class_for(own).head(own)
    return Target(to, family, head, values, description.labels if head.labelled else (), True, tokenizer, description)


def _model_folder(to: str, path: Path) -> Path:
    """The folder with the config: of a run its model/, of a package what python: names."""
    if to.startswith(PYTHON_PREFIX) or (path / MANIFEST).is_file() or weights_file(path) is not None:
        folder = resolve_source(to).folder
        assert folder is not None  # as `to` is a folder or a package
        return folder
    return path


def _config_of_file(path: Path, class_name: str | None) -> dict[str, Any]:
    """The config in a file; those of Paddle 1.x do not name the family and spell some sizes otherwise."""
    values = read_json(path)
    named = any(isinstance(values.get(key), str | list) for key in ("model_type", "architectures", "init_class"))
    match = _CONFIG_NAME.fullmatch(path.name)
    if not named and class_name is not None:
        values["model_type"] = family_of_class(class_name, "@[class]").model_type
    elif not named and match:
        values["model_type"] = match[1]
    if "sent_type_vocab_size" in values:
        values["type_vocab_size"] = values.pop("sent_type_vocab_size")
    # ERNIE 2.0 and later add a task embedding, which PaddleNLP builds only if use_task_id is set.
    if values.get("task_type_vocab_size"):
        values.setdefault("use_task_id", True)
    if not named and "hidden_size" in values:
        # Configs of Paddle 1.x leave it out; the code had 4 x hidden_size built in.
        values.setdefault("intermediate_size", 4 * values["hidden_size"])
    return values


# -- tokenizers -------------------------------------------------------------------------------------------------------


def _cached_tokenizer(name: str, family: Family) -> Any | None:
    """The tokenizer of a built-in model where its files are in PaddleNLP's cache; None if they are not."""
    from paddlenlp.utils.env import MODEL_HOME

    folder = Path(MODEL_HOME) / name
    return load_tokenizer(folder, family) if any((folder / file).is_file() for file in VOCABULARY_FILES) else None


def tokenizer_from(path: Path, family: Family) -> Any:
    """The family's tokenizer with the vocabulary in `path`: a model folder, or a vocab.txt.

    Lines of a vocab.txt may be `token<TAB>id`, as Paddle 1.x wrote them.

    UserError: it cannot be read, or its ids are not the numbers of its lines.
    """
    if path.is_dir():
        return load_tokenizer(path, family)
    if family.name in OWN:
        raise UserError("a network of nlpctl needs a tokenizer folder", "@[vocabulary]", "give the old model's folder")
    tokens = []
    for number, (where, line) in enumerate(read_lines(path, "vocabulary")):
        token, tab, index = line.partition("\t")
        # vocab.txt has no ids: the line number is the id, so unsorted entries would change meaning.
        if tab and index.strip() != str(number):
            raise UserError(f"the id {index.strip()!r} stands where {number} is expected", where, "sort it by id")
        tokens.append(token)
    with tempfile.TemporaryDirectory(prefix="nlpctl-vocabulary-") as name:
        folder = Path(name)
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
        return load_tokenizer(folder, family)
