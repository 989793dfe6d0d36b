"""Builds HTML. Every string is escaped unless it is of type Html."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# What a browser shows as nothing, as something else, or with the line turned round: control characters,
# half surrogates, zero-width characters and marks of direction.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)

_VOID = ("input", "meta")  # elements without an end


class Html(str):
    """Text that is HTML already; any other string is escaped where it is put into a page."""

    __slots__ = ()

    def __add__(self, other: str) -> Html:
        return joined(self, other)


def escaped(value: Any) -> Html:
    """`value` as HTML: Html as it is, anything else as text, with characters that cannot be seen made visible."""
    if isinstance(value, Html):
        return value
    text = "" if value is None else str(value)
    # Texts of the data go onto the page: a direction mark could turn the rest of a line round.
    return Html(html.escape(_UNSEEN.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)))


def as_it_is(text: str) -> Html:
    """A text that a form sends back, with all characters that a page can hold."""
    return Html(html.escape(text.encode("utf-8", "replace").decode()))


def element(name: str, /, *children: Any, **attributes: Any) -> Html:
    """<name attributes>children</name>. An underscore in an attribute's name is a hyphen; `class_` is class.

    An attribute that is None is left out.
    """
    attributes_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    start = f"<{name}{attributes_text}>"
    return Html(start if name in _VOID else f"{start}{joined(*children)}</{name}>")


def joined(*parts: Any, between: str = "") -> Html:
    """The parts one after the other, each escaped unless it is Html."""
    return Html(between.join(escaped(part) for part in parts))


# --------------------------------------------------------------------------------------------------
# The style sheet of pages, in light and dark mode. Plots take their colours from it: classes c0 to c7.

COLOURS = 8
_DAY = ("#2f6fb7", "#e08214", "#3a923a", "#b03060", "#7a5cb0", "#8c6d46", "#1f9aa8", "#777777")
_NIGHT = ("#6ca6e8", "#f0a24a", "#6cc46c", "#e07a9c", "#b09ae0", "#c0a27a", "#5cc8d4", "#aaaaaa")

# Chinese of the system, whatever it is: a font that is missing is skipped, character by character.
_CHINESE = (
    '"Noto Sans CJK SC","Noto Sans SC","Source Han Sans SC","PingFang SC","Hiragino Sans GB","Microsoft YaHei",\n'
    '"WenQuanYi Micro Hei","WenQuanYi Zen Hei","Droid Sans Fallback"'
)

_BASE = """
:root{--back:#fff;--text:#1c2126;--faint:#5d6873;--line:#dde2e7;--panel:#f5f7f9;--warn:#fff6e0;--warnline:#e0a100;%s}
@media (prefers-color-scheme:dark){:root{--back:#15191d;--text:#e3e7ea;--faint:#9aa6b1;--line:#333b43;--panel:#1e2429;
--warn:#332a12;--warnline:#c79522;%s}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1080px;padding:24px 28px 48px;background:var(--back);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",%s,sans-serif}
h1{font-size:25px;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:19px;margin:36px 0 10px;padding-bottom:5px;border-bottom:1px solid var(--line)}
p{margin:8px 0;max-width:88ch;overflow-wrap:anywhere}
header p,footer,caption,.figures span,summary{color:var(--faint)}
nav{display:flex;flex-wrap:wrap;gap:4px 16px;margin-top:10px}
a{color:var(--c0);text-decoration:none}
a:hover{text-decoration:underline}
footer{margin-top:40px;font-size:13px}
.figures{display:flex;flex-wrap:wrap;gap:10px;margin:14px 0}
.figures div{background:var(--panel);border-radius:8px;padding:9px 16px;min-width:110px}
.figures b{display:block;font-size:21px;font-weight:600;font-variant-numeric:tabular-nums}
.figures span{font-size:13px}
.warnings{background:var(--warn);border-left:4px solid var(--warnline);border-radius:4px;margin:12px 0;
padding:10px 16px 10px 34px}
.warnings li{margin:3px 0;overflow-wrap:anywhere}
.scroll{overflow-x:auto;margin:12px 0}
.wide{width:max-content;min-width:100%%;max-width:calc(100vw - 40px);position:relative;left:50%%;
transform:translateX(-50%%)}
.wide table{font-size:13px}
.wide th,.wide td{padding-right:10px}
.wide th,.wide th.number,.wide td.short{white-space:normal}
.wide th,.wide th.number{overflow-wrap:normal}
table{border-collapse:collapse;font-size:14px}
caption{text-align:left;padding-bottom:4px}
th,td{padding:4px 14px 4px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line);max-width:64ch;
overflow-wrap:anywhere;unicode-bidi:isolate}
td.short{white-space:nowrap}
th{font-weight:600;color:var(--faint);white-space:nowrap}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.place{font:13px/1.6 ui-monospace,"DejaVu Sans Mono",%s,monospace;white-space:nowrap}
table.matrix td,table.matrix thead th{text-align:center;padding:5px 9px;border:1px solid var(--back);min-width:46px;
font-variant-numeric:tabular-nums}
table.matrix tbody th{text-align:right;border:0;padding-right:10px;max-width:24ch;white-space:normal}
label{display:block;color:var(--faint)}
textarea,button{font:inherit;color:var(--text);background:var(--panel);border:1px solid var(--line);border-radius:6px;
padding:5px 12px}
textarea{display:block;width:100%%;max-width:88ch}
button{cursor:pointer}
.faint{color:var(--faint);font-weight:400}
article{margin:0 0 22px}
h3{font-size:16px;margin:14px 0 4px}
.marked{font-size:17px;line-height:2;max-width:none}
.marked span{border-radius:3px;padding:3px 1px}
pre{background:var(--panel);border-radius:8px;padding:12px 16px;overflow-x:auto;
font:13px/1.5 ui-monospace,"DejaVu Sans Mono",%s,monospace}
details{margin:12px 0}
summary{cursor:pointer}
.row{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(420px,100%%),1fr));gap:12px 28px;align-items:start}
.row>div{min-width:0}
.plot{display:block;width:100%%;height:auto;margin:10px 0}
.plot text{font-size:12px;fill:var(--faint)}
.plot text.name{fill:var(--text);font-size:13px}
.plot .grid{stroke:var(--line);stroke-width:1}
.plot .axis{stroke:var(--faint);stroke-width:1}
.plot .mark{stroke:var(--faint);stroke-width:1.5;stroke-dasharray:5 4}
.plot path.line{fill:none;stroke-width:2;stroke-linejoin:round}
%s
@media print{body{max-width:none;padding:0}details{display:block}}
"""


def _variables(colours: tuple[str, ...]) -> str:
    return "".join(f"--c{i}:{colour};" for i, colour in enumerate(colours))


_CLASSES = "\n".join(
    f".plot .c{i}{{fill:var(--c{i});stroke:none}}.plot path.line.c{i}{{fill:none;stroke:var(--c{i})}}"
    for i in range(COLOURS)
)
STYLE = _BASE % (_variables(_DAY), _variables(_NIGHT), *[_CHINESE] * 3, _CLASSES)


# -- text whose parts are shaded by their contribution ---------------------------------------------

STRONGEST = 75  # percent of the colour, for the part that contributes most


@dataclass(frozen=True)
class MarkedPart:
    """A part of a text, what it contributes, and whether it follows the one before without a blank."""

    text: str
    value: float
    joined: bool


def marked_text(parts: Sequence[MarkedPart], most: float) -> Html:
    """A paragraph of the parts, shaded blue where they speak for and orange where against, the stronger the nearer to
    `most`. Pointing at a part shows its value."""
    spans = []
    for part in parts:
        share = round(min(abs(part.value) / most, 1.0) * STRONGEST) if most else 0
        style = f"background:color-mix(in srgb,var(--c{0 if part.value > 0 else 1}) {share}%,transparent)"
        span = element("span", part.text, style=style if share else None, title=f"{part.value:+.4f}")
        spans.append(span if part.joined else joined(" ", span))
    return element("p", *spans, class_="marked")
