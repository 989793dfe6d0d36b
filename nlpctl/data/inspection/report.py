"""The result of inspecting the data of a recipe: profiles of the splits, duplicates, suspicious rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import task_info
from nlpctl.data.inspection.duplicates import Duplicates, NearPair, find_duplicates
from nlpctl.data.inspection.lengths import Lengths, TokenCounter, measure
from nlpctl.data.inspection.rows import InspectedRow, InspectedSplit, UnknownTokens
from nlpctl.data.inspection.suspicious import odd_rows
from nlpctl.data.partition import Lack, lacks
from nlpctl.data.rows.labels import twins
from nlpctl.data.rows.multi_label_rows import joined_labels
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.data.text.word_spans import is_ideograph
from nlpctl.report.language import say, say_names
from nlpctl.report.model import percent

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

    kind: str  # `later`, but of unusable rows, whose reasons are messages of errors
    bad: bool
    count: int
    first: list[tuple[str, str, str, str]]


@dataclass(frozen=True)
class Inspection:
    """The data of a recipe as they are.

    `limit`: data.max_seq_length, beyond which rows are read `in_windows` or cut; `skips_bad`: whether training goes
    on without bad rows; `tokens_by`: how tokens were counted; `words`: whether they are those of jieba; `shown`: rows
    of a finding that are kept; `lacks`: a split, and a label that it lacks because copies are kept together.
    """

    task: str
    limit: int
    in_windows: bool
    skips_bad: bool
    tokens_by: str
    exact_tokens: bool
    words: bool
    splits: list[SplitProfile]
    duplicates: Duplicates
    suspicions: list[Suspicion]
    shown: int
    lacks: list[tuple[str, Lack]]

    def to_json(self) -> dict[str, Any]:
        """The output of --json: all counts, and the rows that are shown."""
        duplicates = self.duplicates
        return {
            "task": self.task,
            "max_seq_length": self.limit,
            "tokens": {
                "by": self.tokens_by,
                "exact": self.exact_tokens,
                "long_rows": "read in windows" if self.in_windows else "cut",
            },
            "splits": {profile.split: _split_json(profile) for profile in self.splits},
            "duplicates": {
                "within": {each.split: {"exact": each.exact, "near": each.near} for each in duplicates.repeats},
                "overlaps": [asdict(overlap) for overlap in duplicates.overlaps],
                "groups": [_group_json(group) for group in duplicates.same[: self.shown]],
                "near_pairs": [_pair_json(pair) for pair in duplicates.near[: self.shown]],
            },
            "conflicts": {
                "same_text": len(duplicates.conflicts),
                "near": len(duplicates.near_conflicts),
                "groups": [_group_json(group) for group in duplicates.conflicts[: self.shown]],
                "near_pairs": [_pair_json(pair) for pair in duplicates.near_conflicts[: self.shown]],
            },
            "suspicious": [_suspicion_json(suspicion) for suspicion in self.suspicions],
        }


def inspect_rows(
    splits: Sequence[InspectedSplit], recipe: Recipe, counter: TokenCounter, task: TaskRows, shown: int
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
        words=counter.words,
        splits=[_profile(split, limit) for split in splits],
        duplicates=find_duplicates(rows, [split.split for split in splits], symmetric=task.symmetric),
        suspicions=[*_bad(splits, shown), *_suspicions(rows, limit, shown)],
        shown=shown,
        lacks=list(_lacks(splits)),
    )


def _lacks(splits: Sequence[InspectedSplit]) -> Iterator[tuple[str, Lack]]:
    """The labels that another split than train lacks because their rows in train are copies of few texts."""
    train = next((split for split in splits if split.split == "train"), None)
    if train is None or not any(row.labels for row in train.good):
        return
    for other in (split for split in splits if split is not train):
        rows, own = [*train.good, *other.good], len(train.good)
        parts = {"train": range(own), other.split: range(own, len(rows))}
        for lack in lacks([row.labels for row in rows], [row.passages for row in rows], parts):
            if lack.copies and other.split in lack.parts:
                yield other.split, lack


def _profile(split: InspectedSplit, limit: int) -> SplitProfile:
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


def _bad(splits: Sequence[InspectedSplit], shown: int) -> list[Suspicion]:
    """Rows that training would refuse, by reason."""
    total: Counter[str] = Counter()
    first: dict[str, list[tuple[str, str, str, str]]] = {}
    for split in splits:
        total += split.bad
        for kind, rows in split.first_bad.items():
            entries = [(row.where, split.split, row.reason.removeprefix(kind).removeprefix(": "), "") for row in rows]
            first.setdefault(kind, []).extend(entries)
    return [Suspicion(kind, True, count, first[kind][:shown]) for kind, count in total.most_common()]


def _suspicions(rows: Sequence[InspectedRow], limit: int, shown: int) -> list[Suspicion]:
    count: Counter[str] = Counter()
    first: dict[str, list[tuple[str, str, str, str]]] = {}
    known: set[tuple[str, str]] = set()  # questions about one text share what is odd in it
    for row, odd in odd_rows(rows, limit):
        count[odd.kind] += 1
        listed = first.setdefault(odd.kind, [])
        if len(listed) < shown and (odd.kind, odd.excerpt) not in known:
            known.add((odd.kind, odd.excerpt))
            listed.append((row.where, row.split, odd.details, shortened(odd.excerpt)))
    return [Suspicion(kind, False, times, first[kind]) for kind, times in count.most_common()]


def shortened(text: str, length: int = TEXT_SHOWN) -> str:
    """At most `length` characters of a text, in one line."""
    line = " ".join(text[: length * 2].split())
    return line if len(line) <= length else line[: length - 1] + "…"


def format_unknown(unknown: UnknownTokens, most: int) -> list[str]:
    """The `most` frequent words behind unknown tokens, and how often they come."""
    parts = []
    for word, times in unknown.words.most_common(most):
        printable = word if word.isprintable() else ascii(word)[1:-1]
        parts.append(f"{shortened(printable, 20)} ({times:,})")
    return parts


def format_labels(row: InspectedRow) -> str:
    """The labels of a row in one text; of a sentence with entities how many of each type."""
    return ", ".join(f"{label} ×{times}" if times > 1 else label for label, times in Counter(row.labels).items())


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


def _row_json(row: InspectedRow) -> dict[str, Any]:
    return {"where": row.where, "split": row.split, "labels": list(row.labels), "text": shortened(row.text)}


def _group_json(group: Sequence[InspectedRow]) -> list[dict[str, Any]]:
    return [_row_json(row) for row in group[:20]]


def _pair_json(pair: NearPair) -> dict[str, Any]:
    return {"similarity": round(pair.similarity, 4), "rows": [_row_json(pair.first), _row_json(pair.second)]}


def _suspicion_json(suspicion: Suspicion) -> dict[str, Any]:
    rows = [
        {"where": where, "split": split, "details": details, "text": text}
        for where, split, details, text in suspicion.first
    ]
    return {"kind": suspicion.kind, "unusable": suspicion.bad, "count": suspicion.count, "rows": rows}


# -- the most important findings, in one sentence each ----------------------------------------------------------------


FEW_ROWS = 20  # training rows of a label
UNEVEN = 2.0  # the most frequent label has this many times the rows of the rarest
OTHER_SPREAD = 0.1  # of labels between two splits: half the sum of the differences of shares
OFTEN_CUT = 0.05  # share of rows
MANY_UNKNOWN = 0.01  # share of tokens
MANY_UNKNOWN_WORDS = 0.2  # share of the words of Chinese texts, beyond which characters say more
MANY_LEAKED = 0.01  # share of rows


def advice(inspection: Inspection) -> list[str]:
    """The findings that matter for training and for trusting the scores, the gravest first."""
    about_rows = [*_unusable(inspection), *_leaks(inspection), *_contradictions(inspection), *_labels(inspection)]
    return [*about_rows, *_lengths(inspection), *_unknown(inspection), *_odd(inspection)]


def _unusable(inspection: Inspection) -> Iterator[str]:
    for profile in inspection.splits:
        bad = sum(profile.bad.values())
        if bad:
            share = percent(bad / (bad + profile.rows))
            fate = say("are left out")
            if not inspection.skips_bad:
                fate = say("stop the training (data.on_bad_row: skip leaves them out)")
            yield say("Rows of {} that cannot be used {}: {:,} ({}).", profile.split, fate, bad, share)


def _leaks(inspection: Inspection) -> Iterator[str]:
    for overlap in inspection.duplicates.overlaps:
        inside, other, rows = overlap.inside, overlap.other, max(overlap.rows, 1)
        if overlap.exact:
            share = percent(overlap.exact / rows)
            yield say("Rows of {} that occur in {} too: {:,} ({}).", inside, other, overlap.exact, share)
        if overlap.near:
            share = percent(overlap.near / rows)
            yield say("Rows of {} that are almost like one of {}: {:,} ({}).", inside, other, overlap.near, share)
        if other == "train" and overlap.exact + overlap.near > MANY_LEAKED * rows:
            command = "nlpctl data split RECIPE FILE"
            if overlap.near:
                command = "nlpctl data split RECIPE FILE --near"
            yield say(
                "Scores on {} will be too high: what memorised rows count in them. "
                "`{}` splits the file of all rows anew, such rows together.",
                inside,
                command,
            )
    for repeats in inspection.duplicates.repeats:
        if repeats.exact:
            yield say("Rows of {} that repeat an earlier one: {:,}.", repeats.split, repeats.exact)
        if repeats.near:
            kept = "nlpctl data split RECIPE --near"
            yield say("Rows of {} that are almost like an earlier one: {:,}; `{}` keeps such together.",
                      repeats.split, repeats.near, kept)  # fmt: skip


def _contradictions(inspection: Inspection) -> Iterator[str]:
    same, near = len(inspection.duplicates.conflicts), len(inspection.duplicates.near_conflicts)
    if same:
        yield say(
            "Texts that occur with different labels: {:,}. One of them is wrong, or the text does not decide.", same
        )
    if near:
        yield say("Pairs that are almost the same and have different labels: {:,}.", near)


def _labels(inspection: Inspection) -> Iterator[str]:
    train = next((profile for profile in inspection.splits if profile.split == "train"), None)
    if train is None or not train.labels:
        return
    few = [f"{label} ({count})" for label, count in train.labels.items() if count < FEW_ROWS]
    if few:
        yield say("Fewer than {} training examples of {}: too few to learn them well.", FEW_ROWS, say_names(few, 6))
    most, least = max(train.labels.values()), min(train.labels.values())
    one_each = sum(train.labels.values()) == train.rows
    info = task_info(inspection.task)
    if one_each and most >= UNEVEN * least:
        first, last = next(iter(train.labels)), list(train.labels)[-1]
        by = say(": compare models by macro F1, not by accuracy") if "macro_f1" in info.metrics else ""
        yield say("There are {:.1f} times as many training examples of {} as of {}{}.", most / least, first, last, by)
    for split, lack in inspection.lacks:
        what = say("row of {}", lack.label)
        if lack.label is None:
            what = say("row without entities") if info.tags else say("row without labels")
        told = split, what, lack.rows, lack.texts
        yield say("{} has no {}: the {:,} of train are copies of {:,}, which a split keeps together.", *told)
    names = {label for profile in inspection.splits for label in profile.labels}
    alike = [say("{!r} and {!r} {}", one, other, way) for one, other, way in twins(names)]
    if alike:
        yield say("Labels that may be one: {}. They are learned as different ones.", say_names(alike))
    joined = joined_labels(names) if info.reads("data.label_separator") else []
    if joined:
        yield say(
            "Labels that are made of others, with another sign than data.label_separator between them: {}. They are "
            "learned as labels of their own: write that sign in the file, or split them in data.map.",
            say_names(joined),
        )
    for profile in inspection.splits:
        if profile is not train and profile.labels:
            yield from _compared(train, profile, "macro_f1" in info.metrics and not info.tags)


def _compared(train: SplitProfile, other: SplitProfile, macro: bool) -> Iterator[str]:
    """`macro`: the macro F1 of the task counts all labels, those without rows too."""
    missing = [label for label in train.labels if label not in other.labels]
    if missing:
        as_zero = say(", and macro F1 counts them as 0") if macro else ""
        names = say_names(missing, 6)
        yield say("{} has no example of {}: their scores will be unknown{}.", other.split, names, as_zero)
    shares = [
        abs(train.labels.get(label, 0) / sum(train.labels.values()) - count / sum(other.labels.values()))
        for label, count in {**dict.fromkeys(train.labels, 0), **other.labels}.items()
    ]
    if sum(shares) / 2 > OTHER_SPREAD:
        share = percent(sum(shares) / 2)
        yield say("The label distribution of {} differs from train ({} of the rows).", other.split, share)


def _lengths(inspection: Inspection) -> Iterator[str]:
    measured = [(profile, profile.lengths) for profile in inspection.splits if profile.lengths is not None]
    shares = {profile.split: lengths.longer / profile.rows for profile, lengths in measured}
    if not inspection.in_windows and max(shares.values(), default=0) > OFTEN_CUT:
        cut = say(", ").join(say("{} of {}", percent(share), split) for split, share in shares.items())
        enough = max(lengths.percentiles[99] for _, lengths in measured)
        yield say(
            "Cut at data.max_seq_length ({}): {}. {:,} tokens would hold 99 % of rows whole.",
            inspection.limit,
            cut,
            enough,
        )


def _unknown(inspection: Inspection) -> Iterator[str]:
    worst = max(inspection.splits, key=lambda profile: profile.unknown.share, default=None)
    if worst is None or worst.unknown.share <= MANY_UNKNOWN:
        return
    most = say(", ").join(format_unknown(worst.unknown, 6))
    if inspection.words and worst.unknown.share > MANY_UNKNOWN_WORDS and _in_chinese(worst.unknown):
        yield say(
            "Of the words of {}, {} are not in the vocabulary ([UNK]), most of all {}: too few texts to learn words. "
            "model.from_scratch.unit: characters knows nearly all of them.",
            worst.split,
            percent(worst.unknown.share),
            most,
        )
    else:
        yield say(
            "The tokenizer does not know {} of the tokens of {} ([UNK]), most of all {}: the network cannot tell them "
            "apart. model.add_tokens makes them known, data.map can write them otherwise.",
            percent(worst.unknown.share),
            worst.split,
            most,
        )


def _in_chinese(unknown: UnknownTokens) -> bool:
    """Whether most of the unknown words are written in Chinese characters."""
    written = sum(times for word, times in unknown.words.items() if any(map(is_ideograph, word)))
    return 2 * written > unknown.words.total()


def _odd(inspection: Inspection) -> Iterator[str]:
    odd = [f"{say(each.kind)} ({each.count:,})" for each in inspection.suspicions if not each.bad]
    if odd:
        yield say("Suspicious rows: {}.", say_names(odd, 20))
