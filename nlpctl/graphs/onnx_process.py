"""The process that paddle2onnx runs in: python -m nlpctl.graphs.onnx_process PREFIX FILE OPSET PAD_ID."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from nlpctl.graphs.graph_files import PARAMETERS, PROGRAM
from nlpctl.graphs.onnx_graph import constants_to_initializers, fold_constants
from nlpctl.upstream.onnx_lengths import give_lengths

CANNOT_WRITE = 74  # exit code


def main(argv: Sequence[str]) -> None:
    """Convert PREFIX.pdmodel to FILE; exits with CANNOT_WRITE, and prints the errno, where FILE cannot be written."""
    prefix, file, opset, pad_id = argv
    import onnx
    import paddle2onnx

    content = paddle2onnx.export(
        model_filename=prefix + PROGRAM,
        params_filename=prefix + PARAMETERS,
        opset_version=int(opset),
        auto_upgrade_opset=False,
        verbose=False,
    )
    if not content:
        sys.exit("paddle2onnx wrote nothing")
    model = onnx.load_from_string(content)
    give_lengths(model, int(pad_id))
    constants_to_initializers(model.graph)
    # Otherwise the file has the word embeddings and a table of ones of the same size.
    fold_constants(model, ("Mul",))
    onnx.checker.check_model(model)
    try:
        Path(file).write_bytes(model.SerializeToString())
    except OSError as error:
        print(error.errno)
        sys.exit(CANNOT_WRITE)


if __name__ == "__main__":
    main(sys.argv[1:])
