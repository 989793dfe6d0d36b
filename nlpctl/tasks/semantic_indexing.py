"""Semantic indexing: one encoder maps matching texts to nearby vectors, trained with in-batch negatives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpctl.checksums import sha256_of_text
from nlpctl.config.schema import Recipe, RetrievalSection
from nlpctl.config.sentence_folder import PASSAGE_PROMPTS, QUERY_PROMPT
from nlpctl.data.batches.collate import Batch, Collator
from nlpctl.data.rows.retrieval_rows import RetrievalExample
from nlpctl.data.text.encoder import Encoding, TextEncoder
from nlpctl.errors import UserError
from nlpctl.models.families import Head
from nlpctl.tasks.base import Mistake, Task
from nlpctl.tasks.tallies import Tallies, make_tallies

if TYPE_CHECKING:
    import paddle


Vectors = tuple[np.ndarray, ...]  # of a text, or of the two texts of a pair


class SemanticIndexing(Task):
    """Outputs are vectors [rows, dim] of the texts and, in labelled batches, of the second texts and negatives.

    They have unit length unless retrieval.normalize is false; `compared` gives those whose inner products are compared.
    """

    label_names = ("positives", "candidates")
    output_names = ("vectors",)
    answer_keys = ("embedding",)
    int8_agreement = 0.75  # of the nearest texts, several are often almost as near

    @staticmethod
    def head(recipe: Recipe) -> Head:
        from nlpctl.models.two_tower import two_tower

        retrieval = recipe.retrieval
        build = functools.partial(
            two_tower,
            pooling=retrieval.pooling,
            embedding_size=retrieval.embedding_size,
            activation=retrieval.activation,
            normalize=retrieval.normalize,
        )
        return Head("Model", adapt=build, labelled=False, projects_to=retrieval.embedding_size or 0)

    def collator(self, encoder: TextEncoder, *, labelled: bool) -> PairCollator:
        return PairCollator(encoder, self.data.max_seq_length, labelled, self.recipe.retrieval)

    def loss(
        self, network: paddle.nn.Layer, outputs: tuple[paddle.Tensor, ...], batch: Mapping[str, paddle.Tensor]
    ) -> paddle.Tensor:
        """Cross-entropy of finding the second text of a row among the candidates of the batch.

        The scores are scale * (cosine - margin of the right answer), as PaddleNLP's in-batch negatives have
        them; with retrieval.similarity: dot the inner product in place of the cosine. A process sees the candidates of
        its own share of a batch only.
        """
        import paddle
        import paddle.nn.functional as F

        retrieval = self.recipe.retrieval
        raw = retrieval.similarity == "cosine" and not retrieval.normalize
        queries, *others = [F.normalize(each, axis=-1) for each in outputs] if raw else outputs
        with paddle.amp.auto_cast(enable=False):  # half precision is too coarse for cosines times the scale
            cosines = paddle.matmul(queries, paddle.concat(others), transpose_y=True)
        # Rows without a positive ask nothing, but their texts stay in the batch as candidates for others.
        asking = batch["positives"] >= 0
        targets = paddle.where(asking, batch["positives"], paddle.zeros_like(batch["positives"]))
        right = F.one_hot(targets, cosines.shape[1])
        scores = (cosines - retrieval.margin * right) * retrieval.scale
        scores = paddle.where(batch["candidates"] > 0, scores, paddle.full_like(scores, -1e9))
        losses = F.cross_entropy(scores, targets, reduction="none").squeeze(-1)
        count = asking.astype("float32").sum()
        return (losses * asking.astype("float32")).sum() / count.clip(min=1.0)

    def scored_outputs(self, run: Callable[[Batch], tuple[np.ndarray, ...]], batch: Batch) -> tuple[np.ndarray, ...]:
        """The vectors of the texts and of the second texts, which go through the same encoder one after the other."""
        names = {"pair_ids": "input_ids", "pair_type_ids": "token_type_ids"}
        texts = {name: batch[name] for name in names.values() if name in batch}
        pairs = {name: batch[pair] for pair, name in names.items() if pair in batch}
        return (*run(texts), *run(pairs))

    def predictions(self, outputs: tuple[np.ndarray, ...], features: Sequence[RetrievalExample]) -> list[Vectors]:
        return list(zip(*outputs[: 1 if features[0].text_pair is None else 2], strict=True))

    def report(self, examples: Sequence[RetrievalExample], predictions: Sequence[Sequence[Vectors]]) -> dict[str, Any]:
        """Every distinct query among all distinct second texts of the split, those of rows with label 0 too."""
        search = _Search(examples, predictions, self.recipe)
        return {"rows": len(examples), **retrieval_report(*search.arguments())}

    def tallies(self, examples: Sequence[RetrievalExample], predictions: Sequence[Sequence[Vectors]]) -> Tallies:
        """Rows are the distinct queries."""
        search = _Search(examples, predictions, self.recipe)
        scores = query_scores(*search.arguments())
        columns = np.column_stack([scores, np.ones(len(scores))])
        texts = list(search.corpus)
        corpus = sha256_of_text(ascii(sorted(texts)))  # all of these are ranked
        answers = (sorted(texts[i] for i in relevant) for relevant in search.relevant)
        asked = [(query, right, corpus) for query, right in zip(search.queries, answers, strict=True)]
        queries = make_tallies("means", QUERY_SCORES, columns, scores[:, -1] == 1, asked)
        return replace(queries, examples=np.array(search.rows))

    def mistakes(self, examples: Sequence[RetrievalExample], predictions: Sequence[Sequence[Vectors]]) -> list[Mistake]:
        """Queries that find another text first; the size is the rank of the best right one."""
        search = _Search(examples, predictions, self.recipe)
        texts = list(search.corpus)
        return [
            Mistake(row, float(rank), f"{examples[row].text_pair} (rank {rank:,})", texts[first])
            for query, rank, first in missed_queries(*search.arguments())
            for row in [search.rows[query]]
        ]

    def answer(self, example: RetrievalExample, predictions: Sequence[Vectors]) -> dict[str, Any]:
        ((vector, *_),) = predictions
        return {"embedding": [round(float(value), 6) for value in vector]}

    def decisions(self, examples: Sequence[RetrievalExample], predictions: Sequence[Sequence[Vectors]]) -> list[Any]:
        """The nearest other text: a vector alone decides nothing."""
        vectors = np.stack([vector for ((vector, *_),) in predictions])
        return _nearest_others([example.text for example in examples], compared(vectors, self.recipe))


def compared(vectors: np.ndarray, recipe: Recipe) -> np.ndarray:
    """What stands for vectors [n, dim] where inner products are compared: of unit length for cosines."""
    if recipe.retrieval.normalize or recipe.retrieval.similarity == "dot":
        return vectors
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-12)  # a bad row has zeros


def with_default_prompt(recipe: Recipe, names: Sequence[str]) -> Recipe:
    """`recipe` for texts that are all queries, or all passages: `names` are those of their prompt."""
    name = _prompt_name(recipe.retrieval, names)
    return replace(recipe, retrieval=replace(recipe.retrieval, default_prompt=name))


def _prompt_name(retrieval: RetrievalSection, names: Sequence[str]) -> str | None:
    """The first of these names that has a prompt, else that of the default one.

    An empty prompt is one too, but sentence-transformers 6 writes an empty `document` beside what says `passage`.
    """
    there = [name for name in names if name in retrieval.prompts]
    return next((name for name in there if retrieval.prompts[name]), there[0] if there else retrieval.default_prompt)


def _prompt(retrieval: RetrievalSection, names: Sequence[str] = ()) -> str:
    """What stands before a text."""
    name = _prompt_name(retrieval, names)
    return "" if name is None else retrieval.prompts[name]


def _nearest_others(texts: Sequence[str], vectors: np.ndarray) -> list[str | None]:
    """For each text the nearest that is another; None where all are the same. `vectors`: [texts, dim], `compared`."""
    # Reversed, so that the first row of a repeated text is kept.
    distinct = {text: row for row, text in reversed(list(enumerate(texts)))}
    rows, names = np.array(list(distinct.values())), list(distinct)
    cosines = vectors[rows] @ vectors[rows].T
    np.fill_diagonal(cosines, -np.inf)
    if len(names) < 2:
        return [None] * len(texts)
    nearest = dict(zip(names, (names[index] for index in cosines.argmax(1).tolist()), strict=True))
    return [nearest[text] for text in texts]


class _Search:
    """The distinct queries of a split, and the distinct second texts they are looked for in."""

    def __init__(self, examples: Sequence[RetrievalExample], predictions: Sequence[Sequence[Vectors]], recipe: Recipe):
        """UserError if no pair matches."""
        self.corpus: dict[str, int] = {}
        self.queries: dict[str, int] = {}
        self.rows: list[int] = []  # of each query, its first example
        self.relevant: list[set[int]] = []
        corpus_vectors, query_vectors = [], []
        for row, (example, ((query, pair),)) in enumerate(zip(examples, predictions, strict=True)):
            if example.second not in self.corpus:
                self.corpus[example.second] = len(self.corpus)
                corpus_vectors.append(pair)
            if example.matches and example.text != example.second:  # a query does not find itself
                if example.text not in self.queries:
                    self.queries[example.text] = len(self.queries)
                    self.rows.append(row)
                    query_vectors.append(query)
                    self.relevant.append(set())
                self.relevant[self.queries[example.text]].add(self.corpus[example.second])
        if not self.queries:
            hint = "check data.columns.label: 1 means that two texts match"
            if any(example.matches for example in examples):
                hint = "a query cannot find itself: give pairs of different texts"
            message = f"none of the {len(examples)} pairs is of two texts that match: there is no query"
            raise UserError(message, hint=hint)
        self.vectors = compared(np.stack(query_vectors), recipe), compared(np.stack(corpus_vectors), recipe)

    def arguments(self) -> tuple[np.ndarray, np.ndarray, list[list[int]], list[int | None]]:
        """The arguments of the functions of semantic_indexing.py."""
        skipped = [self.corpus.get(text) for text in self.queries]
        return *self.vectors, [sorted(rows) for rows in self.relevant], skipped


# -- batches ----------------------------------------------------------------------------------------------------------


class PairCollator(Collator):
    """Pads texts, second texts and hard negatives separately; without labels only the texts.

    Each has its prompt before it (retrieval.prompts): with labels the texts are queries and the others passages.

    Labelled batches also define which candidate answers which query. The candidates are the second texts of the
    batch, then its hard negatives:
    positives int64 [rows]: the candidate that answers the query; -1 for a row whose texts do not match
    candidates int64 [rows, candidates]: 1 where the candidate counts; 0 where it is another right answer
    """

    def __init__(self, encoder: TextEncoder, max_length: int, with_labels: bool, retrieval: RetrievalSection) -> None:
        super().__init__(encoder, max_length, with_labels)
        self.prompt = _prompt(retrieval, (QUERY_PROMPT,) if with_labels else ())
        self.passage_prompt = _prompt(retrieval, PASSAGE_PROMPTS)

    def encodings(self, examples: Sequence[RetrievalExample], tell_cut: bool = True) -> list[Encoding]:
        """Encodes the first texts only; an unlabelled batch holds no others. `arrays` notes whether one of the others
        was cut."""
        return self.encoder.encode([self.prompt + example.text for example in examples], None, self.max_length)

    def arrays(self, examples: Sequence[RetrievalExample], encodings: Sequence[Encoding]) -> dict[str, np.ndarray]:
        batch = self.pad(encodings)
        if not self.with_labels:
            return batch
        pairs = [example.second for example in examples]
        negatives = [(row, example.negative) for row, example in enumerate(examples) if example.negative is not None]
        second = self.encoder.encode([self.passage_prompt + text for text in pairs], None, self.max_length)
        for first, other in zip(encodings, second, strict=True):
            first.truncated |= other.truncated
        batch |= self.named(second, "pair_ids", "pair_type_ids")
        if negatives:
            passages = [self.passage_prompt + text for _, text in negatives]
            of_negatives = self.encoder.encode(passages, None, self.max_length)
            for (row, _), other in zip(negatives, of_negatives, strict=True):
                encodings[row].truncated |= other.truncated
            batch |= self.named(of_negatives, "negative_ids", "negative_type_ids")
        batch["positives"] = np.array([row if example.matches else -1 for row, example in enumerate(examples)])
        batch["candidates"] = candidate_mask(examples, [*pairs, *(text for _, text in negatives)])
        return batch

    def named(self, encodings: Sequence[Encoding], ids_name: str, types_name: str) -> dict[str, np.ndarray]:
        """The encodings as one padded batch, its entries named as the network wants them."""
        batch = self.pad(encodings)
        names = {"input_ids": ids_name, "token_type_ids": types_name}
        return {names[name]: array for name, array in batch.items()}


def candidate_mask(examples: Sequence[RetrievalExample], candidates: Sequence[str]) -> np.ndarray:
    """int64 [examples, candidates]: 0 for correct answers to the query other than that of its own row, else 1.

    Correct are all second texts of the batch that match the same query, and the query itself.
    """
    answers: dict[str, set[str]] = {example.text: {example.text} for example in examples}
    for example in examples:
        if example.matches:
            answers[example.text].add(example.second)
    mask = np.array([[text not in answers[example.text] for text in candidates] for example in examples], np.int64)
    np.fill_diagonal(mask, 1)  # its own second text
    return mask


# -- scores: recall at k and mean reciprocal rank ---------------------------------------------------------------------

CUTOFFS = (1, 5, 10, 50)
QUERY_SCORES = (*(f"recall@{k}" for k in CUTOFFS), "mrr")
CHUNK = 256  # queries that are compared with the whole corpus at a time


def retrieval_report(
    queries: np.ndarray, corpus: np.ndarray, relevant: Sequence[Sequence[int]], skipped: Sequence[int | None]
) -> dict[str, Any]:
    """Recall@k, the share of a query's relevant texts among the first k, and MRR, 1 / rank of the first one found.

    `queries` float32 [queries, dim] and `corpus` [texts, dim] have unit length; `relevant[i]` are the rows of the
    corpus that query i should find, one at least; `skipped[i]` is left out of its ranking (the query itself,
    where it stands in the corpus). Of texts with equal cosines the relevant ones come last, so a network that
    gives all texts the same vector scores next to nothing.
    """
    scores = query_scores(queries, corpus, relevant, skipped)
    means = {name: float(column.mean()) for name, column in zip(QUERY_SCORES, scores.T, strict=True)}
    return {**means, "queries": len(queries), "corpus": len(corpus)}


def query_scores(
    queries: np.ndarray, corpus: np.ndarray, relevant: Sequence[Sequence[int]], skipped: Sequence[int | None]
) -> np.ndarray:
    """The QUERY_SCORES of each query, float64 [queries, scores]. Arguments as in `retrieval_report`."""
    result = np.zeros((len(queries), len(QUERY_SCORES)))
    for start in range(0, len(queries), CHUNK):
        scores = queries[start : start + CHUNK] @ corpus.T
        for i, row in enumerate(scores, start):
            ranks = _ranks(row, np.asarray(relevant[i]), skipped[i])
            result[i] = [*(np.mean(ranks <= k) for k in CUTOFFS), 1 / ranks[0]]
    return result


def missed_queries(
    queries: np.ndarray, corpus: np.ndarray, relevant: Sequence[Sequence[int]], skipped: Sequence[int | None]
) -> list[tuple[int, int, int]]:
    """(query, rank of its best relevant text, the text that came first) where that is not a relevant one.

    Arguments as in `retrieval_report`.
    """
    missed = []
    for start in range(0, len(queries), CHUNK):
        scores = queries[start : start + CHUNK] @ corpus.T
        for i, row in enumerate(scores, start):
            rank = int(_ranks(row, np.asarray(relevant[i]), skipped[i])[0])
            if rank > 1:
                row[[*relevant[i], *([] if skipped[i] is None else [skipped[i]])]] = -np.inf
                missed.append((i, rank, int(row.argmax())))
    return missed


def _ranks(scores: np.ndarray, relevant: np.ndarray, skipped: int | None) -> np.ndarray:
    """Ranks, from 1 and rising, of the relevant texts among all texts [texts] but the skipped one."""
    wanted = np.sort(scores[relevant])[::-1]
    others = np.ones(len(scores), bool)
    others[relevant] = False
    if skipped is not None:
        others[skipped] = False
    # Counting is linear in the corpus; sorting it for each query would cost a logarithm more.
    before = (scores[others][:, None] >= wanted[None, :]).sum(0)
    return before + np.arange(1, len(wanted) + 1)
