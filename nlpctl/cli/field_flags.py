"""Every TrainingArguments and CompressionArguments field as a flag, removed from argv before Typer sees it.

A hundred declared options would make help useless and parsing slow; here they are one table lookup.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nlpctl.config.coerce import ALL, FALSE, TRUE
from nlpctl.config.keys import CUTOFF, Key, all_keys
from nlpctl.config.load import Override
from nlpctl.errors import Problem, UserError
from nlpctl.names import nearest
from nlpctl.spelling import SHORTHANDS

TRAINING, COMPRESSION = "training", "compression"
_NUMBER = re.compile(r"-(\d|\.\d)")


@functools.cache
def field_flags(section: str = TRAINING) -> Mapping[str, Key]:
    """Flag name (without dashes) -> the key it sets. `--device` is runtime.device, not training.device.

    `section`: that of a key which training and compression both have, such as criterion.
    """
    keys = all_keys()
    both = [key for key in keys.values() if re.fullmatch(r"(training|compression)\.\w+", key.dotted)]
    both.sort(key=lambda key: key.dotted.startswith(f"{section}."))  # the last of a name stays
    fields = {key.name: key for key in both}
    return fields | {flag: keys[dotted] for flag, dotted in SHORTHANDS.items()}


def take_overrides(
    args: Sequence[str], own: Mapping[str, int], positionals: int, section: str = TRAINING
) -> tuple[list[str], list[Override]]:
    """Split argv into the words for Typer and the overrides.

    `own`: the command's own options with the number of words each takes; they win over fields of the same name.
    `positionals`: how many positional arguments the command requires. `section`: as in field_flags.
    Raises UserError that lists every unknown flag and every flag without its value.
    """
    reader = _Reader(list(args), own, field_flags(section))
    reader.read()
    if reader.problems:
        raise UserError(problems=reader.problems)
    reader.give_back(positionals)
    overrides = [
        Override(each.key, each.words[0] if len(each.words) == 1 else tuple(each.words), each.flag)
        for each in reader.taken
    ]
    return reader.words, overrides


@dataclass
class _Taken:
    """A flag that is taken out of the arguments, with the words of its value."""

    key: str
    words: list[str]
    flag: str
    greedy: bool = False  # a list flag takes all words after it, perhaps one too many
    place: int = 0  # number of Typer's words before it


@dataclass
class _Reader:
    """Sorts `args`, from which it takes words until none is left, into `words` for Typer and `taken` flags."""

    args: list[str]
    own: Mapping[str, int]
    fields: Mapping[str, Key]
    words: list[str] = field(default_factory=list)
    taken: list[_Taken] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    positional_count: int = 0

    def read(self) -> None:
        """Sort all arguments. What follows `--` is no flag."""
        while self.args:
            word = self.args.pop(0)
            if word == "--":
                self.words += [word, *self.args]
                self.positional_count += len(self.args)
                return
            if word.startswith("--"):
                self._flag(word)
            elif word.startswith("-") and word != "-":
                self.words.append(word)
                self._pass_on(self.own.get(word, 0))
            else:
                self.words.append(word)
                self.positional_count += 1

    def give_back(self, positionals: int) -> None:
        """`--width_mult_list 3/4 1/2 recipe.yaml`: the last word is the recipe if none was given elsewhere."""
        for taken in reversed(self.taken):
            missing = min(positionals - self.positional_count, len(taken.words) - 1)
            if taken.greedy and missing > 0:
                self.words[taken.place : taken.place] = taken.words[-missing:]
                del taken.words[-missing:]
                self.positional_count += missing

    def _flag(self, word: str) -> None:
        name, equals, value = word[2:].partition("=")
        spelling = self._own_spelling(name)
        if spelling is not None:
            self.words.append(f"{spelling}={value}" if equals else spelling)
            self._pass_on(0 if equals else self.own[spelling])
        elif name == "set":
            self._set(value if equals else None)
        else:
            self._field(name, value if equals else None)

    def _own_spelling(self, name: str) -> str | None:
        """The option of the command that `name` means, with - or _ between its words; None if it has none."""
        for spelling in (f"--{name}", f"--{name.replace('_', '-')}", f"--{name.replace('-', '_')}"):
            if spelling in self.own:
                return spelling
        return None

    def _pass_on(self, count: int) -> None:
        """Move the next words, the values of an option of the command, to Typer's."""
        self.words += self.args[:count]
        del self.args[:count]

    def _set(self, text: str | None) -> None:
        if text is None:
            text = self.args.pop(0) if self.args else ""
        key, equals, value = text.partition("=")
        if not equals or not key:
            self._problem("--set", f"{text!r} is not of the form key=value", "--set data.max_seq_length=256")
        else:
            self.taken.append(_Taken(key.strip(), [value], f"--set {key.strip()}"))

    def _field(self, name: str, value: str | None) -> None:
        flag, plain = f"--{name}", name.replace("-", "_")
        key, negated = self.fields.get(plain), False
        if key is None and plain.startswith("no_"):
            key, negated = self.fields.get(plain.removeprefix("no_")), True
        if key is None or (negated and key.scalar is not bool):
            self._problem(flag, "there is no such flag", self._unknown_hint(plain))
        elif negated and value is not None:
            self._problem(flag, "takes no value", f"write --{key.name} {value}")
        elif key.scalar is bool:
            text = "false" if negated else value
            if text is None:  # a bare --fp16: the next word if it is a truth value, else true
                text = self.args.pop(0) if self.args and self.args[0].lower() in TRUE | FALSE else "true"
            self.taken.append(_Taken(key.dotted, [text], flag))
        elif value is not None:
            self.taken.append(_Taken(key.dotted, [value], flag))
        elif not self.args or _is_flag(self.args[0]):
            hint = f"write {flag} VALUE, where VALUE is {key.type_text}"
            self._problem(flag, "needs a value", hint if not self.args else f"{hint} ({flag}={self.args[0]} if meant)")
        else:
            words = [self.args.pop(0)]
            # Texts with a comma are the whole list: what follows --labels neg,pos is the model.
            whole = key.item is str and not key.choices and "," in words[0] and not words[0].endswith(",")
            while key.item is not None and not whole and self.args and _continues(key, self.args[0]):
                words.append(self.args.pop(0))
            self.taken.append(_Taken(key.dotted, words, flag, greedy=True, place=len(self.words)))

    def _unknown_hint(self, plain: str) -> str:
        """What a user who typed --`plain` most likely wants."""
        elsewhere = [dotted for dotted in all_keys() if dotted.endswith(f".{plain}")]
        if elsewhere:
            return f"this key is set by --set {elsewhere[0]}=VALUE"
        own = [option.lstrip("-").replace("-", "_") for option in self.own]
        similar = similar_fields(plain, own)
        if similar:
            return f"did you mean {' or '.join(f'--{name}' for name in similar)}?"
        return "--help lists the options of this command, `nlpctl recipe flags` the keys of recipes that are flags"

    def _problem(self, flag: str, message: str, hint: str) -> None:
        self.problems.append(Problem(message, where=flag, hint=hint))


def similar_fields(plain: str, own: Sequence[str] = ()) -> list[str]:
    """TrainingArguments fields that have these initials (lr) or hold all words of `plain` (epochs); without any, the
    field that is spelt most like it, or one of the command's `own` options."""
    fields = [name for name, key in field_flags().items() if key.dotted.startswith("training.")]
    words = set(plain.split("_"))
    holding = [name for name in fields if words <= set(name.split("_"))]
    initials = [name for name in fields if "".join(word[0] for word in name.split("_")) == plain]
    near = nearest(plain, [*field_flags(), *own], CUTOFF)
    return [*initials, *holding][:3] or ([near] if near else [])


def _continues(key: Key, word: str) -> bool:
    """Whether `word` can be one more value of the list `key`."""
    parts = word.split(",")
    if key.choices:
        return all(part in key.choices for part in parts)
    if key.item is int:
        return all(part.strip().isdigit() or (key.all_item and part.strip().lower() in ALL) for part in parts)
    return not _is_flag(word)


def _is_flag(word: str) -> bool:
    """Whether `word` is a flag: neither - (standard input) nor a negative number."""
    return word.startswith("-") and word != "-" and not _NUMBER.match(word)
