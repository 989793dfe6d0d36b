"""The result of inspecting the data of a recipe: profiles of the splits, duplicates, suspicious rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nlpctl.config.schema import Recipe
from nlpctl.data.inspect.duplicates import Duplicates, NearPair, find_duplicates
from nlpctl.data.inspect.lengths import Lengths, TokenCounter, measure
from nlpctl.data.inspect.readable import Seen, SplitRows, UnknownTokens
from nlpctl.data.inspect.suspicious import odd_rows
from nlpctl.data.task_rows import TaskRows

WORDS_TOLD = 50  # unknown words in JSON
TEXT_SHOWN = 200  # characters of a row in JSON and on the page


@dataclass(frozen=True)
class SplitProfile:
    """One split: good rows, bad ones by reason, rows (or entities) per label, lengths in tokens.

    `unlabelled`: good rows without any label. `lengths` is None if no row is good. `tokens`: of each good row.
    `unknown`: tokens that the tokenizer does not know; empty where tokens are estimated.
    """

    split: str
    source: str  # the files, or what the rows come from
    files: tuple[str, ...]
    rows: int
    bad: dict[str, int]
    labels: dict[str, int]
    unlabelled: int
    lengths: Lengths | None
    tokens: tuple[int, ...]
    unknown: UnknownTokens


@dataclass(frozen=True)
class Suspicion:
    """Rows that are suspicious (or unusable: `bad`) for the same reason: how many, and the first of them.

    `first` holds (where, split, details, text).
    """

    kind: str
    bad: bool
    count: int
    first: list[tuple[str, str, str, str]]


@dataclass(frozen=True)
class Inspection:
    """The data of a recipe as they are.

    `limit`: data.max_seq_length, beyond which rows are read `in_windows` or cut; `skips_bad`: whether training goes
    on without bad rows; `tokens_by`: how tokens were counted; `shown`: rows of a finding that are kept.
    """

    task: str
    limit: int
    in_windows: bool
    skips_bad: bool
    tokens_by: str
    exact_tokens: bool
    splits: list[SplitProfile]
    duplicates: Duplicates
    suspicions: list[Suspicion]
    shown: int

    def to_json(self) -> dict[str, Any]:
        """The output of --json: all counts, and the rows that are shown."""
        found = self.duplicates
        return {
            "task": self.task,
            "max_seq_length": self.limit,
            "tokens": {"by": self.tokens_by, "exact": self.exact_tokens, "long_rows": _long_rows(self.in_windows)},
            "splits": {profile.split: _split_json(profile) for profile in self.splits},
            "duplicates": {
                "within": {each.split: {"exact": each.exact, "near": each.near} for each in found.repeats},
                "overlaps": [asdict(overlap) for overlap in found.overlaps],
                "groups": [_group_json(group) for group in found.same[: self.shown]],
                "near_pairs": [_pair_json(pair) for pair in found.near[: self.shown]],
            },
            "conflicts": {
                "same_text": len(found.conflicts),
                "near": len(found.near_conflicts),
                "groups": [_group_json(group) for group in found.conflicts[: self.shown]],
                "near_pairs": [_pair_json(pair) for pair in found.near_conflicts[: self.shown]],
            },
            "suspicious": [_suspicion_json(suspicion) for suspicion in self.suspicions],
        }


def inspect_rows(
    splits: Sequence[SplitRows], recipe: Recipe, counter: TokenCounter, task: TaskRows, shown: int
) -> Inspection:
    """Inspects splits of `recipe` that were read before. `shown`: rows kept per finding."""
    rows = [row for split in splits for row in split.good]
    limit = recipe.data.max_seq_length
    return Inspection(
        task=recipe.task,
        limit=limit,
        in_windows=task.in_windows,
        skips_bad=recipe.data.on_bad_row == "skip",
        tokens_by=counter.description,
        exact_tokens=counter.exact,
        splits=[_profile(split, limit) for split in splits],
        duplicates=find_duplicates(rows, [split.split for split in splits], symmetric=task.symmetric),
        suspicions=[*_bad(splits, shown), *_suspicions(rows, limit, shown)],
        shown=shown,
    )


def _profile(split: SplitRows, limit: int) -> SplitProfile:
    counts = Counter(label for row in split.good for label in row.labels)
    tokens = tuple(row.tokens for row in split.good)
    return SplitProfile(
        split.split,
        split.source.description,
        tuple(str(path) for path in split.source.files),
        len(split.good),
        dict(split.bad.most_common()),
        dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        sum(not row.labels for row in split.good),
        measure(tokens, limit) if tokens else None,
        tokens,
        split.unknown,
    )


def _bad(splits: Sequence[SplitRows], shown: int) -> list[Suspicion]:
    """Rows that training would refuse, by reason."""
    total: Counter[str] = Counter()
    first: dict[str, list[tuple[str, str, str, str]]] = {}
    for split in splits:
        total += split.bad
        for kind, rows in split.first_bad.items():
            told = [(row.where, split.split, row.reason.removeprefix(kind).removeprefix(": "), "") for row in rows]
            first.setdefault(kind, []).extend(told)
    return [Suspicion(kind, True, count, first[kind][:shown]) for kind, count in total.most_common()]


def _suspicions(rows: Sequence[Seen], limit: int, shown: int) -> list[Suspicion]:
    count: Counter[str] = Counter()
    first: dict[str, list[tuple[str, str, str, str]]] = {}
    told: set[tuple[str, str]] = set()  # questions about one text share what is odd in it
    for row, odd in odd_rows(rows, limit):
        count[odd.kind] += 1
        listed = first.setdefault(odd.kind, [])
        if len(listed) < shown and (odd.kind, odd.excerpt) not in told:
            told.add((odd.kind, odd.excerpt))
            listed.append((row.where, row.split, odd.details, shortened(odd.excerpt)))
    return [Suspicion(kind, False, times, first[kind]) for kind, times in count.most_common()]


def shortened(text: str, length: int = TEXT_SHOWN) -> str:
    """At most `length` characters of a text, in one line."""
    line = " ".join(text[: length * 2].split())
    return line if len(line) <= length else line[: length - 1] + "…"


def told_unknown(unknown: UnknownTokens, most: int) -> list[str]:
    """The `most` frequent words behind unknown tokens, and how often they come."""
    found = []
    for word, times in unknown.words.most_common(most):
        shown = word if word.isprintable() else ascii(word)[1:-1]
        found.append(f"{shortened(shown, 20)} ({times:,})")
    return found


def told_labels(row: Seen) -> str:
    """The labels of a row in one text; of a sentence with entities how many of each type."""
    return ", ".join(f"{label} ×{times}" if times > 1 else label for label, times in Counter(row.labels).items())


def _long_rows(in_windows: bool) -> str:
    return "read in windows" if in_windows else "cut"


def _split_json(profile: SplitProfile) -> dict[str, Any]:
    lengths = None
    if profile.lengths is not None:
        of = profile.lengths
        lengths = {"mean": round(of.mean, 2), **{f"p{share}": value for share, value in of.percentiles.items()}}
        lengths |= {"longest": of.longest, "longer": of.longer, "share_longer": round(of.longer / profile.rows, 6)}
    counts = {"rows": profile.rows, "bad_rows": profile.bad, "labels": profile.labels, "unlabelled": profile.unlabelled}
    of_unknown = None
    if profile.unknown.tokens:
        words = dict(profile.unknown.words.most_common(WORDS_TOLD))
        of_unknown = {"tokens": profile.unknown.unknown, "share": round(profile.unknown.share, 6), "words": words}
    return {"source": profile.source, **counts, "tokens": lengths, "unknown": of_unknown}


def _row_json(row: Seen) -> dict[str, Any]:
    return {"where": row.where, "split": row.split, "labels": list(row.labels), "text": shortened(row.text)}


def _group_json(group: Sequence[Seen]) -> list[dict[str, Any]]:
    return [_row_json(row) for row in group[:20]]


def _pair_json(pair: NearPair) -> dict[str, Any]:
    return {"similarity": round(pair.similarity, 4), "rows": [_row_json(pair.first), _row_json(pair.second)]}


def _suspicion_json(suspicion: Suspicion) -> dict[str, Any]:
    rows = [
        {"where": where, "split": split, "details": details, "text": text}
        for where, split, details, text in suspicion.first
    ]
    return {"kind": suspicion.kind, "unusable": suspicion.bad, "count": suspicion.count, "rows": rows}
