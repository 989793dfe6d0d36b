"""What each key of a recipe is for, and when its value may change: the whole table, to be read."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from nlpctl.config.key_use import KeyUse
from nlpctl.config.keys import all_keys, keys_of, keys_with_path, use_of
from nlpctl.config.recipe_of import with_reading
from nlpctl.config.schema import DataSection, key
from nlpctl.config.task_file import kept_keys

ROLES = {
    "network": "model.*",
    "weights": """
        loss.* optimizer.* early_stopping.* distillation.* compression.criterion few_shot.pairs data.balance.*
        data.shuffle_buffer data.length_grouped data.batch_tokens training.*
    """,
    "rows": """
        data.train data.dev data.test data.dataset data.splits.* data.format data.header data.columns.* data.by_split.*
        data.reader data.map data.filter data.labels data.numbered_labels data.tag_map data.label_separator
        data.on_bad_row data.streaming
    """,
    "tokens": "data.max_seq_length data.doc_stride",
    "answers": """
        data.unit decode.* masking.* prompt.* few_shot.method few_shot.pooling few_shot.layers retrieval.*
    """,
    "machine": "runtime.* training.dataloader_num_workers training.per_device_eval_batch_size",
    "output": """
        guards.* training.output_dir training.logging_dir training.logging_strategy training.logging_first_step
        training.report_to training.run_name training.disable_tqdm training.skip_* training.save_total_limit
    """,
    "candidates": "compression.*",
    "command": """
        search.* inference.* compression.strategy compression.evaluate compression.max_drop compression.sure
        compression.target compression.budget compression.batch_sizes
    """,
}
# Where two patterns name a key, the longer one counts.

# A run that is resumed after an interruption may have other values of these.
RESUME = """
    runtime.* guards.* data.columns.group training.output_dir training.logging_dir training.disable_tqdm
    training.skip_* training.dataloader_num_workers training.save_total_limit inference.engine inference.precision
    inference.max_drop inference.min_agreement inference.tensorrt distillation.* search.trials search.budget
"""
OF_COMPRESS = "compression.*"  # and of all of these but criterion, which `train` reads where it chooses kernels
# A finished run that is continued may have other values of these, too.
CONTINUE = """
    early_stopping.* training.num_train_epochs training.max_steps training.learning_rate training.lr_scheduler_type
    training.warmup_* training.weight_decay training.max_grad_norm training.evaluation_strategy training.eval_steps
    training.save_strategy training.save_steps training.logging_* training.report_to training.run_name
"""
# The nodes of one training may differ in these.
PER_NODE = """
    runtime.devices runtime.nproc runtime.threads runtime.amd_fast_math runtime.cache_dir runtime.env
    training.output_dir training.logging_dir
"""
# No trial of a sweep has its own value of these.
FIXED = {
    "it says how the others are tried": "search.*",
    "a training does not read it": "compression.* distillation.* inference.*",
    "it belongs to the machine, not to the model": "runtime.*",
    "trials are compared by the same answers; a threshold is tuned on dev by itself (decode.tune)": "decode.*",
    "trials are compared by the same hidden words of dev, which it chooses, too": "masking.*",
    "the test split is read for the best alone": "data.test",
    "trials are compared on the same rows of dev": """
        data.dev data.dataset data.splits.* data.by_split.* data.columns.* data.format data.header data.reader data.map
        data.filter data.on_bad_row training.max_evaluate_steps
    """,
    "trials are compared by the same labels": "data.labels data.numbered_labels data.label_separator",
    "every trial has a folder of its own": "training.output_dir training.logging_dir",
    "trials are compared by the same score": """
        training.metric_for_best_model training.greater_is_better training.compute_metrics
    """,
    "trials are compared at the same evaluations": """
        training.evaluation_strategy training.eval_steps training.save_strategy training.load_best_model_at_end
    """,
}
# task.json of a trained model holds these, in this order.
KEPT = """
    data.columns data.max_seq_length data.doc_stride data.unit data.header data.label_separator
    model.head decode masking prompt few_shot.method few_shot.pooling few_shot.layers retrieval
"""

VALUES = [name for name, key in all_keys().items() if not key.section]


def named(patterns: str) -> set[str]:
    """The keys that match one of `patterns`; each pattern matches some."""
    found = {pattern: {name for name in VALUES if fnmatchcase(name, pattern)} for pattern in patterns.split()}
    assert all(found.values()), found
    return set().union(*found.values())


def those(wanted: Callable[[KeyUse], object]) -> set[str]:
    return {name for name in VALUES if wanted(use_of(name))}


@pytest.mark.parametrize("role", ROLES)
def test_roles(role: str) -> None:
    by_pattern = {pattern: each for each, patterns in ROLES.items() for pattern in patterns.split()}
    matching = {name: [each for each in by_pattern if fnmatchcase(name, each)] for name in VALUES}
    expected = {name for name, patterns in matching.items() if by_pattern[max(patterns, key=len)] == role}
    assert those(lambda use: use.role == role) == expected


def test_what_may_change_when_a_run_goes_on() -> None:
    resume = named(RESUME) | named(OF_COMPRESS) - {"compression.criterion"}
    assert those(lambda use: use.may_change_on("resume")) == resume
    assert those(lambda use: use.may_change_on("continue")) == resume | named(CONTINUE)


@pytest.mark.parametrize(("page", "others"), [("docs/faq.md", "Any other key"), ("docs/zh-CN/faq.md", "其他键")])
def test_the_page_lists_what_may_change_on_resume(page: str, others: str) -> None:
    """Question 3.3: keys and whole sections that may change; then, from `others` on, what may not."""
    text = (Path(__file__).resolve().parents[2] / page).read_text(encoding="utf-8")
    answer = text.split("### Q3.3")[1].split("\n### ")[0].split("```")[-1].split("\n\n")[1]
    may, may_not = (re.findall("`([^`]+)`", part) for part in answer.split(others))
    patterns = [name if "." in name else f"{name}.*" for name in may]
    listed = named(" ".join(patterns)) - named(" ".join(may_not))
    assert listed == those(lambda use: use.may_change_on("resume"))


def test_what_nodes_may_differ_in() -> None:
    assert those(lambda use: use.per_node) == named(PER_NODE)


def test_what_no_trial_of_a_sweep_has_of_its_own() -> None:
    for reason, patterns in FIXED.items():
        assert those(lambda use, reason=reason: use.not_searchable == reason) == named(patterns)
    assert {use_of(name).not_searchable for name in VALUES} == {None, *FIXED}


def test_what_a_trained_model_keeps() -> None:
    assert list(kept_keys()) == KEPT.split()


def test_the_text_of_another_network_is_read_as_it_reads_text() -> None:
    own = DataSection(max_seq_length=7, doc_stride=5, train=("own",), unit="characters", header=False)
    assert with_reading(DataSection(train=("a",)), own) == DataSection(
        train=("a",), max_seq_length=7, doc_stride=5
    )


def test_a_name_inside_a_key_has_its_use() -> None:
    assert use_of("runtime.flags.FLAGS_benchmark") is use_of("runtime.flags")
    assert use_of("distillation.student.training.max_steps") is use_of("distillation.student")
    assert use_of("distillation.model.from_scratch.vocab_size") is use_of("distillation.student")
    assert use_of("optimizer.groups.0.learning_rate") is use_of("optimizer.groups")


def test_what_no_recipe_has_may_never_change() -> None:
    for name in ("task", "data.from_another_version"):
        assert not use_of(name).may_change and not use_of(name).per_node


def test_a_key_without_a_use_is_an_error() -> None:
    with pytest.raises(TypeError, match="use"):
        key(default=1, help="A new key.")  # type: ignore[call-arg]
    wrong = dataclasses.make_dataclass("Wrong", [("new", int, dataclasses.field(default=1, metadata={"help": ""}))])
    with pytest.raises(KeyError, match="use"):
        keys_of(wrong, "data")


def test_which_texts_are_paths() -> None:
    """What each key of a path is relative to; see PathKind."""
    expected = {
        "input": """
            model.embeddings model.from_scratch.vocabulary model.from_scratch.dictionaries data.train data.dev data.test
            decode.terms masking.dictionary compression.input_infer_model_path distillation.student
            distillation.unlabelled distillation.model.embeddings distillation.model.from_scratch.vocabulary
            distillation.model.from_scratch.dictionaries runtime.cache_dir
        """,
        "output": "training.output_dir training.logging_dir",
        "text": "model.add_tokens data.labels data.numbered_labels distillation.model.add_tokens",
        "name": "model.name_or_path data.dataset distillation.model.name_or_path",
        "values": "model.set_parameters distillation.model.set_parameters",
    }
    for kind, names in expected.items():
        assert set(keys_with_path(kind)) == set(names.split())
