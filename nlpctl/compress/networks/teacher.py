"""The teacher of a distillation: the trained model and its answers to every text, computed once and cached."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import paddle

from nlpctl import console
from nlpctl.compress.networks.training import load_source
from nlpctl.config.schema import GeneratedSection, Recipe
from nlpctl.data.batches.question_features import Window
from nlpctl.data.batches.tagged_features import TaggedWindow
from nlpctl.data.predict_input import open_input
from nlpctl.data.readers.row import BadRow, is_bad
from nlpctl.data.rows.examples import BadRowLog
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.task_rows import TaskRows, task_rows
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.engines.engine import DygraphPredictor, Predictor
from nlpctl.engines.paddle_inference import PaddlePredictor
from nlpctl.engines.pipeline import chunks, prediction_pipeline
from nlpctl.files import staged_file, write_npz
from nlpctl.formats.array_files import read_npz
from nlpctl.graphs.graph_files import PREFIX, paddle_files
from nlpctl.graphs.to_static import input_specs, write_paddle_graph
from nlpctl.models.export_folder import ExportManifest, Graph
from nlpctl.models.load import LoadedModel
from nlpctl.runtime.process import ProcessSetup
from nlpctl.tasks.base import Task, make_task

# --------------------------------------------------------------------------------------------------
# Synthetic texts that a teacher labels for distillation. They need no meaning, only the distribution of the data.
#
# As Tang et al. (2019, "Distilling task-specific knowledge from BERT into simple neural networks", section 4.3) make
# them: words hidden, words replaced, n-grams taken. Their replacements have the same part of speech; these stand
# between the same neighbours somewhere else, or have a similar vector in the teacher (Jiao et al., 2020, TinyBERT,
# algorithm 1).

Words = tuple[str, ...]

LONGEST_FRAGMENT = 5  # words, as Tang et al. sample n-grams
_EDGE = ""  # stands before the first word of a text, and behind the last


class Variations:
    """Varies pre-tokenised texts by statistics of all of them. Deterministic for `seed` and the sequence of calls."""

    def __init__(
        self,
        texts: Sequence[Words],
        settings: GeneratedSection,
        similar: Mapping[str, Sequence[str]],
        mask: str | None,
        seed: int,
    ):
        """`similar`: word to words of like meaning. `mask`: what a hidden word becomes; None: it is left out."""
        self._texts = texts
        self._settings = settings
        self._similar = similar
        self._mask = mask
        self._random = Random(f"{seed} variations")
        self._after: defaultdict[str, set[str]] = defaultdict(set)
        self._before: defaultdict[str, set[str]] = defaultdict(set)
        self._places: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._between: dict[tuple[str, str], list[str]] = {}
        for number, words in enumerate(texts):
            for place, word in enumerate(words):
                self._places[word].append((number, place))
            for left, right in pairwise((_EDGE, *words, _EDGE)):
                self._after[left].add(right)
                self._before[right].add(left)

    def whole(self, words: Words) -> Words:
        """`words` varied in every way; may be empty, or what it was."""
        if self._random.random() < self._settings.cross:
            words = self._crossed(words)
        words = self.reworded(words)
        if self._random.random() < self._settings.fragment:
            words = self._fragment(words)
        return words

    def reworded(self, words: Words) -> Words:
        """`words` with some of them replaced, hidden or left out."""
        settings, varied = self._settings, list(words)
        for place, word in enumerate(words):
            chance = self._random.random()
            if chance < settings.mask:
                varied[place] = self._mask or ""
            elif chance < settings.mask + settings.replace:
                left = words[place - 1] if place else _EDGE
                right = words[place + 1] if place + 1 < len(words) else _EDGE
                varied[place] = self._other(word, left, right)
        return tuple(word for word in varied if word)

    def _other(self, word: str, left: str, right: str) -> str:
        """Another word for `word`."""
        alike = self._similar.get(word, ())
        if alike and self._random.random() < 0.5:
            return self._random.choice(alike)
        fitting = self._between.get((left, right))
        if fitting is None:
            # Sorted, since the order of a set of texts changes from process to process (hash randomisation).
            fitting = sorted((self._after[left] & self._before[right]) - {_EDGE})
            # Cached: the intersection of two large sets is the costly part, and frequent neighbours recur.
            self._between[left, right] = fitting
        others = fitting if fitting and fitting != [word] else alike
        return self._random.choice(others) if others else word

    def _crossed(self, words: Words) -> Words:
        """The beginning of `words`, and from a word that both have on, the end of another text."""
        if not words:
            return words
        place = self._random.randrange(len(words))
        elsewhere = self._places.get(words[place], ())
        if not elsewhere:
            return words
        number, there = self._random.choice(elsewhere)
        return (*words[:place], *self._texts[number][there:])

    def _fragment(self, words: Words) -> Words:
        size = self._random.randint(1, LONGEST_FRAGMENT)
        start = self._random.randrange(max(len(words) - size, 0) + 1)
        return words[start : start + size]


# --------------------------------------------------------------------------------------------------
# Further texts for a student besides the training rows: the user's files, and variations of the rows.


def unlabelled_examples(recipe: Recipe, rows: TaskRows) -> list[Any]:
    """The examples of distillation.unlabelled, without labels. UserError: a file or row that cannot be read."""
    distinct = []
    for path in recipe.distillation.unlabelled:
        log = BadRowLog(recipe.data.on_bad_row)
        for example in open_input(rows, path, "auto").rows():
            if is_bad(example):
                log.add(example)
            elif not isinstance(example, BadRow):
                distinct.append(example)
        log.finish()
    return distinct


def varied_examples(
    recipe: Recipe, rows: TaskRows, examples: Sequence[Any], similar: Mapping[str, Sequence[str]], mask: str | None
) -> list[Any]:
    """distillation.generate.copies new unlabelled examples per example, without duplicates of each other or of
    `examples`."""
    settings = recipe.distillation.generate
    parts = [rows.words(example) for example in examples]
    vary = Variations([words for texts in parts for words in texts], settings, similar, mask, recipe.training.seed)
    known = {rows.key(example) for example in examples}
    variations = []
    for _ in range(settings.copies):
        for example, texts in zip(examples, parts, strict=True):
            change = vary.whole if len(texts) == 1 else vary.reworded  # texts of a pair must still match
            varied = [change(words) for words in texts]
            made = rows.with_words(example, varied) if all(varied) else None
            if made is not None and rows.key(made) not in known:
                known.add(rows.key(made))
                variations.append(made)
    return variations


def part_of(window: TaggedWindow | Window) -> slice:
    """What a window gives of the logits of its example."""
    first = window.first if isinstance(window, TaggedWindow) else window.earlier
    return slice(first, first + len(window.places))


AT_ONCE = 2048  # texts sorted by length together; their answers form one file
SIMILAR = 12  # candidate replacements per word
_ROWS = 2048  # words compared with all others at once

# The key of an example -> its logits: [1, labels]; [words, tags]; or for a question [places, 2], start and end at the
# places of one window after the other.
Answers = Mapping[Any, np.ndarray]


@dataclass(frozen=True)
class Teacher:
    """A trained model that answers texts. `task` has the teacher's own settings."""

    model: LoadedModel
    task: Task
    rows: TaskRows
    encoder: TextEncoder
    setup: ProcessSetup
    fingerprint: str  # checksum of its weights

    @property
    def network(self) -> paddle.nn.Layer:
        return self.model.network

    def answers(self, examples: Sequence[Any], batch_size: int) -> list[np.ndarray]:
        """float32 logits of each example, as in Answers; without a CRF's transitions."""
        with self._engine(examples[0]) as predictor:
            return self._answers(predictor, examples, batch_size)

    def kept_answers(self, folder: Path, examples: Sequence[Any], batch_size: int) -> list[np.ndarray]:
        """`answers`, cached in `folder` for the same teacher and the same texts."""
        collected: list[np.ndarray] = []
        with contextlib.ExitStack() as stack:
            predictor = None
            for start in range(0, len(examples), AT_ONCE):
                part = examples[start : start + AT_ONCE]
                file, mark = folder / f"{start // AT_ONCE:05d}.npz", self._mark(part)
                answers = _read(file, mark, len(part))
                if answers is None:
                    # Opened only if some part is not cached: a resumed training may need no teacher at all.
                    predictor = predictor or stack.enter_context(self._engine(examples[0]))
                    answers = self._answers(predictor, part, batch_size)
                    _write(file, mark, answers)
                    console.note(f"the teacher has answered {start + len(part):,} of {len(examples):,} texts")
                collected += answers
        return collected

    def _answers(self, predictor: Predictor, examples: Sequence[Any], batch_size: int) -> list[np.ndarray]:
        parts = prediction_pipeline(_giving_logits(self.task), self.encoder, predictor).predictions(
            examples, batch_size
        )
        return [np.concatenate([np.atleast_2d(logits) for logits in each]) for each in parts]

    @contextlib.contextmanager
    def _engine(self, example: Any) -> Iterator[Predictor]:
        """The teacher's engine: on a CPU Paddle Inference, several times faster than the network itself."""
        if self.setup.device != "cpu":
            yield DygraphPredictor(self.network)
            return
        batch = self.task.collator(self.encoder, labelled=False)(self.task.features(example, self.encoder))
        graph = Graph("paddle", "fp32", paddle_files(PREFIX))
        with tempfile.TemporaryDirectory(prefix="nlpctl-teacher-") as name:
            outputs = write_paddle_graph(self.network, batch, self.task.output_names, Path(name) / PREFIX)
            length = self.task.data.max_seq_length
            manifest = ExportManifest(self.task.name, input_specs(batch), outputs, length, (graph,), 0, "", {})
            yield PaddlePredictor(Path(name), manifest, graph, "fp32", self.setup)

    def labelled(self, examples: Sequence[Any], answers: Sequence[np.ndarray]) -> list[Any]:
        """Examples labelled with the teacher's decisions from its `answers`: by thresholds, or by a CRF's best path."""
        parts = chunks(zip(examples, answers, strict=True), AT_ONCE)
        return [each for part in parts for each in self._labelled(*map(list, zip(*part, strict=True)))]

    def _labelled(self, examples: list[Any], answers: list[np.ndarray]) -> list[Any]:
        decided = self.task.labelled_answers(examples, list(map(self._predictions, examples, answers)))
        labels = self.task.labels
        return [self.rows.with_answer(*each, labels) for each in zip(examples, decided, strict=True)]

    def _predictions(self, example: Any, answer: np.ndarray) -> list[Any]:
        """What the task makes of the logits of an example; a CRF decodes each window separately."""
        features = self.task.features(example, self.encoder)
        if not isinstance(features[0], TaggedWindow | Window):
            return self.task.predictions((answer,), features)
        logits = np.zeros((len(features), self.task.data.max_seq_length, answer.shape[-1]), np.float32)
        for row, window in zip(logits, features, strict=True):
            row[window.places] = answer[part_of(window)]
        if isinstance(features[0], Window):
            return self.task.predictions((logits[..., 0], logits[..., 1]), features)
        crf = self.task.recipe.model.head == "crf"
        return self.task.predictions((logits, self.network.crf.transitions.numpy()) if crf else (logits,), features)

    def _mark(self, examples: Sequence[Any]) -> str:
        """The cache key of answers: the teacher's weights, its windows, and the texts in their order."""
        data = self.task.data
        digest = hashlib.sha256(f"{self.fingerprint} {data.max_seq_length} {data.doc_stride}".encode())
        for example in examples:
            # The order matters: answers are stored by position.
            digest.update(repr(self.rows.key(example)).encode())
        return digest.hexdigest()

    def word_vectors(self, words: Sequence[str]) -> np.ndarray:
        """float32 [words, width]: the embedding of each word, the mean over its pieces; zeros for an unknown word."""
        table = self.network.base_model.get_input_embeddings().weight.numpy()
        unknown = self.model.tokenizer.unk_token_id
        vectors = np.zeros((len(words), table.shape[1]), np.float32)
        for row, pieces in zip(vectors, self.encoder.pieces(words), strict=True):
            known = [piece for piece in pieces if piece != unknown]
            if known:
                row[:] = table[known].mean(0)
        return vectors

    def similar_words(self, words: Sequence[str]) -> dict[str, list[str]]:
        """Word -> its nearest words by cosine, among `words` and the teacher's whole words."""
        candidates = list(dict.fromkeys([*words, *_whole_words(self.model.tokenizer)]))
        vectors = self.word_vectors(candidates)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.maximum(norms, 1e-12)
        neighbours = {}
        for start in range(0, len(words), _ROWS):  # `words` come first among the candidates, each once
            part = vectors[start : min(start + _ROWS, len(words))] @ vectors.T
            # A word is not its own replacement.
            part[np.arange(len(part)), np.arange(start, start + len(part))] = -1.0
            count = min(SIMILAR, len(candidates) - 1)
            # A partition finds the nearest in linear time; only these few are sorted.
            best = np.argpartition(-part, count - 1, axis=1)[:, :count]
            for row, chosen in enumerate(best):
                near = sorted((-part[row, i], candidates[i]) for i in chosen if part[row, i] > 0)
                neighbours[words[start + row]] = [word for _, word in near]
        return neighbours


def _read(file: Path, mark: str, count: int) -> list[np.ndarray] | None:
    """The `count` answers in `file`; None if it does not hold them, or is damaged."""
    try:
        kept = read_npz(file)
        logits, ends = kept["logits"], kept["ends"]
        same = str(kept["mark"]) == mark and len(ends) == count and ends[-1] == len(logits)
        return np.split(logits, ends[:-1]) if same else None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _write(file: Path, mark: str, answers: Sequence[np.ndarray]) -> None:
    ends = np.cumsum([len(answer) for answer in answers])
    with staged_file(file) as stream:
        write_npz(stream, {"mark": mark, "logits": np.concatenate(answers), "ends": ends})


def open_teacher(recipe: Recipe, source: str, setup: ProcessSetup) -> Teacher:
    """The trained model in `source`. UserError if there is none."""
    model = load_source(recipe, source)
    task = make_task(recipe, LabelSet(model.labels), model.thresholds)
    digest = hashlib.sha256()
    for parameter in model.network.parameters():
        digest.update(parameter.numpy().tobytes())
    encoder = build_encoder(model.tokenizer)
    return Teacher(model, task, task_rows(recipe.task, recipe.data), encoder, setup, digest.hexdigest())


def _giving_logits(task: Task) -> Task:
    """The same task, with the logits of a feature as its prediction."""

    def predictions(self: Task, outputs: tuple[np.ndarray, ...], features: Sequence[Any]) -> list[np.ndarray]:
        logits = np.stack(outputs, -1) if isinstance(features[0], Window) else outputs[0]
        rows = zip(logits, features, strict=True)
        return [row[feature.places] if isinstance(feature, TaggedWindow | Window) else row for row, feature in rows]

    kind = type(f"LogitsOf{type(task).__name__}", (type(task),), {"predictions": predictions})
    return kind(task.recipe, task.labels, task.thresholds)


def _whole_words(tokenizer: Any) -> list[str]:
    """The whole words of a vocabulary: no word pieces, no special tokens."""
    return [
        word for word in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        if isinstance(word, str) and word.isalpha()
    ]  # fmt: skip
