"""The teacher of a distillation: the trained model and its answers to every text, computed once and cached."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from nlpctl import console
from nlpctl.compression.networks.more_texts import key_of
from nlpctl.compression.networks.training import load_source
from nlpctl.config.schema import Recipe
from nlpctl.data.encoders import build_encoder
from nlpctl.data.labels import LabelSet
from nlpctl.data.multi_label_rows import MultiLabelExample
from nlpctl.data.tagged_features import TaggedWindow
from nlpctl.data.tagged_rows import TaggedExample
from nlpctl.data.text_encoder import TextEncoder
from nlpctl.files import staged_file, write_npz
from nlpctl.formats.array_files import read_npz
from nlpctl.graphs.graph_files import PREFIX, paddle_files
from nlpctl.graphs.to_static import input_specs, write_paddle_graph
from nlpctl.inference.engine import DygraphPredictor, Predictor
from nlpctl.inference.paddle_inference import PaddlePredictor
from nlpctl.inference.pipeline import answering, windows
from nlpctl.models.export_folder import ExportManifest, Graph
from nlpctl.models.load import LoadedModel
from nlpctl.models.viterbi import viterbi
from nlpctl.runtime.process import ProcessSetup
from nlpctl.tasks.base import Task, make_task

AT_ONCE = 2048  # texts sorted by length together; their answers form one file
SIMILAR = 12  # candidate replacements per word
_ROWS = 2048  # words compared with all others at once

Answers = Mapping[Any, np.ndarray]  # key of an example -> its logits: [1, labels], or [words, tags]


@dataclass(frozen=True)
class Teacher:
    """A trained model that answers texts. `task` has the teacher's own settings."""

    model: LoadedModel
    task: Task
    encoder: TextEncoder
    setup: ProcessSetup
    fingerprint: str  # checksum of its weights

    @property
    def network(self) -> paddle.nn.Layer:
        return self.model.network

    def answers(self, examples: Sequence[Any], batch_size: int) -> list[np.ndarray]:
        """float32 logits of each example: [1, labels]; of a tagged one [words, tags], without a CRF's transitions."""
        with self._engine(examples[0]) as predictor:
            return self._answers(predictor, examples, batch_size)

    def kept_answers(self, folder: Path, examples: Sequence[Any], batch_size: int) -> list[np.ndarray]:
        """`answers`, cached in `folder` for the same teacher and the same texts."""
        found: list[np.ndarray] = []
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
                found += answers
        return found

    def _answers(self, predictor: Predictor, examples: Sequence[Any], batch_size: int) -> list[np.ndarray]:
        parts = answering(_giving_logits(self.task), self.encoder, predictor).predictions(examples, batch_size)
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
        parts = windows(zip(examples, answers, strict=True), AT_ONCE)
        return [each for part in parts for each in self._labelled(*map(list, zip(*part, strict=True)))]

    def _labelled(self, examples: list[Any], answers: list[np.ndarray]) -> list[Any]:
        if isinstance(examples[0], TaggedExample):
            tags = map(self._tags, examples, answers)
            return [replace(each, tags=array("i", found.tolist())) for each, found in zip(examples, tags, strict=True)]
        labels = self.task.labels
        decided = self.task.answers(examples, [[answer[0]] for answer in answers])
        if isinstance(examples[0], MultiLabelExample):
            found = [{"labels": tuple(labels.id(name) for name in each["labels"])} for each in decided]
        else:
            found = [{"label": labels.id(each["label"])} for each in decided]
        return [replace(example, **each) for example, each in zip(examples, found, strict=True)]

    def _tags(self, example: TaggedExample, answer: np.ndarray) -> np.ndarray:
        """Tag ids, int [words]; a CRF decodes each window separately."""
        if self.task.recipe.model.head != "crf":
            return answer.argmax(-1)
        features = self.task.features(example, self.encoder)
        chains = [answer[part.first : part.first + len(part.places)] for part in features]
        return np.concatenate(viterbi(chains, self.network.crf.transitions.numpy()))

    def _mark(self, examples: Sequence[Any]) -> str:
        """The cache key of answers: the teacher's weights and the texts in their order."""
        digest = hashlib.sha256(self.fingerprint.encode())
        for example in examples:
            # The order matters: answers are stored by position.
            digest.update(repr(key_of(example)).encode())
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
        found = {}
        for start in range(0, len(words), _ROWS):  # `words` come first among the candidates, each once
            part = vectors[start : min(start + _ROWS, len(words))] @ vectors.T
            # A word is not its own replacement.
            part[np.arange(len(part)), np.arange(start, start + len(part))] = -1.0
            count = min(SIMILAR, len(candidates) - 1)
            # A partition finds the nearest in linear time; only these few are sorted.
            best = np.argpartition(-part, count - 1, axis=1)[:, :count]
            for row, chosen in enumerate(best):
                near = sorted((-part[row, i], candidates[i]) for i in chosen if part[row, i] > 0)
                found[words[start + row]] = [word for _, word in near]
        return found


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
    encoder = build_encoder(model.tokenizer, recipe.data.tokenizer)
    return Teacher(model, task, encoder, setup, digest.hexdigest())


def _giving_logits(task: Task) -> Task:
    """The same task, with the logits of a feature as its prediction."""

    def predictions(self: Task, outputs: tuple[np.ndarray, ...], features: Sequence[Any]) -> list[np.ndarray]:
        rows = zip(outputs[0], features, strict=True)
        return [row[feature.places] if isinstance(feature, TaggedWindow) else row for row, feature in rows]

    kind = type(f"LogitsOf{type(task).__name__}", (type(task),), {"predictions": predictions})
    return kind(task.recipe, task.labels, task.thresholds)


def _whole_words(tokenizer: Any) -> list[str]:
    """The whole words of a vocabulary: no word pieces, no special tokens."""
    return [
        word for word in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        if isinstance(word, str) and word.isalpha()
    ]  # fmt: skip
