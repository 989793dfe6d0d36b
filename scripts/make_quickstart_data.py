#!/usr/bin/env python3
"""Generate the data of recipes/quickstart: short Chinese reviews, without a download or licence restrictions.

    python scripts/make_quickstart_data.py [FOLDER]     (default: recipes/quickstart)

A review is a frame filled with clauses (their words: scripts/quickstart_grammar.py). A clause pairs an aspect
with an opinion word, plain or negated ("房间很吵", "房间一点也不吵"). The label is the polarity of the
*deciding* clause, so neither a list of good and bad words nor the position of a clause is enough:
"虽然房间很小，但是位置很方便" is 好评, and so is "位置很方便，虽然房间很小".

dev and test need more than memorised training rows: the deciding clause of each of their rows is an (aspect, word)
pairing that no training row has, and some of their rows use frames that no training row has. dev and test have
different pairings and different frames.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from quickstart_grammar import (
    ASPECTS,
    CLOSERS,
    FACTS,
    FEW_DEGREES,
    FRAMES,
    NEGATED,
    NEGATED_PRAISE,
    NEVER_NEGATED,
    OPENERS,
    PLAIN,
    PLAIN_BLAME,
    PLAIN_MOST,
    TWO_SIDED,
    VERDICTS,
    WORDS,
)

SEED = 20240607
ROWS = {"train": 4000, "dev": 500, "test": 500}
POSITIVE_SHARE = 0.6
LABELS = {1: "好评", -1: "差评"}
HEADER = "text\tlabel"
HELD_OUT_SHARE = {"dev": 0.12, "test": 0.12}  # of all pairings
HELD_OUT_FRAME_SHARE = 0.4  # of the rows of dev and of test
NEGATED_SHARE = 0.2
FACT_SHARE = 0.07


@dataclass(frozen=True)
class Pairing:
    """An aspect with an opinion word; `polarity`, 1 or -1, is that of the word when it is not negated."""

    domain: str
    aspect: str
    word: str
    group: str  # words of one group speak of the same quality; "" for two-sided words
    polarity: int

    @property
    def key(self) -> tuple[str, str]:
        return self.aspect, self.word

    def speaks_of_the_same_as(self, other: Pairing) -> bool:
        """Whether "原以为…其实…" can join the two: the same aspect and quality (整体, the whole, joins with any)."""
        return self.aspect == other.aspect and (self.group == other.group or "整体" in (self.group, other.group))


@dataclass(frozen=True)
class Row:
    """One review, with the frame and the pairings it was made of (not written to the file)."""

    text: str
    label: str
    frame: str
    deciding: Pairing | None  # None: a fact decides
    pairings: tuple[Pairing, ...]


def all_pairings() -> list[Pairing]:
    """Every pairing of the grammar, in a fixed order."""
    pairings = []
    for domain, aspects in ASPECTS.items():
        for aspect, groups in aspects.items():
            for group in groups.split():
                for polarity, words in zip((1, -1), WORDS[group], strict=True):
                    pairings += [Pairing(domain, aspect, word, group, polarity) for word in words.split()]
        for entry in TWO_SIDED[domain].split():
            sign = 1 if "+" in entry else -1
            aspect, word = entry.replace("-", "+").split("+")
            pairings.append(Pairing(domain, aspect, word, "", sign))
    return pairings


def split_pairings(rng: random.Random) -> dict[str, list[Pairing]]:
    """Give each pairing to one split. Every word and every aspect stays known to train through other pairings."""
    pairings = all_pairings()
    words = Counter(pairing.word for pairing in pairings)
    aspects = Counter(pairing.aspect for pairing in pairings)
    quota = {split: round(share * len(pairings)) for split, share in HELD_OUT_SHARE.items()}
    owner: dict[Pairing, str] = {}
    for pairing in rng.sample(pairings, len(pairings)):
        split = max(quota, key=lambda name: quota[name])
        if quota[split] and pairing.group and words[pairing.word] > 3 and aspects[pairing.aspect] > 3:
            owner[pairing] = split
            quota[split] -= 1
            words[pairing.word] -= 1
            aspects[pairing.aspect] -= 1
    splits: dict[str, list[Pairing]] = {"train": [], "dev": [], "test": []}
    for pairing in pairings:
        splits[owner.get(pairing, "train")].append(pairing)
    return splits


class Writer:
    """Makes the rows of one split: deciding clauses from its own pairings, all others from train's."""

    def __init__(self, split: str, pairings: dict[str, list[Pairing]], rng: random.Random):
        self.split = split
        self.own = pairings[split]
        self.known = pairings["train"]
        self.rng = rng

    def row(self, label: int) -> Row | None:
        """A random review of polarity `label`, 1 or -1; None when the draw has no filling."""
        kind, frame = self._frame()
        if self.split == "train" and kind != "expect" and self.rng.random() < FACT_SHARE:
            domain = self.rng.choice(list(ASPECTS))
            deciding, clauses = None, {"D": self._fact(domain, label)}
        else:
            deciding, phrase = self._opinion(self.own, label)
            domain = deciding.domain
            clauses = {"D": deciding.aspect + phrase, "d": phrase}
        used = [deciding] if deciding else []
        for slot, polarity in (("S", label), ("O", -label)):
            if f"{{{slot}}}" not in frame:
                continue
            if kind == "expect":
                pool = [pairing for pairing in self.known if pairing.speaks_of_the_same_as(deciding)]
            elif self.rng.random() < FACT_SHARE:
                clauses[slot] = self._fact(domain, polarity)
                continue
            else:
                taken = {pairing.aspect for pairing in used}
                pool = [p for p in self.known if p.domain == domain and p.aspect not in taken]
            opinion = self._opinion(pool, polarity, short=kind == "expect")
            if opinion is None:
                return None
            used.append(opinion[0])
            clauses[slot] = opinion[0].aspect + opinion[1]
        text = self._dress(frame.format(**clauses), domain, label)
        return Row(text, LABELS[label], frame, deciding, tuple(used))

    def _frame(self) -> tuple[str, str]:
        held_out = self.split != "train" and self.rng.random() < HELD_OUT_FRAME_SHARE
        kinds = FRAMES[self.split if held_out else "train"]
        kind = self.rng.choices(list(kinds), [share for share, _ in kinds.values()])[0]
        return kind, self.rng.choice(kinds[kind][1])

    def _fact(self, domain: str, polarity: int) -> str:
        return self.rng.choice(FACTS[domain][0 if polarity > 0 else 1].split())

    def _opinion(self, pool: list[Pairing], polarity: int, short: bool = False) -> tuple[Pairing, str] | None:
        """A pairing of `pool` and words for it, so that the clause has `polarity`; `short` for "原以为…"."""
        plain = [p for p in pool if p.polarity == polarity]
        negated = [p for p in pool if p.polarity == -polarity and p.word not in NEVER_NEGATED]
        if not plain and not negated:
            return None
        negate = bool(negated) and (not plain or self.rng.random() < NEGATED_SHARE)
        pairing = self.rng.choice(negated if negate else plain)
        if short:
            forms = ["不{}"] if negate else ["很{}"]
        elif negate:
            forms = NEGATED + (NEGATED_PRAISE if pairing.polarity > 0 else [])
        else:
            forms = PLAIN + ([] if pairing.word in FEW_DEGREES else PLAIN_MOST)
            forms = forms + (PLAIN_BLAME if pairing.polarity < 0 else [])
        return pairing, self.rng.choice(forms).format(pairing.word)

    def _dress(self, text: str, domain: str, label: int) -> str:
        if self.rng.random() < 0.4:
            text = f"{self.rng.choice(OPENERS[domain].split())}，{text}"
        draw = self.rng.random()
        if draw < 0.06:
            return f"{text}，{self.rng.choice(VERDICTS[label])}。"
        if draw < 0.16:
            return f"{text}。{self.rng.choice(CLOSERS)}。"
        return text + ("。" if draw < 0.9 else "")


def build() -> tuple[dict[str, list[Row]], dict[str, list[Pairing]]]:
    """All rows by split (no text twice, in any split) and the pairings each split owns."""
    rng = random.Random(SEED)
    pairings = split_pairings(rng)
    seen: set[str] = set()
    rows: dict[str, list[Row]] = {}
    for split, count in ROWS.items():
        writer = Writer(split, pairings, rng)
        positives = round(count * POSITIVE_SHARE)
        rows[split] = []
        for label in [1] * positives + [-1] * (count - positives):
            row = writer.row(label)
            while row is None or row.text.rstrip("。") in seen:
                row = writer.row(label)
            seen.add(row.text.rstrip("。"))
            rows[split].append(row)
        rng.shuffle(rows[split])
    return rows, pairings


def as_tsv(rows: list[Row]) -> str:
    """The file's text: a header, then text and label."""
    return "\n".join([HEADER, *(f"{row.text}\t{row.label}" for row in rows)]) + "\n"


def main() -> None:
    default = Path(__file__).resolve().parent.parent / "recipes" / "quickstart"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=default)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in build()[0].items():
        (folder / f"{split}.tsv").write_text(as_tsv(rows), encoding="utf-8", newline="\n")
        print(f"{folder / split}.tsv: {len(rows)} rows")


if __name__ == "__main__":
    main()
