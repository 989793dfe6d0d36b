"""The graph of a network for VisualDL: `visualdl --logdir RUN/logs/visualdl` shows it under Graphs."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from pathlib import Path

import paddle

from nlpctl import console
from nlpctl.data.batches.collate import Batch
from nlpctl.files import write_text_atomic
from nlpctl.graphs.to_static import static_inputs
from nlpctl.models.own_network import own_layer


def write_graph(network: paddle.nn.Layer, batch: Batch, folder: Path) -> bool:
    """Write FOLDER/vdlgraph.TIME.log; False, with a note, if Paddle cannot make a static graph of the network.

    `batch`: an example input. The network is unusable afterwards: VisualDL hooks into every layer, and Paddle replaces
    `forward`.
    """
    from visualdl.component.graph import translate_graph

    network.eval()
    network = own_layer(network)
    try:
        # Like LogWriter.add_graph, but the writer itself would add a second file of records next to the curves.
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = translate_graph(network, static_inputs(network, batch), verbose=False)
    except Exception as error:
        reason = " ".join(str(error).split())[-200:]
        console.note(f"no graph for VisualDL; everything else is complete: {type(error).__name__}: {reason}")
        return False
    write_text_atomic(folder / f"vdlgraph.{int(time.time()):010d}.log", graph)
    return True
