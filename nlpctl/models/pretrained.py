"""Encoders to start from: which of those in pretrained.yaml can be had here. Imports neither Paddle nor NumPy."""

from __future__ import annotations

import functools
import os
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from nlpctl.config.hub_names import HF_PREFIX
from nlpctl.data.text.word_spans import is_ideograph
from nlpctl.errors import UserError
from nlpctl.models.source import read_config, resolve_source
from nlpctl.report.language import Later, later
from nlpctl.runtime.cache import cache_folder

ENTRIES = Path(__file__).with_name("pretrained.yaml")
HUB = "https://bj.bcebos.com"  # where PaddleNLP downloads from
ANY = "any"
_SECONDS = 3.0  # for the hub to answer
_CHINESE, _LATIN = 0.3, 0.9  # shares of the letters
_BASE_WIDTH = 768

State = Literal["here", "hub"]


@dataclass(frozen=True)
class Encoder:
    """An encoder by the name that a recipe gives it; `width` of its hidden states, None if unknown."""

    name: str
    language: str
    width: int | None
    small: bool
    about: Later

    @property
    def learning_rate(self) -> float:
        """A usual peak for fine-tuning: small encoders need more."""
        return 3e-5 if self.width is None or self.width >= _BASE_WIDTH else 5e-5


@functools.cache
def known_encoders() -> tuple[Encoder, ...]:
    """Those of pretrained.yaml, in its order."""
    entries = yaml.safe_load(ENTRIES.read_text(encoding="utf-8"))
    return tuple(
        Encoder(name, entry["language"], entry["size"][1], entry.get("small", False), later(entry["about"]))
        for name, entry in entries.items()
    )


def language_of(texts: Iterable[str]) -> str:
    """zh, en or any, by the letters: Chinese where a third of them are; en stands for everything in plain Latin."""
    letters = [character for text in texts for character in text if character.isalpha()]
    if not letters:
        return ANY
    if sum(map(is_ideograph, letters)) >= _CHINESE * len(letters):
        return "zh"
    return "en" if sum(character.isascii() for character in letters) >= _LATIN * len(letters) else ANY


def available(language: str, small: bool) -> tuple[Encoder, State] | None:
    """The best encoder for texts of `language`: one that lies here, else one of the hub if it answers; None: there
    is none. `small`: prefer one that a CPU trains quickly."""
    fitting = sorted(
        (encoder for encoder in known_encoders() if encoder.language in (language, ANY)),
        key=lambda encoder: (encoder.language == ANY, encoder.small is not small),
    )
    here = next((encoder for encoder in fitting if lies_here(encoder.name)), None)
    if here is not None:
        return here, "here"
    hub = next((encoder for encoder in fitting if ":" not in encoder.name), None)
    return (hub, "hub") if hub is not None and hub_answers() else None


def named_encoder(name: str) -> tuple[Encoder, State]:
    """The encoder that a user names: of pretrained.yaml, a folder, or any name of the hub.

    UserError: there is no such folder, something is missing in it, or its tokenizer cannot be used.
    """
    known = next((encoder for encoder in known_encoders() if encoder.name == name), None)
    if known is not None:
        return known, _place(name)
    source = resolve_source(name)
    if source.folder is None:
        return Encoder(name, ANY, None, False, later("a model of PaddleNLP's hub")), _place(name)
    from nlpctl.models.tokenizer import check_tokenizer  # the tokenizers library takes a while to import

    check_tokenizer(source.folder)
    width = read_config(source.folder).get("hidden_size")
    about = later("from the Hugging Face hub" if name.startswith(HF_PREFIX) else "a folder of yours")
    return Encoder(name, ANY, width if isinstance(width, int) else None, False, about), "here"


def _place(name: str) -> State:
    return "here" if lies_here(name) else "hub"


def lies_here(name: str) -> bool:
    """Whether the files of a model are on this machine: a folder, a package, or PaddleNLP's cache."""
    try:
        source = resolve_source(name)
    except UserError:
        return False
    cached = cache_folder(os.environ) / "models" / name
    return source.folder is not None or (any(cached.glob("*.pdparams")) and any(cached.glob("*vocab*")))


def hub_answers() -> bool:
    """Whether PaddleNLP's hub can be reached, by the proxy of the environment if there is one."""
    try:
        with urllib.request.urlopen(urllib.request.Request(HUB, method="HEAD"), timeout=_SECONDS):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500 and error.code != 407  # it answered; 407: the proxy refuses
    except (OSError, ValueError):
        return False
