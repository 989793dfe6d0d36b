"""Confidence: the error of calibration, its fit, and that no decision depends on it."""

from __future__ import annotations

import json
import tracemalloc
from array import array
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from nlpctl import console
from nlpctl.data.rows.multi_label_rows import MultiLabelExample
from nlpctl.data.rows.tag_scheme import detect_scheme
from nlpctl.data.rows.tagged_rows import TaggedExample
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.errors import UserError
from nlpctl.models.calibration import Calibration, read_calibration, write_calibration
from nlpctl.models.viterbi import path_steps, viterbi
from nlpctl.modeltools.calibrate import _warn_of_few
from nlpctl.tasks import calibration as fit_confidence
from nlpctl.tasks.calibration import LEAST, calibrated, fit_first, fit_logistic, fit_temperature, recalibrated
from nlpctl.tasks.confidence import LEVELS, Confidences, chance_ece, coverage, ece, reliability, temperature_scaled
from nlpctl.tasks.question_answering import AnswerCandidate, probabilities
from nlpctl.tasks.sequence_classification import softmax
from nlpctl.tasks.token_classification import follows

RANDOM = np.random.default_rng(7)


def judged(confidence, right):
    return Confidences("rows", np.asarray(confidence, float), np.asarray(right, bool), np.arange(len(right)))


def drawn(shares):
    """A label for each row of probabilities."""
    return (shares.cumsum(1) > RANDOM.random((len(shares), 1))).argmax(1)


def honest(rows=4000, labels=3, temperature=1.0):
    """Logits and labels; the logits divided by `temperature` are honest."""
    logits = RANDOM.normal(size=(rows, labels)) * 2
    return logits * temperature, drawn(softmax(logits))


# -- the error -----------------------------------------------------------------------------------


def test_ece_is_the_mean_distance_over_bins_of_equal_width():
    found = judged([0.95, 0.99, 0.94, 0.5, 0.51, 1.0], [1, 0, 1, 1, 0, 1])
    # bins of 1/15: {0.5, 0.51} and {0.94, 0.95, 0.99, 1.0}
    expected = 2 / 6 * abs(0.505 - 0.5) + 4 / 6 * abs(0.97 - 0.75)
    assert ece(found) == pytest.approx(expected)
    assert reliability(found) == [[0.505, 0.5, 2], [0.97, 0.75, 4]]
    assert [each["coverage"] for each in coverage(found)] == pytest.approx([1, *[4 / 6] * 4, 3 / 6, 2 / 6])
    assert coverage(judged([0.4], [1]))[0] == {"min_confidence": LEVELS[0], "coverage": 0.0, "precision": None}


def test_by_chance_honest_probabilities_stay_below_the_chance():
    """In 95 of 100 splits; the more rows, the less it is."""
    chances = {}
    for rows in (100, 400, 1600):
        splits = [softmax(honest(rows)[0]) for _ in range(200)]
        found = [judged(shares.max(1), drawn(shares) == shares.argmax(1)) for shares in splits]
        levels = [chance_ece(reliability(each)) for each in found]
        below = np.mean([ece(each) <= level for each, level in zip(found, levels, strict=True)])
        assert 0.9 <= below <= 1.0, (rows, below)
        chances[rows] = np.mean(levels)
    assert chances[100] > 1.7 * chances[400] > 2.9 * chances[1600]
    assert chance_ece([[1.0, 1.0, 50]]) == 0.0


@pytest.mark.parametrize(("rows", "before", "warned"), [(100, 0.05, True), (100, 0.4, False), (100_000, 0.001, False)])
def test_too_few_rows_to_tell_anything_are_told(rows, before, warned, capsys):
    """Not where the rows suffice to see that something is wrong, nor where little can be wrong at all."""
    bins = [[0.75, 0.75 - before, rows]]
    metrics = {"confidence": {"of": "rows", "before": {"ece": before, "reliability": bins}}}
    with console.for_a_program() as warnings:  # as with --json, and as text
        _warn_of_few("dev", metrics)
    told = "dev has 100 rows, on which honest probabilities show an ECE of up to 0.0"
    assert len(warnings) == warned and all(each.startswith(told) for each in warnings)
    assert ("these show 0.050, so the calibration may not hold" in capsys.readouterr().err) == warned


# -- the fit -------------------------------------------------------------------------------------


def test_a_temperature_is_found():
    logits, gold = honest(temperature=2.5)
    found = fit_temperature(logits, gold, ("a", "b", "c"))
    assert found.names == () and 1 / found.scales[0] == pytest.approx(2.5, rel=0.1)
    assert fit_temperature(logits[: LEAST - 1], gold[: LEAST - 1], ("a", "b", "c")) is None


def test_of_very_many_labels_none_has_a_temperature_of_its_own(monkeypatch):
    """As many fits as labels, on a row or two each, would take minutes."""
    fitted = []
    each = fit_confidence._each
    monkeypatch.setattr(fit_confidence, "_each", lambda *given: fitted.append(given[-1]) or each(*given))
    logits = np.random.default_rng(3).normal(size=(200, 4))
    gold = logits.argmax(1)
    fit_temperature(logits, gold, ("a", "b", "c", "d"))
    monkeypatch.setattr(fit_confidence, "MOST_NAMES", 3)
    fit_temperature(logits, gold, ("a", "b", "c", "d"))
    assert fitted == [4]


def test_temperatures_per_label_are_taken_where_they_pay():
    logits, gold = honest(8000)
    factors = np.array([1.0, 4.0, 1.0])
    found = fit_temperature(logits * factors[logits.argmax(1)][:, None], gold, ("a", "b", "c"))
    assert found.names == ("a", "b", "c")
    assert np.reciprocal(found.scales) == pytest.approx(factors, rel=0.2)


def test_a_temperature_depends_on_the_margin_where_that_pays():
    logits, gold = honest(8000, labels=2)
    ahead = np.abs(logits[:, :1] - logits[:, 1:])
    found = fit_temperature(logits * 2 * (1 + ahead) ** -0.6, gold, ("a", "b"))
    assert found.names == () and found.power > 0.5
    own = temperature_scaled(logits * 2 * (1 + ahead) ** -0.6, found, ("a", "b"))
    assert (own.argmax(1) == logits.argmax(1)).all()
    assert np.abs(softmax(own) - softmax(logits)).max() < 0.05


def test_many_labels_take_no_more_memory_than_few(monkeypatch):
    monkeypatch.setattr("nlpctl.tasks.calibration.MOST_LOGITS", 20_000)
    logits, gold = np.random.default_rng(3).normal(size=(20_000, 40)).astype(np.float32), np.arange(20_000) % 40
    tracemalloc.start()
    try:
        assert fit_temperature(logits, gold, [f"label {i}" for i in range(40)]).method == "temperature"
        assert tracemalloc.get_traced_memory()[1] < 2_000_000  # 500 rows in float64 are 160 KB
    finally:
        tracemalloc.stop()


def test_a_split_without_mistakes_gives_no_certainty():
    logits = np.tile([2.0, 0.0], (LEAST, 1))
    (scale,) = fit_temperature(logits, np.zeros(LEAST, int), ("a", "b")).scales
    assert 1 < scale < 4  # without the prior it would grow without end


def test_scale_and_shift_are_found_per_group():
    odds, groups = RANDOM.normal(size=20_000) * 2, RANDOM.integers(0, 2, 20_000)
    scale, shift = np.array([0.5, 2.0])[groups], np.array([0.0, 1.0])[groups]
    right = RANDOM.random(20_000) < 1 / (1 + np.exp(-(odds * scale + shift)))
    found = fit_logistic(odds, right, groups, ("x", "y"), np.arange(20_000))
    assert found.names == ("x", "y")
    assert found.scales == pytest.approx([0.5, 2.0], abs=0.15) and found.shifts == pytest.approx([0, 1], abs=0.15)


def test_decisions_of_one_row_are_evidence_only_once():
    random = np.random.default_rng(3)
    odds, groups = random.normal(size=300), np.arange(300) % 15
    right = random.random(300) < 1 / (1 + np.exp(-odds))  # honest in every group
    odds, groups, right, rows = (np.repeat(each, 10) for each in (odds, groups, right, np.arange(300)))
    names = [f"label {i}" for i in range(15)]
    assert fit_logistic(odds, right, groups, names, np.arange(3000)).names  # as if they were 3,000 rows
    assert fit_logistic(odds, right, groups, names, rows).names == ()


def test_answers_get_a_temperature_by_whether_the_first_is_right():
    scores = np.sort(RANDOM.normal(size=(5000, 4)), axis=1)[:, ::-1]
    right = RANDOM.random(5000) < softmax(scores)[:, 0]
    ragged = [row[: 1 + i % 4].tolist() if i < 100 else row.tolist() for i, row in enumerate(scores * 3)]
    assert 1 / fit_first(ragged, right).scales[0] == pytest.approx(3, rel=0.15)
    assert fit_first([[1.0]] * 200, np.ones(200, bool)) is None  # one candidate is always certain


@pytest.mark.parametrize("share", [0.0, 0.02, 0.12])
def test_a_poor_reader_is_less_sure_than_one_of_its_candidates(share):
    """Of five, which no temperature gives less than a fifth; the order stays. Old calibrations have no shift."""
    scores = np.sort(RANDOM.normal(size=(2000, 5)), axis=1)[:, ::-1] * 3
    right = RANDOM.random(2000) < share
    found = fit_first(scores.tolist(), right)
    candidates = [[AnswerCandidate(0, end, score) for end, score in enumerate(row)] for row in scores.tolist()]
    shares = np.array([probabilities(row, found.scales[0], found.shifts[0]) for row in candidates])
    assert found.shifts[0] < 0 and (np.diff(shares, axis=1) <= 0).all() and (shares.sum(1) < 1).all()
    assert abs(shares[:, 0].mean() - share) < 0.02
    assert np.sum(probabilities(candidates[0], 2.0)) == pytest.approx(1)


# -- tasks ---------------------------------------------------------------------------------------


def classifier(make_task_of, rows=400, temperature=3.0):
    logits, gold = honest(rows, temperature=temperature)
    examples = [TextExample(f"text {i}", None, int(label)) for i, label in enumerate(gold)]
    return make_task_of("sequence_classification", ("a", "b", "c")), examples, [[row] for row in logits]


def test_a_classifier_keeps_its_labels_and_their_order(make_task_of):
    task, examples, predictions = classifier(make_task_of)
    task.thresholds = (0.2, 0.5, 0.3)
    other = calibrated(task, examples, predictions, "dev")
    before, after = (each.answers(examples, predictions) for each in (task, other))
    assert [each["label"] for each in before] == [each["label"] for each in after]
    for old, new in zip(before, after, strict=True):
        assert old["probabilities"] != new["probabilities"] and sum(new["probabilities"].values()) < 1.00001
        told = [sorted(each["probabilities"], key=each["probabilities"].get)[-1] for each in (old, new)]
        assert told[0] == told[1]
    assert task.calibration is None
    found = other.calibration
    assert found.split == "dev" and found.rows == 400 and found.ece[1] < found.ece[0] / 2
    assert task.report(examples, predictions) == other.report(examples, predictions)


def test_the_labels_of_a_row_keep_to_their_thresholds(make_task_of):
    logits = RANDOM.normal(size=(2000, 2)) * 2
    gold = RANDOM.random((2000, 2)) < 1 / (1 + np.exp(-logits))
    examples = [MultiLabelExample(f"text {i}", None, tuple(np.flatnonzero(row))) for i, row in enumerate(gold)]
    predictions = [[row] for row in logits * [3, 1] + [0, 2]]
    task = make_task_of("multi_label_classification", ("a", "b"), (0.6, 0.8))
    other = calibrated(task, examples, predictions, "dev")
    before, after = (each.answers(examples, predictions) for each in (task, other))
    assert [each["labels"] for each in before] == [each["labels"] for each in after]
    assert other.calibration.method == "logistic" and other.calibration.names == ("a", "b")
    assert other.calibration.rows == 2000  # whatever the number of labels given
    assert other.calibration.scales == pytest.approx([1 / 3, 1], rel=0.2)
    assert ece(other.confidences(examples, predictions)) < ece(task.confidences(examples, predictions))
    answer = {"labels": ["a", "b"], "probabilities": {"a": 0.95, "b": 0.7}}
    assert task.abstain(answer, 0.9)["labels"] == ["a"]


def test_rows_that_are_given_no_label_are_not_fitted_to(make_task_of):
    examples = [MultiLabelExample(f"text {i}", None, (0,)) for i in range(60)]
    predictions = [[np.array([-2.0, -3.0])]] * 60
    task = make_task_of("multi_label_classification", ("a", "b"))
    assert not len(task.confidences(examples, predictions).right)
    assert calibrated(task, examples, predictions, "dev") is task


def test_a_label_that_stays_keeps_those_above_it(make_task_of):
    names = ("a", "a##b", "a##b##c", "a##d", "e")
    task = make_task_of("multi_label_classification", names)
    answer = {"labels": list(names), "probabilities": dict(zip(names, (0.6, 0.95, 0.5, 0.7, 0.8), strict=True))}
    assert task.abstain(answer, 0.9) == {**answer, "labels": ["a", "a##b"]}
    assert task.abstain(answer, 0.96)["labels"] == []


def test_what_is_unsure_is_withheld(make_task_of):
    task = make_task_of("sequence_classification", ("a", "b"))
    answer = {"label": "b", "probabilities": {"a": 0.2, "b": 0.8}}
    assert task.abstain(answer, 0.8) == answer
    assert task.abstain(answer, 0.9) == {**answer, "label": None}
    pairs = make_task_of("text_matching", ("0", "1"))
    assert pairs.abstain({"label": "0", "score": 0.05}, 0.9) == {"label": "0", "score": 0.05}
    assert pairs.abstain({"label": "0", "score": 0.2}, 0.9) == {"label": None, "score": 0.2}
    assert pairs.abstain({"label": "0", "score": 0.002137}, 0.997863)["label"] == "0"
    reader = make_task_of("question_answering")
    answer = {"answer": "x", "start": 1, "end": 2, "score": 0.7, "n_best": []}
    assert reader.abstain(answer, 0.7) == answer
    assert reader.abstain(answer, 0.8) == {**answer, "answer": None, "start": None, "end": None}


def test_a_task_without_confidence_has_none(make_task_of):
    task = make_task_of("semantic_indexing")
    assert task.confidences([], []) is None and task.fit_calibration([], []) is None
    assert calibrated(task, [], [], "dev") is task


def test_an_engine_is_fitted_again_where_it_is_off(make_task_of):
    task, examples, predictions = classifier(make_task_of)
    task = calibrated(task, examples, predictions, "dev")
    assert recalibrated(task, examples, predictions, "dev") is task
    off = [[row * 3] for (row,) in predictions]
    other = recalibrated(task, examples, off, "dev")
    assert other.calibration.scales[0] == pytest.approx(task.calibration.scales[0] / 3, rel=0.05)
    assert ece(other.confidences(examples, off)) == pytest.approx(task.calibration.ece[1], abs=0.01)


# -- entities ------------------------------------------------------------------------------------

TAGS = ("O", "B-P", "I-P", "B-L")


def tagged(words, tags=None, text="abcdefghij"):
    bounds = array("i", [place for i in range(words) for place in (i, i + 1)])
    ids = None if tags is None else array("i", [TAGS.index(tag) for tag in tags])
    return TaggedExample(text[:words], bounds, ids, in_words=False)


def share_of(paths, condition):
    total = sum(weight for _, weight in paths)
    return sum(weight for path, weight in paths if condition(path)) / total


def test_an_entity_is_as_probable_as_all_paths_with_it():
    random = np.random.default_rng(3)
    n = len(TAGS)
    transitions = random.normal(size=(n + 2, n + 2)).astype(np.float32)
    chains = [random.normal(size=(words, n)).astype(np.float32) for words in (5, 1, 3)]
    goes_on = follows(detect_scheme(TAGS, "tags"), TAGS)
    assert np.argwhere(goes_on).tolist() == [[1, 2], [2, 2]]
    given = viterbi(chains, transitions)
    for chain, path, steps in zip(chains, given, path_steps(chains, transitions, given, goes_on), strict=True):
        paths = []
        for tags in product(range(n), repeat=len(chain)):
            score = transitions[n + 1, tags[0]] + transitions[n, tags[-1]] + chain[np.arange(len(tags)), tags].sum()
            score += sum(transitions[a, b] for a, b in zip(tags, tags[1:], strict=False))
            paths.append((tags, float(np.exp(score))))
        for start, end in product(range(len(chain)), range(1, len(chain) + 1)):
            if start >= end:
                continue
            found = steps[start, 0] + steps[start + 1 : end, 1].sum() + (steps[end, 2] if end < len(chain) else 0)

            def holds(tags, start=start, end=end, path=path):
                ends = end == len(path) or not goes_on[path[end - 1], tags[end]]
                return ends and list(tags[start:end]) == path[start:end].tolist()

            assert np.exp(found) == pytest.approx(share_of(paths, holds), rel=1e-4)


def window(example, words):
    from nlpctl.data.batches.tagged_features import TaggedWindow

    return TaggedWindow(example, 0, words, 0, array("i", range(words)))


@pytest.fixture
def tagger(make_task_of):
    task = make_task_of("token_classification", TAGS)
    examples, outputs = [], []
    for _ in range(150):
        logits = RANDOM.normal(size=(6, len(TAGS))) * 1.5
        gold = drawn(softmax(logits))
        examples.append(tagged(6, [TAGS[tag] for tag in gold]))
        outputs.append(logits * 3)
    features = [window(example, 6) for example in examples]
    predictions = [[each] for each in task.measured().predictions((np.stack(outputs),), features)]
    return task, examples, predictions


def test_entities_have_a_confidence_once_it_is_calibrated(tagger):
    task, examples, predictions = tagger
    plain = task.answer(examples[0], predictions[0])["entities"]
    assert all(set(each) == {"type", "start", "end", "text"} for each in plain)
    other = calibrated(task, examples, predictions, "dev")
    found = other.calibration
    assert found.method == "logistic" and found.ece[1] < found.ece[0]
    assert task.report(examples, predictions) == other.report(examples, predictions)
    for example, parts in zip(examples, predictions, strict=True):
        told = other.answer(example, parts)
        bare = [{key: value for key, value in each.items() if key != "confidence"} for each in told["entities"]]
        assert bare == task.answer(example, parts)["entities"]
        assert all(0 < each["confidence"] < 1 for each in told["entities"])
        kept = other.abstain(told, 0.5)["entities"]
        assert kept == [each for each in told["entities"] if each["confidence"] >= 0.5]


def test_predictions_are_bare_tags_unless_confidence_is_wanted(tagger):
    task, examples, _ = tagger
    outputs, features = (np.zeros((1, 6, 4), np.float32),), [window(examples[0], 6)]
    assert isinstance(task.predictions(outputs, features)[0], np.ndarray)
    assert task.measured().predictions(outputs, features)[0].steps.shape == (6, 3)


def test_words_stay_and_lose_their_tag(make_task_of):
    task = make_task_of("lexical_analysis", TAGS, decode={"entity_types": ()}, inference={"min_confidence": 0.9})
    example = tagged(4)
    logits = np.zeros((1, 4, 4), np.float32)
    logits[0, [0, 1, 2, 3], [1, 2, 0, 3]] = [9, 9, 9, 1]  # abOP: one word, something outside, an unsure word
    (parts,) = task.predictions((logits,), [window(example, 4)])
    answer = task.answer(example, [parts])
    assert [(each["text"], each["tag"]) for each in answer["words"]] == [("ab", "P"), ("c", "O"), ("d", "L")]
    assert [each["tag"] for each in task.abstain(answer, 0.9)["words"]] == ["P", "O", None]


def test_terms_are_sure(make_task_of, tmp_path):
    (tmp_path / "terms.tsv").write_text("北京\tP\n", encoding="utf-8")
    example = tagged(4, text="北京很好")
    sections = {"decode": {"terms": str(tmp_path / "terms.tsv")}, "inference": {"min_confidence": 0.9}}
    task = make_task_of("token_classification", TAGS, **sections)
    (parts,) = task.predictions((np.zeros((1, 4, 4), np.float32),), [window(example, 4)])
    answer = task.answer(example, [parts])
    assert answer["entities"] == [{"type": "P", "start": 0, "end": 2, "text": "北京", "confidence": None}]
    assert task.abstain(answer, 0.9) == answer


def test_a_term_that_the_tags_find_too_is_as_sure(make_task_of, tmp_path):
    (tmp_path / "terms.tsv").write_text("北京\tP\n", encoding="utf-8")
    example = tagged(4, ["B-P", "I-P", "O", "B-L"], text="北京很好")
    sections = {"decode": {"terms": str(tmp_path / "terms.tsv")}, "inference": {"min_confidence": 0.9}}
    task = make_task_of("token_classification", TAGS, **sections)
    logits = np.zeros((1, 4, 4), np.float32)
    logits[0, [0, 1, 2, 3], [1, 2, 0, 3]] = [1, 1, 1, 2]  # all unsure
    parts = task.measured().predictions((logits,), [window(example, 4)])
    answer = task.answer(example, parts)
    assert [each["text"] for each in answer["entities"] if each["confidence"] is None] == ["北京"]
    assert [each["text"] for each in answer["entities"]] == ["北京", "好"]
    assert [each["text"] for each in task.abstain(answer, 0.9)["entities"]] == ["北京"]
    assert len(task.confidences([example], [parts]).right) == 1


@pytest.mark.parametrize("task_name", ["token_classification", "lexical_analysis"])
def test_the_rest_of_an_entity_that_a_term_cuts_is_as_sure_as_the_whole(make_task_of, tmp_path, task_name):
    """It is a decision of the network, so it may be withheld."""
    (tmp_path / "terms.tsv").write_text("北京\tP\n", encoding="utf-8")
    words = task_name == "lexical_analysis"
    decode = {"entity_types": ()} if words else {}
    example = tagged(7, text="大北京人很好啊")
    logits = np.zeros((1, 7, 5), np.float32)
    logits[0, range(7), [3, 4, 4, 4, 0, 0, 0]] = [3, 3, 3, 3, 9, 9, 9]
    names = ("O", "B-P", "I-P", "B-L", "I-L")
    plain = make_task_of(task_name, names, decode=decode, inference={"min_confidence": 0.9})
    terms = make_task_of(
        task_name, names, decode={**decode, "terms": str(tmp_path / "terms.tsv")}, inference={"min_confidence": 0.9}
    )
    (key,) = terms.answer_keys
    parts = plain.measured().predictions((logits,), [window(example, 7)])
    (whole,) = [each for each in plain.answer(example, parts)[key] if each["text"] == "大北京人"]
    answer = terms.answer(example, parts)
    found = {each["text"]: each["confidence"] for each in answer[key]}
    assert 0.4 < whole["confidence"] < 0.9 and found["北京"] is None
    assert found["大"] == found["人"] == whole["confidence"]
    kept = [each.get("tag", each.get("type")) for each in terms.abstain(answer, 0.9)[key]]
    assert kept == ([None, "P", None, "O"] if words else ["P"])
    found = terms.confidences([replace(example, tags=array("i", [0, 1, 2, 3, 0, 0, 0]))], [parts])
    assert found.right.tolist() == [False, True]  # of those that are answered


# -- the file ------------------------------------------------------------------------------------


def test_the_file_is_read_as_it_was_written(tmp_path):
    assert read_calibration(tmp_path) is None
    own = Calibration("logistic", (0.5, 2.0), (0.0, 1.0), ("P", "L"), 0.0, "dev", 70, (0.2, 0.1))
    ways = {"onnxruntime int8 (dynamic)": own}
    whole = Calibration("temperature", (0.7,), (0.0,), (), 0.5, "dev", 70, (0.2, 0.1), ways)
    write_calibration(tmp_path, whole)
    assert read_calibration(tmp_path) == whole
    assert whole.for_engine("onnxruntime int8 (dynamic)") == own and whole.for_engine("paddle fp32") == whole


@pytest.mark.parametrize(
    "change",
    [{"scales": []}, {"scales": [0]}, {"scales": "x"}, {"shifts": [float("nan")]}, {"names": ["a", "b"]}, {"ece": [1]},
     {"method": "magic"}, {"format": 9}, {"ways": {"x": 3}}, {"rows": None}, {"scales": [1e308]}, {"scales": [1e-308]},
     {"shifts": [-1e300]}, {"power": 1e6}, {"power": float("nan")}, {"ece": [float("nan"), 0]}, {"ece": [0, 7]}],
)  # fmt: skip
def test_a_damaged_file_is_refused(tmp_path, change):
    write_calibration(tmp_path, Calibration("temperature", (0.7,), (0.0,)))
    file = tmp_path / "calibration.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(UserError, match=r"calibration\.json"):
        read_calibration(tmp_path)


def test_numbers_of_other_labels_are_refused(make_task_of):
    task = make_task_of("sequence_classification", ("a", "b"))
    other = task.calibrated(Calibration("temperature", (0.7, 0.6), (0.0, 0.0), ("a", "x")))
    with pytest.raises(UserError, match="another model"):
        other.answers([TextExample("t", None, None)], [[np.zeros(2)]])
