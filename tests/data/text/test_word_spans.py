import unicodedata

import pytest

from nlpctl.data.text.word_spans import character_spans, word_spans

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
THUMB = "\U0001f44d\U0001f3fd"
CHINA = "\U0001f1e8\U0001f1f3"
SCOTLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"

CASES = {
    "": [],
    " \t\u3000\n": [],
    "我爱北京": ["我", "爱", "北", "京"],
    "in 1949年,3.14": ["in", "1949", "年", ",", "3", ".", "14"],
    "ＷｉＦｉ太慢！！": ["ＷｉＦｉ", "太", "慢", "！", "！"],
    "北\u3000京": ["北", "京"],
    "¥300~5★": ["¥", "300", "~", "5", "★"],
    "Cafe\u0301 nai\u0308ve": ["Cafe\u0301", "nai\u0308ve"],
    "カﾞ がぎ 한국어": ["カﾞ", "がぎ", "한국어"],
    f"好{FAMILY}{THUMB}a": ["好", FAMILY, THUMB, "a"],
    f"{CHINA}{CHINA}x{SCOTLAND}": [CHINA, CHINA, "x", SCOTLAND],
    "中\U000e0100文\ufe0f": ["中\U000e0100", "文\ufe0f"],
    "1\ufe0f\u20e3 a": ["1\ufe0f\u20e3", "a"],
    "\u200bab\u200bcd\u200b e\ufeff": ["ab\u200bcd", "e"],
    "𠀀〇々": ["𠀀", "〇", "々"],
    "\u0301x": ["\u0301x"],
}


@pytest.mark.parametrize("text", CASES)
def test_words(text):
    assert [text[start:end] for start, end in word_spans(text)] == CASES[text]


@pytest.mark.parametrize("spans", [word_spans, character_spans])
def test_every_visible_character_is_in_one_word(spans):
    texts = ["".join(chr(code) for code in range(first, first + 997) if not 0xD800 <= code <= 0xDFFF)
             for first in range(1, 0x30000, 997)]  # fmt: skip
    for text in texts:
        covered = [0] * len(text)
        for start, end in spans(text):
            assert start < end
            for i in range(start, end):
                covered[i] += 1
        assert max(covered, default=0) <= 1
        for character, count in zip(text, covered, strict=True):
            if not character.isspace() and unicodedata.category(character) not in ("Cc", "Cf"):
                assert count == 1, hex(ord(character))


def test_characters():
    def characters(text):
        return [text[start:end] for start, end in character_spans(text)]

    assert characters("在1949年 ok") == ["在", "1", "9", "4", "9", "年", "o", "k"]
    assert characters("Cafe\u0301s") == ["C", "a", "f", "e\u0301", "s"]
    assert characters(f"a{FAMILY}1\ufe0f\u20e3") == ["a", FAMILY, "1\ufe0f\u20e3"]
