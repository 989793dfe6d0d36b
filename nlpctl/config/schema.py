"""The recipe: every key that may appear in a recipe file: its type, default, meaning, and what it is for.

This module is the single definition. The loader coerces by these types. The JSON Schema and docs/recipes.md are
generated from them. The rest of nlpctl receives checked values.

`training` and `compression` also hold the fields of PaddleNLP's TrainingArguments and CompressionArguments, such as
training.learning_rate. Those classes import Paddle, so their fields stand here once more;
tests/config/test_paddlenlp_arguments.py compares them with the installed package.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nlpctl.config.input_formats import OF_DATA
from nlpctl.config.key_use import (
    ANSWERS,
    CANDIDATES,
    COLUMNS,
    COMMAND,
    CONFIDENCE,
    CONTINUABLE,
    DECODING,
    EVALUATED_ROWS,
    EVALUATION_BATCH,
    EVALUATION_TIMES,
    EVALUATIONS,
    FOLDER,
    GROUPS,
    HEAD,
    LABEL_TEXT,
    LABELS,
    MACHINE,
    MASKING,
    NETWORK,
    NODE,
    OF_COMPRESS,
    OUTPUT,
    RECORD,
    ROWS,
    SCORE,
    SEARCH,
    SEARCH_BUDGET,
    SEARCHABLE_ROWS,
    SPEED,
    STUDENT,
    TEST_ROWS,
    TOKENS,
    WEIGHTS,
    KeyUse,
    PathKind,
)

# -- declaring a recipe key: type, default, and one-line help --------------------------------------

Scalar = str | int | float | bool | None


def key(default: Any, use: KeyUse, help: str, path: PathKind | None = None) -> Any:
    """A recipe key: its default, what it is for, and its one-line meaning (shown in help, schema and docs).

    `path`: when its texts name files or folders; None: never.
    """
    return field(default=default, metadata={"use": use, "help": help, "path": path})


def mapping_key(use: KeyUse, help: str, path: PathKind | None = None) -> Any:
    """A recipe key that holds free names, empty by default (a plain dict: it pickles and copies)."""
    return field(default_factory=dict, metadata={"use": use, "help": help, "path": path})


def section_key(section: type, help: str, use: KeyUse | None = None) -> Any:
    """A section inside a section. `use`: that of all its keys, where it is not the one that they have elsewhere."""
    return field(default_factory=section, metadata={"use": use, "help": help})


# --------------------------------------------------------------------------------------------------
# Section compression: keys of nlpctl's own and PaddleNLP's CompressionArguments; what their texts mean.

_BUDGET = re.compile(r"\s*(?:(\d+(?:\.\d+)?)\s*h)?\s*(?:(\d+(?:\.\d+)?)\s*m(?:in)?)?\s*(?:(\d+(?:\.\d+)?)\s*s)?\s*")


@dataclass(frozen=True)
class CompressionKeys:
    """The choice of the best compressed model, the time budget, and user functions."""

    evaluate: str | None = key(
        None,
        COMMAND,
        "Your own score, package.module:function(predict, rows) -> number or dict of numbers; higher is better, of a "
        "dict the first entry is used. It runs with your rights: name only code you trust.",
    )
    criterion: str | None = key(
        None,
        OF_COMPRESS,
        "Your own loss, package.module:function(outputs, labels) -> scalar: used by qat for training, by dynabert for "
        "importance, and weighted by distillation.hard. It runs with your rights: name only code you trust.",
    )
    max_drop: float = key(0.5, COMMAND, "How many points the best may score below the uncompressed model on dev.")
    sure: float | None = key(
        None,
        COMMAND,
        "How sure the choice must be that the drop is within max_drop, such as 0.9: in this share of resampled dev "
        "splits. Default: the drop on dev as it is.",
    )
    target: Literal["throughput", "latency", "size"] = key(
        "throughput",
        COMMAND,
        "What to optimise: rows per second at the largest of batch_sizes, latency of a batch at the smallest, or size "
        "on disk.",
    )
    budget: str | None = key(
        None,
        COMMAND,
        "Time budget, such as 30m or 1h30m; the most promising candidates are tried first. Default: no limit.",
    )
    batch_sizes: tuple[int, ...] = key((1, 32), COMMAND, "Batch sizes that candidates are timed with.")


Calibration = Literal["hist", "KL", "mse", "avg", "abs_max", "min_max", "emd"]


@dataclass(frozen=True)
class CompressionSection(CompressionKeys):
    """What `nlpctl compress` does: every field that PaddleNLP's CompressionArguments adds, and nlpctl's own keys."""

    do_compress: bool = key(False, CANDIDATES, "Whether to run compression after training.")
    input_dtype: Literal["int32", "int64"] | None = key(
        "int64", CANDIDATES, "Type of the exported model's inputs: int64; int32 is refused."
    )
    prune_embeddings: bool = key(
        False, CANDIDATES, "Drop vocabulary entries that no training row uses, before anything else."
    )
    onnx_format: bool | None = key(
        True, CANDIDATES, "Paddle's format of int8 graphs; false, the older one, is refused."
    )
    strategy: str | None = key(
        "dynabert+ptq",
        COMMAND,
        "Alternatives, separated by commas; A+B applies B after A. `nlpctl compress --help` names the strategies.",
    )
    width_mult_list: tuple[str, ...] | None = key(
        None, CANDIDATES, "Widths kept by DynaBERT, such as 3/4; default: [3/4]."
    )
    weight_quantize_type: Literal["abs_max", "channel_wise_abs_max"] | None = key(
        "channel_wise_abs_max", CANDIDATES, "How weights are quantised."
    )
    activation_quantize_type: Literal["abs_max", "range_abs_max", "moving_average_abs_max"] | None = key(
        None, CANDIDATES, "How activations are quantised by qat: moving_average_abs_max (the default) or range_abs_max."
    )
    algo_list: tuple[Calibration, ...] | None = key(
        None,
        CANDIDATES,
        "Calibration algorithms to try; default: [avg, mse]. min_max is refused: it quantises nothing.",
    )
    batch_num_list: tuple[int | None, ...] | None = key(
        None, CANDIDATES, "Numbers of calibration batches to try; all (or None): every training row. Default: [16]."
    )
    batch_size_list: tuple[int, ...] | None = key(None, CANDIDATES, "Calibration batch sizes to try; default: [32].")
    round_type: Literal["round", "adaround"] | None = key("round", CANDIDATES, "How weights are rounded to integers.")
    bias_correction: bool | None = key(False, CANDIDATES, "Correct the bias that quantisation adds (arXiv 1810.05723).")
    input_infer_model_path: str | None = key(
        None, CANDIDATES, "Prefix of an exported model to quantise instead of training one.", path="input"
    )
    use_pact: bool | None = key(True, CANDIDATES, "Learn the clipping range of activations during qat (PACT).")
    moving_rate: float | None = key(0.9, CANDIDATES, "The decay coefficient of moving average.")


def parse_width(text: str) -> Fraction:
    """A width such as 3/4 or 0.75. ValueError, a sentence, for anything else."""
    try:
        width = Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{text!r} is not a fraction") from None
    if not 0 < width <= 1:
        raise ValueError(f"the width {text} is not above 0 and at most 1")
    return width


def parse_budget(text: str) -> float:
    """Seconds of a time such as 30m, 1h30m or 90s. ValueError, a sentence, for anything else."""
    match = _BUDGET.fullmatch(text)
    seconds = 0.0
    if match is not None:
        seconds = sum(float(part) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True) if part)
    if not seconds:
        raise ValueError(f"{text!r} is not a time")
    return seconds


# --------------------------------------------------------------------------------------------------
# Section training: keys of nlpctl's own, which are parts that PaddleNLP's Trainer takes as arguments, and speed; and
# its TrainingArguments.

_TRUST = "Named as package.module:function; runs with your rights: name only code you trust."


@dataclass(frozen=True)
class TrainingKeys:
    """Parts of one's own (docs/own-parts.md), named and called as in PaddleNLP's Trainer; and how it computes."""

    criterion: str | None = key(
        None,
        WEIGHTS,
        "Your own loss, function(outputs, labels) -> scalar, or a class of layers such as paddle.nn:CrossEntropyLoss. "
        + _TRUST,
    )
    compute_metrics: str | None = key(
        None,
        SCORE,
        "Your own scores on dev, function(eval_prediction) -> dict of numbers; eval_prediction holds predictions and "
        "label_ids. metric_for_best_model may name one of them. " + _TRUST,
    )
    preprocess_logits_for_metrics: str | None = key(
        None,
        WEIGHTS,
        "What compute_metrics is to get of the outputs, function(logits, labels) -> tensor, such as their argmax, "
        "which takes less memory. " + _TRUST,
    )
    callbacks: tuple[str, ...] = key(
        (),
        WEIGHTS,
        "Your own callbacks, classes of paddlenlp.trainer.TrainerCallback or functions that return one. " + _TRUST,
    )
    optimizer: str | None = key(
        None,
        WEIGHTS,
        "Your own optimizer, function(model, args) -> paddle.optimizer.Optimizer, in place of AdamW. Its learning rate "
        "follows the schedule unless it has one of its own. " + _TRUST,
    )
    scheduler: str | None = key(
        None,
        WEIGHTS,
        "Your own schedule, function(args, num_training_steps) -> paddle.optimizer.lr.LRScheduler, in place of "
        "lr_scheduler_type. " + _TRUST,
    )
    data_collator: str | None = key(
        None,
        WEIGHTS,
        "Your own maker of training batches, function(tokenizer) -> function(features) -> dict of arrays, or a class "
        "such as paddlenlp.data:DataCollatorWithPadding. " + _TRUST,
    )
    calibrate: bool = key(
        True,
        WEIGHTS,
        "After training, fit the probabilities in answers to dev, so that of those at 0.9 some 90 % are right "
        "(docs/decisions.md). Decisions and scores stay the same.",
    )
    fast_cpu: bool = key(
        True,
        WEIGHTS,
        "On a CPU, compute attention, GELU, softmax, LayerNorm, biases and dropout by faster functions (oneDNN's; "
        "docs/training.md). false: by Paddle's own, which draw other dropout masks from the same seed.",
    )


# Values of PaddleNLP's enums, and of texts that it declares without saying which it takes
Interval = Literal["no", "steps", "epoch"]
Schedule = Literal["linear", "cosine", "constant", "constant_with_warmup", "polynomial"]
Tracker = Literal["visualdl", "tensorboard", "wandb", "autonlp", "mlflow", "all", "none"]  # mlflow is nlpctl's


@dataclass(frozen=True)
class TrainingSection(TrainingKeys):
    """Every field of PaddleNLP's TrainingArguments, under its own name, and parts of one's own."""

    output_dir: str = key(
        "outputs/run",
        FOLDER,
        "The run directory: checkpoints, model, metrics and logs are written here.",
        path="output",
    )
    overwrite_output_dir: bool = key(False, WEIGHTS, "Overwrite the content of the output directory.")
    do_train: bool = key(False, WEIGHTS, "Whether to run training.")
    do_eval: bool = key(False, WEIGHTS, "Evaluate during training; evaluation_strategy says when.")
    do_predict: bool = key(False, WEIGHTS, "Whether to run predictions on the test set.")
    do_export: bool = key(False, WEIGHTS, "Whether to export an inference model.")
    evaluation_strategy: Interval = key("no", EVALUATION_TIMES, "When to evaluate during training.")
    prediction_loss_only: bool = key(
        False, WEIGHTS, "When performing evaluation and predictions, only returns the loss."
    )
    per_device_train_batch_size: int = key(8, WEIGHTS, "Batch size per GPU core/CPU for training.")
    per_device_eval_batch_size: int = key(8, EVALUATION_BATCH, "Batch size per GPU core/CPU for evaluation.")
    gradient_accumulation_steps: int = key(
        1, WEIGHTS, "Number of updates steps to accumulate before performing a backward/update pass."
    )
    eval_accumulation_steps: int | None = key(
        None, WEIGHTS, "Number of predictions steps to accumulate before moving the tensors to the CPU."
    )
    learning_rate: float = key(5e-05, CONTINUABLE, "The initial learning rate for AdamW.")
    weight_decay: float = key(0.0, CONTINUABLE, "Weight decay, applied to all but biases and layer norms.")
    adam_beta1: float = key(0.9, WEIGHTS, "Beta1 for AdamW optimizer.")
    adam_beta2: float = key(0.999, WEIGHTS, "Beta2 for AdamW optimizer.")
    adam_epsilon: float = key(1e-08, WEIGHTS, "Epsilon for AdamW optimizer.")
    max_grad_norm: float = key(1.0, CONTINUABLE, "Gradients are clipped to this norm.")
    num_train_epochs: float = key(1.0, CONTINUABLE, "Total number of training epochs to perform.")
    max_steps: int = key(-1, CONTINUABLE, "If > 0: set total number of training steps to perform.")
    lr_scheduler_type: Schedule = key("linear", CONTINUABLE, "How the learning rate changes after warm-up.")
    warmup_ratio: float = key(
        0.0, CONTINUABLE, "Share of all steps during which the learning rate rises from 0 to learning_rate."
    )
    warmup_steps: int = key(0, CONTINUABLE, "Number of warm-up steps; overrides warmup_ratio.")
    num_cycles: float = key(0.5, WEIGHTS, "The number of waves in the cosine scheduler.")
    lr_end: float = key(1e-07, WEIGHTS, "The end LR in the polynomial scheduler.")
    power: float = key(1.0, WEIGHTS, "The power factor in the polynomial scheduler.")
    log_on_each_node: bool = key(
        True,
        WEIGHTS,
        "When doing a multinode distributed training, whether to log once per node or just once on the main node.",
    )
    logging_dir: str | None = key(None, FOLDER, "VisualDL log dir.", path="output")
    logging_strategy: Interval = key("steps", RECORD, "When to log the loss.")
    logging_first_step: bool = key(False, RECORD, "Log the first global_step.")
    # it stands for eval_steps where that is not set, so the best checkpoint may depend on it
    logging_steps: int = key(500, CONTINUABLE, "Log every this many steps.")
    save_strategy: Interval = key("steps", EVALUATION_TIMES, "When to save a checkpoint.")
    save_steps: int = key(500, CONTINUABLE, "Save a checkpoint every this many steps, with save_strategy: steps.")
    save_total_limit: int | None = key(
        None, OUTPUT, "Keep at most this many checkpoints; model/ is one of them in the end. Default: all."
    )
    save_on_each_node: bool = key(False, WEIGHTS, "With several machines: save on each of them, not only on the first.")
    no_cuda: bool = key(False, WEIGHTS, "Do not use CUDA even when it is available.")
    seed: int = key(42, WEIGHTS, "Random seed that will be set at the beginning of training.")
    bf16: bool = key(
        False,
        WEIGHTS,
        "Mixed precision with bfloat16 (GPU of the Ampere generation or newer, or CPU with AVX512-BF16 or AMX).",
    )
    fp16: bool = key(False, WEIGHTS, "Whether to use fp16 (mixed) precision instead of 32-bit.")
    fp16_opt_level: Literal["O0", "O1", "O2"] = key("O1", WEIGHTS, "Mixed-precision level.")
    amp_master_grad: bool = key(
        False, WEIGHTS, "With level O2: keep float32 gradients for clipping, weight decay and the update."
    )
    bf16_full_eval: bool = key(False, WEIGHTS, "Whether to use full bfloat16 evaluation instead of 32-bit.")
    fp16_full_eval: bool = key(False, WEIGHTS, "Whether to use full float16 evaluation instead of 32-bit.")
    amp_custom_black_list: tuple[str, ...] | None = key(
        None, WEIGHTS, "Operators that stay in float32 under mixed precision."
    )
    amp_custom_white_list: tuple[str, ...] | None = key(
        None, WEIGHTS, "Operators that always run in half precision under mixed precision."
    )
    sharding: str = key(
        "",
        WEIGHTS,
        "stage1: each of several processes keeps a share of the optimizer's state. Other stages are refused.",
    )
    sharding_degree: int = key(-1, WEIGHTS, "Deprecated name of sharding_parallel_degree.")
    sharding_parallel_degree: int = key(
        -1, WEIGHTS, "Number of processes that share one copy; -1: all. Other numbers are refused."
    )
    save_sharded_model: bool = key(False, WEIGHTS, "With sharding stage1: each rank saves its own part.")
    load_sharded_model: bool = key(False, WEIGHTS, "With sharding stage1: load a model saved with save_sharded_model.")
    tensor_parallel_degree: int = key(-1, WEIGHTS, "Split each transformer layer over this many cards; -1: off.")
    pipeline_parallel_degree: int = key(-1, WEIGHTS, "Split the stack of layers over this many cards; -1: off.")
    sep_parallel_degree: int = key(-1, WEIGHTS, "Split the sequence over this many cards; -1: off.")
    data_parallel_config: str = key("", WEIGHTS, "Names of data-parallel options, separated by spaces.")
    tensor_parallel_config: str = key("", WEIGHTS, "Names of tensor-parallel options, separated by spaces.")
    pipeline_parallel_config: str = key("", WEIGHTS, "Names of pipeline-parallel options, separated by spaces.")
    sharding_parallel_config: str = key("", WEIGHTS, "Names of sharding options, separated by spaces.")
    hybrid_parallel_topo_order: Literal["pp_first", "sharding_first"] | None = key(
        None, WEIGHTS, "Order of the communication groups; default: pp_first."
    )
    recompute: bool = key(False, WEIGHTS, "Recompute activations in the backward pass: less memory, more time.")
    scale_loss: float = key(32768, WEIGHTS, "The value of initial scale_loss for fp16.")
    minimum_eval_times: int | None = key(
        None, WEIGHTS, "Evaluate at least this often: eval_steps is lowered where needed."
    )
    local_rank: int = key(-1, WEIGHTS, "For distributed training: local_rank.")
    dataloader_drop_last: bool = key(
        False, WEIGHTS, "Drop the last incomplete batch if it is not divisible by the batch size."
    )
    eval_steps: int | None = key(
        None,
        EVALUATION_TIMES,
        "Evaluate every this many steps, with evaluation_strategy: steps; default: logging_steps.",
    )
    max_evaluate_steps: int = key(
        -1, EVALUATED_ROWS, "If set to a positive number, the total number of evaluation steps to perform."
    )
    dataloader_num_workers: int = key(0, SPEED, "Number of subprocesses to use for data loading.")
    past_index: int = key(
        -1, WEIGHTS, "If >=0, uses the corresponding part of the output as the past state for next step."
    )
    run_name: str | None = key(None, RECORD, "An optional descriptor for the run.")
    device: str | None = key("gpu", WEIGHTS, "Device name.")
    disable_tqdm: bool | None = key(None, OUTPUT, "Whether or not to disable the tqdm progress bars.")
    remove_unused_columns: bool | None = key(
        True, WEIGHTS, "Remove columns not required by the model when using an nlp.Dataset."
    )
    label_names: tuple[str, ...] | None = key(
        None, WEIGHTS, "The list of keys in your dictionary of inputs that correspond to the labels."
    )
    load_best_model_at_end: bool | None = key(False, EVALUATIONS, "After training, go back to the best model seen.")
    metric_for_best_model: str | None = key(None, SCORE, "The score that says which model is best; default: loss.")
    greater_is_better: bool | None = key(
        None, SCORE, "Whether a higher metric_for_best_model is better; default: no for loss, yes for all others."
    )
    ignore_data_skip: bool = key(
        False,
        WEIGHTS,
        "When resuming training, whether or not to skip the first epochs and batches to get to the same training "
        "data.",
    )
    optim: Literal["adamw", "adafactor"] = key(
        "adamw", WEIGHTS, "The optimizer: adamw; adafactor is refused, since PaddleNLP's Trainer lacks it."
    )
    report_to: tuple[Tracker, ...] | None = key(
        None,
        RECORD,
        "Where the curves are written; default: visualdl. mlflow needs the extra mlflow (docs/explain.md).",
    )
    wandb_api_key: str | None = key(
        None, WEIGHTS, "Weights & Biases (WandB) API key(s) for authentication with the WandB service."
    )
    resume_from_checkpoint: str | None = key(
        None, WEIGHTS, "The path to a folder with a valid checkpoint for your model."
    )
    skip_memory_metrics: bool = key(
        True, OUTPUT, "Whether or not to skip adding of memory profiler reports to metrics."
    )
    flatten_param_grads: bool | None = key(
        False, WEIGHTS, "Whether use flatten_param_grads method in optimizer, only used on NPU devices."
    )
    lazy_data_processing: bool | None = key(True, WEIGHTS, "Whether use lazy data processing.")
    skip_profile_timer: bool | None = key(
        True, OUTPUT, "Leave the timing of forward, backward and step out of the log."
    )
    distributed_dataloader: bool | None = key(False, WEIGHTS, "Whether to use distributed dataloader.")
    unified_checkpoint: bool | None = key(False, WEIGHTS, "Whether to unify hybrid parallel checkpoint.")
    to_static: bool | None = key(False, WEIGHTS, "Train the network as a static graph.")
    unified_checkpoint_config: str | None = key(
        "", WEIGHTS, "Names of unified-checkpoint options, separated by spaces."
    )
    ignore_load_lr_and_optim: bool | None = key(False, WEIGHTS, "Whether to ignore load optimizer and scheduler.")
    ignore_save_lr_and_optim: bool | None = key(False, WEIGHTS, "Whether to ignore save optimizer and scheduler.")
    force_reshard_pp: bool | None = key(False, WEIGHTS, "Reshard the pipeline even where the degrees agree.")
    enable_auto_parallel: bool | None = key(
        False, WEIGHTS, "Whether to run distributed training in auto parallel mode."
    )
    use_expert_parallel: bool | None = key(False, WEIGHTS, "Enable MoE (Mixture of Experts) expert parallel training.")


# -- where a recipe's network comes from, and what is changed in it before it is trained -----------


@dataclass(frozen=True)
class ScratchSection:
    """A small network trained from nothing, with a vocabulary built from the training text or read from a file."""

    architecture: Literal["bert", "ernie", "roberta", "electra", "bilstm", "textcnn", "bag_of_embeddings", "bigru"] = (
        key("ernie", NETWORK, "Network family: a transformer as PaddleNLP names it, or one of nlpctl's own networks.")
    )
    vocab_size: int = key(8000, NETWORK, "Upper limit of the vocabulary built from the training text.")
    min_frequency: int = key(2, NETWORK, "Pieces seen less often than this do not enter the vocabulary.")
    lowercase: bool = key(True, NETWORK, "Lowercase (transformers: and strip accents) before splitting.")
    hidden_size: int = key(128, NETWORK, "Width of the hidden states (textcnn: filters per kernel size).")
    num_hidden_layers: int = key(2, NETWORK, "Number of transformer or recurrent layers.")
    num_attention_heads: int = key(2, NETWORK, "Attention heads per layer of a transformer; must divide hidden_size.")
    intermediate_size: int = key(512, NETWORK, "Width of a transformer's feed-forward layer.")
    unit: Literal["characters", "words"] = key(
        "characters", NETWORK, "What nlpctl's own networks read: characters, or words as jieba splits them."
    )
    embedding_size: int = key(128, NETWORK, "Width of the embedding of nlpctl's own networks.")
    kernel_sizes: tuple[int, ...] = key((2, 3, 4), NETWORK, "Widths of the kernels of textcnn, in units.")
    dropout: float = key(0.1, NETWORK, "Share of activations dropped while training.")
    vocabulary: str | None = key(
        None,
        NETWORK,
        "File of the vocabulary, an entry per line (or what paddlenlp.data.Vocab.to_json wrote), taken whole in place "
        "of one from the training text.",
        path="input",
    )
    dictionaries: str | None = key(
        None,
        NETWORK,
        "Folder with word.dic, tag.dic and q2b.dic, in place of a vocabulary from the training text (bigru).",
        path="input",
    )


@dataclass(frozen=True)
class ModelSection:
    """Where the network comes from: a name, a folder, or from_scratch."""

    name_or_path: str | None = key(
        None,
        NETWORK,
        "Hub name (ernie-3.0-medium-zh), PaddleNLP or Hugging Face folder, run directory or model folder; "
        "python:PACKAGE/PATH is a folder inside an installed package, hf:ORG/NAME@REVISION a repository of the Hugging "
        "Face hub.",
        path="name",
    )
    from_scratch: ScratchSection | None = key(None, NETWORK, "Build a new encoder instead of loading one.")
    config: Mapping[str, Scalar] = mapping_key(
        NETWORK, "Overrides of the network's own config, such as hidden_dropout_prob: 0.1."
    )
    network: str | None = key(
        None,
        NETWORK,
        "Your own network class, package.module:Class(config), in place of the task's: a paddle.nn.Layer, or a class "
        "of PaddleNLP's PretrainedModel, which can start from weights. It runs with your rights: name only code you "
        "trust.",
    )
    head: Literal["linear", "crf"] = key(
        "linear", HEAD, "Output layer of a tagger: linear, or linear with a CRF over it."
    )
    embeddings: str | None = key(
        None,
        NETWORK,
        "Text file of word vectors (word v1 v2 ...) that the embedding of a network from scratch starts from.",
        path="input",
    )
    add_tokens: tuple[str, ...] | str | None = key(
        None,
        NETWORK,
        "Words that the tokenizer is to keep whole: a list, or a file with one per line. The embedding (and a language "
        "model's output layer) grows by a row for each, which starts as the mean of the pieces that it was read as.",
        path="text",
    )
    tie: tuple[tuple[str, ...], ...] = key(
        (),
        NETWORK,
        "Pairs of parameters, or of layers, that are one from here on: [[ernie.encoder.layers.0, "
        "ernie.encoder.layers.1]]. Both have the values of the first.",
    )
    set_parameters: Mapping[str, Scalar] = mapping_key(
        NETWORK,
        "Parameter name or pattern to its starting value: a number, a .npy file of the same shape, or a distribution: "
        "normal(mean, std), truncated_normal(mean, std), uniform(low, high), constant(value), xavier_normal, "
        "xavier_uniform, kaiming_normal, kaiming_uniform. A draw depends on training.seed and the parameter's name.",
        path="values",
    )
    freeze: tuple[str, ...] = key(
        (),
        NETWORK,
        "Parameters that training leaves as they are: names, layers (ernie.embeddings), ranges of layers "
        "(ernie.encoder.layers.0-5), or patterns (*.bias). `nlpctl params ls` lists the names.",
    )


# -- the section `distillation`: the student, its losses against the teacher, and its texts --------


@dataclass(frozen=True)
class GeneratedSection:
    """Texts generated from the training texts and labelled by the teacher (Tang et al., 2019; Jiao et al., 2020)."""

    copies: int = key(0, STUDENT, "New texts per training text, at most, without duplicates.")
    replace: float = key(
        0.2,
        STUDENT,
        "Share of a text's words that are replaced: by one with a similar vector in the teacher, or by one that "
        "occurs elsewhere between the same neighbours.",
    )
    mask: float = key(0.05, STUDENT, "Share of words replaced by the mask token, or deleted if the student has none.")
    fragment: float = key(0.25, STUDENT, "Share of the texts of which only one to five words in a row are kept.")
    cross: float = key(0.25, STUDENT, "Share of texts that continue like another text, from a word that both contain.")


@dataclass(frozen=True)
class DistillationSection:
    """The strategy distill: a small student learns the trained model's answers to many texts."""

    student: str | None = key(
        None,
        STUDENT,
        "Recipe of the student: its model, training, optimizer, early_stopping and data.max_seq_length are used; the "
        "rest is the teacher's.",
        path="input",
    )
    model: ModelSection = section_key(
        ModelSection, "Or its network, as in section model. Default: layers of the teacher.", use=STUDENT
    )
    num_hidden_layers: int | None = key(
        None, STUDENT, "Student of the teacher's kind: number of its layers, evenly spread; default: half of them."
    )
    layers: tuple[int, ...] = key((), STUDENT, "Or the layers, counted from 0: [1, 3, 5].")
    width: float = key(
        1.0, STUDENT, "Share of each layer's attention heads and neurons that is kept, the most important ones."
    )
    fit: int = key(
        2048,
        STUDENT,
        "Training rows on which its layers are first fitted by least squares to the outputs of the teacher's layers "
        "that each replaces; 0: no fitting.",
    )
    learning_rate: float | None = key(None, STUDENT, "Learning rate of the student; default: training.learning_rate.")
    num_train_epochs: float | None = key(None, STUDENT, "Epochs of the student; default: training.num_train_epochs.")
    loss: Literal["mse", "kl"] = key(
        "mse",
        STUDENT,
        "Loss between logits: mean squared error (Tang et al., 2019), or KL divergence (Hinton et al., 2015).",
    )
    temperature: float = key(1.0, STUDENT, "kl: temperature, which divides the logits of both.")
    hard: float = key(0.0, STUDENT, "Share of the task's own loss; the rest is the loss between the logits.")
    hidden: float = key(
        0.0, STUDENT, "Weight of the squared error of hidden states, embeddings included (TinyBERT, equations 8 and 9)."
    )
    attention: float = key(0.0, STUDENT, "Weight of the squared error of attention scores (TinyBERT, equation 7).")
    relations: float = key(
        0.0, STUDENT, "Weight of the divergence of relations between queries, keys and values (MiniLMv2, equation 5)."
    )
    relation_heads: int | None = key(
        None, STUDENT, "Number of heads for relations, in both networks; default: the teacher's."
    )
    embeddings: bool = key(
        True,
        STUDENT,
        "Student over words or characters: initialise its embedding from the teacher's, by principal components.",
    )
    unlabelled: tuple[str, ...] = key(
        (),
        STUDENT,
        "Files of further texts, one per line, or in the format of their ending; questions in .json or .jsonl.",
        path="input",
    )
    generate: GeneratedSection = section_key(GeneratedSection, "Further texts, generated from the training texts.")


# --------------------------------------------------------------------------------------------------
# The section `search`: what `nlpctl sweep` tries, how long, and by which score it chooses.

RANGE_FORMS = ("uniform", "log", "int")  # the notations of a range
TRIALS = 20  # unless the grid, or a budget, says how many


class Steps(Sequence[float]):
    """low, low + step, ... up to high, as they are written, made when they are asked for."""

    def __init__(self, low: float, high: float, step: float):
        self._low, self._step = exact(low), exact(step)
        self._last = math.floor((exact(high) - self._low) / self._step)

    def __len__(self) -> int:
        return self._last + 1

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number <= self._last:
            raise IndexError(number)
        return float(self._low + number * self._step)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and math.isfinite(value) and self.nearest(value) == value

    def nearest(self, value: float) -> float:
        """The step next to `value`, which may be off by what sums of floats lose."""
        return float(self[min(max(round((exact(value) - self._low) / self._step), 0), self._last)])


@dataclass(frozen=True)
class Axis:
    """What is tried of one key; the fields are named as in a recipe. Exactly one of the first four is given.

    `whole`: the key holds whole numbers. `when`: key -> values, one of which it must have; else the key stays as it is.
    """

    choices: tuple[Any, ...] | None = None
    uniform: tuple[float, float] | None = None
    log: tuple[float, float] | None = None
    int: tuple[float, float] | None = None
    step: float | None = None
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    whole: bool = field(default=False, metadata={"written": False})

    @property
    def ends(self) -> tuple[float, float]:
        """The least and greatest value of a range."""
        return next(ends for ends in (self.uniform, self.log, self.int) if ends is not None)

    @property
    def points(self) -> Sequence[Any] | None:
        """All values, in order; None of a range without steps. Of a range they are made when they are asked for."""
        if self.choices is not None:
            return self.choices
        low, high = self.ends
        if self.int is not None:
            return range(round(low), round(high) + 1, round(self.step or 1))
        return None if self.step is None or self.log is not None else Steps(low, high, self.step)

    @property
    def text(self) -> str:
        """In words, such as "log from 1e-05 to 0.0001"."""
        if self.choices is not None:
            return "one of " + ", ".join(map(_written, self.choices))
        name = next(name for name in RANGE_FORMS if getattr(self, name) is not None)
        low, high = self.ends
        steps = "" if self.step is None else f" in steps of {self.step:g}"
        return f"{name} from {low:g} to {high:g}{steps}"


@dataclass(frozen=True)
class SearchSection:
    """`nlpctl sweep`: the keys that are tried, how often, and by which score the best is chosen (docs/sweep.md)."""

    space: Mapping[str, Axis] = mapping_key(
        SEARCH,
        "What is tried, by key: a list of values, {log: [1e-5, 1e-4]}, {uniform: [0, 0.3]} or {int: [2, 6]}, the two "
        "last ones also with step; with when: {KEY: value or list} only where another key that is tried has this "
        "value.",
    )
    trials: int | None = key(
        None,
        SEARCH_BUDGET,
        f"How many trials; default: the whole grid, with a budget as many as it allows, else {TRIALS}.",
    )
    budget: str | None = key(
        None,
        SEARCH_BUDGET,
        "Time budget, such as 30m or 8h: no trial begins that would probably exceed it. Default: no limit.",
    )
    metric: str | None = key(
        None, SEARCH, "Score on dev to choose by; default: training.metric_for_best_model, or the task's first score."
    )
    sampler: Literal["tpe", "random", "grid"] = key(
        "tpe",
        SEARCH,
        "tpe: learns from earlier trials where good values lie (Bergstra et al., 2011); random; grid: every "
        "combination of lists, whole numbers and steps.",
    )
    pruner: Literal["median", "none"] = key(
        "median",
        SEARCH,
        "median: after five whole trials, stop one whose best score so far is worse than the median of the others at "
        "the same evaluation; none.",
    )


def _written(value: Any) -> str:
    """A value as a recipe may have it: null, true, [a list]."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def exact(number: float) -> Fraction:
    """`number` as it is written: 0.3 is three times 0.1."""
    return Fraction(repr(number))


# --------------------------------------------------------------------------------------------------
# The sections of a recipe that belong to single tasks; config/tasks.py says which task reads which.


@dataclass(frozen=True)
class DecodeSection:
    """Decoding a network's outputs to answers."""

    terms: str | None = key(
        None,
        DECODING,
        "Tagging: file of TERM<TAB>TYPE lines; these terms always get these types. A header line can name more columns "
        "(term, type, id, link, alias), and JSON lines are read too; answers then carry id and link.",
        path="input",
    )
    replacements: bool = key(
        True,
        DECODING,
        "Lexical analysis with a converted LAC: read characters that it never saw in training in a form that it knows "
        "(， as , and A as a). false: read every character as it stands, as jieba does.",
    )
    entity_types: tuple[str, ...] | None = key(
        None,
        DECODING,
        "Tagging: the types that are entities, such as [PER, LOC, ORG]; default: all but parts of speech, which are "
        "known by their verb (v, VERB, VV, VB). Where all types are entities the answer holds entities, otherwise "
        "words; [] gives words. entity_f1 scores these types alone.",
    )
    tune: Literal["accuracy", "macro_f1", "weighted_f1", "f1"] | None = key(
        None,
        DECODING,
        "Search decision thresholds on dev after training, for this score (f1: that of the second of two labels); "
        "they are stored with the model.",
    )
    threshold: float = key(
        0.5,
        DECODING,
        "Multi-label: a label is predicted from this probability on, unless a threshold was tuned on dev; one that a "
        "flag of predict, eval, serve or export gives goes before those that were tuned.",
    )
    n_best: int = key(
        5, DECODING, "Question answering: number of candidates that predict writes. Masked words: the same."
    )
    max_answer_length: int = key(50, DECODING, "Question answering: longest answer, in tokens.")
    null_threshold: float | None = key(
        None,
        DECODING,
        "Question answering: predict no answer if its score exceeds the best answer's by more than this, such as 0.0 "
        "for SQuAD 2.0; null: every question gets an answer.",
    )


@dataclass(frozen=True)
class MaskingSection:
    """The masking of masked language model training."""

    probability: float = key(0.15, MASKING, "Share of the text to predict.")
    whole_words: bool = key(True, MASKING, "Hide all pieces of a word together; Chinese words are split by jieba.")
    dictionary: str | None = key(None, MASKING, "File with one word per line that jieba must not split.", path="input")


@dataclass(frozen=True)
class PromptSection:
    """Few-shot classification: the task as a sentence with a mask."""

    template: str | None = key(None, ANSWERS, "PaddleNLP template, such as \"{'text': 'text'} It was {'mask'}.\"")
    verbalizer: Mapping[str, Scalar] = mapping_key(ANSWERS, "The word for each label, such as pos: great.")


@dataclass(frozen=True)
class FewShotSection:
    """Few-shot classification: how a handful of examples teaches the encoder."""

    method: Literal["prompt", "contrastive", "auto"] = key(
        "prompt",
        ANSWERS,
        "prompt: a language model fills the gap of prompt.template. contrastive: pairs of rows with equal and with "
        "different labels train a sentence encoder, and a logistic regression reads its vectors (Tunstall et al., "
        "2022). auto: prompt if there is a template and the weights hold a language-model head, else contrastive; "
        "train says which, and why.",
    )
    pairs: int = key(10, WEIGHTS, "contrastive: pairs drawn per row with an equal label, and as many with another.")
    pooling: Literal["mean", "cls", "max", "weightedmean"] = key(
        "mean",
        ANSWERS,
        "contrastive: what of its tokens makes the vector of a text, as retrieval.pooling; default: what the encoder's "
        "folder says, of sentence-transformers or of a semantic_indexing run, else mean.",
    )
    layers: int = key(1, ANSWERS, "contrastive: how many of the encoder's last layers the vector is the mean of.")


@dataclass(frozen=True)
class RetrievalSection:
    """Semantic indexing: how texts become vectors, and the loss over the negatives of a batch."""

    pooling: Literal["cls", "mean", "max", "weightedmean"] = key(
        "mean",
        ANSWERS,
        "The vector of a text: its first token's, or over all tokens the mean, the largest values, or the mean with "
        "weights that grow from token to token. What a folder of sentence-transformers says is the default, here and "
        "below.",
    )
    embedding_size: int | None = key(None, ANSWERS, "Project the vectors to this width; default: the encoder's own.")
    activation: Literal["none", "tanh", "relu", "gelu"] = key(
        "none", ANSWERS, "What is applied to the projected vectors."
    )
    normalize: bool = key(True, ANSWERS, "Whether vectors have unit length.")
    similarity: Literal["cosine", "dot"] = key(
        "cosine", ANSWERS, "How vectors are compared, in training, scores and indexes."
    )
    prompts: Mapping[str, str] = mapping_key(
        ANSWERS,
        "What stands before a text, by name: query before queries (data.columns.text of a pair, index search), "
        "document or passage before what is found (second texts, negatives, index build).",
    )
    default_prompt: str | None = key(
        None, ANSWERS, "The name of the prompt before all other texts, as in predict and serve; default: none."
    )
    scale: float = key(20.0, ANSWERS, "Factor on the cosines before the softmax.")
    margin: float = key(0.0, ANSWERS, "Margin subtracted from the cosine of the true pair in training.")


@dataclass(frozen=True)
class LossSection:
    """The loss of a classifier with imbalanced or difficult labels."""

    class_weights: Literal["balanced"] | None = key(
        None, WEIGHTS, "balanced: weights are inversely proportional to the frequency of the labels."
    )
    weights: Mapping[str, Scalar] = mapping_key(WEIGHTS, "Or the weight of each label, such as neg: 2.0; default: 1.")
    focal_gamma: float | None = key(None, WEIGHTS, "Focal loss: the exponent; 2.0 is usual. null: cross entropy.")
    focal_alpha: float | None = key(
        None,
        WEIGHTS,
        "Focal loss: weight of the second of two labels (multi-label: of a given label); the other has 1 - alpha.",
    )
    label_smoothing: float = key(0.0, WEIGHTS, "Share of the target that is spread over all labels.")


if TYPE_CHECKING:
    DataFormat = str
else:  # mypy knows no Literal of a tuple
    DataFormat = Literal[("auto", *OF_DATA)]


@dataclass(frozen=True)
class ColumnsSection:
    """Which column or JSON key holds what. Columns of a file without header are named "0", "1", ..."""

    text: str = key("text", COLUMNS, "Column of the sentence.")
    text_pair: str | None = key(None, COLUMNS, "Column of the second sentence, for pairs.")
    label: str = key(
        "label", COLUMNS, "Column of the label; for several labels a list, or text split at label_separator."
    )
    tokens: str = key("tokens", COLUMNS, "Tagging: key of the list of tokens.")
    tags: str = key("tags", COLUMNS, "Tagging: key of the list of tags, one per token.")
    question: str = key("question", COLUMNS, "Question answering: key of the question.")
    context: str = key("context", COLUMNS, "Question answering: key of the text that holds the answer.")
    answers: str = key("answers", COLUMNS, "Question answering: key of the list of answers, {text, answer_start}.")
    negative: str | None = key(
        None, COLUMNS, "Semantic indexing: column of a text that does not match, a hard negative."
    )
    group: str | None = key(
        None,
        GROUPS,
        "Column that rows share which depend on each other, such as the article they are from; the intervals of scores "
        "draw them together.",
    )


SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class SplitsSection:
    """Names of the splits inside `data.dataset`."""

    train: str | None = key("train", ROWS, "Split used for training.")
    dev: str | None = key("dev", ROWS, "Split used to select the model.")
    test: str | None = key("test", ROWS, "Split used for the final score only.")


@dataclass(frozen=True)
class SplitFilesSection:
    """How the files of one split differ from what `data` says of all."""

    format: DataFormat | None = key(None, ROWS, "Format of these files; default: data.format.")
    header: bool | None = key(None, ROWS, "Whether these tsv and csv files have a header; default: data.header.")
    columns: Mapping[str, Scalar] = mapping_key(
        ROWS, "Columns that have other names in these files, such as text: sentence (without a header: text: '3')."
    )


@dataclass(frozen=True)
class BySplitSection:
    """Settings of the files of single splits."""

    train: SplitFilesSection = section_key(SplitFilesSection, "The training files.")
    dev: SplitFilesSection = section_key(SplitFilesSection, "The development files.")
    test: SplitFilesSection = section_key(SplitFilesSection, "The test files.")


@dataclass(frozen=True)
class BalanceSection:
    """Balancing of labels in the training rows; dev and test are unchanged."""

    method: Literal["undersample", "oversample"] | None = key(
        None,
        WEIGHTS,
        "undersample: every label as often as the rarest; oversample: as the most frequent, rows repeated.",
    )
    counts: Mapping[str, Scalar] = mapping_key(WEIGHTS, "Or the number of rows per label, such as neg: 2000.")


@dataclass(frozen=True)
class DataSection:
    """Data sources, formats and batching."""

    train: tuple[str, ...] = key((), SEARCHABLE_ROWS, "Training file, or a list of files.", path="input")
    dev: tuple[str, ...] = key((), ROWS, "Development file(s): select the model, tune thresholds.", path="input")
    test: tuple[str, ...] = key(
        (), TEST_ROWS, "Test file(s): scored once at the end, never used to select.", path="input"
    )
    dataset: str | None = key(
        None,
        ROWS,
        "A named data set instead of files: PaddleNLP built-in or Hugging Face, with subset (glue/cola).",
        path="name",
    )
    splits: SplitsSection = section_key(SplitsSection, "Split names inside `dataset`.")
    format: DataFormat = key(
        "auto",
        ROWS,
        "File format; auto: by the file's ending and the task. In tsv a quotation mark is text; quoted_tsv: cells may "
        "stand in them, as pandas writes it. text: a text per line; conll: a token and its tag per line; joined: two "
        "columns whose parts are joined by \\002; segmented: words and parts of speech on a line, as 迈向/v; squad: "
        "SQuAD or CMRC json; label_studio, doccano: what these programs export; cluener: entities by type and word in "
        "json; spans: entities with start, end and label in json.",
    )
    header: bool = key(True, COLUMNS, "Whether tsv and csv files start with a line of column names.")
    columns: ColumnsSection = section_key(ColumnsSection, "Names of the columns.")
    by_split: BySplitSection = section_key(BySplitSection, "Where the files of a split differ from the others.")
    reader: str | None = key(
        None,
        ROWS,
        "Your own reader, package.module:function(path) yielding dicts. It runs with your rights: "
        "name only code you trust.",
    )
    map: tuple[str, ...] = key(
        (),
        ROWS,
        "Your own function(s) of a row, package.module:function(row) -> dict, applied in order to every row of train, "
        "dev and test before it is read. They run with your rights: name only code you trust.",
    )
    filter: tuple[str, ...] = key(
        (),
        ROWS,
        "Your own function(s), package.module:function(row) -> true or false: rows for which one says false are left "
        "out, after data.map. They run with your rights: name only code you trust.",
    )
    labels: tuple[str, ...] | str | None = key(
        None,
        LABELS,
        "The label set: a list, or a file with one label per line. Default: collected from the training data.",
        path="text",
    )
    numbered_labels: tuple[str, ...] | str | None = key(
        None,
        LABELS,
        "Names of labels or tags that the data writes as numbers, that of 0 first: a list, or a file with one a line.",
        path="text",
    )
    tag_map: Mapping[str, str] = mapping_key(
        SEARCHABLE_ROWS,
        "Tagging, when a trained model is trained further: type (or tag) of the data to that of the model which means "
        "the same, such as PERSON: PER. What the model learnt of PER is where PERSON starts.",
    )
    label_separator: str = key(",", LABEL_TEXT, "Separator of the labels in a text column (multi-label).")
    balance: BalanceSection = section_key(BalanceSection, "Balancing of the labels in training.")
    max_seq_length: int = key(
        128,
        TOKENS,
        "Longest sequence in tokens, special tokens included; longer text is cut (tagging, QA: read in windows).",
    )
    doc_stride: int = key(64, TOKENS, "Stride in tokens of the window over a longer text (tagging, QA).")
    unit: Literal["words", "characters"] = key(
        "words",
        ANSWERS,
        "Tagging: units of plain text in predict; use characters if the training files have one per line.",
    )
    on_bad_row: Literal["error", "skip"] = key(
        "error", ROWS, "error: list the bad rows and stop; skip: continue and count them in the manifest."
    )
    streaming: bool = key(
        False,
        SEARCHABLE_ROWS,
        "Read the training data as a stream in constant memory (needs training.max_steps and data.labels).",
    )
    shuffle_buffer: int = key(10000, WEIGHTS, "Rows held for shuffling when streaming.")
    length_grouped: bool = key(True, WEIGHTS, "Batch training rows of similar length together: less padding, faster.")
    batch_tokens: int | None = key(
        None,
        WEIGHTS,
        "Limit training batches by tokens, padding included, such as 4096: short rows form large batches, long ones "
        "small ones. In place of training.per_device_train_batch_size.",
    )


@dataclass(frozen=True)
class GroupSection:
    """Settings of the parameters that match."""

    match: tuple[str, ...] = key((), WEIGHTS, "Names or patterns of parameters, as for model.freeze.")
    learning_rate: float | None = key(None, WEIGHTS, "Their peak learning rate; default: training.learning_rate.")
    weight_decay: float | None = key(
        None, WEIGHTS, "Their weight decay; default: training.weight_decay, none for biases."
    )


@dataclass(frozen=True)
class OptimizerSection:
    """Learning rates and weight decay per group of parameters."""

    groups: tuple[GroupSection, ...] = key(
        (),
        WEIGHTS,
        "List of "
        "{match: names or patterns of parameters, learning_rate: their peak, weight_decay: biases and norms included}. "
        "If several groups match, the last one that sets a value applies.",
    )
    layer_decay: float | None = key(
        None,
        WEIGHTS,
        "Learning rate of an encoder's layer as a share of that of the layer above, such as 0.9; the task head learns "
        "at training.learning_rate, the embeddings slowest.",
    )


@dataclass(frozen=True)
class EarlyStoppingSection:
    """Stop when the watched metric no longer improves (needs load_best_model_at_end)."""

    patience: int | None = key(None, CONTINUABLE, "Evaluations without improvement before training stops; null: never.")
    min_delta: float = key(0.0, CONTINUABLE, "Smallest change of the metric that counts as an improvement.")


@dataclass(frozen=True)
class GuardsSection:
    """Checks of the loss: a diverging training is stopped before the bad step changes the weights."""

    finite: bool = key(
        True,
        OUTPUT,
        "Stop the run at a loss or gradient that is NaN or infinite, with the step, its rows and the operator.",
    )
    loss_factor: float | None = key(
        100.0,
        OUTPUT,
        "Stop the run at a loss this many times the usual one: the median of the last 100 steps, or of the first 20 "
        "if that is larger. null: never.",
    )
    gradient_factor: float | None = key(1000.0, OUTPUT, "The same for the norm of the gradient, before it is clipped.")
    not_learning: Literal["warn", "stop", "ignore"] = key(
        "warn",
        OUTPUT,
        "A loss that has not fallen when it should have (docs/guards.md): warn once, with what to check; stop the run; "
        "or ignore it.",
    )


@dataclass(frozen=True)
class RuntimeSection:
    """The process: device, threads, flags. In effect before Paddle is imported."""

    device: Literal["auto", "gpu", "cpu"] = key("auto", MACHINE, "gpu, cpu, or auto (gpu if one is usable).")
    devices: tuple[int, ...] = key((), NODE, "GPU cards to use; more than one starts one process per card.")
    nproc: int = key(1, NODE, "Number of processes on CPU.")
    threads: int | None = key(None, NODE, "Threads per process; default: physical cores divided by processes.")
    deterministic: bool = key(False, MACHINE, "Same bytes every time: fixed seeds and deterministic kernels.")
    flags: Mapping[str, Scalar] = mapping_key(MACHINE, "Paddle flags, such as FLAGS_cudnn_deterministic: true.")
    env: Mapping[str, str] = mapping_key(
        NODE,
        "Environment variables of CUDA, cuBLAS, cuDNN and NCCL, such as NCCL_DEBUG: INFO, set before Paddle is "
        "imported, in every process. They replace those of the environment.",
    )
    cache_dir: str | None = key(
        None, NODE, "Folder for downloaded models and data sets (PPNLP_HOME); ASCII only.", path="input"
    )
    trust_edits: bool = key(
        False,
        MACHINE,
        "Load a model folder even if files do not match its manifest.json. For one command: not stored in a run.",
    )
    any_paddle: bool = key(
        False,
        MACHINE,
        "Work with a release of Paddle that nlpctl was never tried with, such as 3.2, in place of refusing it.",
    )
    on_oom: Literal["halve", "fail"] = key(
        "halve",
        MACHINE,
        "When a training step does not fit into memory: halve the batch and double the accumulation from that step on "
        "(same effective batch, so the learning rate stays), or fail.",
    )
    watchdog_minutes: float | None = key(
        30.0, MACHINE, "Report the stacks of all threads if no batch was computed for this long; null: never."
    )
    amd_fast_math: bool | None = key(
        None, NODE, "Let the bundled MKL use AVX on AMD processors; default: on for AMD processors."
    )


@dataclass(frozen=True)
class InferenceSection:
    """Engine and precision of trained models in eval, predict, index, bench and serve."""

    engine: Literal["auto", "dygraph", "paddle", "onnxruntime"] = key(
        "auto",
        COMMAND,
        "dygraph: Paddle in eager mode; paddle: Paddle Inference (oneDNN on CPU); onnxruntime. auto: for an export "
        "the fastest on this machine, for a plain model dygraph.",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16", "int8"] = key(
        "auto",
        COMMAND,
        "Arithmetic of the engine. auto: the fastest that this machine supports and that decided well enough when the "
        "model was exported.",
    )
    max_drop: float = key(
        0.5,
        COMMAND,
        "How many points the score on dev may fall against fp32 for auto to use a precision; for exports that know "
        "their dev scores.",
    )
    min_agreement: float = key(
        0.99,
        COMMAND,
        "Least share of rows with the same decision as fp32 at export for auto to use a precision; for exports without "
        "dev scores.",
    )
    min_confidence: float | None = key(
        None,
        CONFIDENCE,
        "Answers that are less probable than this are withheld, such as 0.9 (docs/decisions.md): the label is null, "
        "entities and labels of several are left out.",
    )
    tensorrt: bool = key(False, COMMAND, "Paddle Inference on GPU: run the graph with TensorRT.")


# What a command wants of the model that a user names.
#
#     train    a recipe with everything that a training needs
#     apply    a trained model that answers; the training data may be gone
#     embed    an encoder for vectors of texts: whatever head a folder of PaddleNLP or Transformers has is not used
#     observe  a network with or without a head: one without gives vectors of texts
Purpose = Literal["train", "apply", "embed", "observe"]


_TRIAL = "trial "


@dataclass(frozen=True)
class Origin:
    """Where a value came from: `file:line`, `--flag`, `trial NAME` of a sweep, or `default`.

    `opened`: the folder of a run or model whose file it is; None: what the user says herself. `by_flag`: she does so
    with a flag of this command, or an argument in Python.
    """

    source: str
    line: int | None = None
    opened: Path | None = field(default=None, compare=False)
    by_flag: bool = field(default=False, compare=False)

    @classmethod
    def of_trial(cls, name: str) -> Origin:
        return cls(f"{_TRIAL}{name}")

    @property
    def is_trial(self) -> bool:
        return self.line is None and self.source.startswith(_TRIAL)

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line is not None else self.source


@dataclass(frozen=True)
class Recipe:
    """A resolved recipe. Nothing is parsed, coerced or defaulted after this point."""

    task: str
    model: ModelSection
    data: DataSection
    decode: DecodeSection
    masking: MaskingSection
    prompt: PromptSection
    few_shot: FewShotSection
    retrieval: RetrievalSection
    loss: LossSection
    training: TrainingSection
    optimizer: OptimizerSection
    early_stopping: EarlyStoppingSection
    guards: GuardsSection
    search: SearchSection
    compression: CompressionSection
    distillation: DistillationSection
    inference: InferenceSection
    runtime: RuntimeSection
    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False, repr=False)
    path: Path | None = field(default=None, compare=False)
    # what distillation.student names, once config/recipe_of.py has read it: no key of a recipe, and not written
    student: Recipe | None = field(default=None, compare=False, repr=False)

    @property
    def run_dir(self) -> Path:
        """The run directory, `training.output_dir`."""
        return Path(self.training.output_dir)

    def where(self, dotted: str) -> str:
        """`file:line` or flag that set `dotted`, for error messages; the key itself when defaulted."""
        origin = self.origins.get(dotted)
        return dotted if origin is None or self.leaves_out(dotted) else f"{origin} ({dotted})"

    def leaves_out(self, dotted: str) -> bool:
        """Whether nobody set `dotted`, which then has its default."""
        origin = self.origins.get(dotted)
        return origin is None or origin.source == "default"

    def set_by_flag(self, dotted: str) -> bool:
        """Whether a flag of this command sets `dotted`, or an argument in Python."""
        origin = self.origins.get(dotted)
        return origin is not None and origin.by_flag


def value_of(recipe: Recipe, dotted: str) -> Any:
    """The value of a dotted key; None if its section is absent."""
    value: Any = recipe
    for part in dotted.split("."):
        value = None if value is None else operator.attrgetter(part)(value)
    return value


def with_value(section: Any, key: str, value: Any) -> Any:
    """A recipe, a section or a mapping in one, with another value of the dotted `key`, such as model.config.dropout."""
    if isinstance(section, Mapping):
        return {**section, key: value}
    first, _, rest = key.partition(".")
    return dataclasses.replace(section, **{first: with_value(getattr(section, first), rest, value) if rest else value})


@dataclass(frozen=True)
class Finding:
    """One conflict between values: its keys, the problem, and the remedy. The line is added by checks.py."""

    keys: tuple[str, ...]
    message: str
    hint: str


Check = Callable[[Recipe], Iterator[Finding]]
