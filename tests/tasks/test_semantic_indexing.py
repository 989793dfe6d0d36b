"""Semantic indexing: which candidates count, the loss, and recall against brute force."""

from __future__ import annotations

import dataclasses
import json
import pickle

import numpy as np
import paddle
import pytest

import nlpctl  # noqa: F401
from nlpctl.config.schema import RetrievalSection
from nlpctl.config.tasks import task_info
from nlpctl.data.batches.collate import raise_failure
from nlpctl.data.rows.retrieval_rows import RetrievalExample
from nlpctl.data.text.encoder import Encoding
from nlpctl.errors import UserError
from nlpctl.tasks.semantic_indexing import PairCollator, candidate_mask, retrieval_report


def row(text, pair, negative=None, matches=True):
    return RetrievalExample(text, pair, negative, matches)


class Letters:
    """An encoder of letters, with token types."""

    pad_id, pad_token_type_id, uses_token_types = 0, 0, True

    def encode(self, texts, pairs, max_length):
        assert pairs is None  # the two texts never share a row
        cut = [text[:max_length] for text in texts]
        return [
            Encoding([ord(letter) - 96 for letter in kept], [0] * len(kept), kept != text)
            for kept, text in zip(cut, texts, strict=True)
        ]


# -- batches


def test_a_labelled_batch():
    batch = PairCollator(Letters(), 4, True, RetrievalSection())([row("ab", "c", "d"), row("a", "bcd", matches=False)])
    raise_failure(batch)
    assert batch["input_ids"].tolist() == [[1, 2], [1, 0]]
    assert batch["pair_ids"].tolist() == [[3, 0, 0], [2, 3, 4]]
    assert batch["negative_ids"].tolist() == [[4]]
    assert batch["positives"].tolist() == [0, -1]
    assert batch["candidates"].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert {name for name in batch if "type" in name} == {"token_type_ids", "pair_type_ids", "negative_type_ids"}


def test_a_labelled_row_is_truncated_if_either_text_is():
    collate = PairCollator(Letters(), 2, True, RetrievalSection())
    rows = [row("ab", "cd"), row("abc", "d"), row("a", "bcd")]
    encodings = collate.encodings(rows)
    collate.arrays(rows, encodings)
    assert [each.truncated for each in encodings] == [False, True, True]


def test_a_labelled_row_is_truncated_if_its_negative_is():
    collate = PairCollator(Letters(), 2, True, RetrievalSection())
    rows = [row("ab", "c", "abcd"), row("a", "b"), row("a", "b", "c")]
    encodings = collate.encodings(rows)
    collate.arrays(rows, encodings)
    assert [each.truncated for each in encodings] == [True, False, False]


def test_without_labels_only_the_texts_are_encoded():
    batch = PairCollator(Letters(), 4, False, RetrievalSection())([RetrievalExample("ab", None, None, True)])
    assert set(batch) == {"input_ids", "token_type_ids"}
    assert pickle.loads(pickle.dumps(PairCollator(Letters(), 4, False, RetrievalSection()))).max_length == 4


def test_each_text_has_its_prompt_before_it():
    texts = RetrievalSection(prompts={"query": "q", "document": "", "passage": "p", "other": "o"})
    batch = PairCollator(Letters(), 4, True, texts)([row("ab", "c", "d")])
    assert [batch[name].tolist() for name in ("input_ids", "pair_ids", "negative_ids")] == [
        [[17, 1, 2]], [[16, 3]], [[16, 4]],
    ]  # fmt: skip
    plain = RetrievalExample("ab", None, None, True)
    assert PairCollator(Letters(), 4, False, texts)([plain])["input_ids"].tolist() == [[1, 2]]
    texts = dataclasses.replace(texts, default_prompt="other")
    assert PairCollator(Letters(), 4, False, texts)([plain])["input_ids"].tolist() == [[15, 1, 2]]
    without = RetrievalSection(prompts={"other": "o", "document": ""}, default_prompt="other")
    batch = PairCollator(Letters(), 4, True, without)([row("ab", "c")])
    assert (batch["input_ids"].tolist(), batch["pair_ids"].tolist()) == ([[15, 1, 2]], [[3]])  # an empty one is one


def test_right_answers_are_not_held_against_each_other():
    rows = [row("q", "t"), row("r", "t"), row("q", "u"), row("s", "q"), row("q", "v", matches=False), row("w", "w")]
    mask = candidate_mask(rows, [*(each.text_pair for each in rows), "u", "x"])
    #            t  t  u  q  v  w  u  x
    assert mask.tolist() == [
        [1, 0, 0, 0, 1, 1, 0, 1],  # q: t twice, u is its other answer, and q is itself
        [0, 1, 1, 1, 1, 1, 1, 1],
        [0, 0, 1, 0, 1, 1, 0, 1],
        [1, 1, 1, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 1, 1, 0, 1],
        [1, 1, 1, 1, 1, 1, 1, 1],
    ]  # fmt: skip


# -- the loss


def unit(*vectors):
    array = np.array(vectors, "float32")
    return array / np.linalg.norm(array, axis=1, keepdims=True)


def loss_of(task, queries, pairs, negatives, positives, candidates):
    outputs = tuple(paddle.to_tensor(each) for each in (queries, pairs, negatives) if each is not None)
    labels = {"positives": paddle.to_tensor(positives), "candidates": paddle.to_tensor(candidates)}
    return float(task.loss(None, outputs, labels))


def by_hand(queries, others, positives, candidates, scale, margin):
    losses = []
    for query, target, counts in zip(queries, positives, candidates, strict=True):
        if target < 0:
            continue
        cosines = others @ query
        cosines[target] -= margin
        kept = np.exp(scale * cosines)[np.array(counts, bool)]
        losses.append(np.log(kept.sum()) - scale * cosines[target])
    return float(np.mean(losses))


@pytest.mark.parametrize("margin", [0.0, 0.2])
def test_the_loss_is_cross_entropy_over_the_candidates_that_count(make_task_of, margin):
    task = make_task_of("semantic_indexing", retrieval={"scale": 5.0, "margin": margin})
    queries, pairs, negatives = unit([1, 0], [1, 1], [0, 1]), unit([1, 0.2], [0, 1], [1, -1]), unit([1, 0.1])
    positives, candidates = [0, -1, 2], [[1, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]
    others = np.concatenate([pairs, negatives])
    expected = by_hand(queries, others, positives, candidates, 5.0, margin)
    assert loss_of(task, queries, pairs, negatives, positives, candidates) == pytest.approx(expected, rel=1e-5)
    masked = loss_of(task, queries, pairs, negatives, positives, [[1, 0, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]])
    assert masked < expected  # the hard negative was close to the first query


def test_a_batch_without_queries_costs_nothing(make_task_of):
    task = make_task_of("semantic_indexing")
    vectors = unit([1, 0], [0, 1])
    assert loss_of(task, vectors, vectors, None, [-1, -1], [[1, 1], [1, 1]]) == 0.0


# -- recall and MRR


def test_recall_by_hand():
    corpus = unit([1, 0], [1, 1], [0, 1], [-1, 0])
    queries = unit([1, 0.1], [0.1, 1], [-1, 0.1])
    report = retrieval_report(queries, corpus, [[0], [0, 2], [1]], [None, None, None])
    # ranks: 1; of [0, 2] 1 and 3; 3
    assert report["recall@1"] == pytest.approx((1 + 0.5 + 0) / 3)
    assert report["recall@5"] == report["recall@50"] == 1.0
    assert report["mrr"] == pytest.approx((1 + 1 + 1 / 3) / 3)
    assert (report["queries"], report["corpus"]) == (3, 4)
    # The query itself, where it stands in the corpus, does not push the answer down.
    assert retrieval_report(queries[:1], corpus, [[1]], [0])["recall@1"] == 1.0
    assert retrieval_report(queries[:1], corpus, [[1]], [None])["recall@1"] == 0.0


def test_a_network_that_tells_nothing_apart_scores_next_to_nothing():
    same = np.ones((60, 4), "float32") / 2
    report = retrieval_report(same, same, [[i] for i in range(60)], [None] * 60)
    assert report["recall@1"] == report["recall@50"] == 0.0 and report["mrr"] == pytest.approx(1 / 60)


@pytest.mark.parametrize("seed", range(5))
def test_recall_is_that_of_sorting(seed):
    random = np.random.default_rng(seed)
    corpus, queries = unit(*random.normal(size=(70, 8))), unit(*random.normal(size=(300, 8)))
    relevant = [sorted(random.choice(70, random.integers(1, 4), replace=False).tolist()) for _ in queries]
    report = retrieval_report(queries, corpus, relevant, [None] * 300)
    orders = [np.argsort(-(corpus @ query)).tolist() for query in queries]
    for k in (1, 5, 10, 50):
        found = [len(set(order[:k]) & set(right)) / len(right) for order, right in zip(orders, relevant, strict=True)]
        assert report[f"recall@{k}"] == pytest.approx(np.mean(found))
    first = [min(order.index(each) for each in right) + 1 for order, right in zip(orders, relevant, strict=True)]
    assert report["mrr"] == pytest.approx(np.mean([1 / rank for rank in first]))


# -- the task


def test_every_distinct_query_is_looked_for_among_all_distinct_texts(make_task_of):
    task = make_task_of("semantic_indexing")
    east, north, west = unit([1, 0], [0, 1], [-1, 0])
    examples = [row("q", "t"), row("q", "u"), row("r", "t"), row("s", "v", matches=False), row("w", "w")]
    pairs = [(east, east), (east, north), (north, east), (west, west), (west, west)]
    outputs = tuple(np.stack(each) for each in zip(*pairs, strict=True))
    predictions = [[each] for each in task.predictions((*outputs, outputs[0][:1]), examples)]  # and a hard negative
    report = task.report(examples, predictions)
    assert (report["rows"], report["queries"], report["corpus"]) == (5, 2, 4)
    assert set(task_info(task.name).metrics) - {"loss"} <= set(report)
    # q finds t and u first and second; r finds t behind u, and v and w which are as close; w would find itself
    assert report["mrr"] == pytest.approx((1 + 1 / 4) / 2)
    json.dumps(report)


def test_a_split_without_queries_is_told(make_task_of):
    task = make_task_of("semantic_indexing")
    for pair, hint in ((row("q", "t", matches=False), "1 means that"), (row("q", "q"), "cannot find itself")):
        with pytest.raises(UserError, match=f"none of the 1 pairs is of two texts that match(?s:.*){hint}"):
            task.report([pair], [[(np.ones(2), np.ones(2))]])


def test_an_answer_is_the_vector(make_task_of):
    task = make_task_of("semantic_indexing")
    example = RetrievalExample("q", None, None, True)
    (prediction,) = task.predictions((unit([3, 4]),), [example])
    assert task.answer(example, [prediction]) == {"embedding": [0.6, 0.8]}


def test_what_vectors_decide_is_the_nearest_other_text(make_task_of):
    task = make_task_of("semantic_indexing")
    examples = [RetrievalExample(text, None, None, True) for text in ("a", "b", "c", "a")]
    vectors = unit([1, 0], [0.8, 0.6], [0, 1], [1, 0])
    predictions = [[each] for each in task.predictions((vectors,), examples)]
    assert task.decisions(examples, predictions) == ["b", "a", "b", "b"]  # the second "a" is the same text
    assert task.decisions(examples[:1], predictions[:1]) == [None]
    turned = [[each] for each in task.predictions((vectors[[0, 2, 1, 0]],), examples)]
    assert task.decisions(examples, turned) == ["c", "c", "a", "c"]
