"""Builds the WordPiece vocabulary of a model trained from scratch, and the tokenizer over it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.trainers import WordPieceTrainer

from nlpctl.data.text.library_tokenizer import LibraryTokenizer, tokenizer_of_pieces
from nlpctl.data.text.wordpiece import LONGEST_WORD
from nlpctl.errors import UserError

SPECIAL_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
TOKENIZER_CLASSES = {
    "bert": "BertTokenizer",
    "ernie": "ErnieTokenizer",
    "roberta": "RobertaChineseTokenizer",
    "electra": "ElectraTokenizer",
}

# Distinct words counted at once, some 50 MB with all that is made of them; beyond that the rarest are forgotten.
MAX_COUNTED_WORDS = 150_000


def build_vocabulary(texts: Iterable[str], vocab_size: int, min_frequency: int, lowercase: bool) -> list[str]:
    """The pieces of a WordPiece vocabulary in id order: special tokens, characters, then word pieces.

    Characters go before longer pieces, the frequent ones first, so Chinese text and any word spelt with
    known letters has ids; those seen less than `min_frequency` times become [UNK]. At most `vocab_size`
    entries. The result depends on the texts alone. Memory is bounded, whatever the number of texts.
    """
    if vocab_size <= len(SPECIAL_TOKENS):
        raise UserError(
            f"{vocab_size} entries leave no room besides the {len(SPECIAL_TOKENS)} special tokens",
            where="model.from_scratch.vocab_size",
            hint="set it to a few thousand, such as 8000",
        )
    start = [*SPECIAL_TOKENS.values()]
    reader = make_tokenizer(start, "bert", lowercase)
    words = count_bounded(_split_words(texts, reader))
    pieces = _character_pieces(words, reader, vocab_size - len(start), min_frequency)
    if words and not pieces:
        raise UserError(
            f"no character occurs {min_frequency:,} times in the training data, so every text would be unknown",
            where="model.from_scratch.min_frequency",
            hint="set it to 1, or give more rows",
        )
    start += pieces
    return _train(words, start, vocab_size, min_frequency)


def make_tokenizer(vocabulary: Sequence[str], architecture: str, lowercase: bool) -> LibraryTokenizer:
    """The tokenizer of `architecture` (a key of TOKENIZER_CLASSES) over `vocabulary`, the pieces in order."""
    name = TOKENIZER_CLASSES[architecture]
    # AutoTokenizer and RobertaTokenizer of PaddleNLP go by init_class, Hugging Face by tokenizer_class.
    settings = {"do_lower_case": lowercase, **SPECIAL_TOKENS, "init_class": name, "tokenizer_class": name}
    return tokenizer_of_pieces(vocabulary, settings, "model.from_scratch.vocabulary")


def count_bounded(texts: Iterable[Iterable[str]]) -> Counter[str]:
    """Counts the words of `texts`. Beyond MAX_COUNTED_WORDS distinct ones, the rarest are dropped."""
    words: Counter[str] = Counter()
    for text in texts:
        words.update(text)
        # The rarest are dropped until half of the room is free, so that this runs seldom; counts are then lower bounds.
        floor = 0
        while len(words) > MAX_COUNTED_WORDS // (2 if floor else 1):
            floor += 1
            words = Counter({word: count for word, count in words.items() if count > floor})
    return words


def _split_words(texts: Iterable[str], reader: LibraryTokenizer) -> Iterator[list[str]]:
    """The words of each text, which `reader` would look up; too long ones are left out."""
    for text in texts:
        yield [word for word in reader.words(text) if len(word) <= LONGEST_WORD]


def _character_pieces(
    words: Counter[str], reader: LibraryTokenizer, room: int, min_frequency: int
) -> list[str]:
    """Every frequent character, also as a continuation ("##a") unless it always stands alone."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    pieces: list[str] = []
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        # A character that the tokenizer always separates never continues a word: ## before it would be a dead entry.
        joins = len(reader.words(f"x{character}x")) == 1
        if count >= min_frequency and len(pieces) + 1 + joins <= room:
            pieces += [character, f"##{character}"] if joins else [character]
    return pieces


def _train(words: Counter[str], start: list[str], vocab_size: int, min_frequency: int) -> list[str]:
    """`start` and the pieces merged from it, the most frequent first."""
    # A word with an unknown character is [UNK] as a whole, so merges from it would never be used.
    known = {piece for piece in start if len(piece) == 1}
    spelt = {word: count for word, count in words.items() if len(word) > 1 and known.issuperset(word)}
    if not spelt:
        return start
    # The trainer's threads would make a later fork (DataLoader workers) complain.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tokenizer = Tokenizer(WordPiece(unk_token=SPECIAL_TOKENS["unk_token"]))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    trainer = WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        show_progress=False,
        # The trainer numbers "##" characters in the order of a hash map and breaks ties between merges by
        # number, so its result changes from process to process. Given as special tokens they are numbered here.
        special_tokens=start,
    )
    tokenizer.train_from_iterator(_repeated(spelt), trainer)
    numbered = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return [piece for piece, _ in numbered]


def _repeated(words: dict[str, int], chunk: int = 1000) -> Iterator[str]:
    """Each word as often as it was counted: the trainer takes text, not counts."""
    for word, count in sorted(words.items()):
        for done in range(0, count, chunk):
            yield f"{word} " * min(chunk, count - done)
