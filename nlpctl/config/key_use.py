"""What a recipe key is for, and when its value may change: the `KeyUse` that every field of schema.py has.

PaddleNLP's own arguments have no field in schema.py, so the tables below give them theirs. Ask `use_of` (keys.py) for
the use of a key; lists of key names elsewhere would be out of date with the next key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from nlpctl.config.refused_keys import REFUSED

Role = Literal[
    "network",  # the network that is trained, and where its weights start
    "weights",  # what else the result of a training depends on: its weights, its best checkpoint, its calibration
    "rows",  # which rows there are, and how files are read
    "tokens",  # how a text becomes what the network reads
    "answers",  # how outputs of the network become answers and scores
    "machine",  # where and how fast it is computed
    "output",  # where and what is written and shown, and which training is stopped as a failure
    "candidates",  # what `compress` makes of a trained model
    "command",  # how `sweep`, `compress` and the commands that apply a model search and choose
]

PathKind = Literal[
    "input",  # a text is a path, relative to the file that names it
    "output",  # a text is a path, relative to the current folder
    "text",  # as input where the value is a single text, and not where it is a list
    "name",  # as input where the text looks like a path, or there is such a folder; else the name of something
    "values",  # a mapping to numbers, distributions, and texts as input
]


@dataclass(frozen=True)
class KeyUse:
    """What one key is for.

    `may_change`: "resume": in a run that is resumed after an interruption, and in a finished one that is continued;
    "continue": in the latter alone. The weights of a resumed run must not depend on such a key.
    `per_node`: it may differ between the nodes of one training.
    `not_searchable`: why no trial of a sweep has a value of its own; None: `search.space` may name the key.
    `with_model`: trained models keep it (task.json), because their answers depend on it.
    """

    role: Role
    may_change: Literal["resume", "continue"] | None = None
    per_node: bool = False
    not_searchable: str | None = None
    with_model: bool = False

    def may_change_on(self, event: Literal["resume", "continue"]) -> bool:
        """Whether the value may be another one after `event`."""
        return self.may_change in ("resume", event)


_SAME_ROWS = "trials are compared on the same rows of dev"
_SAME_LABELS = "trials are compared by the same labels"
_SAME_SCORE = "trials are compared by the same score"
_SAME_EVALUATIONS = "trials are compared at the same evaluations"
_SAME_ANSWERS = "trials are compared by the same answers; a threshold is tuned on dev by itself (decode.tune)"
_OWN_FOLDER = "every trial has a folder of its own"
_NOT_READ = "a training does not read it"
_OF_MACHINE = "it belongs to the machine, not to the model"

NETWORK = KeyUse("network")
HEAD = replace(NETWORK, with_model=True)

WEIGHTS = KeyUse("weights")
# how long, how fast, and with which checkpoints a training learns: a continued one may learn otherwise
CONTINUABLE = replace(WEIGHTS, may_change="continue")
SCORE = replace(WEIGHTS, not_searchable=_SAME_SCORE)
EVALUATIONS = replace(WEIGHTS, not_searchable=_SAME_EVALUATIONS)
OF_COMPRESS = replace(WEIGHTS, not_searchable=_NOT_READ)  # the trainings of compress read it, `train` does not
STUDENT = replace(OF_COMPRESS, may_change="resume")

SEARCHABLE_ROWS = KeyUse("rows")
ROWS = replace(SEARCHABLE_ROWS, not_searchable=_SAME_ROWS)
TEST_ROWS = replace(SEARCHABLE_ROWS, not_searchable="the test split is read for the best alone")
LABELS = replace(SEARCHABLE_ROWS, not_searchable=_SAME_LABELS)
COLUMNS = replace(ROWS, with_model=True)
GROUPS = replace(COLUMNS, may_change="resume")  # the intervals of scores alone depend on it
LABEL_TEXT = replace(LABELS, with_model=True)

TOKENS = KeyUse("tokens", with_model=True)

ANSWERS = KeyUse("answers", with_model=True)  # and what the network learns, so it may be tried
DECODING = replace(ANSWERS, not_searchable=_SAME_ANSWERS)

MACHINE = KeyUse("machine", may_change="resume", not_searchable=_OF_MACHINE)
NODE = replace(MACHINE, per_node=True)
SPEED = KeyUse("machine", may_change="resume")

OUTPUT = KeyUse("output", may_change="resume")
FOLDER = replace(OUTPUT, per_node=True, not_searchable=_OWN_FOLDER)
RECORD = KeyUse("output", may_change="continue")  # a run that is resumed has one record from its first step to its last

CANDIDATES = KeyUse("candidates", may_change="resume", not_searchable=_NOT_READ)
COMMAND = KeyUse("command", may_change="resume", not_searchable=_NOT_READ)
CONFIDENCE = replace(COMMAND, may_change=None)  # the scores at the end of a training depend on it
SEARCH = KeyUse("command", not_searchable="it says how the others are tried")
SEARCH_BUDGET = replace(SEARCH, may_change="resume")  # a sweep that goes on may try more

# The task, and keys that other versions of nlpctl had: all may depend on them.
UNKNOWN = SEARCHABLE_ROWS


# -- what PaddleNLP's arguments are for ------------------------------------------------------------

TRAINING_ARGUMENTS: Mapping[KeyUse, str] = {
    WEIGHTS: """
        do_eval per_device_train_batch_size gradient_accumulation_steps adam_beta1 adam_beta2
        adam_epsilon num_cycles lr_end power log_on_each_node save_on_each_node seed bf16 fp16 fp16_opt_level
        amp_master_grad amp_custom_black_list amp_custom_white_list sharding
        sharding_parallel_degree data_parallel_config recompute scale_loss minimum_eval_times dataloader_drop_last
        remove_unused_columns optim lazy_data_processing to_static ignore_save_lr_and_optim
    """,
    # logging_steps stands for eval_steps where that is not set, so the best checkpoint may depend on it
    CONTINUABLE: """
        learning_rate weight_decay max_grad_norm num_train_epochs max_steps lr_scheduler_type warmup_ratio warmup_steps
        save_steps logging_steps
    """,
    SCORE: "metric_for_best_model greater_is_better",
    EVALUATIONS: "load_best_model_at_end",
    replace(EVALUATIONS, may_change="continue"): "evaluation_strategy eval_steps save_strategy",
    replace(WEIGHTS, not_searchable=_SAME_ROWS): "max_evaluate_steps",
    FOLDER: "output_dir logging_dir",
    OUTPUT: "disable_tqdm save_total_limit skip_memory_metrics skip_profile_timer",
    RECORD: "logging_strategy logging_first_step report_to run_name",
    SPEED: "dataloader_num_workers",
    # a score may depend on it in its last digits, and the best checkpoint on the score
    replace(SPEED, may_change=None): "per_device_eval_batch_size",
}

COMPRESSION_ARGUMENTS: Mapping[KeyUse, str] = {
    COMMAND: "strategy",
    CANDIDATES: """
        input_dtype prune_embeddings onnx_format width_mult_list weight_quantize_type activation_quantize_type algo_list
        batch_num_list batch_size_list round_type bias_correction input_infer_model_path use_pact moving_rate
    """,
}

ARGUMENT_PATHS: Mapping[str, PathKind] = {
    "output_dir": "output",
    "logging_dir": "output",
    "input_infer_model_path": "input",
}


def use_of_argument(section: str, name: str) -> KeyUse:
    """The use of an argument of PaddleNLP, a key of section training or compression. KeyError: the tables lack it."""
    tables = {"training": TRAINING_ARGUMENTS, "compression": COMPRESSION_ARGUMENTS}
    for use, names in tables[section].items():
        if name in names.split():
            return use
    if f"{section}.{name}" in REFUSED:  # no recipe sets it
        return {"training": WEIGHTS, "compression": CANDIDATES}[section]
    raise KeyError(f"{section}.{name} has no use in {__name__}")
