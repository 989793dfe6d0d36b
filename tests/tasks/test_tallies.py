"""What rows add to the scores: with every row once the sums give the report; intervals and comparisons hold."""

from __future__ import annotations

import contextlib
from array import array
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.schema import DataSection
from nlpctl.data.rows.examples import ExampleList
from nlpctl.data.rows.multi_label_rows import MultiLabelExample
from nlpctl.data.rows.question_rows import GoldAnswer, QuestionExample
from nlpctl.data.rows.retrieval_rows import RetrievalExample
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.errors import UserError
from nlpctl.tasks import intervals as module
from nlpctl.tasks.intervals import comparable, compare, full_report, intervals
from nlpctl.tasks.sequence_classification import softmax
from nlpctl.tasks.slices import by_label, by_length, left_out, sliced, slices
from nlpctl.tasks.tallies import SCORES_OF_KIND, Tallies, bins, class_columns, load_tallies, make_tallies, save_tallies

ROWS = 200


@pytest.fixture
def chance():
    return np.random.default_rng(3)


def texts(prefix="row"):
    return [f"{prefix} {i}" for i in range(ROWS)]


def classified(chance, labels, pair=None):
    examples = [
        TextExample(text, pair, int(label))
        for text, label in zip(texts(), chance.integers(0, labels, ROWS), strict=True)
    ]
    return examples, [[logits] for logits in chance.normal(size=(ROWS, labels))]


def split_of(name, make_task_of, chance):
    """A task, examples and predictions at random."""
    if name in ("sequence_classification", "text_matching"):
        labels = ("a", "b", "c") if name == "sequence_classification" else ("0", "1")
        return make_task_of(name, labels), *classified(chance, len(labels), "pair")
    if name == "multi_label_classification":
        rows = [MultiLabelExample(text, None, tuple(np.flatnonzero(chance.random(4) < 0.4))) for text in texts()]
        return make_task_of(name, ("a", "b", "c", "d")), rows, [[row] for row in chance.normal(size=(ROWS, 4))]
    if name in ("token_classification", "lexical_analysis"):
        from nlpctl.data.rows.tagged_rows import TaggedExample

        bounds = array("i", (0, 4, 5, 7, 8, 10, 11, 15))
        rows = [
            TaggedExample("Anna is in Rome", bounds, array("i", tags), True)
            for tags in chance.integers(0, 4, (ROWS, 4))
        ]
        return (
            make_task_of(name, ("O", "B-PER", "I-PER", "B-LOC"), decode={"entity_types": ("LOC",)}),
            rows,
            [[tags] for tags in chance.integers(0, 4, (ROWS, 4))],
        )
    if name == "semantic_indexing":
        vectors = chance.normal(size=(2, ROWS, 8))
        vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
        rows = [RetrievalExample(f"q {i}", f"a {i}", None, i % 5 > 0) for i in range(ROWS)]
        return make_task_of(name), rows, [[(vectors[0, i] + vectors[1, i], vectors[1, i])] for i in range(ROWS)]
    if name == "masked_language_model":
        from nlpctl.data.rows.corpus_rows import CorpusExample
        from nlpctl.tasks.masked_language_model import Guessed

        rows = [CorpusExample(text, False) for text in texts()]
        return (
            make_task_of(name),
            rows,
            [[Guessed(2.5 * int(n), int(n) // 2, int(n), 7)] * 2 for n in chance.integers(1, 9, ROWS)],
        )
    raise AssertionError(name)


TASKS = ("sequence_classification", "text_matching", "multi_label_classification", "token_classification",
         "lexical_analysis", "semantic_indexing", "masked_language_model")  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_the_sums_give_the_report(name, make_task_of, chance):
    task, examples, predictions = split_of(name, make_task_of, chance)
    report, tallies = full_report(task, examples, predictions)
    scores = tallies.scores(np.ones(tallies.rows))
    assert scores.keys() == report["intervals"].keys() and scores.keys() >= set(task_scores(task)) - {"loss"}
    for score, value in scores.items():
        assert value == pytest.approx(report[score], abs=1e-12), score
        low, high = report["intervals"][score]
        assert low <= report[score] <= high, score
    wrong = {mistake.row for mistake in task.mistakes(examples, predictions)}
    assert len(wrong) == int((~tallies.right).sum())


def task_scores(task):
    from nlpctl.config.tasks import scores

    return scores(task.name)


def test_the_questions_of_a_context_are_drawn_together(make_task_of, chance, monkeypatch):
    task = make_task_of("question_answering")
    monkeypatch.setattr(type(task), "_best", lambda self, windows: windows)
    monkeypatch.setattr(type(task), "_shares", lambda self, candidates: [1.0])
    monkeypatch.setattr("nlpctl.tasks.question_answering._text", lambda example, candidate: candidate)
    rows, given = [], []
    for article in range(20):
        right = chance.random() < 0.5  # all questions of an article, or none
        for question in range(10):
            rows.append(QuestionExample(None, f"when {question}?", f"in 1999, {article}", (GoldAnswer("1999", 3),)))
            given.append(["1999" if right else "in"])
    report, tallies = full_report(task, rows, given)
    assert report["em"] == tallies.scores(np.ones(200))["em"]
    (low, high), (alone_low, alone_high) = report["intervals"]["em"], intervals(
        Tallies(tallies.kind, tallies.names, tallies.counts, tallies.right, tallies.keys))["em"]  # fmt: skip
    assert high - low > 2 * (alone_high - alone_low)
    assert not comparable(tallies, task.tallies([*rows[:-1], replace(rows[-1], answers=())], given))


def test_rows_without_a_group_are_each_on_their_own(make_task_of, chance):
    """They were one large group, as if one unknown author had written them all."""
    task, examples, predictions = split_of("sequence_classification", make_task_of, chance)
    alone, _ = full_report(task, examples, predictions)
    for empty in ("", None, "  ", float("nan")):
        report, tallies = full_report(task, examples, predictions, [empty] * ROWS)
        assert report["intervals"] == alone["intervals"] and len(set(tallies.groups)) == ROWS
    _, tallies = full_report(task, examples, predictions, [0, "", "0", *["0"] * (ROWS - 3)])
    assert tallies.groups.tolist()[:3] == [0, 1, 0]


def test_auc_is_that_of_scikit_learn_under_any_weights(make_task_of, chance):
    from sklearn.metrics import roc_auc_score

    task, examples, predictions = split_of("text_matching", make_task_of, chance)
    predictions = [[np.round(logits, 1)] for (logits,) in predictions]  # with ties
    tallies = task.tallies(examples, predictions)
    weights = chance.integers(0, 4, ROWS).astype(float)
    gold = np.array([example.label for example in examples])
    scores = np.array([softmax(logits)[1] for (logits,) in predictions])
    assert tallies.scores(weights)["auc"] == pytest.approx(roc_auc_score(gold, scores, sample_weight=weights))
    assert bins(chance.random(25_000))[1] == 10_000


def classes(right, chance, labels=2):
    """Tallies of a classifier that is right where `right` is."""
    gold = chance.integers(0, labels, len(right))
    given = np.where(right, gold, (gold + 1) % labels)
    return make_tallies(
        "classes", ("a", "b"), class_columns(gold, given, labels), right, [str(i) for i in range(len(right))]
    )


def test_more_rows_than_are_drawn_one_by_one_give_the_same_interval(chance, monkeypatch):
    tallies = classes(chance.random(5000) < 0.8, chance)
    exact = intervals(tallies)["accuracy"]
    monkeypatch.setattr(module, "MOST_UNITS", 500)
    assert intervals(tallies)["accuracy"] == pytest.approx(exact, abs=0.003)
    assert exact[1] - exact[0] == pytest.approx(2 * 1.96 * np.sqrt(0.8 * 0.2 / 5000), rel=0.1)


def test_a_comparison(chance):
    first = chance.random(2000) < 0.8
    second = first | (chance.random(2000) < 0.2)
    found = compare(classes(first, np.random.default_rng(1)), classes(second, np.random.default_rng(1)))
    accuracy = found.scores["accuracy"]
    assert accuracy.difference == pytest.approx(second.mean() - first.mean())
    assert accuracy.interval[0] > 0 and accuracy.p < 0.01 and found.mcnemar < 0.01
    assert (found.gained, found.lost) == ((second & ~first).sum(), 0)
    same = compare(classes(first, np.random.default_rng(1)), classes(first, np.random.default_rng(1)))
    assert same.scores["accuracy"].p == 1.0 and same.mcnemar == 1.0 and same.scores["accuracy"].interval == (0, 0)


def test_only_equal_rows_are_comparable(chance):
    tallies = classes(chance.random(50) < 0.8, chance)
    assert comparable(tallies, classes(chance.random(50) < 0.8, chance))
    assert not comparable(tallies, classes(chance.random(49) < 0.8, chance))


OTHERWISE = {
    "sequence_classification": lambda row: replace(row, label=(row.label + 1) % 2),
    "text_matching": lambda row: replace(row, label=1 - row.label),
    "multi_label_classification": lambda row: replace(row, labels=() if row.labels else (0,)),
    "token_classification": lambda row: replace(row, tags=array("i", (3, 0, 3, 3) if row.tags[1] else (3, 1, 3, 3))),
    "lexical_analysis": lambda row: replace(row, tags=array("i", (3, 0, 3, 3) if row.tags[1] else (3, 1, 3, 3))),
    "semantic_indexing": lambda row: replace(row, text_pair=f"{row.text_pair}!"),
}


@pytest.mark.parametrize("name", TASKS)
def test_rows_of_which_something_else_is_right_are_not_comparable(name, make_task_of, chance):
    task, examples, predictions = split_of(name, make_task_of, chance)
    tallies = task.tallies(examples, predictions)
    if name == "masked_language_model":
        other = make_task_of(name, masking={"probability": 0.3})
        assert not comparable(tallies, other.tallies(examples, predictions))
        changed, hidden = examples, [[parts[0]._replace(tokens=99), *parts[1:]] for parts in predictions[-1:]]
    else:
        changed, hidden = [*examples[:-1], OTHERWISE[name](examples[-1])], predictions[-1:]
    assert not comparable(tallies, task.tallies(changed, [*predictions[:-1], *hidden]))


def test_that_of_an_older_version_tells_nothing(tmp_path):
    np.savez(tmp_path / "dev.npz", about="[]", keys=np.zeros(3))
    assert load_tallies(tmp_path / "dev.npz") is None


def test_they_survive_the_disk(make_task_of, chance, tmp_path):
    for name in TASKS:
        task, examples, predictions = split_of(name, make_task_of, chance)
        tallies = task.tallies(examples, predictions)
        save_tallies(tmp_path / "tallies" / "dev.npz", tallies)
        found = load_tallies(tmp_path / "tallies" / "dev.npz")
        assert comparable(tallies, found) and intervals(found) == intervals(tallies), name
    assert load_tallies(tmp_path / "tallies" / "test.npz") is None
    content = (tmp_path / "tallies" / "dev.npz").read_bytes()
    flipped = [content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :] for place in range(60, 400, 7)]
    for damaged in (b"", content[:-40], b"PK" + bytes(100), *flipped):
        (tmp_path / "broken.npz").write_bytes(damaged)
        with contextlib.suppress(UserError):  # a byte of a header need not matter
            load_tallies(tmp_path / "broken.npz")
    (tmp_path / "broken.npz").write_bytes(content[:-40])
    with pytest.raises(UserError, match="damaged"):
        load_tallies(tmp_path / "broken.npz")


def test_a_small_slice_is_not_scored_where_it_was_not_drawn(chance):
    right = np.ones(500, bool)
    right[3:50] = False
    few = np.zeros(500, bool)
    few[:3] = True
    (found,) = slices(classes(right, chance), "accuracy", {"few": few})
    assert (found.rows, found.score, found.interval) == (3, 1.0, (pytest.approx(0.292, abs=1e-3), 1.0))
    assert -0.7 < found.above_interval[0] < -0.5 < found.above < found.above_interval[1] < 0.15
    (none,) = slices(classes(~right, chance), "accuracy", {"few": few})  # 0 of 3: Clopper and Pearson's 0.708
    assert none.interval == (0.0, pytest.approx(0.708, abs=1e-3))


def test_the_weakest_slices_are_shown_not_the_largest(chance):
    """Of 15 labels the smallest is the weakest one."""
    labels = np.repeat(np.arange(15), [*range(40, 26, -1), 12])
    right = np.where(labels == 14, False, (np.arange(len(labels)) + labels) % 10 > 0)
    shown = sliced("accuracy", classes(right, chance), [(f"label {label}",) for label in labels], most=10)
    assert len(shown) == 10 and shown[0].name == "label 14" and shown[0].score == 0.0
    every = sliced("accuracy", classes(right, chance), [(f"label {label}",) for label in labels])
    assert [each.name for each in every[:10]] == [each.name for each in shown]


def test_slices_that_are_too_small_are_counted(chance):
    named = [("all", f"{'of nine' if row < 27 else 'of ten'} {row // (9 if row < 27 else 10)}") for row in range(70)]
    tallies = classes(np.ones(70, bool), chance)
    listed = sliced("accuracy", tallies, named)
    assert {each.name for each in listed} == {f"of ten {tens}" for tens in (3, 4, 5, 6)}
    assert left_out(tallies, named, listed) == 5  # three of nine rows, the rows 27 to 29, and all
    tallies, named = classes(np.ones(500, bool), chance), [(f"of ten {row // 10}",) for row in range(500)]
    assert left_out(tallies, named, sliced("accuracy", tallies, named)) == 20  # thirty are looked at
    assert left_out(tallies, named, sliced("accuracy", tallies, named, 10)) == 40


def test_rows_of_one_group_have_no_interval_and_grouped_rows_no_mcnemar(chance):
    first, second = (classes(chance.random(60) < 0.8, np.random.default_rng(1)) for _ in range(2))
    assert intervals(replace(first, groups=np.zeros(60, int))) == {}
    grouped = compare(first, replace(second, groups=np.arange(60) // 20))
    assert grouped.mcnemar is None and compare(first, second).mcnemar is not None
    wide, narrow = (each.scores["accuracy"].interval for each in (grouped, compare(first, second)))
    assert wide != narrow


# -- simulations -------------------------------------------------------------------------------------


def drawn(kind, chance, rows, quality=0.0):
    """A split of `rows` rows drawn from a population; `quality` moves the scores."""
    ability = chance.beta(4 + quality, 2, rows)
    if kind == "classes":
        return class_columns(
            gold := chance.integers(0, 3, rows), np.where(chance.random(rows) < ability, gold, (gold + 1) % 3), 3
        )
    if kind == "matches":
        gold = chance.integers(0, 2, rows)
        places = np.clip(
            np.round(10 + 6 * (ability - 0.3) * (2 * gold - 1) + 2 * chance.normal(size=rows)), 0, 19
        ).astype(int)
        given = (places >= 10).astype(int)
        wide = np.zeros((rows, 40))
        wide[np.arange(rows), places + 20 * (1 - gold)] = 1
        return csr_matrix(np.hstack([class_columns(gold, given, 2).toarray(), wide]))
    if kind == "label_sets":
        gold = chance.random((rows, 4)) < 0.3
        given = gold ^ (chance.random((rows, 4)) > 0.8 + 0.2 * ability[:, None])
        return csr_matrix(np.column_stack([gold & given, given, gold, (gold == given).all(1), np.ones(rows)]))
    if kind in ("entities", "words"):
        expected = chance.poisson(1.0, (rows, 2))
        right = chance.binomial(expected, ability[:, None])
        words = chance.integers(5, 40, rows)
        found = right + chance.poisson(0.3, (rows, 2))
        columns = [right, found, expected, chance.binomial(words, ability), words]
        columns += [each[:, 0] for each in (right, found, expected)] if kind == "words" else []
        return csr_matrix(np.column_stack(columns))
    if kind == "means":
        return csr_matrix(np.column_stack([chance.random(rows) < ability, ability, np.ones(rows)]))
    tokens = chance.integers(1, 30, rows)
    return csr_matrix(np.column_stack([tokens * (3 - ability), chance.binomial(tokens, ability), tokens]))


NAMES = {"means": ("em", "f1")}


@pytest.mark.parametrize("kind", ["classes", "matches", "label_sets", "entities", "words", "means", "hidden_words"])
def test_rows_that_tell_nothing_of_a_score_are_not_counted_for_it(kind, chance):
    table = tallied(kind, drawn(kind, chance, 300))
    for score, value in table.scores(np.ones(300)).items():
        counted = np.array([table.support(score, np.arange(300) == row) for row in range(300)])
        assert table.support(score) == counted.sum() > 100
        assert table.scores(counted.astype(float))[score] == pytest.approx(value, abs=1e-12)


def test_a_score_is_no_surer_than_one_that_it_cannot_be_below(chance):
    """Where no answer is exact, nothing is known of how many exact ones the next rows have: nor is it of their F1."""
    f1 = np.where(chance.random(40) < 0.2, 0.3, 0.0)
    keys = [str(row) for row in range(40)]
    found = intervals(make_tallies("means", ("em", "f1"), np.column_stack([0 * f1, f1, f1**0]), f1 > 1, keys))
    assert found["em"] == (0.0, pytest.approx(0.088, abs=1e-3)) and found["f1"][1] >= found["em"][1]
    hits = (chance.random((40, 1)) < [[0.9, 0.95]]).cumsum(1) > 0
    columns = np.column_stack([hits, np.ones((40, 2)), hits[:, 0], np.ones(40)])
    names = ("recall@1", "recall@5", "recall@10", "recall@50", "mrr")
    found = intervals(make_tallies("means", names, columns, hits[:, 0], keys))
    assert found["recall@50"] == (pytest.approx(0.912, abs=1e-3), 1.0)
    assert all(found[name][0] <= found["recall@50"][0] for name in names[:4])


def test_a_share_of_many_partners_says_nothing_of_the_rank_of_the_first(chance):
    """Of 8 partners the first is found at once, the others rarely: mrr is 1, recall@50 a half."""
    recall = chance.uniform(0.3, 0.7, 60)
    names = ("recall@1", "recall@50", "mrr")
    columns = np.column_stack([np.full(60, 0.125), recall, np.ones(60), np.ones(60)])
    found = intervals(make_tallies("means", names, columns, recall > 0, [str(row) for row in range(60)]))
    assert found["recall@50"][1] < 0.6 and found["mrr"][0] > 0.9


def test_a_perfect_recall_is_as_sure_as_the_sentences_with_entities():
    """8 of 1,000 sentences have an entity, which is found: 0.025 ** (1 / 8), not 0.996."""
    entities = (np.arange(1000) % 125 == 0).astype(float)[:, None]
    found = intervals(tallied("entities", csr_matrix(np.hstack([entities, entities, entities, np.full((1000, 2), 9)]))))
    assert found["recall"] == found["precision"] == found["f1"] == (pytest.approx(0.025 ** (1 / 8)), 1.0)
    missed = csr_matrix(np.hstack([0 * entities, 0 * entities, entities, np.full((1000, 2), 9)]))
    assert intervals(tallied("entities", missed))["recall"] == (0.0, pytest.approx(1 - 0.025 ** (1 / 8)))


def tallied(kind, columns):
    rows = columns.shape[0]
    return make_tallies(kind, NAMES.get(kind, ()), columns, np.ones(rows, bool), [str(i) for i in range(rows)])


def coverage(kind, splits, rows=500):
    """How often the interval of a split holds the score of the population, by score."""
    chance = np.random.default_rng(11)
    truth = tallied(kind, drawn(kind, chance, 400_000)).scores(np.ones(400_000))
    held = dict.fromkeys(truth, 0)
    for _ in range(splits):
        for name, (low, high) in intervals(tallied(kind, drawn(kind, chance, rows))).items():
            held[name] += low - 1e-9 <= truth[name] <= high + 1e-9
    return {name: count / splits for name, count in held.items()}


@pytest.mark.parametrize("kind", sorted(SCORES_OF_KIND))
def test_intervals_hold_the_truth(kind, monkeypatch):
    monkeypatch.setattr(module, "RESAMPLES", 200)
    for name, share in coverage(kind, 60, rows=300).items():
        assert 0.85 <= share <= 1, (name, share)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(SCORES_OF_KIND))
def test_intervals_hold_the_truth_in_95_of_100_splits(kind):
    for name, share in coverage(kind, 2000).items():
        assert 0.93 <= share <= 0.97, (name, share)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(SCORES_OF_KIND))
def test_a_true_null_is_rejected_in_5_of_100_comparisons(kind):
    chance = np.random.default_rng(12)
    rejected: dict[str, int] = {}
    for _ in range(2000):
        # The same rows, the same average quality: which rows each model fails on is chance.
        pair = [tallied(kind, drawn(kind, chance, 500)) for _ in range(2)]
        for name, each in compare(*pair).scores.items():
            rejected[name] = rejected.get(name, 0) + (each.p < 0.05)
    for name, count in rejected.items():
        assert 0.04 <= count / 2000 <= 0.06, (name, count / 2000)


def test_slices_by_length_count_characters():
    """A Chinese text is as long as an English one of as many characters, not three times as long."""
    rows = task_rows("sequence_classification", DataSection())
    examples = [TextExample(text * length, None, 0) for length in (1, 5, 9, 20) for text in "好a"]
    named = by_length(rows, ExampleList(examples))
    assert named[::2] == named[1::2] and named[0] != named[-1] and named[0][0].endswith(" characters")


def test_quarters_where_many_rows_have_one_length():
    """Cut before 29 characters the second part has 45 rows, cut behind them 61: 45 is nearer to the half of 200."""
    rows = task_rows("sequence_classification", DataSection())
    lengths = [10] * 50 + [20] * 45 + [29] * 16 + [40] * 89
    named = by_length(rows, ExampleList([TextExample("好" * length, None, 0) for length in lengths]))
    counts = Counter(name.removesuffix(" characters") for (name,) in named)
    assert counts == {"1 to 10": 50, "11 to 20": 45, "21 to 29": 16, "30 to 40": 89}


def test_a_row_without_a_label_is_in_no_slice(make_task_of):
    """Its F1 is 0 even where the model rightly finds nothing, so that such a slice would always lie below the rest."""
    task = make_task_of("multi_label_classification", labels=["快", "慢"])
    examples = ExampleList([MultiLabelExample("房间", None, (0, 1)), MultiLabelExample("早餐", None, ())])
    assert by_label(task, task_rows("multi_label_classification", DataSection()), examples) == [("快", "慢"), ()]
