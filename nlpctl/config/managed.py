"""Fields of TrainingArguments and CompressionArguments that nlpctl sets itself, and what to use instead.

Setting one in a recipe would either do nothing or work against nlpctl, so it is refused with the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping

MANAGED: Mapping[str, str] = {
    "training.device": "use runtime.device (or --device): it must take effect before Paddle is imported",
    "training.no_cuda": "use runtime.device: cpu (or --device cpu)",
    "training.local_rank": "use runtime.devices or runtime.nproc (--devices 0,1 or --nproc 2)",
    "training.overwrite_output_dir": "use the flag --overwrite of the command",
    "training.resume_from_checkpoint": "use the flag --resume of `nlpctl train`",
    "training.ignore_data_skip": "delete it: a resumed run continues exactly where it stopped; skipping costs nothing",
    "training.ignore_load_lr_and_optim": "delete it: a resumed run needs them; to start from weights alone, give the "
    "checkpoint as model.name_or_path of a new run",
    "training.prediction_loss_only": "delete it: the scores of an evaluation need its predictions",
    "training.do_train": "run `nlpctl train`",
    "training.do_predict": "run `nlpctl predict`",
    "training.do_export": "leave it out: training and exporting are two commands",
    "training.past_index": "delete it: no model of nlpctl remembers earlier batches",
    "training.label_names": "the task knows its label names",
    "training.wandb_api_key": "set the environment variable WANDB_API_KEY: a run keeps a copy of its recipe",
    "compression.do_compress": "leave it out: training and compressing are two commands",
}
