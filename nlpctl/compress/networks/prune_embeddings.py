"""Drop vocabulary entries that no training text uses, with their rows of the embedding.

compression.prune_embeddings: in PaddleNLP 2.8.1 a flag that its library never reads; the example that does
(model_zoo/ernie-tiny/run_train.py) keeps the most frequent tokens of the texts and cuts the network's embedding
(trainer_compress.py, cut_embeddings). Here three kinds of tokens are kept: those that occur, special tokens, and the
letters, digits and marks of alphabetic scripts, so that an unseen word can still be split into pieces. Position
embeddings are not cut, since they are few.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl import console
from nlpctl.compress.networks.training import begin_network, load_source, network_recipe, read_data
from nlpctl.config.schema import Recipe
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.own_tokenizer import OwnTokenizer
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.text.units import special_ids
from nlpctl.data.text.word_spans import WORD_BEGINS, is_ideograph
from nlpctl.data.text.wordpiece import ADDED_TOKENS, VOCABULARY
from nlpctl.data.training_data import TrainingData
from nlpctl.engines.parity import batches_of
from nlpctl.errors import UserError
from nlpctl.files import staged_dir
from nlpctl.models.add_tokens import vocabulary_parameters
from nlpctl.models.families import family_of_config
from nlpctl.models.folder import make_description, save_model_folder
from nlpctl.models.load import LoadedModel
from nlpctl.models.network import build_network
from nlpctl.models.padding import FirstPosition, counts_from_padding, move_positions
from nlpctl.models.source import read_config
from nlpctl.models.tokenizer import load_tokenizer
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.base import Task, make_task, task_class

KEY = "compression.prune_embeddings"
_IDS = ("input_ids", "pair_ids", "negative_ids")  # of a batch
_BATCH, _AT_ONCE = 64, 4096


def check(recipe: Recipe) -> None:
    """UserError if a model of the recipe's task predicts vocabulary entries. Called before any work."""
    if task_class(recipe.task).class_for(recipe).head(recipe).predicts_words:
        message = f"a model of {recipe.task} predicts words, so its vocabulary cannot be pruned"
        raise UserError(message, recipe.where(KEY), "leave prune_embeddings out")


def prune_vocabulary(recipe: Recipe, source: str, run: RunDirectory, setup: ProcessSetup) -> Path:
    """Write RUN/model: the model folder `source` with the vocabulary entries that its training rows use; returns it.

    Existing files are kept. The network's answers on training rows do not change; nothing is trained. UserError: the
    tokenizer's vocabulary is not a list of words, or there are no training rows.
    """
    if run.is_finished:
        return run.model
    check(recipe)
    model = load_source(recipe, source)
    data = read_data(recipe, model)
    own = network_recipe(recipe, run, source, model.labels)
    begin_network(own, run, setup, data)
    with run.recorded():
        task, encoder = make_task(own, data.labels), build_encoder(model.tokenizer)
        small = with_words(model, used_ids(task, encoder, data), task, source)
        with staged_dir(run.model) as folder:
            description = make_description(own, small.labels, small.thresholds, small.calibration)
            save_model_folder(folder, small.network, small.tokenizer, description)
    return run.model


def used_ids(task: Task, encoder: TextEncoder, data: TrainingData) -> set[int]:
    """The ids that occur in batches of the training rows."""
    ids: set[int] = set()
    rows: list[Any] = []

    def count() -> None:
        for batch in batches_of(task, encoder, rows, _BATCH):
            for name in _IDS:
                if name in batch:
                    ids.update(np.unique(batch[name]).tolist())
        rows.clear()

    for row in data.training_examples():
        rows.append(row)
        if len(rows) == _AT_ONCE:
            count()
    if rows:
        count()
    return ids


def with_words(model: LoadedModel, used: Collection[int], task: Task, source: str) -> LoadedModel:
    """A network and a tokenizer with the tokens `used` and the entries that are always kept; `model` is unchanged.

    UserError, naming `source`, if the tokenizer's vocabulary is not a list of words.
    """
    tokenizer = model.tokenizer
    words = _words(tokenizer, source)
    # 0 and 1 stay what they are: MPNet does not count tokens with the id 1.
    needed = set(used) | special_ids(tokenizer) | {tokenizer.unk_token_id, 0, 1} | _spelling(words)
    small: Any
    if isinstance(tokenizer, OwnTokenizer):
        small, rows = tokenizer.reduced(needed)
    else:
        kept = [index for index in range(len(words)) if index in needed]
        rows = [*kept, *range(len(words), len(tokenizer))]  # added tokens stay
        small = _rewritten(tokenizer, words, kept, source)
    console.note(f"{len(rows):,} of {len(tokenizer):,} vocabulary entries kept: of training texts, letters, marks")
    if len(rows) == len(tokenizer):
        console.warn("the training texts use the whole vocabulary: prune_embeddings has no effect")
    network = _with_rows(model.network, rows, task, source)
    thresholds, calibration = model.thresholds, model.calibration
    return LoadedModel(
        network, small, model.labels, (), (), model.source, thresholds=thresholds, calibration=calibration
    )


def _words(tokenizer: Any, source: str) -> list[str]:
    """The entries of the vocabulary in the order of their ids."""
    if isinstance(tokenizer, OwnTokenizer):
        return tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    if list(tokenizer.resource_files_names.values()) != [VOCABULARY]:
        message = f"{type(tokenizer).__name__} builds words from pieces, so none can be dropped"
        raise UserError(message, source, "leave prune_embeddings out")
    words = tokenizer.convert_ids_to_tokens(list(range(tokenizer.vocab_size)))
    if len(set(words)) != len(words):
        raise UserError(f"{VOCABULARY} lists an entry twice", source, "leave prune_embeddings out")
    return words


def _spelling(words: Sequence[str]) -> set[int]:
    """The ids of single characters of alphabetic scripts, at the start of a word and inside it.

    Excluded are ideographs and Hangul syllables: there are thousands.
    """
    forms = [word.removeprefix("##").lstrip("".join(WORD_BEGINS)) or word for word in words]
    return {i for i, form in enumerate(forms) if len(form) == 1 and not is_ideograph(form) and not _is_hangul(form)}


def _is_hangul(character: str) -> bool:
    return "\uac00" <= character <= "\ud7a3"


def _rewritten(tokenizer: Any, words: Sequence[str], kept: Sequence[int], source: str) -> Any:
    """PaddleNLP's tokenizer with the kept entries and the added tokens."""
    family = family_of_config(read_config(Path(source)), source)
    with tempfile.TemporaryDirectory(prefix="nlpctl-words-") as name:
        folder = Path(name)
        tokenizer.save_pretrained(name)
        (folder / VOCABULARY).write_text("".join(f"{words[index]}\n" for index in kept), encoding="utf-8")
        added: Mapping[str, int] = {
            # Added tokens follow the vocabulary, so they move up by the number of dropped entries.
            word: index - len(words) + len(kept)
            for word, index in tokenizer.get_added_vocab().items()
            if index >= len(words)
        }
        if added:
            (folder / ADDED_TOKENS).write_text(json.dumps(added, ensure_ascii=False), encoding="utf-8")
        return load_tokenizer(folder, family)


def _with_rows(network: Any, rows: Sequence[int], task: Task, source: str) -> Any:
    """The network with only these rows of its embedding."""
    axes = vocabulary_parameters(network, False)
    places = {old: new for new, old in enumerate(rows)}
    config = copy.deepcopy(network.config)
    config.vocab_size = len(rows)
    # pad_token_id and the like are row numbers too, and move with the rows.
    for name, value in list(vars(config).items()):
        if name.endswith("token_id") and isinstance(value, int):
            setattr(config, name, places.get(value, value))
    family = family_of_config(read_config(Path(source)), source)
    arrays = {name: value.numpy() for name, value in network.state_dict().items()}
    if counts_from_padding(family):
        first = FirstPosition(network.config.pad_token_id + 1, config.pad_token_id + 1)
        config.max_position_embeddings += first.ours - first.stored
        arrays = move_positions(arrays, first)
    small = build_network(family, task.head(task.recipe), config, source)
    for name, parameter in small.state_dict().items():
        parameter.set_value(arrays[name][list(rows)] if name in axes else arrays[name])
    return small
