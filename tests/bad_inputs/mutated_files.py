"""Small valid files of every foreign format, changed at random, and read in a process with little memory.

python mutated_files.py SEED COUNT [FORMAT ...] prints a line for every changed file whose reading is neither a good
result nor one UserError, or takes more than ROOM of memory or SECONDS. The same seed makes the same files.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import os
import pickle
import random
import re
import resource
import signal
import struct
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch_files import torch_legacy, torch_pickle, torch_zip

from nlpctl.errors import UserError

ROOM = 256 << 20  # bytes that reading one file of a few kilobytes may take; a small archive may become 64 MB
SECONDS = 30  # of the processor
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**40, 2**62, 2**63 - 1, 2**64 - 1)
WEIGHTS = {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.zeros(4, np.float16), "n": np.arange(5)}


class TooLong(BaseException):
    pass


# -- the formats: what writes a valid file, and what reads it ---------------------------------------


def _pickled(protocol: int) -> Callable[[Path], None]:
    return lambda file: file.write_bytes(pickle.dumps(WEIGHTS, protocol)) and None


def _state(file: Path) -> None:
    state = {**WEIGHTS, "LR_Scheduler": {"last_epoch": 3, "last_lr": 0.1}, "master_weights": {"w": WEIGHTS["w"]}}
    parts = {"v@@.0": np.arange(3.0), "v@@.1": np.arange(3.0, 4.0)}
    slices = {"UnpackBigParamInfor@@": {"v": {"OriginShape": (2, 2), "slices": ["v@@.0", "v@@.1"]}}}
    file.write_bytes(pickle.dumps({**state, **parts, **slices}, 2))


def _safetensors(file: Path) -> None:
    head = b'{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]},'
    head += b'"n":{"dtype":"I64","shape":[5],"data_offsets":[48,88]}}'
    file.write_bytes(struct.pack("<Q", len(head)) + head + WEIGHTS["w"].tobytes() + WEIGHTS["n"].tobytes())


def _raw_tensors(file: Path) -> None:
    one = struct.pack("<IQIi", 0, 0, 0, 6) + b"\x08\x05\x10\x03\x10\x04" + WEIGHTS["w"].tobytes()
    levels = struct.pack("<IQ3Q", 0, 1, 16, 0, 3) + struct.pack("<Ii", 0, 4) + b"\x08\x03\x10\x05"
    file.write_bytes(one + levels + WEIGHTS["n"].tobytes())


def _program(file: Path) -> None:
    from paddle.base.proto import framework_pb2

    desc = framework_pb2.ProgramDesc()
    for number in range(2):
        block = desc.blocks.add(idx=number, parent_idx=-1)
        variable = block.vars.add(name=f"w{number}", persistable=True)
        variable.type.type = 7  # LOD_TENSOR, which Paddle 3 calls DENSE_TENSOR
        described = variable.type.lod_tensor if hasattr(variable.type, "lod_tensor") else variable.type.dense_tensor
        described.tensor.data_type = framework_pb2.VarType.FP32
        described.tensor.dims.extend([3, 4])
        op = block.ops.add(type="while" if number == 0 else "scale")
        op.inputs.add(parameter="X", arguments=["w0", "w1"])
        op.attrs.add(name="sub_block", type=framework_pb2.BLOCK, block_idx=1)
        op.attrs.add(name="shape", type=framework_pb2.INTS, ints=[1, 2, 3])
    file.write_bytes(desc.SerializeToString())


def _npz(file: Path) -> None:
    from nlpctl.experiments.held_out import HeldOutProbabilities, write_probabilities

    write_probabilities(file, HeldOutProbabilities.from_rows([np.full((2, 2), 0.5), np.full((1, 2), 0.5)]), ["a", "b"])


def _tallies(file: Path) -> None:
    from nlpctl.tasks.tallies import make_tallies, save_tallies

    save_tallies(file, make_tallies("classes", ["a", "b"], np.eye(6)[:3], np.ones(3), ["x", "y", "z"]))


def _zip(file: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/w", bytes(300))
        archive.writestr("model/b", b"12345")


def _tar(kind: str) -> Callable[[Path], None]:
    def make(file: Path) -> None:
        with tarfile.open(file, f"w:{kind}") as archive:  # type: ignore[call-overload]
            for name in ("w", "model/" + "b" * 120):
                info = tarfile.TarInfo(name)
                info.size = 300
                archive.addfile(info, io.BytesIO(bytes(300)))

    return make


def _onnx(file: Path) -> None:
    from onnx import helper, numpy_helper
    from onnx_graphs import write_graph

    weights = [numpy_helper.from_array(np.ones((4, 4), np.float32), name) for name in "vw"]
    nodes = [
        helper.make_node("Mul", ["v", "w"], ["u"]),
        helper.make_node("Concat", ["u", "v"], ["t"], axis=1),
        helper.make_node("MatMul", ["x", "t"], ["logits"]),
    ]
    write_graph(file, nodes, weights, length=4)


def _index(kind: str) -> Callable[[Path], None]:
    def make(file: Path) -> None:
        from nlpctl.inference.index import new_index, save_index

        index = new_index(kind, 4)  # type: ignore[arg-type]
        index.add(np.random.default_rng(3).random((100, 4), np.float32))
        save_index(index, file.parent)
        (file.parent / "index.faiss").rename(file)

    return make


def _search(kind: str) -> Callable[[Path], Any]:
    def read(file: Path) -> Any:
        from nlpctl.inference.index import TextIndex
        from nlpctl.inference.index_folder import IndexManifest

        (file.parent / "index.faiss").unlink(missing_ok=True)
        os.link(file, file.parent / "index.faiss")
        (file.parent / "texts.jsonl").write_text('"a"\n' * 100, encoding="utf-8")
        index = TextIndex(file.parent, IndexManifest(kind, 100, 4, "", {}))  # type: ignore[arg-type]
        return index.search(np.ones((3, 4), np.float32), 5)

    return read


def _unpack(file: Path) -> None:
    from nlpctl.convert.archive import unpack

    with tempfile.TemporaryDirectory() as folder:
        unpack(file, Path(folder))


def _static(file: Path) -> Any:
    from nlpctl.convert.parameter_sets import kind_of

    kind_of(file)
    return read_tensors(file)


def read_tensors(file: Path) -> Any:
    from nlpctl.formats.lod_tensor import read_tensors

    return read_tensors(file)


def _lines(file: Path) -> int:
    from nlpctl.data.predict_input import InputFile, file_lines

    with InputFile(str(file), "jsonl").open() as stream:
        return sum(1 for _ in file_lines(stream, str(file), "jsonl"))


def _document(path: str, name: str, content: str) -> tuple[str, Callable[[Path], Any], Callable[[Path], Any]]:
    """A document of nlpctl's own, with entries of every kind that it may have."""

    def load(file: Path) -> Any:
        from importlib import import_module

        return getattr(import_module(path), name).load(file)

    return "a.json", lambda file: file.write_text(content, encoding="utf-8"), load


def _called(path: str, *names: str) -> Callable[[Path], Any]:
    def read(file: Path) -> Any:
        from importlib import import_module

        return [getattr(import_module(path), name)(file) for name in names]

    return read


WEIGHT_READERS = _called("nlpctl.formats.safe_pickle", "load_pdparams")
TORCH = _called("nlpctl.formats.torch_file", "load_torch_file")
RAW = WEIGHTS["w"].tobytes()

EXPORT_JSON = """{"format": 1, "task": "a", "inputs": [{"name": "x", "dtype": "int64", "shape": [null, 8]}],
"outputs": [], "max_seq_length": 8, "graphs": [{"format": "onnx", "precision": "fp32", "files": ["m.onnx"],
"method": null, "checks": [{"engine": "e", "precision": "fp32", "difference": Infinity, "agreement": 1.0}]}], "rows": 3,
"source": "m", "versions": {"paddle": "2"}, "speeds": {"conditions": {"processor": "p", "instruction_sets": ["avx"],
"device": "cpu", "threads": 2, "versions": {}, "cores": 2}, "rows_per_second": {"w": {"1": 2.5}}, "failed": {}},
"dev": {"metric": "f1", "rows": 9, "falling": false, "fp32": 0.5, "scores": {"w": 0.4}}, "sha256": {"m.onnx": "1"}}"""
CALIBRATION_JSON = """{"format": 1, "method": "temperature", "names": [], "scales": [0.7], "shifts": [0], "power": 0.5,
"split": "dev", "rows": 70, "ece": [0.2, 0.1], "ways": {"w": {"method": "logistic", "names": ["P", "L"],
"scales": [0.5, 2], "shifts": [0, 1], "power": 0, "split": "dev", "rows": 70, "ece": [0.2, 0.1]}}}"""
RUN_JSON = """{"format": 1, "state": "failed", "pid": 7, "host": "h", "started": "2026-01-02T03:04:05+00:00",
"ended": null, "error": "e", "resumed": [{"at": "2026-11-27T01:02:03+00:00", "was": "s"}], "processes": 2,
"command": ["nlpctl"], "data": {"a.tsv": "1"}, "functions": {"k": {"n": "1"}}, "skipped_rows": {"train": {"total": 0}},
"continues": {"run": "r", "checkpoint": "checkpoint-1", "best": null, "step": 1}}"""
STATE_JSON = """{"global_step": 8, "epoch": 1.5, "best_metric": 0.5, "best_model_checkpoint": "checkpoint-8",
"log_history": [{"loss": 0.5, "step": 4}, {"eval_loss": NaN, "step": 8}], "trial_params": null}"""
PLAN_JSON = """{"identity": {"a": [1]}, "engine": ["e", "fp32"], "shard_rows": 64, "ranges": [[0, 0, null, 1]],
"scanned": [[64, 0, [[9, 10]]]]}"""

FORMATS: dict[str, tuple[str, Callable[[Path], Any], Callable[[Path], Any]]] = {
    "pickle 2": ("a.pdparams", _pickled(2), WEIGHT_READERS),
    "pickle 4": ("a.pdparams", _pickled(4), WEIGHT_READERS),
    "pickle 5": ("a.pdparams", _pickled(5), WEIGHT_READERS),
    "state": ("a.pdopt", _state, _called("nlpctl.formats.safe_pickle", "load_state")),
    "notes": ("a.info", _state, _called("nlpctl.formats.array_files", "read_pickle")),
    "torch zip": ("a.bin", lambda file: torch_zip(file, torch_pickle(size=(6, 2), count=12), RAW), TORCH),
    "torch legacy": ("a.bin", lambda file: torch_legacy(file, torch_pickle(legacy=True), np.ones(4, "f4")), TORCH),
    "safetensors": ("a.safetensors", _safetensors, _called("nlpctl.models.weights", "read_safetensors")),
    "raw tensors": ("a", _raw_tensors, _static),
    "program": ("__model__", _program, _called("nlpctl.formats.program", "read_program")),
    "npy": ("a.npy", lambda file: np.save(file, WEIGHTS["w"]), _called("nlpctl.formats.array_files", "read_numpy")),
    "npz": ("a.npz", _npz, _called("nlpctl.experiments.held_out", "read_probabilities")),
    "tallies": ("a.npz", _tallies, _called("nlpctl.tasks.tallies", "load_tallies")),
    "zip": ("a.zip", _zip, _unpack),
    "tar": ("a.tar", _tar(""), _unpack),
    "tar.gz": ("a.tar.gz", _tar("gz"), _unpack),
    "tar.xz": ("a.tar.xz", _tar("xz"), _unpack),
    "onnx": ("a.onnx", _onnx, _called("nlpctl.graphs.onnx_graph", "read_graph")),
    "flat index": ("a.faiss", _index("flat"), _search("flat")),
    "hnsw index": ("a.faiss", _index("hnsw"), _search("hnsw")),
    "export.json": _document("nlpctl.models.export_folder", "ExportManifest", EXPORT_JSON),
    "calibration.json": _document("nlpctl.models.calibration", "Calibration", CALIBRATION_JSON),
    "labels.json": _document("nlpctl.models.folder", "LabelsFile", '{"labels": ["a", "b"], "thresholds": [0.5, 0.25]}'),
    "manifest.json": _document("nlpctl.runtime.run_directory", "RunManifest", RUN_JSON),
    "trainer_state.json": _document("nlpctl.training.checkpoints", "SavedTrainerState", STATE_JSON),
    "plan.json": _document("nlpctl.inference.shard_folder", "ShardPlan", PLAN_JSON),
    "gzip": ("a.jsonl.gz", lambda file: file.write_bytes(gzip.compress(b'{"text": "a"}\n' * 50, mtime=0)), _lines),
}


# -- the changes ------------------------------------------------------------------------------------


def changed(content: bytes, chance: random.Random) -> bytes:
    """`content` with one to three changes: of bytes, of numbers, of digits, of its length."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        content = chance.choice(CHANGES)(content, chance)
    return content


def _byte(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(max(1, len(content)))
    new = chance.choice((chance.randrange(256), 0, 1, 0x7F, 0x80, 0xFF))
    return content[:place] + bytes([new]) + content[place + 1 :]


def _number(content: bytes, chance: random.Random) -> bytes:
    width = chance.choice((2, 4, 8))
    place = chance.randrange(max(1, len(content) - width))
    new = (chance.choice(NUMBERS) % (1 << 8 * width)).to_bytes(width, chance.choice(("little", "big")))
    return content[:place] + new + content[place + width :]


def _digits(content: bytes, chance: random.Random) -> bytes:
    """Another number in the place of one that is written as text, such as a shape in a header of JSON."""
    found = list(re.finditer(rb"\d+", content))
    if not found:
        return content
    chosen = chance.choice(found)
    new = str(chance.choice((*NUMBERS, -1, -(2**40)))).encode()
    if chance.random() < 0.5:  # of the same length, so that the places of everything else stay
        new = new[: len(chosen[0])].rjust(len(chosen[0]), b"9")
    return content[: chosen.start()] + new + content[chosen.end() :]


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def _part(content: bytes, chance: random.Random) -> bytes:
    """A part is left out, or comes again elsewhere."""
    begin, end = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    if chance.random() < 0.5:
        return content[:begin] + content[end:]
    place = chance.randrange(len(content) + 1)
    return content[:place] + content[begin:end] * chance.choice((1, 1, 3)) + content[place:]


CHANGES = (_byte, _byte, _number, _number, _digits, _cut, _part)


def mutants(content: bytes, chance: random.Random) -> Iterator[bytes]:
    """Without end. Every other one of an archive is packed anew, with right checksums, after a change inside."""
    for number in itertools.count():
        if number % 2 and content[:2] == b"PK":
            yield _packed_anew(content, chance)
        elif number % 2 and content[:2] == b"\x1f\x8b":
            yield gzip.compress(changed(gzip.decompress(content), chance), mtime=0)
        else:
            yield changed(content, chance)


def _packed_anew(content: bytes, chance: random.Random) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    chosen = chance.choice(sorted(files))
    files[chosen] = changed(files[chosen], chance)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, each in files.items():
            archive.writestr(name, each)
    return made.getvalue()


# -- the process ------------------------------------------------------------------------------------


def outcome(read: Callable[[Path], Any], file: Path) -> str | None:
    """What is wrong with how reading ends; None if nothing is."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        read(file)
    except UserError as error:
        place, hint = error.problems[0].where, error.problems[0].hint
        if out_of_memory(error) or not place or not hint or len(str(error)) > 2000:
            return f"UserError: {str(error)[:300]} {'(out of memory)' * out_of_memory(error)}"
    except TooLong:
        return f"takes more than {SECONDS} s"
    except BaseException as error:
        return "".join(traceback.format_exception(error))[-1500:]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or "bad_alloc" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _too_long(*_: Any) -> None:
    raise TooLong


def main(seed: int, count: int, names: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _too_long)
    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        files = {}
        for name in names:  # all libraries are loaded before memory is limited
            file_name, write, read = FORMATS[name]
            (Path(temporary) / name).mkdir()
            files[name] = file = Path(temporary) / name / file_name
            write(file)
            read(file)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for name, file in files.items():
            read = FORMATS[name][2]
            content, began = file.read_bytes(), time.process_time()
            chance = random.Random(f"{seed} {name}")
            for number, mutant in enumerate(itertools.islice(mutants(content, chance), count)):
                file.unlink()
                file.write_bytes(mutant)
                print(f"reading {name} {number} {hashlib.sha256(mutant).hexdigest()[:8]}", file=sys.stderr, flush=True)
                if wrong := outcome(read, file):
                    failures += 1
                    kept = Path(tempfile.gettempdir()) / f"mutant-{hashlib.sha256(mutant).hexdigest()[:8]}-{file.name}"
                    kept.write_bytes(mutant)
                    print(f"{name} {number}: {kept}: {wrong}", flush=True)
            print(f"{name}: {count} files, {time.process_time() - began:.1f} s", file=sys.stderr, flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or list(FORMATS))
