"""The graph of a network for VisualDL: `visualdl --logdir RUN/logs/visualdl` shows it under Graphs."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from pathlib import Path
from typing import cast

import paddle

from nlpctl import console
from nlpctl.data.batches.collate import Batch
from nlpctl.engines.engine import DygraphPredictor
from nlpctl.engines.trained import TrainedModel
from nlpctl.files import write_text_atomic
from nlpctl.graphs.to_static import static_inputs
from nlpctl.models.user_network import user_layer
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training.arguments import logging_dir, reports_to_visualdl
from nlpctl.training.prepare import PreparedTraining


def draw_graph(prepared: PreparedTraining, run: RunDirectory, model: TrainedModel) -> None:
    """Draw the network of the trained `model`, if the run reports to VisualDL. The model is unusable afterwards."""
    if reports_to_visualdl(prepared.recipe):
        task, encoder = model.task, model.encoder
        examples = prepared.data.training_examples()
        feature = next(part for example in examples for part in task.features(example, encoder))
        batch = task.collator(encoder, labelled=False)([feature])
        write_graph(cast(DygraphPredictor, model.predictor).network, batch, logging_dir(prepared.recipe, run))


def write_graph(network: paddle.nn.Layer, batch: Batch, folder: Path) -> bool:
    """Write FOLDER/vdlgraph.TIME.log; False, with a note, if Paddle cannot make a static graph of the network.

    `batch`: an example input. The network is unusable afterwards: VisualDL hooks into every layer, and Paddle replaces
    `forward`.
    """
    from visualdl.component.graph import translate_graph

    network.eval()
    network = user_layer(network)
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
