"""Near-duplicate detection: MinHash signatures, banding (locality-sensitive hashing), then the exact similarity.

The similarity of two texts is the Jaccard index of their sets of character n-grams. A signature keeps, for
each of a number of hash functions, the smallest hash of the text's n-grams: two texts agree at a place of it with
a probability equal to their similarity (Broder 1997). Texts that agree on all places of one band are compared
exactly, so nothing below the threshold is reported; of pairs at 0.8 about 0.2 % are missed, at 0.9 next to none.

datasketch has signatures and bands too, as an object per text and dictionaries; but no bound on the pairs of a crowd
(CROWD), and most of this module would stay: what counts as a letter, rows of several texts, the exact similarity.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise, permutations, product

import numpy as np

from nlpctl.data.readers.lines import UNSEEN
from nlpctl.data.text.word_spans import IDEOGRAPHS

# -- normalised forms of a text ---------------------------------------------------------------------------------------

_BLANKS = re.compile(r"\s+")
_RAISED = re.compile("[\u00b9\u00b2\u00b3\u2070\u2074-\u207f]+")
# Chinese and Japanese are written without blanks; kana stand here too, unlike in IDEOGRAPHS, which are words of one.
_UNSPACED = f"[{IDEOGRAPHS}\u3005\u3040-\u30ff]"


def _is_mark(character: str) -> bool:
    """Whether it stands between words and says none itself, unlike an emoji, a + or a vowel sign of Hindi."""
    return (unicodedata.category(character)[0] == "P" and character not in "#%&@") or (
        character in "~|`" or unicodedata.category(character) in UNSEEN
    )


_MARK = re.compile(f"[{re.escape(''.join(filter(_is_mark, map(chr, range(1 << 16)))))}]")
_SIGN = re.compile(rf"(?:(?<![^\s(:=])|(?<={_UNSPACED}))-(?=\d)")
_UNSPACED_GAP = re.compile(rf"(?<={_UNSPACED})[- ]+|(?<![- ])[- ]+(?={_UNSPACED})")
_MARKED_GAP = re.compile(r" ?-[- ]*")
_LETTER = re.compile(r"([- ]?)[^- ]")  # and the gap before it
# 1.5 and 15 are different numbers, so what stands between two digits counts.
_IN_NUMBER = re.compile(r"(?<=\d)[- ]+(?=\d)")


def same_form(text: str) -> str:
    """`text` in lower case, NFKC form but for raised digits, with single blanks: 10\u00b2 is 10^2, and not 102."""
    raised = _RAISED.sub(r"^\g<0>", text)
    return _BLANKS.sub(" ", unicodedata.normalize("NFKC", raised).casefold()).strip()


def letters_of(text: str) -> str:
    """The letters, digits and symbols of `text`, with a blank where there are blanks between two of them, and a hyphen
    where there is a mark. Beside a character of a script without blanks both are nothing: a comma there is no more than
    the place where the writer paused. A minus before a number is a symbol.
    """
    marked = _MARK.sub("-", _SIGN.sub("\u2212", same_form(text)))
    return _MARKED_GAP.sub("-", _IN_NUMBER.sub(" ", _UNSPACED_GAP.sub("", marked))).strip("- ")


def _apart(letters: str) -> str:
    return letters.replace("-", " ")


def _close(letters: str) -> str:
    return _apart(letters).replace(" ", "")


def _equal(one: str, other: str) -> bool:
    """Whether two texts, given by `letters_of`, differ in marks alone: well-known, well known, wellknown; can't, cant.
    Where one has a blank and the other has nothing they do not: now here, nowhere."""
    if _close(one) != _close(other):
        return False
    gaps = zip(_LETTER.findall(one), _LETTER.findall(other), strict=True)
    return all(gap == its_gap or "-" in (gap, its_gap) for gap, its_gap in gaps)


def row_key(passages: Sequence[str], *, ordered: bool = False) -> bytes:
    """Equal for rows whose texts are the same, in whatever order unless `ordered`: who has seen (A, B) knows (B, A).

    A digest, since a million of them are held.
    """
    forms = [same_form(passage) for passage in passages]
    # NUL hardly occurs in text, so two texts do not join into the form of two others.
    joined = "\0".join(forms if ordered else sorted(forms))
    return blake2b(joined.encode("utf-8"), digest_size=16).digest()


BANDS, PLACES = 16, 5
GRAM_IDEOGRAPHIC, GRAM_ALPHABETIC = 3, 5  # characters of an n-gram
FEWEST = 6  # n-grams; of a shorter text every change is large
CROWD = 24  # rows of a band that agree and are compared each with each; beyond, with that many before
_CHUNK = 1 << 21  # n-grams that are hashed at a time: 2 million are 16 MB per hash function

_IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}]")

Pair = tuple[int, int, float]


def near_rows(rows: Sequence[Sequence[str]], threshold: float) -> Iterator[Pair]:
    """Pairs (i, j, similarity) of rows, i < j, whose texts are all near duplicates, each of another text of the other
    row: (A, B) and (B, A) are as similar as two rows (A, B). Texts are compared by their letters and digits.

    The similarity of two rows is the least of those of their texts.
    """
    letters = [tuple(map(letters_of, row)) for row in rows]
    by_letters: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, row in enumerate(letters):
        by_letters[tuple(sorted(row))].append(i)
    # Rows of the same letters are found without n-grams, short ones too; one of them stands for all.
    members = [crowd for row, crowd in by_letters.items() if all(row)]
    for crowd in members:
        # Of a crowd every row is linked with some, so that all of them are one group.
        yield from ((i, j, 1.0) for place, j in enumerate(crowd) for i in crowd[: min(place, CROWD)])
    for a, b in _sharing([letters[crowd[0]] for crowd in members], threshold):
        least = _row_similarity(letters[members[a][0]], letters[members[b][0]], threshold)
        if least >= threshold:
            yield from ((min(pair), max(pair), least) for pair in _across(members[a], members[b]))


def _across(first: Sequence[int], second: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of a row of `first` and one of `second`, in order; of crowds those with the first rows of the other."""
    return sorted({*product(first[:CROWD], second), *product(first, second[:CROWD])})


def _sharing(rows: Sequence[Sequence[str]], threshold: float) -> Iterator[tuple[int, int]]:
    """Pairs of rows, each once, a text of which is that of the other or a near duplicate of it, and of equal rows."""
    holders: dict[str, dict[int, None]] = defaultdict(dict)  # text -> rows
    equal: dict[tuple[str, ...], list[int]] = defaultdict(list)  # the letters of each text -> rows
    for i, row in enumerate(rows):
        for text in row:
            holders[_apart(text)][i] = None
        equal[tuple(sorted(map(_close, row)))].append(i)
    texts, having = list(holders), [np.array(list(members)) for members in holders.values()]
    alike = [members for text, members in zip(texts, having, strict=True) if len(text) >= FEWEST + _gram(text) - 1]
    alike += [np.array(members) for members in equal.values() if len(members) > 1]
    known: set[tuple[int, int]] = set()
    for members in alike:
        if len(members) > 1:
            codes = _pairs_of(members, len(rows))
            known.update(zip((codes // len(rows)).tolist(), (codes % len(rows)).tolist(), strict=True))
    for s, t, _ in near_duplicates(texts, threshold):
        first, second = having[s].tolist(), having[t].tolist()
        pairs = _across(first, second)
        if max(len(first), len(second)) > CROWD:
            # Rows beyond that share another text too are near duplicates, wherever they are in the crowds.
            sharing: dict[str, list[int]] = defaultdict(list)
            for j in second:
                for text in rows[j]:
                    sharing[_apart(text)].append(j)
            pairs += [(i, j) for i in first for text in rows[i] for j in sharing[_apart(text)][:CROWD]]
        known.update((min(pair), max(pair)) for pair in pairs if pair[0] != pair[1])
    yield from sorted(known)


def _row_similarity(first: Sequence[str], second: Sequence[str], threshold: float) -> float:
    """The least similarity of the texts of two rows, in the order in which it is greatest; 0 if below `threshold`.

    A row with more texts is compared by those that fit best.
    """
    few, many = sorted((first, second), key=len)
    return max(_least(few, order, threshold) for order in permutations(many, len(few)))


def _least(first: Sequence[str], second: Sequence[str], threshold: float) -> float:
    least = 1.0
    for one, other in zip(first, second, strict=True):
        least = min(least, 1.0 if _equal(one, other) else jaccard(_apart(one), _apart(other)))
        if least < threshold:
            return 0.0
    return least


def aligned_similarity(first: Sequence[str], second: Sequence[str]) -> float:
    """The least similarity of two rows' texts, the first with the first and so on."""
    one, other = (list(map(letters_of, row)) for row in (first, second))
    return _least(one, other, 0.0) if len(one) == len(other) else 0.0


def near_duplicates(texts: Sequence[str], threshold: float) -> list[Pair]:
    """Pairs (i, j, similarity) with i < j and a similarity of `threshold` or more, the most similar first."""
    long_enough = [i for i, text in enumerate(texts) if len(text) >= FEWEST + _gram(text) - 1]
    if len(long_enough) < 2:
        return []
    chosen = [texts[i] for i in long_enough]
    signatures = _signatures(chosen)
    near = []
    for i, j in _candidates(signatures, threshold):
        similarity = jaccard(chosen[i], chosen[j])
        if similarity >= threshold:
            near.append((long_enough[i], long_enough[j], similarity))
    return sorted(near, key=lambda pair: (-pair[2], pair[0], pair[1]))


def jaccard(first: str, second: str) -> float:
    """Size of the intersection of the n-grams of both texts, over that of the union."""
    a, b = (np.unique(_grams(text)) for text in (first, second))
    if len(a) > len(b):
        a, b = b, a
    if not len(a):
        return float(first == second)
    both = int((b[np.minimum(np.searchsorted(b, a), len(b) - 1)] == a).sum())
    return both / (len(a) + len(b) - both)


def _gram(text: str) -> int:
    """Length of the n-grams of `text`: a Chinese character says as much as some letters."""
    ideographs = len(_IDEOGRAPH.findall(text[:40]))
    return GRAM_IDEOGRAPHIC if 3 * ideographs > min(len(text), 40) else GRAM_ALPHABETIC


def _grams(text: str) -> np.ndarray:
    """[grams] uint64, a hash of each n-gram; one of the whole text where it is shorter than an n-gram."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.uint64)
    length = min(_gram(text), len(codes))
    hashes = np.zeros(len(codes) - length + 1, np.uint64)
    for offset in range(length):
        # FNV's prime; unsigned 64-bit arithmetic wraps, which is wanted.
        hashes = hashes * np.uint64(0x100000001B3) + codes[offset : offset + len(hashes)]
    return _mixed(hashes)


def _mixed(values: np.ndarray) -> np.ndarray:
    """The values with their bits mixed (the end of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _signatures(texts: Sequence[str]) -> np.ndarray:
    """[texts, BANDS * PLACES] uint32, the smallest hash of the text's n-grams under each hash function."""
    functions = BANDS * PLACES
    random = np.random.default_rng(1)  # which hash functions is of no importance, but they never change
    keys = random.integers(0, 1 << 63, functions, np.uint64)
    factors = random.integers(0, 1 << 63, functions, np.uint64) | np.uint64(1)
    signatures = np.empty((len(texts), functions), np.uint32)
    for first, grams in _chunks(texts):
        starts = np.cumsum([0, *(len(each) for each in grams[:-1])])
        hashes = np.concatenate(grams)
        for k in range(functions):
            hashed = (((hashes ^ keys[k]) * factors[k]) >> np.uint64(32)).astype(np.uint32)
            signatures[first : first + len(grams), k] = np.minimum.reduceat(hashed, starts)
    return signatures


def _chunks(texts: Sequence[str]) -> Iterator[tuple[int, list[np.ndarray]]]:
    """(index of the first text, the n-grams of each) of stretches of texts that are hashed together."""
    first, grams, size = 0, [], 0
    for i, text in enumerate(texts):
        grams.append(_grams(text))
        size += len(grams[-1])
        if size >= _CHUNK:
            yield first, grams
            first, grams, size = i + 1, [], 0
    if grams:
        yield first, grams


def _candidates(signatures: np.ndarray, threshold: float) -> Iterator[tuple[int, int]]:
    """Pairs i < j, each once, that agree on a band and whose signatures do not rule the threshold out."""
    count = len(signatures)
    known = np.empty(0, np.int64)
    for band in range(BANDS):
        columns = np.ascontiguousarray(signatures[:, band * PLACES : (band + 1) * PLACES])
        # Five uint32 viewed as one 20-byte key: sorting these is one pass instead of a lexsort over columns.
        keys = columns.view(np.dtype((np.void, columns.dtype.itemsize * PLACES))).ravel()
        order = np.argsort(keys, kind="stable")  # equal keys stay in the order of the rows
        changes = np.flatnonzero(keys[order][1:] != keys[order][:-1]) + 1
        bounds = np.concatenate(([0], changes, [count]))
        pairs = [_pairs_of(order[start:end], count) for start, end in pairwise(bounds.tolist()) if end - start > 1]
        if pairs:
            # A pair that agrees on several bands must be compared once only.
            fresh = np.setdiff1d(np.concatenate(pairs), known)
            known = np.union1d(known, fresh)
            first, second = fresh // count, fresh % count
            # The agreement of the signatures is the similarity, give or take 0.15 (three standard errors).
            likely = (signatures[first] == signatures[second]).mean(1) >= threshold - 0.15
            yield from zip(first[likely].tolist(), second[likely].tolist(), strict=True)


def _pairs_of(members: np.ndarray, count: int) -> np.ndarray:
    """Codes i * count + j of the pairs of rows that share a band; of a crowd not every pair."""
    size = len(members)
    later, earlier = np.tril_indices(size, -1) if size <= CROWD else _crowd_indices(size)
    return members[earlier].astype(np.int64) * count + members[later]


def _crowd_indices(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Each row with the first rows of the crowd and with those right before it."""
    half = CROWD // 2
    later = np.repeat(np.arange(1, size), 2 * half)
    steps = np.tile(np.arange(half), size - 1)
    steps = steps.reshape(size - 1, half)
    rows = np.arange(1, size)[:, None]
    earlier = np.concatenate((steps, rows - 1 - steps), axis=1).ravel()
    valid = (earlier >= 0) & (earlier < later)
    return later[valid], earlier[valid]
