"""Write nlpctl/config/data/*.json from the installed PaddleNLP. Run it after changing the PaddleNLP pin.

python scripts/update_catalogue.py           # rewrite the files
python scripts/update_catalogue.py --check   # exit 1 if they are out of date
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import nlpctl  # noqa: E402, F401  (binds zlib before paddle is imported)

DATA = ROOT / "nlpctl" / "config" / "data"
DEFAULT_OUTPUT_DIR = "outputs/run"  # PaddleNLP requires output_dir; a recipe may omit it

# PaddleNLP declares these as free strings; the values are what its code accepts.
# (The enums IntervalStrategy, SchedulerType and OptimizerNames are read, not listed here.)
CHOICES = {
    "fp16_opt_level": ["O0", "O1", "O2"],
    "report_to": ["visualdl", "tensorboard", "wandb", "autonlp", "mlflow", "all", "none"],  # mlflow is nlpctl's own
    "hybrid_parallel_topo_order": ["pp_first", "sharding_first"],
    "input_dtype": ["int32", "int64"],
    "round_type": ["round", "adaround"],
    "weight_quantize_type": ["abs_max", "channel_wise_abs_max"],
    "activation_quantize_type": ["abs_max", "range_abs_max", "moving_average_abs_max"],
    "algo_list": ["hist", "KL", "mse", "avg", "abs_max", "min_max", "emd"],
}

# Replaces PaddleNLP's own help where that is long, wrong or missing.
HELP = {
    "output_dir": "The run directory: checkpoints, model, metrics and logs are written here.",
    "do_eval": "Evaluate during training; evaluation_strategy says when.",
    "do_export": "Whether to export an inference model.",
    "evaluation_strategy": "When to evaluate during training.",
    "eval_steps": "Evaluate every this many steps, with evaluation_strategy: steps; default: logging_steps.",
    "lr_scheduler_type": "How the learning rate changes after warm-up.",
    "warmup_ratio": "Share of all steps during which the learning rate rises from 0 to learning_rate.",
    "warmup_steps": "Number of warm-up steps; overrides warmup_ratio.",
    "weight_decay": "Weight decay, applied to all but biases and layer norms.",
    "max_grad_norm": "Gradients are clipped to this norm.",
    "logging_strategy": "When to log the loss.",
    "logging_steps": "Log every this many steps.",
    "save_strategy": "When to save a checkpoint.",
    "save_steps": "Save a checkpoint every this many steps, with save_strategy: steps.",
    "save_total_limit": "Keep at most this many checkpoints; model/ is one of them in the end. Default: all.",
    "bf16": "Mixed precision with bfloat16 (GPU of the Ampere generation or newer, or CPU with AVX512-BF16 or AMX).",
    "fp16_opt_level": "Mixed-precision level.",
    "amp_master_grad": "With level O2: keep float32 gradients for clipping, weight decay and the update.",
    "amp_custom_black_list": "Operators that stay in float32 under mixed precision.",
    "amp_custom_white_list": "Operators that always run in half precision under mixed precision.",
    "sharding": "stage1: each of several processes keeps a share of the optimizer's state. Other stages are refused.",
    "sharding_degree": "Deprecated name of sharding_parallel_degree.",
    "sharding_parallel_degree": "Number of processes that share one copy; -1: all. Other numbers are refused.",
    "optim": "The optimizer: adamw; adafactor is refused, since PaddleNLP's Trainer lacks it.",
    "save_sharded_model": "With sharding stage1: each rank saves its own part.",
    "load_sharded_model": "With sharding stage1: load a model saved with save_sharded_model.",
    "tensor_parallel_degree": "Split each transformer layer over this many cards; -1: off.",
    "pipeline_parallel_degree": "Split the stack of layers over this many cards; -1: off.",
    "sep_parallel_degree": "Split the sequence over this many cards; -1: off.",
    "data_parallel_config": "Names of data-parallel options, separated by spaces.",
    "tensor_parallel_config": "Names of tensor-parallel options, separated by spaces.",
    "pipeline_parallel_config": "Names of pipeline-parallel options, separated by spaces.",
    "sharding_parallel_config": "Names of sharding options, separated by spaces.",
    "hybrid_parallel_topo_order": "Order of the communication groups; default: pp_first.",
    "recompute": "Recompute activations in the backward pass: less memory, more time.",
    "minimum_eval_times": "Evaluate at least this often: eval_steps is lowered where needed.",
    "device": "Device name.",
    "save_on_each_node": "With several machines: save on each of them, not only on the first.",
    "unified_checkpoint_config": "Names of unified-checkpoint options, separated by spaces.",
    "load_best_model_at_end": "After training, go back to the best model seen.",
    "metric_for_best_model": "The score that says which model is best; default: loss.",
    "greater_is_better": "Whether a higher metric_for_best_model is better; default: no for loss, yes for all others.",
    "report_to": "Where the curves are written; default: visualdl. mlflow needs the extra mlflow (docs/explain.md).",
    "skip_profile_timer": "Leave the timing of forward, backward and step out of the log.",
    "to_static": "Train the network as a static graph.",
    "force_reshard_pp": "Reshard the pipeline even where the degrees agree.",
    "prune_embeddings": "Drop vocabulary entries that no training row uses, before anything else.",
    "strategy": "Alternatives, separated by commas; A+B applies B after A. `nlpctl compress --help` names the "
    "strategies.",
    "width_mult_list": "Widths kept by DynaBERT, such as 3/4; default: [3/4].",
    "onnx_format": "Paddle's format of int8 graphs; false, the older one, is refused.",
    "weight_quantize_type": "How weights are quantised.",
    "activation_quantize_type": "How activations are quantised by qat: moving_average_abs_max (the default) or "
    "range_abs_max.",
    "algo_list": "Calibration algorithms to try; default: [avg, mse]. min_max is refused: it quantises nothing.",
    "batch_num_list": "Numbers of calibration batches to try; all (or None): every training row. Default: [16].",
    "batch_size_list": "Calibration batch sizes to try; default: [32].",
    "round_type": "How weights are rounded to integers.",
    "bias_correction": "Correct the bias that quantisation adds (arXiv 1810.05723).",
    "input_infer_model_path": "Prefix of an exported model to quantise instead of training one.",
    "use_pact": "Learn the clipping range of activations during qat (PACT).",
    "input_dtype": "Type of the exported model's inputs: int64; int32 is refused.",
}


def entries(fields: list[dataclasses.Field]) -> list[dict[str, Any]]:
    """One JSON object per dataclass field."""
    return [
        {
            "name": field.name,
            "type": type_name(field.type),
            "default": DEFAULT_OUTPUT_DIR if field.default is dataclasses.MISSING else field.default,
            "help": help_line(field),
            "choices": choices(field),
        }
        for field in fields
    ]


def type_name(declared: Any) -> str:
    """`typing.Optional[typing.List[str]]` -> "Optional[List[str]]", `float` -> "float"."""
    return declared.__name__ if isinstance(declared, type) else str(declared).replace("typing.", "")


def help_line(field: dataclasses.Field) -> str:
    """PaddleNLP's help as one sentence, unless the table above has a better one."""
    if field.name in HELP:
        return HELP[field.name]
    text = re.sub(r"\s+", " ", field.metadata["help"]).strip()
    sentence = re.split(r"(?<=[a-z)])\. ", text)[0].rstrip(".")
    return sentence[0].upper() + sentence[1:] + "."


def choices(field: dataclasses.Field) -> list[str]:
    from paddlenlp.trainer.trainer_utils import IntervalStrategy, OptimizerNames, SchedulerType

    enums = {"lr_scheduler_type": SchedulerType, "optim": OptimizerNames}
    if field.type is IntervalStrategy:
        return [member.value for member in IntervalStrategy]
    if field.name in enums:
        return [member.value for member in enums[field.name]]
    return CHOICES.get(field.name, [])


def build() -> dict[str, str]:
    """File name -> content, from the installed package."""
    import paddlenlp
    from paddlenlp.trainer import CompressionArguments, TrainingArguments

    from nlpctl.config.hub_names import FILE
    from nlpctl.models.families import known_hub_names

    training = list(dataclasses.fields(TrainingArguments))
    by_name = {field.name: field for field in training}
    compression = list(dataclasses.fields(CompressionArguments))
    contents = {
        "training_arguments.json": {"fields": entries(training)},
        "compression_arguments.json": {
            "fields": entries([field for field in compression if field.name not in by_name]),
            # Fields of TrainingArguments that CompressionArguments gives another default.
            "changed_defaults": {
                field.name: field.default
                for field in compression
                if field.name in by_name and field.default != by_name[field.name].default
            },
        },
        FILE: {"names": known_hub_names()},
    }
    return {
        name: json.dumps({"paddlenlp": paddlenlp.__version__} | content, indent=1, ensure_ascii=False) + "\n"
        for name, content in contents.items()
    }


def main() -> int:
    stale = [name for name, text in build().items() if not _same(DATA / name, text)]
    if "--check" in sys.argv[1:]:
        print(f"out of date: {', '.join(stale)}" if stale else "up to date")
        return 1 if stale else 0
    DATA.mkdir(exist_ok=True)
    for name, text in build().items():
        (DATA / name).write_text(text, encoding="utf-8")
        print(f"{'written' if name in stale else 'unchanged'}: {DATA / name}")
    return 0


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
