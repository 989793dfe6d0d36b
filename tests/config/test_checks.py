"""Keys that clash: one case for each check, its message, and the place it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.config.checks import (
    CHECKS,
    DATA_CHECKS,
    NETWORK_CHECKS,
    PARAMETER_CHECKS,
    PROCESS_CHECKS,
    SCRATCH_CHECKS,
    TASK_CHECKS,
    TRAINING_CHECKS,
    USER_CODE_CHECKS,
    check,
    refuse_half_precision_on_cpu,
)
from nlpctl.config.keys import all_keys
from nlpctl.config.load import Override, load_recipe
from nlpctl.config.ranges import RANGES
from nlpctl.config.refused_keys import REFUSED
from nlpctl.config.tasks import KNOWN_TASKS
from nlpctl.errors import UserError
from nlpctl.experiments.study import Trial
from nlpctl.experiments.trials import trial_recipe

HEAD = "task: sequence_classification\n"
MODEL = "model: {from_scratch: {}}\n"
DATA = "data: {train: train.tsv, dev: dev.tsv}\n"
GOOD = HEAD + MODEL + DATA
TAGGING = "task: token_classification\n"
VECTORS = "task: semantic_indexing\n" + MODEL + "data:\n  train: train.tsv\n  columns: {text_pair: b}\n"
FEW = "task: few_shot_classification\n" + MODEL + DATA
PAIRS = "few_shot: {method: contrastive}\n"
PROMPT = "prompt: {template: \"{'text': 'text'} {'mask'}\", verbalizer: {a: b}}\n"
LEXICAL = "task: lexical_analysis\n" + DATA + "model:\n  from_scratch:\n"
READING = "task: question_answering\n" + MODEL
BEST = "load_best_model_at_end: true, evaluation_strategy: epoch, save_strategy: epoch"

# text after GOOD -> where, a part of the message. One per check, or more.
CASES = {
    "_ranges": [("training: {per_device_train_batch_size: 0}", 4, "per_device_train_batch_size is 0")],
    "_user_optimizer": [
        ("training: {optimizer: a:b}\noptimizer: {layer_decay: 0.9}", 4, "optimizer.layer_decay would not reach it"),
        ("training: {optimizer: a:b, sharding: stage1}\nruntime: {nproc: 2}", 4, "sharding spreads the state of"),
    ],
    "_user_loss": [
        ("loss: {focal_gamma: 2.0}\ntraining: {criterion: 'a:b'}", 4, "loss.focal_gamma would not reach it"),
        ("training: {criterion: 'a:b'}\nloss:\n  weights: {x: 2.0}", 6, "loss.weights would not reach it"),
    ],
    "_lonely_preprocessing": [("training: {preprocess_logits_for_metrics: a:b}", 4, "compute_metrics, which is not")],
    "_best_model": [
        ("training: {load_best_model_at_end: true, save_strategy: epoch}", 4, "found no and epoch"),
        ("training: {load_best_model_at_end: true, save_strategy: no}", 4, "needs evaluations"),
    ],
    "_best_model_steps": [
        (
            "training: {load_best_model_at_end: true, evaluation_strategy: steps, eval_steps: 30,\n  save_steps: 100}",
            5,
            "save_steps (100) is not a multiple of eval_steps (30)",
        ),
        (
            "training: {load_best_model_at_end: true, evaluation_strategy: steps, logging_steps: 7}",
            4,
            "save_steps (500) is not a multiple of logging_steps (7)",
        ),
    ],
    "_early_stopping": [("early_stopping: {patience: 2}", 4, "needs load_best_model_at_end")],
    "_lonely_do_eval": [("training: {do_eval: true}", 4, "do_eval alone")],
    "_best_metric": [
        (f"training: {{{BEST}, metric_for_best_model: f1}}", 4, "no score named f1"),
        (f"training: {{{BEST}, metric_for_best_model: eval_loss, greater_is_better: true}}", 4, "better loss is lower"),
        (f"training: {{{BEST}, metric_for_best_model: macro_f1, greater_is_better: no}}", 4, "macro_f1 is higher"),
    ],
    "_one_precision": [
        ("training: {fp16: true, bf16: true}", 4, "fp16 and bf16 are both true"),
    ],
    "_no_half_precision_on_cpu": [
        ("training: {fp16: true}\nruntime: {device: cpu}", 4, "fp16 needs a GPU"),
        ("training: {bf16: true, fast_cpu: false}\nruntime: {device: cpu}", 4, "the faster functions, which are off"),
        ("training: {bf16: true, fp16_opt_level: O2}\nruntime: {device: cpu}", 4, "weights in 32 bits"),
    ],
    "_processes": [
        ("runtime: {devices: [0, 1], nproc: 2}", 4, "both set"),
        ("runtime: {devices: 0, device: cpu}", 4, "names GPU cards"),
        ("runtime: {nproc: 2, device: gpu}", 4, "processes on the CPU"),
        ("runtime: {devices: [1, 1]}", 4, "a card twice"),
    ],
    "_unsupported": [
        ("training: {tensor_parallel_degree: 2}", 4, "tensor_parallel_degree is not supported"),
        ("training: {unified_checkpoint: true}", 4, "a checkpoint is whole"),
        ("training: {flatten_param_grads: true}", 4, "NPU devices only"),
        ("training: {bf16_full_eval: true}", 4, "computes in the precision of the training"),
    ],
    "_sharding_stage": [
        ("training: {sharding: stage2}\nruntime: {nproc: 2}", 4, "'stage2' is not supported"),
        ("training: {sharding: stage1 offload}\nruntime: {nproc: 2}", 4, "'stage1 offload' is not supported"),
    ],
    "_optimizer": [("training: {optim: adafactor}", 4, "no adafactor")],
    "_reporters": [("training: {report_to: [visualdl, wandb]}", 4, "wandb is not installed")],
    "_evaluation_steps": [("training: {minimum_eval_times: 3, evaluation_strategy: steps}", 4, "lowers eval_steps")],
    "_polynomial": [("training: {lr_scheduler_type: polynomial, learning_rate: 1.0e-7}", 4, "which must be lower")],
    "_some_steps": [("training: {max_steps: 0}", 4, "no limit")],
    "_keys_of_other_choices": [
        ("training: {evaluation_strategy: epoch, eval_steps: 5}", 4, "eval_steps has no effect"),
        ("training: {save_steps: 5, save_strategy: epoch}", 4, "no effect with training.save_strategy: epoch"),
        ("training: {lr_scheduler_type: constant, warmup_ratio: 0.1}", 4, "warmup_ratio has no effect"),
        ("training: {lr_end: 1.0e-6}", 4, "no effect with training.lr_scheduler_type: linear"),
        ("early_stopping: {min_delta: 0.5}", 4, "no effect with early_stopping.patience: null"),
    ],
    "_flags": [
        ("runtime:\n  flags:\n    FLAGS_benchmrk: 1", 6, "Paddle has no flag FLAGS_benchmrk"),
        ("runtime: {flags: {FLAGS_benchmark: perhaps}}", 4, "'perhaps' is no value"),
    ],
    "_environment": [("runtime:\n  env:\n    NCCL_DEBUGG: INFO", 6, "known to read NCCL_DEBUGG")],
    "_ascii_cache": [("runtime: {cache_dir: 缓存}", 4, "not plain ASCII")],
    "_run_directory": [
        ("training: {output_dir: ''}", 4, "output_dir is empty"),
        ("training: {output_dir: /dev/null}", 4, "is a file"),
        ("training: {output_dir: /dev/null/run}", 4, "/dev/null is a file"),
    ],
}

# whole texts -> where, a part of the message
WHOLE = {
    "_model_is_one_thing": [
        (HEAD + DATA + "model: {name_or_path: x, from_scratch: {}}", ":3", "both model.name_or_path")
    ],
    "_no_pipes": [(HEAD + MODEL + "data: {train: /dev/null}", ":3", "/dev/null is a pipe or a device")],
    "_heads_divide_width": [
        (
            HEAD + DATA + "model:\n  from_scratch:\n    hidden_size: 100\n    num_attention_heads: 3",
            ":5",
            "over 3 attention",
        ),
    ],
    "_vectors_have_an_embedding": [
        (HEAD + DATA + "model: {name_or_path: bert-base-chinese, embeddings: dev.tsv}", ":3", "word vectors are for")
    ],
    "_dictionaries_hold_characters": [
        (
            LEXICAL + "    architecture: bigru\n    unit: words\n    dictionaries: .",
            ":7",
            "dictionaries are read by character",
        ),
        (LEXICAL + "    architecture: bert\n    dictionaries: .", ":6", "bert builds its own vocabulary"),
    ],
    "_network_does_the_task": [
        (LEXICAL + "    architecture: textcnn", ":5", "textcnn cannot do lexical_analysis"),
        (HEAD + DATA + "model: {from_scratch: {architecture: bigru}}", ":3", "bigru cannot do sequence"),
    ],
    "_keys_of_other_architectures": [
        (HEAD + DATA + "model:\n  from_scratch:\n    unit: words", ":5", "unit has no effect for ernie"),
        (
            HEAD + DATA + "model: {from_scratch: {architecture: textcnn, num_hidden_layers: 3}}",
            ":3",
            "num_hidden_layers has no effect for textcnn",
        ),
        (
            GOOD + "distillation: {model: {from_scratch: {architecture: bilstm, kernel_sizes: [5]}}}",
            ":4",
            "distillation.model.from_scratch.kernel_sizes has no effect for bilstm",
        ),
    ],
    "_tag_map_has_a_model": [
        (
            "task: lexical_analysis\nmodel: {from_scratch: {architecture: bigru}}\n"
            "data:\n  train: train.tsv\n  tag_map: {A: B}",
            ":5",
            "what a trained model learnt, and this one starts from scratch",
        ),
    ],
    "keys_of_other_tasks": [
        (HEAD + DATA + "model:\n  from_scratch: {}\n  head: crf", ":5", "model.head has no effect for sequence_"),
        (
            "task: token_classification\n" + MODEL + "data:\n  train: train.tsv\n  columns: {label: tag}",
            ":5",
            "data.columns.label has no effect for token_classification",
        ),
        (GOOD + "retrieval:\n  pooling: cls", ":5", "retrieval.pooling has no effect"),
    ],
    "_format_of_other_tasks": [
        (HEAD + MODEL + "data:\n  train: train.tsv\n  format: squad", ":5", "cannot read data.format: squad"),
    ],
    "_balance": [
        (GOOD + "loss:\n  class_weights: balanced\n  weights: {a: 2}", ":5", "both loss.class_weights and"),
        (GOOD + "loss:\n  focal_alpha: 0.3", ":5", "focal_alpha without focal loss"),
        (
            HEAD + MODEL + DATA.rstrip("}\n") + ",\n  balance: {method: oversample, counts: {a: 2}}}",
            ":4",
            "both data.balance.method",
        ),
        (
            HEAD + MODEL + "training: {max_steps: 3}\ndata:\n  train: train.tsv\n  labels: [a, b]\n  streaming: true\n"
            "  balance: {method: oversample}",
            ":8",
            "a stream cannot be counted",
        ),
    ],
    "_weights_are_numbers": [(GOOD + "loss:\n  weights: {a: much}", ":5", "'much' is not a weight")],
    "_tuning_has_data": [
        (HEAD + MODEL + "data: {train: train.tsv}\ndecode:\n  tune: macro_f1", ":5", "searched on dev data"),
    ],
    "_template": [
        (FEW + "prompt: {verbalizer: {a: b}}", ":1", "needs a template"),
        (FEW + "few_shot: {method: auto}\nprompt: {verbalizer: {a: b}}", ":1", "needs a template"),
        (FEW + "prompt: {template: \"{'mask'}\", verbalizer: {a: b}}", ":4", "prompt.template: "),
    ],
    "_words_for_labels": [
        (FEW + "prompt: {template: \"{'text': 'text'} {'mask'}\"}", ":1", "needs words for the labels"),
    ],
    "_default_prompt": [
        (VECTORS + "retrieval: {prompts: {query: 'q: '}, default_prompt: qury}", ":6", "there is no prompt 'qury'"),
    ],
    "_misspelt_prompts": [
        (VECTORS + "retrieval:\n  prompts: {query: 'q: ', pasage: 'p: '}", ":7", "no text asks for a prompt 'pasage'"),
    ],
    "_projected_activation": [(VECTORS + "retrieval: {activation: tanh}", ":6", "tanh without a projection")],
    "_user_class": [
        (
            HEAD + DATA + "model: {from_scratch: {architecture: textcnn}, network: a:B, embeddings: train.tsv}",
            ":3",
            "fills nlpctl's own networks, not model.network",
        ),
        (TAGGING + DATA + "model: {from_scratch: {}, network: a:B, head: crf}", ":3", "model.head would change"),
    ],
    "_keys_of_the_other_method": [
        (FEW + PAIRS + "prompt: {verbalizer: {a: b}}", ":5", "prompt.verbalizer has no effect"),
        (FEW + PAIRS + "loss: {focal_gamma: 2.0}", ":5", "loss.focal_gamma has no effect"),
        (FEW + PROMPT + "few_shot: {pairs: 5}", ":5", "few_shot.pairs has no effect for few_shot.method: prompt"),
    ],
    "_user_loss_of_pairs": [(FEW + PAIRS + "training: {criterion: 'a:b'}", ":5", "which no other can replace")],
    "_pairs_are_drawn_from_memory": [
        (
            "task: few_shot_classification\n" + MODEL + PAIRS + "training: {max_steps: 9}\n"
            "data: {train: train.tsv, labels: [a, b], streaming: true}",
            ":5",
            "cannot be drawn from a stream",
        ),
    ],
    "_some_model": [(HEAD + DATA, "", "no model")],
    "_model_folder_exists": [
        (HEAD + DATA + "model: {name_or_path: ./gone}", ":3", "gone does not exist"),
        (HEAD + DATA + "model: {name_or_path: ./train.tsv}", ":3", "is a file"),
    ],
    "_some_data": [
        (HEAD + MODEL, "", "nothing to train from"),
        (HEAD + MODEL + "data: {train: train.tsv, dataset: x}", ":3", "both data.train"),
        (HEAD + MODEL + "data: {dataset: x, dev: dev.tsv}", ":3", "both data.dev"),
        (HEAD + MODEL + "data: {dataset: x, splits: {train: ~}}", ":3", "data.splits.train is null"),
        (HEAD + MODEL + "data: {reader: 'a:b', dev: dev.tsv}", "", "nothing to train from"),
    ],
    "_evaluation_has_data": [
        (HEAD + MODEL + "data: {train: train.tsv}\ntraining: {evaluation_strategy: epoch}", ":4", "needs data.dev"),
        (
            HEAD + MODEL + "data: {dataset: x, splits: {dev: ~}}\ntraining: {evaluation_strategy: epoch}",
            ":4",
            "needs data.splits.dev",
        ),
    ],
    "_streaming": [
        (HEAD + MODEL + "data: {train: train.tsv, streaming: true, labels: [a, b]}", ":3", "needs training.max_steps"),
        (
            HEAD + MODEL + "data: {train: train.tsv, streaming: true}\ntraining: {max_steps: 9}",
            ":3",
            "needs data.labels",
        ),
        (
            HEAD + MODEL + "training: {max_steps: 9, evaluation_strategy: epoch}\n"
            "data: {train: train.tsv, dev: dev.tsv, labels: [a, b], streaming: true}",
            ":3",
            "would wait for the last step",
        ),
    ],
    "_keys_of_other_choices": [
        (HEAD + MODEL + "data: {train: train.tsv, shuffle_buffer: 7}", ":3", "no effect with data.streaming: false"),
    ],
    "_batch_tokens": [
        (
            HEAD + MODEL + "training: {max_steps: 9}\ndata: {train: train.tsv, labels: [a, b], streaming: true,\n"
            "  batch_tokens: 999}",
            ":5",
            "cannot be sorted by length",
        ),
        (HEAD + MODEL + "data: {train: train.tsv, length_grouped: false, batch_tokens: 999}", ":3", "forbids"),
        (HEAD + MODEL + "data: {train: train.tsv, batch_tokens: 99}", ":3", "128 tokens, more than a batch (99)"),
    ],
    "_window": [
        (READING + "data: {train: train.tsv, max_seq_length: 64}", ":3", "of 64 tokens with a stride of 64 would skip"),
        (READING + "data:\n  train: train.tsv\n  doc_stride: 125", ":5", "of 128 tokens with a stride of 125 would"),
    ],
    "_columns_differ": [
        (HEAD + MODEL + "data: {train: train.tsv, columns: {text: a, label: a}}", ":3", "same column 'a'"),
        (HEAD + MODEL + "data: {train: train.tsv, columns: {text_pair: text}}", ":3", "text and text_pair"),
    ],
    "_pair_column": [("task: text_matching\n" + MODEL + DATA, ":1", "needs the column of the second text")],
    "_label_list": [
        (HEAD + MODEL + "data: {train: train.tsv, labels: [a, b, a]}", ":3", "repeats a"),
        (HEAD + MODEL + "data: {train: train.tsv, labels: [a]}", ":3", "fewer than two"),
        (HEAD + MODEL + "data: {train: train.tsv, labels: [a, ' ']}", ":3", "blank"),
    ],
    "_label_file_exists": [(HEAD + MODEL + "data: {train: train.tsv, labels: gone.txt}", ":3", "gone.txt")],
    "_named_files_exist": [
        (TAGGING + MODEL + DATA + "decode: {terms: gone.tsv}", ":4", "terms: there is no file"),
        (HEAD + DATA + "model: {from_scratch: {}, embeddings: gone.txt}", ":3", "embeddings: there is no file"),
        (HEAD + DATA + "model: {from_scratch: {vocabulary: gone.txt}}", ":3", "vocabulary: there is no file"),
        (
            "task: masked_language_model\n" + MODEL + DATA + "masking: {whole_words: true, dictionary: gone.txt}",
            ":4",
            "dictionary: there is no file",
        ),
    ],
    "_dataset_folder_exists": [
        (HEAD + MODEL + "data: {dataset: ./gone}", ":3", "gone does not exist"),
        (HEAD + MODEL + "data: {dataset: ./train.tsv}", ":3", "is a file"),
    ],
    "_data_files_exist": [
        (HEAD + MODEL + "data:\n  train: [train.tsv, gone.tsv]", ":4", "there is no file"),
        (HEAD + MODEL + "data:\n  train: train.tsv\n  test: .", ":5", "is a folder"),
    ],
    "_groups": [
        (GOOD + "optimizer:\n  groups:\n  - {learning_rate: 1}", ":6", "groups.0 matches nothing"),
        (GOOD + "optimizer:\n  groups:\n  - {match: a}", ":6", "groups.0 changes nothing"),
        (GOOD + "optimizer: {groups: [{match: a, learning_rate: 0}]}", ":4", "groups.0.learning_rate is 0.0"),
        (GOOD + "optimizer: {groups: [{match: a, weight_decay: -1}]}", ":4", "groups.0.weight_decay is -1.0"),
    ],
    "_no_crf": [
        (
            TAGGING + MODEL + DATA + "optimizer:\n  groups: [{match: crf, learning_rate: 1e-2}]",
            ":5",
            "optimizer.groups.0.match: there is no crf with model.head: linear",
        ),
        (TAGGING + DATA + "model: {from_scratch: {}, freeze: [crf.transitions]}", ":3", "model.freeze: there is"),
        (TAGGING + DATA + "model: {from_scratch: {}, set_parameters: {crf: 0.0}}", ":3", "parameters.crf: there"),
    ],
    "_pairs": [(HEAD + DATA + "model: {from_scratch: {}, tie: [[a]]}", ":3", "['a'] is not a pair")],
    "_values": [
        (HEAD + DATA + "model: {from_scratch: {}, set_parameters: {a.b: train.tsv}}", ":3", "is no .npy file"),
        (HEAD + DATA + "model: {from_scratch: {}, set_parameters: {a.b: gone.npy}}", ":3", "a.b: there is no file"),
        (HEAD + DATA + "model: {from_scratch: {}, set_parameters: {a.b: yes}}", ":3", "a.b has no number"),
        (HEAD + DATA + "model: {from_scratch: {}, set_parameters: {a.b: norml(0)}}", ":3", "did you mean 'normal'"),
        (HEAD + DATA + "model: {from_scratch: {}, set_parameters: {a.b: normal}}", ":3", "normal needs std"),
        (HEAD + DATA + "model: {from_scratch: {}, set_parameters: {a.b: uniform(0)}}", ":3", "uniform needs high"),
        (HEAD + DATA + "model: {from_scratch: {}, set_parameters: {a.b: 'uniform(1, 0)'}}", ":3", "1 is above 0"),
        (HEAD + DATA + "model: {from_scratch: {}, set_parameters: {a.b: normal(std=-1)}}", ":3", "-1 is below 0"),
        (HEAD + DATA + "model: {from_scratch: {}, set_parameters: {a.b: constant(x)}}", ":3", "'x' is not a number"),
        (HEAD + DATA + "model: {from_scratch: {}, set_parameters: {a.b: constant(c=1)}}", ":3", "no argument 'c=1'"),
        (HEAD + DATA + "model: {from_scratch: {}, set_parameters: {a.b: 'constant(inf)'}}", ":3", "not finite"),
        (HEAD + DATA + "model: {from_scratch: {}, set_parameters: {a.b: 'normal(0'}}", ":3", "no closing parenthesis"),
        (HEAD + DATA + "model: {from_scratch: {}, set_parameters: {a.b: normal(0, 1)}}", ":3", "'normal(0' has no"),
    ],
    "_split_settings": [
        (HEAD + MODEL + "data: {dataset: glue/sst2, by_split: {dev: {format: csv}}}", ":3", "by_split applies"),
        (HEAD + MODEL + "data: {train: train.tsv, by_split: {train: {columns: {txt: a}}}}", ":3", "no column txt"),
        (
            HEAD + MODEL + "data: {train: train.tsv, by_split: {train: {columns: {text_pair: a}}}}",
            ":3",
            "data.columns.text_pair is not set",
        ),
    ],
    "_one_vocabulary": [
        (
            HEAD + DATA + "model: {from_scratch: {architecture: textcnn, vocabulary: dev.tsv, dictionaries: .}}",
            ":3",
            "both vocabulary and",
        )
    ],
    "_tokens": [(HEAD + DATA + "model: {from_scratch: {}, add_tokens: gone.txt}", ":3", "add_tokens: there is no")],
    "_form_of_training_code": [
        (GOOD + "training: {callbacks: [a:B, c]}", ":4", "training.callbacks 'c' is not of the form")
    ],
    "_form_of_user_code": [
        (HEAD + MODEL + "data: {train: x, reader: read.py}", ":3", "package.module:function"),
        (GOOD + "compression: {evaluate: scores.py}", ":4", "compression.evaluate 'scores.py' is not of the form"),
        (GOOD + "distillation: {model: {network: Net}}", ":4", "distillation.model.network 'Net' is not of the form"),
    ],
}


def cases() -> list:
    found = [(GOOD + text, f":{line}", part) for texts in CASES.values() for text, line, part in texts]
    found += [case for texts in WHOLE.values() for case in texts]
    return [pytest.param(*case, id=case[2]) for case in found]


def test_every_check_has_a_case() -> None:
    checks = CHECKS + NETWORK_CHECKS + PROCESS_CHECKS + TASK_CHECKS + TRAINING_CHECKS + DATA_CHECKS + PARAMETER_CHECKS
    checks += USER_CODE_CHECKS + SCRATCH_CHECKS
    checks += tuple(check for task in KNOWN_TASKS for check in task.checks)
    assert {check.__name__ for check in checks} - {"_checks_of_the_task"} == set(CASES) | set(WHOLE)


def test_many_missing_files_are_told_in_a_few_messages(problems) -> None:
    assert len(problems(HEAD + MODEL + f"data: {{train: [{', '.join(f'{i}.tsv' for i in range(99))}]}}")) == 4


@pytest.mark.parametrize(("text", "where", "part"), cases())
def test_clashes(problems, text: str, where: str, part: str) -> None:
    (problem,) = problems(text)
    assert part in problem.message
    assert problem.where == f"recipe.yaml{where}"
    assert problem.hint


STUDENT = "distillation:\n  model: {from_scratch: {architecture: bilstm}}\n"


@pytest.mark.parametrize(
    ("text", "where", "part"),
    [
        ("distillation: {generate: {cross: 0.9}}", 4, "cross has no effect with distillation.generate.copies: 0"),
        ("distillation: {relation_heads: 2}", 4, "relation_heads has no effect with distillation.relations: 0.0"),
        ("distillation: {temperature: 2}", 4, "temperature has no effect with distillation.loss: mse"),
        (f"{STUDENT}  fit: 100", 6, "fit has no effect: it is for a student made of the teacher's layers"),
        ("distillation: {embeddings: false}", 4, "embeddings has no effect: it is for a student over words"),
        ("compression: {moving_rate: 0.5, activation_quantize_type: range_abs_max}", 4, "moving_rate has no effect"),
    ],
)
def test_keys_of_compress_without_effect(load, problems, folder, text: str, where: int, part: str) -> None:
    (problem,) = problems(GOOD + text)
    assert part in problem.message and problem.where == f"recipe.yaml:{where}" and "delete it" in problem.hint
    (folder / "manifest.json").write_text("{}", encoding="utf-8")  # of a run of an earlier version
    load_recipe(folder / "recipe.yaml")


def test_keys_of_compress_with_effect(load) -> None:
    load(GOOD + "distillation: {generate: {copies: 1, cross: 0.9}, relations: 1, relation_heads: 2, fit: 100}\n")
    load(f"{GOOD}{STUDENT}  embeddings: false\ncompression: {{moving_rate: 0.5}}\n")


def test_a_flag_that_names_another_student_leaves_the_file_as_it_is(load, folder) -> None:
    (folder / "student.yaml").write_text(GOOD, encoding="utf-8")
    (folder / "recipe.yaml").write_text(GOOD + "distillation: {fit: 512}\n", encoding="utf-8")
    student = str(folder / "student.yaml")
    for key, value in (("student", student), ("model.from_scratch.architecture", "bilstm")):
        load_recipe(folder / "recipe.yaml", [Override(f"distillation.{key}", value, "--set")])


def test_a_run_of_an_earlier_version_goes_on_with_a_key_without_effect(load, folder: Path) -> None:
    training = "criterion: 'a:b', max_steps: 0, eval_accumulation_steps: 20, bf16_full_eval: true, lr_end: 0.1"
    keys = f"model: {{from_scratch: {{unit: words}}}}\ntraining: {{{training}}}\nloss: {{label_smoothing: 0.1}}\n"
    with pytest.raises(UserError, match="eval_accumulation_steps is not supported"):
        load(HEAD + DATA + keys + "early_stopping: {min_delta: 0.1}\n", purpose="apply")
    (folder / "manifest.json").write_text("{}", encoding="utf-8")  # now it is the recipe of a run
    assert load_recipe(folder / "recipe.yaml").loss.label_smoothing == 0.1


CHOSEN = "model.from_scratch.architecture"


def test_another_architecture_may_be_chosen_over_keys_of_the_first(load, problems) -> None:
    ours = GOOD.replace("{}", "{num_attention_heads: 4}")
    assert load(ours, Override(CHOSEN, "bilstm", "--set")).model.from_scratch.num_attention_heads == 4
    load("extends: base.yaml\nmodel: {from_scratch: {architecture: textcnn}}", base=ours)
    load(GOOD.replace("{}", "{unit: words}") + f"search: {{space: {{{CHOSEN}: [ernie, bilstm]}}}}")
    for unread in ("model.from_scratch.num_attention_heads", "distillation.model.from_scratch.num_attention_heads"):
        chosen = Override(unread.replace("num_attention_heads", "architecture"), "bilstm", "--set")
        (problem,) = problems(GOOD, chosen, Override(unread, "4", "--heads"))
        assert problem.where == "--heads" and problem.hint == "delete it; it applies to bert, ernie, roberta, electra"
    (problem,) = problems("extends: base.yaml\nmodel: {from_scratch: {unit: words}}", base=GOOD)
    assert problem.where == "recipe.yaml:2"


@pytest.mark.parametrize("values", [{CHOSEN: "bilstm"}, {CHOSEN: "bilstm", "model.from_scratch.kernel_sizes": (5,)}])
def test_a_trial_may_set_what_its_architecture_does_not_read(load, folder: Path, values: dict) -> None:
    recipe = load(GOOD.replace("{}", "{num_attention_heads: 4}"))
    assert check(trial_recipe(recipe, folder, Trial(1, values)), "train") == []


def test_a_clash_names_every_key_and_where_it_was_set(problems) -> None:
    (problem,) = problems(GOOD + "training:\n  fp16: true\n", Override("runtime.device", "cpu", "--device"))
    assert problem.where == "recipe.yaml:5"
    assert "[training.fp16: " in problem.message
    assert problem.message.endswith("recipe.yaml:5, runtime.device: --device]")


@pytest.mark.parametrize("strategy", ["epoch", "no"])
def test_what_the_best_model_needs_may_also_be_left(problems, strategy: str) -> None:
    (problem,) = problems(f"{GOOD}training: {{load_best_model_at_end: true, save_strategy: {strategy}}}")
    assert problem.hint.endswith("or load_best_model_at_end: false")


def test_a_clash_with_a_default_says_so(problems) -> None:
    (problem,) = problems(GOOD + "early_stopping: {patience: 2}\n")
    assert "training.load_best_model_at_end: not set" in problem.message


@pytest.mark.parametrize("dotted", [dotted for dotted in RANGES if dotted != "runtime.devices"])
def test_numbers_out_of_range(problems, dotted: str) -> None:
    assert dotted in all_keys()
    low = RANGES[dotted].low
    text = GOOD + "training: {max_steps: 10}\n"
    found = problems(text, Override(dotted, str(int(low) - 1), "--flag"))
    assert [each.where for each in found if each.message.startswith(f"{dotted} is ")] == ["--flag"]


@pytest.mark.parametrize(
    ("dotted", "value"),
    [
        ("training.warmup_ratio", "1.5"),
        ("training.learning_rate", "0"),
        ("training.num_train_epochs", "0"),
        ("training.seed", str(2**32)),
        ("data.max_seq_length", "3"),
        ("runtime.devices", "-1"),
    ],
)
def test_more_numbers_out_of_range(problems, dotted: str, value: str) -> None:
    (problem,) = problems(GOOD, Override(dotted, value, "--flag"))
    assert problem.message.startswith(f"{dotted} is ") and problem.hint.startswith("it must")


@pytest.mark.parametrize(
    "text",
    [
        f"training: {{{BEST}}}",
        f"training: {{{BEST}, metric_for_best_model: eval_macro_f1, greater_is_better: true}}",
        f"training: {{{BEST}, metric_for_best_model: loss, greater_is_better: false}}\nearly_stopping: {{patience: 3}}",
        "training: {load_best_model_at_end: true, evaluation_strategy: steps, eval_steps: 50, save_steps: 100}",
        "training: {do_eval: true, evaluation_strategy: epoch}",
        "training: {fp16: true}\nruntime: {device: gpu, devices: [0, 1]}",
        "training: {bf16: true}",
        "training: {bf16: true}\nruntime: {device: cpu}",
        "training: {sharding: '', tensor_parallel_degree: 1, sharding_parallel_degree: -1}",
        "training: {sharding: stage1, sharding_parallel_degree: 2}\nruntime: {nproc: 2, device: cpu}",
        "runtime: {nproc: 2, device: cpu}",
        "training: {warmup_ratio: 1, max_grad_norm: 0, weight_decay: 0}",
    ],
)
def test_what_is_allowed(load, text: str) -> None:
    load(GOOD + text)


def test_a_run_may_have_lost_its_data(load) -> None:
    text = HEAD + MODEL + "data: {train: gone.tsv, labels: gone.txt}\n"
    with pytest.raises(UserError):
        load(text)
    assert load(text, purpose="apply").data.train


def test_a_reader_decides_what_a_path_means(load) -> None:
    load(HEAD + MODEL + "data: {train: gone.db, reader: 'package.module:read'}\n")


def test_no_check_builds_on_a_value_that_is_wrong(problems) -> None:
    found = problems(
        HEAD + MODEL + "data: {train: [[x]]}\ntraining: {eval_steps: x, save_steps: 7, load_best_model_at_end: 3}\n"
    )
    assert len(found) == 3 and all(
        "expected" in each.message or "neither" in each.message or "whole" in each.message for each in found
    )


def test_half_precision_once_auto_is_the_cpu(load) -> None:
    refuse_half_precision_on_cpu(load(GOOD), computes_bf16=False)
    wanted = load(GOOD + "training: {bf16: true}\n")
    refuse_half_precision_on_cpu(wanted, computes_bf16=True)
    with pytest.raises(UserError, match="bf16 needs a GPU, or a processor with AVX512-BF16"):
        refuse_half_precision_on_cpu(wanted, computes_bf16=False)
    for computes_bf16, advice in ((True, "bf16 in its place (this processor computes"), (False, "fp16: false")):
        with pytest.raises(UserError, match="fp16 needs a GPU") as refused:
            refuse_half_precision_on_cpu(load(GOOD + "training: {fp16: true}\n"), computes_bf16)
        assert advice in refused.value.problems[0].hint


def test_a_run_of_several_cards_is_used_on_one_device(load) -> None:
    recipe = load(GOOD + "runtime: {devices: [0, 1], device: cpu}\n", purpose="apply")
    assert recipe.runtime.devices == (0, 1)


def test_no_ordinary_field_is_refused_without_a_word(load) -> None:
    """A value that is refused by itself, whatever the other keys say, is named where fields are explained."""
    silent = []
    for dotted, key in all_keys().items():
        if not dotted.startswith(("training.", "compression.")) or dotted in REFUSED:
            continue
        values = ["true", "false"] if key.scalar is bool else list(key.choices) or (["2"] if key.scalar is int else [])
        for value in values:
            try:
                load(GOOD, Override(dotted, value, "--flag"))
            except UserError as error:
                alone = [problem for problem in error.problems if " [" not in problem.message]
                if alone and "refused" not in key.help and "is not installed" not in alone[0].message:
                    silent.append((dotted, value, str(alone[0])))
    assert silent == []
