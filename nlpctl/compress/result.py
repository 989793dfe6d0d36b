"""The result of a compression, and what a reader is told first: what to take, why, and what else there is.

report.py has all figures of all rows, and the files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nlpctl.compress.scores import CandidateScore, Failure, Metric, TestScore
from nlpctl.compress.selection import Objective, indistinct_from_best, loss, within
from nlpctl.compress.strategies import FEWER_WORDS, parts_of
from nlpctl.compress.timing import RelativeSpeed, RelativeSpeeds
from nlpctl.errors import NlpctlError
from nlpctl.export.strategies import Embeddings
from nlpctl.layout import BEST_EXPORT
from nlpctl.report.language import later, say, say_each
from nlpctl.report.model import Number, Table, format_times
from nlpctl.spelling import spelled
from nlpctl.tasks.degenerate import degenerate_reason

SCORES = "scores"  # the folder of what was measured
LARGE_EMBEDDING = 0.3  # share of a graph from which the report says what would make it smaller
UNSTEADY = 1.1  # a larger ratio of two speeds that count as equal is said
SHOWN = 3  # names in a sentence; report.json has all


@dataclass(frozen=True)
class CompressResult:
    """The output folder, the table, the failures with reasons, and the best row, also on test data; the speeds of all
    rows on one scale.

    `prunable`: whether compression.prune_embeddings would be accepted for this model. `failed`: the first error, if
    nothing that was asked for could be made.
    """

    folder: Path
    rows: tuple[CandidateScore, ...]
    failures: tuple[Failure, ...]
    metric: Metric
    objective: Objective
    reference: CandidateScore
    best: CandidateScore
    test: TestScore | None
    speeds: RelativeSpeeds
    task: str
    prunable: bool = False
    failed: NlpctlError | None = None

    def is_uncompressed(self, row: CandidateScore) -> bool:
        """Whether a row is the uncompressed network, in whatever engine and precision."""
        return row.candidate == self.reference.candidate

    def is_allowed(self, row: CandidateScore) -> bool:
        """Whether a row is within the allowed loss."""
        return within(row, self.reference, self.metric, self.objective)

    def drop(self, row: CandidateScore) -> float:
        """By how many points a row is worse than the uncompressed network in fp32."""
        return self.metric.drop(row.score, self.reference.score)

    def speed_at_sizes(self, row: CandidateScore) -> list[RelativeSpeed]:
        """The speeds of a row, by batch size, in the order of section compression."""
        return [self.speeds.speed(row, size) for size in self.objective.batch_sizes]

    @property
    def indistinct(self) -> list[CandidateScore]:
        """The rows that the best was chosen from as the simplest, itself included."""
        return indistinct_from_best(self.rows, self.reference, self.metric, self.objective, self.speeds)

    @property
    def alternatives(self) -> Mapping[str, CandidateScore]:
        """The best row, and of the rows within the allowed loss those that are the best in one respect; "original": the
        fastest of the uncompressed network. `_what` has the words for the keys."""
        small, large = min(self.objective.batch_sizes), max(self.objective.batch_sizes)
        allowed = [row for row in self.rows if self.is_allowed(row)] or [self.reference]
        changed = [row for row in allowed if not self.is_uncompressed(row)]
        found = {"best": self.best, "fastest": max(allowed, key=lambda row: self.speeds.speed(row, large).times)}
        if small < large:
            found["fastest_small_batch"] = max(allowed, key=lambda row: self.speeds.speed(row, small).times)
        found["smallest"] = min(allowed, key=lambda row: row.size_mb)
        if changed:
            found["most_exact"] = max(changed, key=lambda row: (row.agreement, -self.drop(row)))
        found["original"] = next(row for row in self.rows if row.name == self.speeds.baselines[large])
        return found


# -- what to take ----------------------------------------------------------------------------------


def answer(result: CompressResult) -> str:
    """What to take, and what that gains and loses."""
    best, objective = result.best, result.objective
    place = result.folder / BEST_EXPORT
    if result.is_uncompressed(best):
        return say(
            "Take {}: the original in {}. No candidate that loses at most {:g} points{} is clearly better.",
            place,
            best.choice_name,
            objective.max_drop,
            _surely(objective),
        )
    speeds = sorted(result.speed_at_sizes(best), key=lambda speed: speed.batch_size != objective.batch_size)
    gains = [say("{} times as fast {}", format_times(speed.times), format_batch(speed.batch_size)) for speed in speeds]
    return say(
        "Take {}: {}. Against the original in its fastest engine it is {}; {}; {:,.1f} MB in place of {:,.1f}.",
        place,
        _named(best),
        say(" and ").join(gains),
        _loss(result),
        best.size_mb,
        result.reference.size_mb,
    )


def _loss(result: CompressResult) -> str:
    """The score of the best on dev against that of the reference: "accuracy 0.9120 -> 0.9100 on dev, ..."."""
    best, drop = result.best, result.drop(result.best)
    interval = "" if best.drops is None else say(" (95 %: {})", format_points_range(best))
    if abs(drop) < 0.005:
        return say("{} {:.4f} on dev, as before{}", result.metric.name, best.score, interval)
    change = say("{:.2f} points worse" if drop > 0 else "{:.2f} points better", abs(drop))
    if best.drops is not None and best.likely_drop(0.025) <= 0 <= best.likely_drop(0.975):
        change += say(", which may be chance")
    scores = result.reference.score, best.score
    return say("{} {:.4f} -> {:.4f} on dev, {}{}", result.metric.name, *scores, change, interval)


def alternatives_table(result: CompressResult) -> Table:
    """`CompressResult.alternatives`, a line per row. Its speeds are multiples of one measurement per batch size."""
    names: dict[str, list[str]] = {}
    for what, row in result.alternatives.items():
        names.setdefault(row.name, []).append(_what(what, result.objective))
    rows = {row.name: row for row in result.alternatives.values()}
    lines = []
    for name, whats in names.items():
        row = rows[name]
        cells = [
            f"{row.score:.4f} ({format_points(result.drop(row))})",
            f"{row.agreement:.1%}",
            *(format_times(speed.times) for speed in result.speed_at_sizes(row)),
            f"{row.size_mb:,.1f}",
        ]
        lines.append([say(", ").join(whats), row.candidate, row.choice_name, *map(Number, cells)])
    times = [say("times as fast, {}", size) for size in result.objective.batch_sizes]
    score = say("{} (points)", result.metric.name)
    return Table(["", *say_each("candidate", "engine"), score, say("alike"), *times, "MB"], lines)


def _what(name: str, objective: Objective) -> str:
    """What a row of `CompressResult.alternatives` is, in words."""
    return {
        "best": say("take this"),
        "fastest": say("fastest"),
        "fastest_small_batch": say("fastest {}", format_batch(min(objective.batch_sizes))),
        "smallest": say("smallest"),
        "most_exact": say("most exact"),
        "original": say("original"),
    }[name]


OF_ALTERNATIVES = later(
    "Points: hundredths of the score, against the original in fp32. Alike: dev rows decided as by the original. Times "
    "as fast, N: texts per second in batches of N, as a multiple of the original in its fastest engine."
)


def reasons(result: CompressResult) -> list[str]:
    """Why this one, what nothing tells from it, and what is to know about it; a sentence or two each."""
    told = (
        of_no_use(result),
        _why(result),
        _unsteady(result),
        _nearest(result),
        too_few_rows(result),
        large_embedding(result),
        _on_test(result),
    )
    return [sentence for sentence in told if sentence]


def of_no_use(result: CompressResult) -> str:
    """Where all answers are alike or none is right: that a candidate answers so too, and faster, is no good result."""
    for row, name in ((result.reference, say("The original")), (result.best, _named(result.best))):
        reason = degenerate_reason(result.task, row.report)
        if reason is not None:
            return say("{} is of no use on dev, whatever the figures here: {}.", name, say(reason))
    return ""


def _why(result: CompressResult) -> str:
    objective = result.objective
    allowed = say("the rows that lose at most {:g} points on dev{}", objective.max_drop, _surely(objective))
    where = format_batch(objective.batch_size)
    aim = {
        "throughput": say("the fastest {}", where),
        "latency": say("the one that answers soonest {}", where),
        "size": say("the smallest"),
    }[objective.target]
    others = [_named(row) for row in result.indistinct if row != result.best]
    if not others:
        return say("Why: of {} it is {}.", allowed, aim)
    more = say("; {:,} more", len(others) - SHOWN) if len(others) > SHOWN else ""
    return say(
        "Why: of {} it is the simplest that speed and score do not tell from {}. Nor do they tell: {}{}. Simple is "
        "uncompressed, then without training, then of fewer parts; of equally simple ones the better score is taken.",
        allowed,
        aim,
        say("; ").join(others[:SHOWN]),
        more,
    )


def _unsteady(result: CompressResult) -> str:
    """Where speeds vary so much that the best may be much slower than a row that is not told from it."""
    if result.objective.target == "size":
        return ""
    size = result.objective.batch_size
    times = {row.name: result.speeds.speed(row, size).times for row in result.indistinct}
    least, most = times[result.best.name], max(times.values())
    if most <= UNSTEADY * least:
        return ""
    return say(
        "The speeds vary too much to tell {} from {} times as fast, as on a busy machine: once it is idle, delete {} "
        "and run the same command again.",
        format_times(least),
        format_times(most),
        result.folder / SCORES,
    )


def _nearest(result: CompressResult) -> str:
    """Where every candidate loses too much, the one that loses least, and what would allow it."""
    changed = [row for row in result.rows if not result.is_uncompressed(row)]
    if not changed or any(map(result.is_allowed, changed)):
        return ""
    losses = {row.name: loss(row, result.reference, result.metric, result.objective) for row in changed}
    row = min(changed, key=lambda row: losses[row.name])
    speed = result.speeds.speed(row, result.objective.batch_size)
    needed = math.ceil(round(losses[row.name] * 10, 6)) / 10
    gain = say("{} times as fast {}", format_times(speed.times), format_batch(speed.batch_size))
    way = spelled(f"@[max-drop={needed:g}]")
    return say("Every candidate loses more; the least {}, {}: {} allows it.", _named(row), gain, way)


def too_few_rows(result: CompressResult) -> str:
    """A sentence where dev is too small to tell the allowed loss from chance; "" where it suffices, or nothing is lost.

    From the width of the interval of the best row, or of the least certain one where the uncompressed model is best.
    """
    most = result.objective.max_drop
    others = [row for row in result.rows if row.drops is not None and not result.is_uncompressed(row)]
    if not others or not most:
        return ""
    known = [row for row in others if row == result.best] or others
    half = max(row.likely_drop(0.975) - row.likely_drop(0.025) for row in known) / 2
    rows = result.reference.dev_rows
    if half <= most:
        return ""
    needed = math.ceil(rows * (half / most) ** 2)  # the width falls with the root of the number of rows
    return say("{:,} dev rows cannot tell a loss of {:g} points from chance; it takes about {:,}.", rows, most, needed)


def large_embedding(result: CompressResult) -> str:
    """Where the embedding is a large share of the best, how large, and what was not tried yet to make it smaller."""
    best = result.best
    if best.embedding_mb is None or best.embedding_mb < LARGE_EMBEDDING * best.size_mb:
        return ""
    names = {each.candidate for each in result.rows} | {each.candidate for each in result.failures}
    tried = {part for name in names for part in parts_of(name)}
    ways = []
    if best.engine == "paddle" and Embeddings() not in tried:
        chain = "+".join(part.name for part in (*parts_of(best.candidate), Embeddings()) if part is not None)
        ways.append(say("{} stores it in 8 bits", spelled(f"@[strategy={chain}]")))
    if result.prunable and FEWER_WORDS not in tried:
        way = spelled("@[compression.prune_embeddings=true]")
        ways.append(say("{} drops what no training text uses", way))
    if not ways:
        return ""
    return say(
        "{:,.1f} of its {:,.1f} MB are the embedding of the vocabulary: {}.",
        best.embedding_mb,
        best.size_mb,
        say("; ").join(ways),
    )


def _on_test(result: CompressResult) -> str:
    test = result.test
    if test is None:
        return ""
    points = format_points(result.metric.drop(test.chosen, test.reference))
    return say(
        "On test, which was not used for the choice ({:,} rows): {} {:.4f}, the original {:.4f} ({} points); {:.1%} "
        "decided alike.",
        test.rows,
        result.metric.name,
        test.chosen,
        test.reference,
        points,
        test.agreement,
    )


def _named(row: CandidateScore) -> str:
    return say("engine|{} in {}", row.candidate, row.choice_name)


def _surely(objective: Objective) -> str:
    return "" if objective.sure is None else say(", in {:.0%} of resampled dev splits,", objective.sure)


# -- figures ---------------------------------------------------------------------------------------


def format_row(row: CandidateScore, reference: CandidateScore, metric: Metric) -> str:
    """A progress line for one row, with its speed at the largest batch size."""
    speed = max(row.speeds, key=lambda each: each.batch_size)
    drop = format_points(metric.drop(row.score, reference.score))
    return (
        f"{row.name}: {metric.name} {row.score:.4f} ({drop}), {speed.times:.2f} times {reference.choice_name} (batch "
        f"{speed.batch_size}), {row.size_mb:,.1f} MB"
    )


def format_batch(size: int) -> str:
    """ "in batches of 32", "with single texts"."""
    return say("with single texts") if size == 1 else say("in batches of {}", size)


def format_points(drop: float) -> str:
    """The difference to the reference score in points: "+0.12"."""
    return f"{-drop + 0:+.2f}"


def format_points_range(row: CandidateScore) -> str:
    """The 95 % interval of the difference in points: "-0.92 to +0.34"; "-" if it is not known."""
    if row.drops is None:
        return "-"
    return say("{} to {}", format_points(row.likely_drop(0.975)), format_points(row.likely_drop(0.025)))
