"""Reads untrusted text files: bytes -> numbered lines -> text.

Bytes are split on newlines before they are decoded, so one broken byte spoils one row and line
numbers are those of an editor.
"""

from __future__ import annotations

import codecs
import re
import shlex
import unicodedata
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from nlpctl.errors import Problem, UserError
from nlpctl.names import counted
from nlpctl.outputs import refuse_pipe

UNSEEN = ("Cc", "Cf")  # categories of characters that are not seen
NOT_UTF8 = "not UTF-8"
FROM_GBK = ". A file in GBK is converted by: iconv -f GB18030 -t UTF-8 FILE"  # after a hint
MAX_LINE = 16 << 20  # bytes; a line of text is a sentence or a page, and one without end would take all memory
SHOWN = 10  # wrong lines that a message lists
MAX_DOCUMENT = 1 << 30  # of json, which may stand on one line and is held whole
_SPLIT = "split the line, or check that this is a text of lines; one JSON document is data.format: json"
_BINARY = (b"\x80", b"\x93NUMPY", b"\x89PNG", b"%PDF-")  # beginnings of weights, arrays, pictures, documents
LONE_RETURN = re.compile(r"\r(?!\n)")
_PIECE = 1 << 15
_HIGH = bytes(range(0x80, 0x100))
# A character of GB 2312; the second pattern: of its punctuation and its 3,755 common characters.
_GB2312, _COMMON = re.compile(rb"[\xa1-\xf7][\xa1-\xfe]"), re.compile(rb"[\xa1-\xa3\xb0-\xd7]")


def numbered_lines(
    stream: BinaryIO,
    source: str,
    longest: int = MAX_LINE,
    hint: str = _SPLIT,
    first: int = 1,
    keep_returns: bool = False,
) -> Iterator[tuple[int, bytes]]:
    """(line number, bytes without line end), the byte order mark removed; each as soon as it can be read.

    `first`: the number of the line at which `stream` begins. `keep_returns`: only the newline is taken away, not a
    carriage return before it, which may belong to a text. UserError with `hint` for a line of more than `longest`
    bytes, so that memory is bounded. It ends the reading: such a line may have no end that could be skipped to.
    """
    lines = enumerate(chain.from_iterable(_split(stream, source, longest, hint, first)), first)
    end = b"" if keep_returns else b"\r"
    for number, raw in islice(lines, int(first == 1)):
        yield number, raw.removeprefix(codecs.BOM_UTF8).rstrip(end)
    for number, raw in lines:
        yield number, raw.rstrip(end)


def _split(stream: Any, source: str, longest: int, hint: str, number: int) -> Iterator[list[bytes]]:
    """Lines without newline, as many as end in what can be read at a time.

    This is as fast as `for line in stream`; `readline(longest)` takes a quarter more time.
    """
    begun, size = [], 0  # the line `number`, whose end is not read yet: its pieces, their bytes
    ascii_only = True
    at_once = min(_PIECE, longest)  # so a line inside of a piece is never too long
    while piece := stream.read1(at_once):
        lines = piece.split(b"\n")
        if number == 1 and not size:  # before its end, which a line of zeros may not have
            refuse_other_encodings(lines[0], source)
        if ascii_only and not piece.isascii():
            ascii_only = False
            _refuse_gbk(piece, source)
        begun.append(lines[0])
        size += len(lines[0])
        if size > longest and not (size == longest + 1 and b"".join(begun).endswith(b"\r")):
            raise UserError(f"the line is longer than {longest / 2**20:g} MiB", f"{source}:{number}", hint)
        if len(lines) > 1:
            lines[0] = b"".join(begun)
            begun = [lines.pop()]
            size = len(begun[0])
            number += len(lines)
            yield lines
    if size:
        yield [b"".join(begun)]


def read_lines(path: Path, kind: str) -> list[tuple[str, str]]:
    """(file:line, text) of every line, without empty ones at the end. `kind` names the file in messages.

    UserError if it cannot be read, or for every line that is no text.
    """
    refuse_pipe(path)
    try:
        with open(path, "rb") as stream:
            lines = [(f"{path}:{number}", *decode(raw)) for number, raw in numbered_lines(stream, str(path))]
    except OSError as error:
        message = f"cannot read the {kind}: {error.strerror or error}"
        raise UserError(message, where=str(path), hint="check the path and its rights") from None
    hint = "save the file as UTF-8"
    problems = [Problem(reason, where, hint) for where, _, reason in lines if reason is not None]
    if problems:
        raise UserError(problems=problems[:SHOWN])
    while lines and not lines[-1][1].strip():
        lines.pop()
    return [(where, text) for where, text, _ in lines]


def refuse_other_encodings(first: bytes, source: str) -> None:
    """UserError if the first line shows that the file is UTF-16, compressed, or has old Mac line ends."""
    if name := _utf16(first):
        raise UserError("the file is UTF-16, not UTF-8", where=source, hint=_convert(name, source))
    if first.startswith(b"\x1f\x8b") or first.startswith(b"PK\x03\x04"):
        hint = "name it by its format, such as rows.tsv.gz or rows.xlsx, or unpack it first (gunzip, unzip)"
        raise UserError("the file is compressed", where=source, hint=hint)
    if first.startswith(_BINARY) or first.count(b"\0") > 3:
        raise UserError("this is not a text file", where=source, hint="give a file of texts, in UTF-8")
    if b"\r" in first.rstrip(b"\r\n"):
        raise UserError(
            "a carriage return inside the first line: the file seems to have old Mac line ends",
            where=f"{source}:1",
            hint=f"convert it: tr '\\r' '\\n' < {shlex.quote(source)}",
        )


def _convert(encoding: str, source: str) -> str:
    named = f" {shlex.quote(source)}" if Path(source).is_file() else ""  # others, such as standard input, have no name
    return f"convert it: iconv -f {encoding} -t UTF-8{named}"


def _refuse_gbk(piece: bytes, source: str) -> None:
    """UserError if `piece`, the first of a file that is not ASCII, holds Chinese in GBK or GB18030.

    One message for the file in place of one for every line. A broken byte in a text of UTF-8 is another matter.
    """
    if _decodes(piece, "utf-8") or not _decodes(piece, "gb18030"):
        return
    high = len(piece) - len(piece.translate(None, _HIGH))
    in_utf8 = len(piece.decode("utf-8", "ignore").encode()) - (len(piece) - high)
    pairs = _GB2312.findall(piece)
    common = sum(_COMMON.match(pair) is not None for pair in pairs)
    if in_utf8 < 0.5 * high and 2 * len(pairs) >= 0.7 * high and 2 * common >= len(pairs):
        encoding, hint = "GBK (GB18030)", _convert("GB18030", source)
        if _decodes(piece, "big5"):  # long texts are mostly in one of them only
            encoding, hint = f"{encoding} or Big5", f"{hint}; if that gives no sense, with -f BIG5"
        raise UserError(f"the file is in {encoding}, not UTF-8", where=source, hint=hint)


def _decodes(piece: bytes, encoding: str) -> bool:
    """Whether `piece`, whose last character may go on in the next one, is a text in this encoding."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(piece)
    except UnicodeDecodeError:
        return False
    return True


def _utf16(first: bytes) -> str | None:
    """The name for iconv of the UTF-16 that `first` is in; None if it is something else.

    Without a mark at the beginning every other byte of Latin text and of separators is 0.
    """
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    even, odd = (part.count(0) / max(1, len(part)) for part in (first[::2], first[1::2]))
    if max(even, odd) < 0.9 or min(even, odd) > 0.1:
        return None
    return "UTF-16BE" if even > odd else "UTF-16LE"


def lone_returns(text: str) -> str:
    """What to add to the reason of a bad row whose text holds carriage returns, which end no line here; mostly ""."""
    count = len(LONE_RETURN.findall(text))
    return f"; the line holds {counted(count, 'carriage returns')}, the line ends of old Macs" if count else ""


def decode(raw: bytes) -> tuple[str, str | None]:
    """(text, reason why it is bad or None). Positions count bytes of the line, from 1."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"{NOT_UTF8}: byte 0x{raw[error.start]:02x} at byte {error.start + 1} of the line"
        return raw.decode("utf-8", "replace"), reason
    if "\0" in text:
        return text, f"NUL byte: at byte {raw.index(0) + 1} of the line"
    return text, None


def is_blank(text: str) -> bool:
    """Whether nothing in `text` is seen, so that no token of it is left: white space, U+200B and their like."""
    if not text or text.isspace():
        return True
    if text[0].isalnum():  # nearly every text
        return False
    return all(each.isspace() or each == "\ufffd" or unicodedata.category(each) in UNSEEN for each in text)


def refuse_surrogates(text: str, what: str) -> None:
    """ValueError, which calls `text` `what`, if it holds half a surrogate pair: JSON can spell it, UTF-8 cannot."""
    # Encoding every text would cost as much as tokenising it; ASCII cannot hold surrogates.
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        reason = f"half a surrogate pair, U+{ord(text[error.start]):04X}, at character {error.start + 1}"
        raise ValueError(f"{what} is not Unicode: {reason}") from None
