"""Models by name: built-in and community models of PaddleNLP, through its own cache.

Files lie in PPNLP_HOME/models/NAME (runtime.cache_dir) and are downloaded where they are missing. nlpctl reads the
weights itself, not by from_pretrained: a downloaded pickle is untrusted too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.errors import UserError
from nlpctl.files import read_json
from nlpctl.models.families import Family, family_of_config, family_of_hub_name, known_hub_names
from nlpctl.models.source import CONFIG_FILES, VOCABULARY_FILES
from nlpctl.models.tokenizer import load_tokenizer
from nlpctl.names import nearest


@dataclass(frozen=True)
class HubModel:
    """A model whose files lie in the cache."""

    family: Family
    config: dict[str, Any]
    weights_file: Path
    tokenizer: Any


def fetch(name: str) -> HubModel:
    """Find `name` in the cache or download it. Raises UserError when there is no such model or no network."""
    family = family_of_hub_name(name)
    if family is None:
        config = read_json(Path(_or_explain(name, lambda: _resolve(name, list(CONFIG_FILES)))))
        family = family_of_config(config, f"config.json of {name}")
    else:
        config = _or_explain(name, lambda: family.config_class.get_config_dict(name)[0])
    weights = _or_explain(name, lambda: family.encoder_class._resolve_model_file_path(name)[0])
    tokenizer = _or_explain(name, lambda: _tokenizer(name, family))
    return HubModel(family, dict(config), Path(weights), tokenizer)


def _tokenizer(name: str, family: Family) -> Any:
    """The tokenizer, from the cache if its files are there.

    AutoTokenizer would access the network even then, since it also looks for optional files (added_tokens.json).
    """
    from paddlenlp.transformers import AutoTokenizer
    from paddlenlp.utils.env import MODEL_HOME

    folder = Path(MODEL_HOME) / name
    # Loading from the folder keeps a machine without network usable once the cache is filled.
    cached = [file for file in VOCABULARY_FILES if (folder / file).is_file()]
    if cached and (folder / "tokenizer_config.json").is_file():
        return load_tokenizer(folder, family)
    tokenizer = AutoTokenizer.from_pretrained(name)
    with tempfile.TemporaryDirectory(prefix="nlpctl-tokenizer-") as saved:
        tokenizer.save_pretrained(saved)
        return load_tokenizer(Path(saved), family)


def _resolve(name: str, files: list[str]) -> str:
    from paddlenlp.utils.download import resolve_file_path

    file = resolve_file_path(name, files)
    if file is None:
        raise FileNotFoundError(f"{name} has no {' or '.join(files)}")
    return file


def _or_explain(name: str, step: Callable[[], Any]) -> Any:
    """Runs `step`. Turns any error of PaddleNLP while finding or downloading a model into one UserError."""
    try:
        return step()
    except UserError:
        raise
    except Exception as error:  # OSError, AssertionError, requests' and its own, by version and weather
        raise _unavailable(name, error) from error


def _root(error: BaseException) -> BaseException:
    """The original exception; PaddleNLP raises the same advice on top of every cause."""
    earlier = error.__cause__ or error.__context__
    return error if earlier is None else _root(earlier)


def _unavailable(name: str, error: Exception) -> UserError:
    from paddlenlp.utils.env import MODEL_HOME

    known = known_hub_names()
    cause = _root(error)
    reason = f"{type(cause).__name__}: {(str(cause).splitlines() or [''])[0][:120]}"
    remedy = (
        "without network: put the model's files into a folder and give its path, "
        f"or fill the cache {MODEL_HOME}/{name} (runtime.cache_dir chooses another)"
    )
    if name in known:
        return UserError(f"cannot be downloaded ({reason})", where=name, hint=remedy)
    near = nearest(name, known, cutoff=0.8)
    guess = f"did you mean {near}? Otherwise, " if near else ""
    return UserError(
        f"no such folder, no built-in model of PaddleNLP, and not found on its hub ({reason})",
        where=name,
        hint=guess + remedy,
    )
