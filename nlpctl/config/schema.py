"""The recipe: every key that may appear in a recipe file, its type, default and meaning.

This module and the modules of sections that it imports (model_section.py, task_sections.py, search_section.py,
distillation_section.py, compression_keys.py) are the single definition. The loader coerces by these types. The JSON
Schema and docs/recipes.md are generated from them. The rest of nlpctl receives checked values.

`training` and `compression` also hold the fields of PaddleNLP's TrainingArguments and CompressionArguments. Those
classes import Paddle, so their fields come from the catalogue (catalogue.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nlpctl.config.catalogue import compression_fields, training_fields
from nlpctl.config.compression_keys import CompressionKeys
from nlpctl.config.declare import Scalar, key, mapping_key
from nlpctl.config.distillation_section import DistillationSection
from nlpctl.config.model_section import ModelSection
from nlpctl.config.search_section import SearchSection
from nlpctl.config.task_sections import (
    DecodeSection,
    FewShotSection,
    LossSection,
    MaskingSection,
    PromptSection,
    RetrievalSection,
)
from nlpctl.config.training_keys import TrainingKeys

DataFormat = Literal[
    "auto", "tsv", "csv", "quoted_tsv", "xlsx", "jsonl", "json", "text", "conll", "joined", "segmented", "squad",
    "label_studio", "doccano", "cluener",
]


@dataclass(frozen=True)
class ColumnsSection:
    """Which column or JSON key holds what. Columns of a file without header are named "0", "1", ..."""

    text: str = key("text", "Column of the sentence.")
    text_pair: str | None = key(None, "Column of the second sentence, for pairs.")
    label: str = key("label", "Column of the label; for several labels a list, or text split at label_separator.")
    tokens: str = key("tokens", "Tagging: key of the list of tokens.")
    tags: str = key("tags", "Tagging: key of the list of tags, one per token.")
    question: str = key("question", "Question answering: key of the question.")
    context: str = key("context", "Question answering: key of the text that holds the answer.")
    answers: str = key("answers", "Question answering: key of the list of answers, {text, answer_start}.")
    negative: str | None = key(None, "Semantic indexing: column of a text that does not match, a hard negative.")
    group: str | None = key(
        None,
        "Column that rows share which depend on each other, such as the article they are from; the intervals of scores "
        "draw them together.",
    )


@dataclass(frozen=True)
class SplitsSection:
    """Names of the splits inside `data.dataset`."""

    train: str | None = key("train", "Split used for training.")
    dev: str | None = key("dev", "Split used to select the model.")
    test: str | None = key("test", "Split used for the final score only.")


@dataclass(frozen=True)
class SplitFilesSection:
    """How the files of one split differ from what `data` says of all."""

    format: DataFormat | None = key(None, "Format of these files; default: data.format.")
    header: bool | None = key(None, "Whether these tsv and csv files have a header; default: data.header.")
    columns: Mapping[str, Scalar] = mapping_key(
        "Columns that have other names in these files, such as text: sentence (without a header: text: '3')."
    )


@dataclass(frozen=True)
class BySplitSection:
    """Settings of the files of single splits."""

    train: SplitFilesSection = field(default_factory=SplitFilesSection, metadata={"help": "The training files."})
    dev: SplitFilesSection = field(default_factory=SplitFilesSection, metadata={"help": "The development files."})
    test: SplitFilesSection = field(default_factory=SplitFilesSection, metadata={"help": "The test files."})


@dataclass(frozen=True)
class BalanceSection:
    """Balancing of labels in the training rows; dev and test are unchanged."""

    method: Literal["undersample", "oversample"] | None = key(
        None, "undersample: every label as often as the rarest; oversample: as the most frequent, rows repeated."
    )
    counts: Mapping[str, Scalar] = mapping_key("Or the number of rows per label, such as neg: 2000.")


@dataclass(frozen=True)
class DataSection:
    """Data sources, formats and batching."""

    train: tuple[str, ...] = key((), "Training file, or a list of files.")
    dev: tuple[str, ...] = key((), "Development file(s): select the model, tune thresholds.")
    test: tuple[str, ...] = key((), "Test file(s): scored once at the end, never used to select.")
    dataset: str | None = key(
        None, "A named data set instead of files: PaddleNLP built-in or Hugging Face, with subset (glue/cola)."
    )
    splits: SplitsSection = field(default_factory=SplitsSection, metadata={"help": "Split names inside `dataset`."})
    format: DataFormat = key(
        "auto",
        "File format; auto: by the file's ending and the task. In tsv a quotation mark is text; quoted_tsv: cells may "
        "stand in them, as pandas writes it. text: a text per line; conll: a token and its tag per line; joined: two "
        "columns whose parts are joined by \\002; segmented: words and parts of speech on a line, as 迈向/v; squad: "
        "SQuAD or CMRC json; label_studio, doccano: what these programs export; cluener: entities by type and word in "
        "json.",
    )
    header: bool = key(True, "Whether tsv and csv files start with a line of column names.")
    columns: ColumnsSection = field(default_factory=ColumnsSection, metadata={"help": "Names of the columns."})
    by_split: BySplitSection = field(
        default_factory=BySplitSection, metadata={"help": "Where the files of a split differ from the others."}
    )
    reader: str | None = key(
        None,
        "Your own reader, package.module:function(path) yielding dicts. It runs with your rights: "
        "name only code you trust.",
    )
    map: tuple[str, ...] = key(
        (),
        "Your own function(s) of a row, package.module:function(row) -> dict, applied in order to every row of train, "
        "dev and test before it is read. They run with your rights: name only code you trust.",
    )
    filter: tuple[str, ...] = key(
        (),
        "Your own function(s), package.module:function(row) -> true or false: rows for which one says false are left "
        "out, after data.map. They run with your rights: name only code you trust.",
    )
    labels: tuple[str, ...] | str | None = key(
        None, "The label set: a list, or a file with one label per line. Default: collected from the training data."
    )
    numbered_labels: tuple[str, ...] | str | None = key(
        None,
        "Names of labels or tags that the data writes as numbers, that of 0 first: a list, or a file with one a line.",
    )
    tag_map: Mapping[str, str] = mapping_key(
        "Tagging, when a trained model is trained further: type (or tag) of the data to that of the model which means "
        "the same, such as PERSON: PER. What the model learnt of PER is where PERSON starts."
    )
    label_separator: str = key(",", "Separator of the labels in a text column (multi-label).")
    balance: BalanceSection = field(
        default_factory=BalanceSection, metadata={"help": "Balancing of the labels in training."}
    )
    max_seq_length: int = key(
        128, "Longest sequence in tokens, special tokens included; longer text is cut (tagging, QA: read in windows)."
    )
    doc_stride: int = key(64, "Stride in tokens of the window over a longer text (tagging, QA).")
    unit: Literal["words", "characters"] = key(
        "words", "Tagging: units of plain text in predict; use characters if the training files have one per line."
    )
    on_bad_row: Literal["error", "skip"] = key(
        "error", "error: list the bad rows and stop; skip: continue and count them in the manifest."
    )
    streaming: bool = key(
        False, "Read the training data as a stream in constant memory (needs training.max_steps and data.labels)."
    )
    shuffle_buffer: int = key(10000, "Rows held for shuffling when streaming.")
    length_grouped: bool = key(True, "Batch training rows of similar length together: less padding, faster.")
    batch_tokens: int | None = key(
        None,
        "Limit training batches by tokens, padding included, such as 4096: short rows form large batches, long ones "
        "small ones. In place of training.per_device_train_batch_size.",
    )
    tokenizer: Literal["auto", "fast", "paddlenlp"] = key(
        "auto", "auto: the fast tokenizer if a check proves it equal to PaddleNLP's."
    )


@dataclass(frozen=True)
class GroupSection:
    """Settings of the parameters that match."""

    match: tuple[str, ...] = key((), "Names or patterns of parameters, as for model.freeze.")
    learning_rate: float | None = key(None, "Their peak learning rate; default: training.learning_rate.")
    weight_decay: float | None = key(None, "Their weight decay; default: training.weight_decay, none for biases.")


@dataclass(frozen=True)
class OptimizerSection:
    """Learning rates and weight decay per group of parameters."""

    groups: tuple[GroupSection, ...] = key(
        (),
        "List of "
        "{match: names or patterns of parameters, learning_rate: their peak, weight_decay: biases and norms included}. "
        "If several groups match, the last one that sets a value applies.",
    )
    layer_decay: float | None = key(
        None,
        "Learning rate of an encoder's layer as a share of that of the layer above, such as 0.9; the task head learns "
        "at training.learning_rate, the embeddings slowest.",
    )


@dataclass(frozen=True)
class EarlyStoppingSection:
    """Stop when the watched metric no longer improves (needs load_best_model_at_end)."""

    patience: int | None = key(None, "Evaluations without improvement before training stops; null: never.")
    min_delta: float = key(0.0, "Smallest change of the metric that counts as an improvement.")


@dataclass(frozen=True)
class GuardsSection:
    """Checks of the loss: a diverging training is stopped before the bad step changes the weights."""

    finite: bool = key(
        True, "Stop the run at a loss or gradient that is NaN or infinite, with the step, its rows and the operator."
    )
    loss_factor: float | None = key(
        100.0,
        "Stop the run at a loss this many times the usual one: the median of the last 100 steps, or of the first 20 "
        "if that is larger. null: never.",
    )
    gradient_factor: float | None = key(1000.0, "The same for the norm of the gradient, before it is clipped.")
    not_learning: Literal["warn", "stop", "ignore"] = key(
        "warn",
        "A loss that has not fallen when it should have (docs/guards.md): warn once, with what to check; stop the run; "
        "or ignore it.",
    )


@dataclass(frozen=True)
class RuntimeSection:
    """The process: device, threads, flags. In effect before Paddle is imported."""

    device: Literal["auto", "gpu", "cpu"] = key("auto", "gpu, cpu, or auto (gpu if one is usable).")
    devices: tuple[int, ...] = key((), "GPU cards to use; more than one starts one process per card.")
    nproc: int = key(1, "Number of processes on CPU.")
    threads: int | None = key(None, "Threads per process; default: physical cores divided by processes.")
    deterministic: bool = key(False, "Same bytes every time: fixed seeds and deterministic kernels.")
    flags: Mapping[str, Scalar] = mapping_key("Paddle flags, such as FLAGS_cudnn_deterministic: true.")
    env: Mapping[str, str] = mapping_key(
        "Environment variables of CUDA, cuBLAS, cuDNN and NCCL, such as NCCL_DEBUG: INFO, set before Paddle is "
        "imported, in every process. They replace those of the environment."
    )
    cache_dir: str | None = key(None, "Folder for downloaded models and data sets (PPNLP_HOME); ASCII only.")
    trust_edits: bool = key(
        False, "Load a model folder even if files do not match its manifest.json. For one command: not stored in a run."
    )
    any_paddle: bool = key(
        False, "Work with a release of Paddle that nlpctl was never tried with, such as 3.2, in place of refusing it."
    )
    on_oom: Literal["halve", "fail"] = key(
        "halve",
        "When a training step does not fit into memory: halve the batch and double the accumulation from that step on "
        "(same effective batch, so the learning rate stays), or fail.",
    )
    watchdog_minutes: float | None = key(
        30.0, "Report the stacks of all threads if no batch was computed for this long; null: never."
    )
    amd_fast_math: bool | None = key(
        None, "Let the bundled MKL use AVX on AMD processors; default: on for AMD processors."
    )


@dataclass(frozen=True)
class InferenceSection:
    """Engine and precision of trained models in eval, predict, index, bench and serve."""

    engine: Literal["auto", "dygraph", "paddle", "onnxruntime"] = key(
        "auto",
        "dygraph: Paddle in eager mode; paddle: Paddle Inference (oneDNN on CPU); onnxruntime. auto: for an export "
        "the fastest on this machine, for a plain model dygraph.",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16", "int8"] = key(
        "auto",
        "Arithmetic of the engine. auto: the fastest that this machine supports and that decided well enough when the "
        "model was exported.",
    )
    max_drop: float = key(
        0.5,
        "How many points the score on dev may fall against fp32 for auto to use a precision; for exports that know "
        "their dev scores.",
    )
    min_agreement: float = key(
        0.99,
        "Least share of rows with the same decision as fp32 at export for auto to use a precision; for exports without "
        "dev scores.",
    )
    min_confidence: float | None = key(
        None,
        "Answers that are less probable than this are withheld, such as 0.9 (docs/decisions.md): the label is null, "
        "entities and labels of several are left out.",
    )
    tensorrt: bool = key(False, "Paddle Inference on GPU: run the graph with TensorRT.")


def _section_from_catalogue(name: str, doc: str, fields: tuple, own: tuple[type, ...] = ()) -> type:
    """A frozen dataclass with the fields of `own`, and one per catalogue entry."""
    section = dataclasses.make_dataclass(
        name,
        [
            (f.name, f.annotation, field(default=f.default, metadata={"help": f.help, "choices": f.choices}))
            for f in fields
        ],
        bases=own,
        frozen=True,
    )
    section.__doc__ = doc
    section.__module__ = __name__
    return section


TrainingSection = _section_from_catalogue(
    "TrainingSection",
    "Every field of PaddleNLP's TrainingArguments, under its own name, and parts of one's own.",
    training_fields(),
    (TrainingKeys,),
)
CompressionSection = _section_from_catalogue(
    "CompressionSection",
    "What `nlpctl compress` does: every field that PaddleNLP's CompressionArguments adds, and nlpctl's own keys.",
    compression_fields(),
    (CompressionKeys,),
)


@dataclass(frozen=True)
class Origin:
    """Where a value came from: `file:line`, `--flag`, or `default`.

    `opened`: the folder of a run or model whose file it is; None: what the user says herself.
    """

    source: str
    line: int | None = None
    opened: Path | None = field(default=None, compare=False)

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
    training: Any  # TrainingSection
    optimizer: OptimizerSection
    early_stopping: EarlyStoppingSection
    guards: GuardsSection
    search: SearchSection
    compression: Any  # CompressionSection
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
        return f"{origin} ({dotted})" if origin is not None and origin.source != "default" else dotted


def with_value(section: Any, key: str, value: Any) -> Any:
    """A recipe, a section or a mapping in one, with another value of the dotted `key`, such as model.config.dropout."""
    if isinstance(section, Mapping):
        return {**section, key: value}
    first, _, rest = key.partition(".")
    return dataclasses.replace(section, **{first: with_value(getattr(section, first), rest, value) if rest else value})
