"""What a terminal shows of what was written to it."""

from __future__ import annotations

import re


def screen(text: str) -> list[str]:
    """The lines that a very wide terminal shows in the end, without colours; each bar is in one line of a real one."""
    lines, column = [""], 0
    for part in re.split(r"(\r\n|\r|\033\[K)", re.sub(r"\033\[\d*m", "", text)):
        if part == "\r\n":
            lines.append("")
            column = 0
        elif part == "\r":
            column = 0
        elif part == "\033[K":
            lines[-1] = lines[-1][:column]
        else:
            lines[-1] = lines[-1][:column] + part + lines[-1][column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in lines]
