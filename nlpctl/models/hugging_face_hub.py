"""Models of the Hugging Face hub: hf:ORG/NAME@REVISION, downloaded by huggingface_hub into its own cache.

HF_ENDPOINT (a mirror), HF_TOKEN, HF_HOME and HF_HUB_OFFLINE are that library's, and mean what they mean everywhere.
A model is data to nlpctl: no code of a repository is downloaded, and none is run.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from nlpctl import console
from nlpctl.config.hub_names import HF_PREFIX, HuggingFaceName
from nlpctl.config.schema import Recipe, with_value
from nlpctl.config.sentence_folder import LENGTHS
from nlpctl.errors import UserError
from nlpctl.files import json_of, write_json_atomic, write_text_atomic
from nlpctl.layout import ADAPTER, EXPORT_MANIFEST, MERGE_ADAPTER, TASK
from nlpctl.runtime.cache import refuse_unreadable_variables
from nlpctl.upstream.downloaded_names import names_in_the_cache

# What is read in the folder of a model, and in those of the layers that sentence-transformers puts behind it.
_SMALL = (
    *("config.json", "model_config.json", ADAPTER),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt"),
    *("spiece.model", "spm.model", "sentencepiece.bpe.model", "tokenizer.model"),
    *("modules.json", "config_sentence_transformers.json", *LENGTHS),
)
_WEIGHTS = ("model.safetensors", "model_state.pdparams", "pytorch_model.bin")  # the first that is there
# What a model folder or an export of nlpctl holds, beside weights: configs, tokenizer files, terms and words, graphs.
_OWN = (".json", ".yaml", ".txt", ".tsv", ".dic", ".bpe", ".vocab", ".model", ".pdmodel", ".md")
_LAYER = re.compile(r"\d+_\w+")  # a folder of sentence-transformers, such as 1_Pooling
_ANSWER_SECONDS = 10.0  # for the hub to answer a question; downloads have the library's own limits


@functools.cache
def snapshot_folder(text: str) -> Path:
    """The folder of the files that `text` (hf:ORG/NAME@REVISION) names, in the cache. Downloads what is missing.

    One process asks once for each name, so that all of it reads the same commit. A commit that nlpctl has downloaded
    is not asked for: what other programs leave in the cache may lack files, such as modules.json, without which vectors
    are others. Where the hub does not answer, the commit is taken that the cache knows the revision by.
    UserError: no such name or revision, no access, no network, no weights.
    """
    name = HuggingFaceName.of(text)
    refuse_unreadable_variables(os.environ)
    cached = _cached(name)
    if name.is_commit and cached is not None and _listed(cached):
        return cached
    import huggingface_hub as hub
    from huggingface_hub import constants, errors, utils

    if not sys.stderr.isatty():
        utils.disable_progress_bars()
    try:
        info = hub.HfApi().model_info(name.repository, revision=name.revision, timeout=_ANSWER_SECONDS)
        fixed, there = _commit_and_files(name, info)
    except errors.RevisionNotFoundError as error:
        raise _unavailable(name, error) from error
    except Exception as error:  # of the library, its HTTP client or the system, by version and weather
        if cached is None:
            raise _unavailable(name, error) from error
        if not constants.HF_HUB_OFFLINE:
            console.warn(f"{name}: the hub did not answer ({_reason(error)}); the files in the cache are taken")
        if _listed(cached) is None:
            console.warn(
                f"{name}: nlpctl did not download it, or not to the end: files may be missing in the cache, such as "
                "modules.json, which says how vectors are made; name it once while the hub answers"
            )
        return cached
    files = wanted_files(there)
    weights = [file for file in files if _is_weights(file)]
    if not any("/" not in file for file in weights) and EXPORT_MANIFEST not in files:
        _refuse_without_weights(name, there)
    folder = _cached(fixed)
    if folder is None or not _listed(folder):
        console.note(f"downloading {fixed}")
        folder = _download(name, str(fixed.revision), files)
    with contextlib.suppress(OSError):  # of a cache that is complete, and read-only
        if not _listed(folder):
            write_json_atomic(_list_of(folder), there)
        if not name.is_commit:  # by which the cache knows the revision when the hub does not answer
            write_text_atomic(folder.parent.parent / "refs" / (name.revision or "main"), str(fixed.revision))
    return folder


def _commit_and_files(name: HuggingFaceName, info: Any) -> tuple[HuggingFaceName, list[str]]:
    """What the hub says of a repository. ValueError where it cannot be, since these become names of files here."""
    fixed = HuggingFaceName(name.repository, str(info.sha))
    there = [each.rfilename for each in info.siblings or ()]
    if not fixed.is_commit:
        raise ValueError(f"the hub names a commit that is none: {str(info.sha)[:60]!r}")
    if bad := [file for file in there if not isinstance(file, str)]:
        raise ValueError(f"the hub names a file that is none: {bad[0]!r}")
    return fixed, there


def wanted_files(files: Iterable[str]) -> list[str]:
    """Those of a repository's files that are downloaded: of an export or a model of nlpctl what those hold, else what
    a model folder is read from, with its weights in one format. No code."""
    paths = sorted(file for file in files if ".." not in file.split("/") and not file.startswith(("/", ".")))
    if EXPORT_MANIFEST in paths or TASK in paths:
        return [path for path in paths if path.endswith(_OWN) or _is_weights(path)]
    folders: dict[str, list[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name)
    wanted = []
    for folder, names in sorted(folders.items()):
        if not folder or _LAYER.fullmatch(folder):
            taken = {*_SMALL, *_weights_of(names)}
            wanted += [f"{folder}/{name}".lstrip("/") for name in names if name in taken]
    return wanted


def _weights_of(names: list[str]) -> list[str]:
    """The names of one set of weights, whole or in shards with their index."""
    for whole in _WEIGHTS:
        if whole in names:
            return [whole]
        stem, _, ending = whole.rpartition(".")
        if f"{whole}.index.json" in names:
            return [f"{whole}.index.json", *(n for n in names if re.fullmatch(rf"{stem}-\d+-of-\d+\.{ending}", n))]
    return []


def _is_weights(file: str) -> bool:
    return file.endswith((".safetensors", ".pdparams", ".bin", ".onnx", ".pdiparams"))


def _download(name: HuggingFaceName, commit: str, files: list[str]) -> Path:
    import huggingface_hub as hub

    patterns = [glob.escape(file) for file in files]
    try:
        with names_in_the_cache():
            return Path(hub.snapshot_download(name.repository, revision=commit, allow_patterns=patterns))
    except Exception as error:
        raise _unavailable(name, error) from error


def _cached(name: HuggingFaceName) -> Path | None:
    """The folder of `name` in the cache; None if it is not there, or known not to be whole."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    # Not by snapshot_download: what it calls whole depends on its version and on the files that were asked for before.
    repository = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=name.repository, repo_type="model")
    try:
        revision = name.revision or "main"
        commit = revision if name.is_commit else (repository / "refs" / revision).read_text().strip()
    except OSError:
        return None
    folder = repository / "snapshots" / commit
    if not commit or not folder.is_dir():
        return None
    listed = _listed(folder)
    return folder if (_has_weights(folder) if listed is None else listed) else None


def _list_of(folder: Path) -> Path:
    """Where all files of a commit are noted, once what nlpctl wants of them is in `folder`, its snapshot."""
    return folder.parent.parent / "nlpctl" / f"{folder.name}.json"


def _listed(folder: Path) -> bool | None:
    """Whether all is in a snapshot that nlpctl wants of the commit; None if it never downloaded it."""
    try:
        there = [str(name) for name in json_of(_list_of(folder))]
    except (OSError, ValueError, TypeError):
        return None
    return all((folder / file).is_file() for file in wanted_files(there))


def _has_weights(folder: Path) -> bool:
    """Whether the weights in a snapshot of another program, or of a download that broke off, are whole."""
    if (folder / EXPORT_MANIFEST).is_file():
        return any(_is_weights(file.name) for file in folder.iterdir())
    for whole in _WEIGHTS:
        if (folder / whole).is_file():
            return True
        if (folder / f"{whole}.index.json").is_file():
            try:
                shards = set(json_of(folder / f"{whole}.index.json")["weight_map"].values())
                return all((folder / shard).is_file() for shard in shards)
            except (OSError, ValueError, TypeError, KeyError, AttributeError):  # its reader says what is wrong with it
                return True
    return False


# -- what a run began with -----------------------------------------------------------------------------


def with_commit(recipe: Recipe, began: Callable[[], Recipe | None]) -> Recipe:
    """`recipe` with the commit in the name of a model of the hub, so that a run can be repeated from its recipe.yaml.

    `began` gives the recipe of a run that goes on, None of a new one. The commit that it began with is kept, whatever
    the branch is at now.
    """
    text = recipe.model.name_or_path
    if text is None or not text.startswith(HF_PREFIX) or (name := HuggingFaceName.of(text)).is_commit:
        return recipe
    before = began()
    earlier = None if before is None else before.model.name_or_path
    if earlier is None or not earlier.startswith(f"{HF_PREFIX}{name.repository}@"):
        earlier = str(HuggingFaceName(name.repository, snapshot_folder(text).name))
    return with_value(recipe, "model.name_or_path", earlier)


# -- what went wrong -------------------------------------------------------------------------------------


def _unavailable(name: HuggingFaceName, error: Exception) -> UserError:
    """What the user can do about an error of huggingface_hub."""
    from huggingface_hub import constants, errors

    where, endpoint = str(name), constants.ENDPOINT
    by_hand = f"or put its files into the cache {constants.HF_HUB_CACHE} (HF_HOME), or into a folder, and give its path"
    causes = list(_causes(error))

    def is_a(*kinds: Any) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    if is_a(errors.RevisionNotFoundError):
        hint = f"{endpoint}/{name.repository} lists its branches, tags and commits; without @REVISION it is main"
        return UserError(f"has no revision {name.revision or 'main'}", where, hint)
    if is_a(errors.GatedRepoError):
        hint = f"accept its terms on {endpoint}/{name.repository}, and set HF_TOKEN to a token of yours"
        return UserError("this model wants its terms to be accepted by you", where, hint)
    if is_a(errors.RepositoryNotFoundError):
        hint = f"check the name on {endpoint}; for a private one set HF_TOKEN"
        return UserError("there is no such model on the hub, or it is private", where, hint)
    if is_a(errors.OfflineModeIsEnabled):
        hint = f"unset HF_HUB_OFFLINE to download it, {by_hand}"
        return UserError("is not in the cache, and HF_HUB_OFFLINE forbids to download it", where, hint)
    for cause in causes:
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if status in (401, 403):
            return UserError(f"the hub refuses access ({status})", where, "set HF_TOKEN to a token that may read it")
    if is_a(json.JSONDecodeError):  # of a proxy, or a page on which to sign in to the network
        hint = f"set HF_ENDPOINT to a hub; if it is one, look whether this network wants you to sign in; {by_hand}"
        return UserError(f"the answer of {endpoint} is not JSON", where, hint)
    full = next((each for each in causes if isinstance(each, OSError) and each.errno is not None), None)
    if full is not None and full.filename is not None:
        hint = "free space on this disk, or choose another folder with HF_HOME"
        return UserError(f"cannot be written: {full.strerror}", str(full.filename), hint)
    hint = f"check the network and try again: what has arrived is kept; a mirror is set by HF_ENDPOINT; {by_hand}"
    return UserError(f"cannot be downloaded from {endpoint} ({_reason(error)})", where, hint)


def _refuse_without_weights(name: HuggingFaceName, files: list[str]) -> NoReturn:
    found = [file for file in files if file.endswith((".h5", ".msgpack", ".onnx", ".gguf", ".ot", ".pt", ".ckpt"))]
    if ADAPTER in files:
        message, hint = "is an adapter of PEFT, which has no weights of its own", MERGE_ADAPTER
    else:
        message = "this repository has no weights that nlpctl reads"
        message += f", only {', '.join(found[:3])}" if found else ""
        hint = f"take another one: it needs one of {', '.join(_WEIGHTS)}"
    raise UserError(message, str(name), hint)


def _causes(error: BaseException | None) -> Iterable[BaseException]:
    """`error`, and what it came from."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return seen


def _reason(error: Exception) -> str:
    """The first error's kind and first line; the library wraps it in advice of its own."""
    cause = list(_causes(error))[-1]
    return f"{type(cause).__name__}: {(str(cause).splitlines() or [''])[0][:120]}"


