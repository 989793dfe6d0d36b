"""Arguments of PaddleNLP that a recipe may not set, and why.

MANAGED: nlpctl sets them itself; setting one would either do nothing or work against it. UNSUPPORTED: nlpctl does not
do what they ask for; values that leave them off are accepted, so that command lines of PaddleNLP can be kept. The
reference lists both apart from the others, `nlpctl recipe flags` the latter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MANAGED: Mapping[str, str] = {
    "training.device": "use runtime.device (or @[runtime.device]): it must take effect before Paddle is imported",
    "training.no_cuda": "use runtime.device: cpu (or @[runtime.device=cpu])",
    "training.local_rank": "use runtime.devices or runtime.nproc (@[runtime.devices=0,1] or @[runtime.nproc=2])",
    "training.overwrite_output_dir": "use the flag @[overwrite=true] of the command",
    "training.resume_from_checkpoint": "use the flag @[resume=true] of `nlpctl train`",
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

_WHOLE_NETWORK = (
    "every process holds the whole network; for several cards use runtime.devices (@[runtime.devices=0,1]), for less "
    "memory training.sharding: stage1"
)
_AS_TRAINED = "an evaluation computes in the precision of the training"
_WHOLE_CHECKPOINT = "a checkpoint is whole and in one place, however many processes train"

UNSUPPORTED: Mapping[str, str] = {
    "training.tensor_parallel_degree": _WHOLE_NETWORK,
    "training.tensor_parallel_config": _WHOLE_NETWORK,
    "training.pipeline_parallel_degree": _WHOLE_NETWORK,
    "training.pipeline_parallel_config": _WHOLE_NETWORK,
    "training.sep_parallel_degree": _WHOLE_NETWORK,
    "training.use_expert_parallel": _WHOLE_NETWORK,
    "training.enable_auto_parallel": _WHOLE_NETWORK,
    "training.hybrid_parallel_topo_order": _WHOLE_NETWORK,
    "training.distributed_dataloader": "every process reads the data itself",
    "training.sharding_degree": "PaddleNLP renamed it: use training.sharding_parallel_degree",
    "training.sharding_parallel_config": "none of its options was tested; training.sharding: stage1 needs none",
    "training.save_sharded_model": _WHOLE_CHECKPOINT,
    "training.load_sharded_model": _WHOLE_CHECKPOINT,
    "training.unified_checkpoint": _WHOLE_CHECKPOINT,
    "training.unified_checkpoint_config": _WHOLE_CHECKPOINT,
    "training.force_reshard_pp": _WHOLE_CHECKPOINT,
    "training.eval_accumulation_steps": "the predictions of an evaluation leave the card batch by batch",
    "training.fp16_full_eval": _AS_TRAINED,
    "training.bf16_full_eval": _AS_TRAINED,
    "training.flatten_param_grads": "PaddlePaddle does it on NPU devices only",
}

REFUSED: Mapping[str, str] = {**MANAGED, **UNSUPPORTED}


def turned_on(value: Any) -> bool:
    """Whether a value of an UNSUPPORTED field asks for something: not null, "", false, or a degree of at most 1."""
    return value > 1 if isinstance(value, int) and not isinstance(value, bool) else bool(value)
