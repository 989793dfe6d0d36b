"""Small PaddleNLP networks with random parameters, saved in every static format that Paddle 2.x writes.

Used by check_static_round_trips.py and by the tests.
"""

from __future__ import annotations

import contextlib
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import nlpctl  # noqa: F401  (before paddle: see nlpctl/__init__.py)

# isort: split
import numpy as np
import paddle
from paddle.static import InputSpec
from paddlenlp import transformers
from paddlenlp.transformers import PretrainedModel

from nlpctl.upstream.roberta_tagger import translatable

FAMILIES = ("Ernie", "Bert", "Roberta", "Electra")
HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering")
LABELS = 5
INPUTS = ("input_ids", "token_type_ids")
VOCABULARY = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *"一二三四五六七八九十百千万上下大小中人口手日月水火山石"]


@dataclass(frozen=True)
class Original:
    """A dygraph network, the model folder it was saved to, and its parameters by name."""

    network: paddle.nn.Layer
    model: Path
    parameters: Mapping[str, np.ndarray]

    def outputs(self, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """What it answers, in evaluation."""
        with paddle.no_grad():
            outputs = self.network(**{name: paddle.to_tensor(array) for name, array in feed.items()})
        return [each.numpy() for each in (outputs if isinstance(outputs, tuple | list) else (outputs,))]


def build(family: str, head: str, layers: int = 2) -> paddle.nn.Layer:
    """A small network of the class; its parameters are named as in a new process."""
    config = vars(transformers)[f"{family}Config"](
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        embedding_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        type_vocab_size=2,
        pad_token_id=0,
        num_labels=LABELS if head != "QuestionAnswering" else 2,
    )
    with paddle.utils.unique_name.guard():
        return translatable(vars(transformers)[f"{family}For{head}"])(config)


def make_original(folder: Path, family: str, head: str, seed: int) -> Original:
    """Build, give every parameter values of its own (a new layer norm is all ones), save as PaddleNLP does."""
    random = np.random.default_rng(seed)
    network = build(family, head)
    network.eval()
    for parameter in network.parameters():
        parameter.set_value(random.normal(0, 0.3, parameter.shape).astype("float32"))
    network.save_pretrained(str(folder))
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in VOCABULARY), encoding="utf-8")
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    return Original(network, folder, state)


@contextlib.contextmanager
def static_mode() -> Iterator[None]:
    paddle.enable_static()
    try:
        yield
    finally:
        paddle.disable_static()


def save_jit(original: Original, folder: Path) -> None:
    """paddle.jit.save: model.pdmodel, model.pdiparams, model.pdiparams.info."""
    specs = [InputSpec([None, None], "int64", name) for name in INPUTS]
    static = paddle.jit.to_static(original.network.forward, input_spec=specs, full_graph=True)
    paddle.jit.save(static, str(folder / "model"), input_spec=specs)
    vars(original.network).pop("forward", None)


def save_static(original: Original, writer: Callable, folder: Path) -> None:
    """Build the network in static mode with the parameters of `original`, and let `writer` save the program.

    `writer(executor, program, feeds, fetches, folder)`.
    """
    family, _, head = type(original.network).__name__.partition("For")
    folder.mkdir(parents=True)
    with static_mode():
        program, start, scope = paddle.static.Program(), paddle.static.Program(), paddle.static.Scope()
        with paddle.static.scope_guard(scope), paddle.static.program_guard(program, start):
            # PaddleNLP 2.8.1 cannot initialise RoBERTa and ELECTRA in static mode, which sets the epsilons of layer
            # norms too; values and epsilons come from `original`.
            with mock.patch.object(PretrainedModel, "_initialize_weights", lambda self, layer: None):
                network = build(family, head)
            for layer, same in zip(network.sublayers(), original.network.sublayers(), strict=True):
                if isinstance(layer, paddle.nn.LayerNorm):
                    layer._epsilon = same._epsilon
            network.eval()
            feeds = [paddle.static.data(name, [None, None], "int64") for name in INPUTS]
            outputs = network(*feeds)
            fetches = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
            executor = paddle.static.Executor(paddle.CPUPlace())
            executor.run(start)
            for name, parameter in network.state_dict().items():
                scope.var(parameter.name).get_tensor().set(original.parameters[name], paddle.CPUPlace())
            writer(executor, program, feeds, fetches, folder)


def write_inference(executor, program, feeds, fetches, folder: Path) -> None:
    """paddle.static.save_inference_model."""
    paddle.static.save_inference_model(str(folder / "model"), feeds, fetches, executor, program=program)


def write_program_state(executor, program, feeds, fetches, folder: Path) -> None:
    """paddle.static.save: model.pdparams, model.pdopt, model.pdmodel."""
    paddle.static.save(program, str(folder / "model"))


def write_variables(executor, program, feeds, fetches, folder: Path) -> None:
    """One file per variable, as save_persistables of Paddle 1.x."""
    paddle.static.io.save_vars(executor, str(folder), program, predicate=lambda variable: variable.persistable)


def write_one_file(executor, program, feeds, fetches, folder: Path) -> None:
    """__model__ and __params__."""
    kept = paddle.static.normalize_program(program, feeds, fetches).global_block().vars
    (folder / "__model__").write_bytes(paddle.static.serialize_program(feeds, fetches, program=program))
    variables = [each for each in program.list_vars() if each.persistable and each.name in kept]
    paddle.static.io.save_vars(executor, str(folder), program, vars=variables, filename="__params__")


def save_all(original: Original, folder: Path) -> dict[str, Path]:
    """Every format: name to what `nlpctl convert-static` is given."""
    save_jit(original, folder / "jit")
    for name, writer in {
        "save_inference_model": write_inference,
        "static.save": write_program_state,
        "file per variable": write_variables,
        "__model__ and __params__": write_one_file,
    }.items():
        save_static(original, writer, folder / name)
    shutil.copytree(folder / "jit", folder / "jit without info")
    (folder / "jit without info" / "model.pdiparams.info").unlink()
    arrays = _by_internal_name(original)
    np.savez(folder / "variables.npz", **arrays)
    (folder / "npy").mkdir()
    for name, array in arrays.items():
        np.save(folder / "npy" / f"{name}.npy", array)
    with tarfile.open(folder / "jit.tar.gz", "w:gz") as archive:
        archive.add(folder / "jit", "exported")
    with zipfile.ZipFile(folder / "inference.zip", "w") as archive:
        for file in sorted((folder / "save_inference_model").iterdir()):
            archive.write(file, f"exported/{file.name}")
    names = ["jit", "jit without info", "save_inference_model", "static.save", "file per variable",
             "__model__ and __params__", "variables.npz", "npy", "jit.tar.gz", "inference.zip"]  # fmt: skip
    return {name: folder / name for name in names}


def _by_internal_name(original: Original) -> dict[str, np.ndarray]:
    return {value.name: value.numpy() for value in original.network.state_dict().values()}
