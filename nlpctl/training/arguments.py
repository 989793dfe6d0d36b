"""From the recipe's `training` section to PaddleNLP's TrainingArguments."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from paddlenlp.trainer import TrainingArguments

from nlpctl.config.checks import MLFLOW
from nlpctl.config.schema import Recipe, TrainingKeys
from nlpctl.config.tasks import task_info
from nlpctl.runtime.ranks import meeting
from nlpctl.runtime.run_directory import RunDirectory

DEFAULT_REPORT = ("visualdl",)


def training_arguments(recipe: Recipe, run: RunDirectory, device: str) -> TrainingArguments:
    """Every field of PaddleNLP is passed on under its own name, such as learning_rate, except these, which nlpctl sets.

    - output_dir: the Trainer writes into the run's checkpoints/
    - device: already chosen, "cpu" or "gpu:N"
    - logging_dir: logs/visualdl in the run, unless the recipe says otherwise
    - report_to: VisualDL, unless the recipe says otherwise; MLflow is nlpctl's own (runs/tracking.py)
    - disable_tqdm: nlpctl shows progress itself (progress.py)
    - load_best_model_at_end: obeyed by checkpoints.py (keep_best_model), so off for the Trainer
    - bf16: on a CPU obeyed by fast_cpu.py, so off for the Trainer, which would only warn
    """
    own = {field.name for field in dataclasses.fields(TrainingKeys)}
    names = [field.name for field in dataclasses.fields(recipe.training) if field.name not in own]
    values = {name: getattr(recipe.training, name) for name in names}
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    values["output_dir"] = str(run.checkpoints)
    values["device"] = device.partition(":")[0]
    values["logging_dir"] = str(logging_dir(recipe, run))
    if values["report_to"] is None:
        values["report_to"] = list(DEFAULT_REPORT)
    values["report_to"] = [name for name in values["report_to"] if name != MLFLOW]
    values["disable_tqdm"] = True
    values["bf16"] = values["bf16"] and device != "cpu"
    metric = values["metric_for_best_model"]
    if metric is not None and values["greater_is_better"] is None:  # PaddleNLP derives it for the loss only
        values["greater_is_better"] = task_info(recipe.task).greater_is_better(metric)
    with meeting():  # PaddleNLP lets the processes meet here
        args = TrainingArguments(**values)
    # The files of the best checkpoint become model/ directly, without loading them into the network.
    args.load_best_model_at_end = False
    return args


def logging_dir(recipe: Recipe, run: RunDirectory) -> Path:
    """The folder of the curves."""
    given = recipe.training.logging_dir
    return run.logs / "visualdl" if given is None else Path(given)


def reports_to_visualdl(recipe: Recipe) -> bool:
    """Whether the run reports to VisualDL."""
    given = recipe.training.report_to
    return bool({"visualdl", "all"} & set(DEFAULT_REPORT if given is None else given))
