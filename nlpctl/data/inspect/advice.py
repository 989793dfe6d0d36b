"""The most important findings, in one sentence each."""

from __future__ import annotations

from collections.abc import Iterator

from nlpctl.config.tasks import task_info
from nlpctl.data.inspect.profile import Inspection, SplitProfile, told_unknown
from nlpctl.data.labels import twins
from nlpctl.names import and_more
from nlpctl.report.page import percent

FEW_ROWS = 20  # training rows of a label
UNEVEN = 2.0  # the most frequent label has this many times the rows of the rarest
OTHER_SPREAD = 0.1  # of labels between two splits: half the sum of the differences of shares
OFTEN_CUT = 0.05  # share of rows
MANY_UNKNOWN = 0.01  # share of tokens
MANY_LEAKED = 0.01  # share of rows


def advice(found: Inspection) -> list[str]:
    """The findings that matter for training and for trusting the scores, the gravest first."""
    about_rows = [*_unusable(found), *_leaks(found), *_contradictions(found), *_labels(found)]
    return [*about_rows, *_lengths(found), *_unknown(found), *_odd(found)]


def _unusable(found: Inspection) -> Iterator[str]:
    fate = "are left out" if found.skips_bad else "stop the training (data.on_bad_row: skip leaves them out)"
    for profile in found.splits:
        bad = sum(profile.bad.values())
        if bad:
            share = percent(bad / (bad + profile.rows))
            yield f"Rows of {profile.split} that cannot be used {fate}: {bad:,} ({share})."


def _leaks(found: Inspection) -> Iterator[str]:
    for overlap in found.duplicates.overlaps:
        inside, other, rows = overlap.inside, overlap.other, max(overlap.rows, 1)
        if overlap.exact:
            yield f"Rows of {inside} that occur in {other} too: {overlap.exact:,} ({percent(overlap.exact / rows)})."
        if overlap.near:
            share = percent(overlap.near / rows)
            yield f"Rows of {inside} that are almost like one of {other}: {overlap.near:,} ({share})."
        if other == "train" and overlap.exact + overlap.near > MANY_LEAKED * rows:
            near = " --near" if overlap.near else ""
            yield (
                f"Scores on {inside} will be too high: what memorised rows count in them. "
                f"`nlpctl data split{near}` splits a file anew, such rows together."
            )
    for repeats in found.duplicates.repeats:
        if repeats.exact:
            yield f"Rows of {repeats.split} that repeat an earlier one: {repeats.exact:,}."


def _contradictions(found: Inspection) -> Iterator[str]:
    same, near = len(found.duplicates.conflicts), len(found.duplicates.near_conflicts)
    if same:
        yield f"Texts that occur with different labels: {same:,}. One of them is wrong, or the text does not decide."
    if near:
        yield f"Pairs that are almost the same and have different labels: {near:,}."


def _labels(found: Inspection) -> Iterator[str]:
    train = next((profile for profile in found.splits if profile.split == "train"), None)
    if train is None or not train.labels:
        return
    few = [f"{label} ({count})" for label, count in train.labels.items() if count < FEW_ROWS]
    if few:
        yield f"Fewer than {FEW_ROWS} training examples of {and_more(few, 6)}: too few to learn them well."
    most, least = max(train.labels.values()), min(train.labels.values())
    one_each = sum(train.labels.values()) == train.rows
    info = task_info(found.task)
    if one_each and most >= UNEVEN * least:
        first, last = next(iter(train.labels)), list(train.labels)[-1]
        by = ": compare models by macro F1, not by accuracy" if "macro_f1" in info.metrics else ""
        yield f"There are {most / least:.1f} times as many training examples of {first} as of {last}{by}."
    names = {label for profile in found.splits for label in profile.labels}
    alike = [f"{one!r} and {other!r} {way}" for one, other, way in twins(names)]
    if alike:
        yield f"Labels that may be one: {and_more(alike)}. They are learned as different ones."
    for profile in found.splits:
        if profile is not train and profile.labels:
            yield from _compared(train, profile, "macro_f1" in info.metrics and not info.tags)


def _compared(train: SplitProfile, other: SplitProfile, macro: bool) -> Iterator[str]:
    """`macro`: the macro F1 of the task counts all labels, those without rows too."""
    missing = [label for label in train.labels if label not in other.labels]
    if missing:
        as_zero = ", and macro F1 counts them as 0" if macro else ""
        yield f"{other.split} has no example of {and_more(missing, 6)}: their scores will be unknown{as_zero}."
    shares = [
        abs(train.labels.get(label, 0) / sum(train.labels.values()) - count / sum(other.labels.values()))
        for label, count in {**dict.fromkeys(train.labels, 0), **other.labels}.items()
    ]
    if sum(shares) / 2 > OTHER_SPREAD:
        yield f"The label distribution of {other.split} differs from train ({percent(sum(shares) / 2)} of the rows)."


def _lengths(found: Inspection) -> Iterator[str]:
    measured = [profile for profile in found.splits if profile.lengths is not None]
    shares = {profile.split: profile.lengths.longer / profile.rows for profile in measured}
    if not found.in_windows and max(shares.values(), default=0) > OFTEN_CUT:
        told = ", ".join(f"{percent(share)} of {split}" for split, share in shares.items())
        enough = max(profile.lengths.percentiles[99] for profile in measured)
        yield f"Cut at data.max_seq_length ({found.limit}): {told}. {enough:,} tokens would hold 99 % of rows whole."


def _unknown(found: Inspection) -> Iterator[str]:
    worst = max(found.splits, key=lambda profile: profile.unknown.share, default=None)
    if worst is not None and worst.unknown.share > MANY_UNKNOWN:
        words = ", ".join(told_unknown(worst.unknown, 6))
        share = f"{percent(worst.unknown.share)} of the tokens of {worst.split}"
        yield f"The tokenizer does not know {share} ([UNK]), most of all {words}: the network cannot tell them " \
            "apart. model.add_tokens makes them known, data.map can write them otherwise."  # fmt: skip


def _odd(found: Inspection) -> Iterator[str]:
    odd = [f"{suspicion.kind} ({suspicion.count:,})" for suspicion in found.suspicions if not suspicion.bad]
    if odd:
        yield f"Suspicious rows: {and_more(odd, 20)}."
