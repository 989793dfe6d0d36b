"""Scores of question answering as defined by the data sets' own scripts: exact match (EM) and F1, from 0 to 1.

English: SQuAD's evaluate-v2.0.py. Lower case, without punctuation, articles and surplus white space; F1
over the bag of words. Chinese: CMRC 2018's cmrc2018_evaluate.py. Lower case, without the punctuation it
lists; F1 over the longest run that both have in common, Chinese characters and English words counting one
each. Of several gold answers the best counts, for EM and F1 apart.

A question is scored as Chinese when it has at least as many Chinese characters as words of other letters.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nlpctl.data.word_spans import is_ideograph
from nlpctl.tasks.treebank import treebank_words

_LETTERS = re.compile(r"[^\W\d_]+")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII_PUNCTUATION = frozenset(string.punctuation)
_CMRC_PUNCTUATION = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")


@dataclass(frozen=True)
class Judgement:
    """One answered question: `gold` texts, empty where there is no answer; `predicted` None for no answer."""

    question: str
    gold: tuple[str, ...]
    predicted: str | None


def squad_report(judged: Sequence[Judgement]) -> dict[str, float | int]:
    """{"rows", "em", "f1"}: means over the questions."""
    scores = [score(one) for one in judged]
    return {
        "rows": len(scores),
        "em": sum(em for em, _ in scores) / len(scores),
        "f1": sum(f1 for _, f1 in scores) / len(scores),
    }


def score(judged: Judgement) -> tuple[float, float]:
    """(EM, F1) of one question. Where there is nothing to answer, or no answer is given, both are 0 or 1."""
    if is_chinese(judged.question):
        exact, f1, gold = cmrc_exact, cmrc_f1, judged.gold
    else:
        # As the script does: an answer that is nothing but punctuation and articles is no answer.
        exact, f1, gold = squad_exact, squad_f1, tuple(text for text in judged.gold if squad_words(text))
    if not gold or judged.predicted is None:
        right = float(not gold and not (judged.predicted and squad_words(judged.predicted)))
        return right, right
    return best(exact, gold, judged.predicted), best(f1, gold, judged.predicted)


def best(score_one: Callable[[str, str], float], gold: Iterable[str], predicted: str) -> float:
    return max(score_one(text, predicted) for text in gold)


def is_chinese(text: str) -> bool:
    characters = sum(map(is_ideograph, text))
    others = sum(not all(map(is_ideograph, run)) for run in _LETTERS.findall(text))
    return characters > 0 and characters >= others


# -- SQuAD ---------------------------------------------------------------------------------------


def squad_words(text: str) -> list[str]:
    bare = "".join(character for character in text.lower() if character not in _ASCII_PUNCTUATION)
    return _ARTICLES.sub(" ", bare).split()


def squad_exact(gold: str, predicted: str) -> float:
    return float(squad_words(gold) == squad_words(predicted))


def squad_f1(gold: str, predicted: str) -> float:
    """Harmonic mean of precision and recall over the words that both have, each as often as it stands in both."""
    gold_words, words = squad_words(gold), squad_words(predicted)
    if not gold_words or not words:
        return float(gold_words == words)
    return _f1((Counter(gold_words) & Counter(words)).total(), len(gold_words), len(words))


# -- CMRC 2018 -----------------------------------------------------------------------------------


def cmrc_exact(gold: str, predicted: str) -> float:
    return float(_without_punctuation(gold) == _without_punctuation(predicted))


def _without_punctuation(text: str) -> str:
    return "".join(character for character in text.lower().strip() if character not in _CMRC_PUNCTUATION)


def cmrc_f1(gold: str, predicted: str) -> float:
    """Harmonic mean of precision and recall of the longest common run of segments (substring, not subsequence)."""
    gold_segments, segments = cmrc_segments(gold), cmrc_segments(predicted)
    return _f1(_longest_common_run(gold_segments, segments), len(gold_segments), len(segments))


def cmrc_segments(text: str) -> list[str]:
    """Chinese characters one by one, what lies between them as English words; the script's punctuation is left out.

    As in the script, words that only its punctuation parts grow together: "co-op" is "coop".
    """
    segments: list[str] = []
    run = ""
    for character in text.lower().strip():
        if character in _CMRC_PUNCTUATION:
            continue
        # The range of the original script; ideographs of the extensions count as letters there, so they do here.
        if "\u4e00" <= character <= "\u9fa5":
            segments += [*treebank_words(run), character]
            run = ""
        else:
            run += character
    return segments + treebank_words(run)


def _longest_common_run(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest stretch of segments, without gaps, that stands in both."""
    longest, ending_before = 0, [0] * (len(second) + 1)
    for one in first:
        ending_here = [0] * (len(second) + 1)
        for j, other in enumerate(second):
            if one == other:
                ending_here[j + 1] = ending_before[j] + 1
        longest, ending_before = max(longest, *ending_here), ending_here
    return longest


def _f1(common: int, gold: int, predicted: int) -> float:
    if common == 0:
        return 0.0
    precision, recall = common / predicted, common / gold
    return 2 * precision * recall / (precision + recall)
