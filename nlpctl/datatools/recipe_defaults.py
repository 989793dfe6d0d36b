"""The values that `nlpctl new` writes, with their reasons in the language of now: what follows from the data, the
encoder and this machine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl.config.input_formats import INPUT_FORMATS
from nlpctl.config.keys import SECTIONS
from nlpctl.config.load import load_recipe
from nlpctl.config.recipe_text import CANNOT_BE_USED, MORE_ROWS, MORE_UPDATES, NO_DEV, UPDATES
from nlpctl.config.schema import SPLITS, ColumnsSection, ScratchSection
from nlpctl.config.sentence_folder import read_sentence_folder
from nlpctl.config.tasks import SCRATCH, Preset, TaskInfo
from nlpctl.data.inspection.lengths import EstimatedTokens, Lengths, measure
from nlpctl.data.inspection.report import MANY_UNKNOWN_WORDS, UNEVEN
from nlpctl.data.inspection.rows import InspectedSplit, inspect_split
from nlpctl.data.open_split import has_split, open_split
from nlpctl.data.readers.annotation_rows import recognised_format
from nlpctl.data.readers.conll import TAGS, TOKENS
from nlpctl.data.readers.packed import suffix_of
from nlpctl.data.rows.task_rows import TaskRows, task_rows
from nlpctl.data.text.units import Unit, split_units
from nlpctl.data.training_data import resolve_labels
from nlpctl.datatools.file_sniffer import Preview
from nlpctl.errors import UserError
from nlpctl.extras import is_installed
from nlpctl.models.pretrained import Encoder, language_of
from nlpctl.models.source import resolve_source
from nlpctl.report.language import Later, later, say, say_counted
from nlpctl.report.model import percent
from nlpctl.runtime.machine import cpu_info, physical_cores

if TYPE_CHECKING:
    from nlpctl.training.timed_steps import TimedSteps  # imports Paddle

BASE, ON_GPU = "nlpctl:configs/base.yaml", "nlpctl:configs/device/gpu.yaml"
METRIC, UNIT, GROUPS = "training.metric_for_best_model", f"{SCRATCH}unit", "optimizer.groups"
ROLES = tuple(each.name for each in fields(ColumnsSection))
_MOST = 20_000  # rows of a split that are looked at
MOST_BAD = 0.05  # share of rows: with more of them, something else is wrong
_SHOWN = 3
_SPARE = 1.05  # on estimated lengths
_LEAST_WINDOW, _QUESTION_WINDOW = 128, 256
_LONGEST = {"cpu": 256, "gpu": 512}
_LONGEST_WINDOW, _LONGEST_QUESTION = 256, 384
_BATCH, _LEAST_BATCH, _BATCH_TOKENS = 32, 8, 8192
_FEW_UPDATES = 20  # per epoch
_LEAST_DEV, _DEV_BATCH = 500, 64  # rows of dev that select a checkpoint; of a batch of them, as in BASE
_FAR_UNEVEN = 3.0
_E5 = re.compile(r"(^|[/_-])e5([/_-]|$)", re.IGNORECASE)
_HELD_OUT, _TRAIN = 200_000, 1_000_000  # characters of the texts whose words are counted; jieba takes ten seconds


@dataclass(frozen=True)
class DataSummary:
    """What the data of a recipe hold: per split the rows, of train the lengths and the examples per label."""

    rows: TaskRows
    splits: Mapping[str, InspectedSplit]
    lengths: Lengths
    labels: Mapping[str, int]
    one_each: bool

    @property
    def uneven(self) -> float:
        """How many times as often as the rarest label the most frequent one comes; 1 without labels of rows."""
        return max(self.labels.values()) / min(self.labels.values()) if self.one_each and self.labels else 1.0

    def count_text(self, split: str) -> str:
        """The number of rows of a split; of a long one, that there are more."""
        good = len(self.splits[split].good)
        return say(MORE_ROWS, _MOST) if good + self.splits[split].bad.total() >= _MOST else say_counted(good, "rows")


def summarise_data(task: TaskInfo, values: Mapping[str, Any]) -> DataSummary:
    """Read the data that `values`, a section data with absolute paths, names.

    UserError: labels that the task cannot take, a file that cannot be used, or many bad rows.
    """
    recipe = load_recipe({"task": task.name, "data": dict(values)}, (), "apply")
    rows, counter = task_rows(task.name, recipe.data), EstimatedTokens()
    source = open_split(rows, "train")
    labels = resolve_labels(rows, source)
    splits = {}
    for split in (name for name in SPLITS if has_split(recipe.data, name)):
        inspected = inspect_split(open_split(rows, split), split, rows, labels, counter, most=_MOST, shown=_SHOWN)
        _refuse_many_bad(inspected)
        splits[split] = inspected
    good = splits["train"].good
    counts: dict[str, int] = {}
    for row in good:
        for label in row.labels:
            counts[label] = counts.get(label, 0) + 1
    one_each = task.labelled and not task.tags and all(len(row.labels) == 1 for row in good)
    return DataSummary(
        rows, splits, measure([row.tokens for row in good], recipe.data.max_seq_length), counts, one_each
    )


def _refuse_many_bad(split: InspectedSplit) -> None:
    bad, rows = split.bad.total(), split.bad.total() + len(split.good)
    if not split.good or bad > MOST_BAD * rows:
        first = next(iter(split.first_bad.values()))[0]
        message = f"{bad:,} of the first {rows:,} rows cannot be used, such as: {first.reason}"
        hint = "fix the file, or name other columns: @[columns=text=COLUMN,label=COLUMN]"
        raise UserError(message, where=first.where, hint=hint)


def data_values(
    previews: Mapping[str, Preview], names: Mapping[str, str], columns: Mapping[str, str], rows: type[TaskRows]
) -> dict[str, Any]:
    """The section data: `names` of the files, formats and headers where they must be told, columns of tables.

    `rows`: how the task reads files.
    """
    values: dict[str, Any] = dict(names)
    own = {split: _unlike(preview, rows) for split, preview in previews.items()}
    if len({tuple(each.items()) for each in own.values()}) == 1:
        values |= own["train"]
    elif any(own.values()):
        values["by_split"] = {split: each for split, each in own.items() if each}
    if previews["train"].names_columns:
        annotated = INPUT_FORMATS[previews["train"].format].annotator is not None
        made = (TOKENS, TAGS) if annotated else ()  # columns that spans become
        named = {role: columns[role] for role in ROLES if role in columns and columns[role] not in made}
        values |= {"columns": named} if named else {}
    return values


def _unlike(preview: Preview, rows: type[TaskRows]) -> dict[str, Any]:
    """What a recipe must say of a file: a format that neither its ending nor its content tells, no header."""
    annotated = None
    if INPUT_FORMATS[preview.format].annotator is not None:
        annotated = recognised_format(preview.path, rows.annotation)
    expected = annotated or rows.endings.get(suffix_of(preview.path))
    values = {} if expected == preview.format else {"format": preview.format}
    return values | ({} if preview.header or not preview.is_table else {"header": False})


def model_presets(task: TaskInfo, encoder: Encoder | None, about: Later, seen: DataSummary) -> list[Preset]:
    """The network: the encoder, or the task's network from scratch."""
    if encoder is None:
        first, *rest = task.from_scratch or (Preset("model.from_scratch.architecture", "ernie"),)
        remark = say(
            "{}. With a pretrained encoder: name_or_path: NAME in place of from_scratch, learning_rate: 3e-5", about
        )
        if is_installed("jieba"):  # which comes with PaddleNLP
            rest = [unit_preset(preset, seen) if preset.key == UNIT else preset for preset in rest]
        return [Preset(first.key, first.value, remark), *rest]
    return [Preset("model.name_or_path", encoder.name, about), Preset("training.learning_rate", encoder.learning_rate)]


def head_presets(task: TaskInfo, encoder: Encoder | None) -> list[Preset]:
    """For a tagger on an e5, whose vectors of tokens are nearly alike: a learning rate of its own for the head."""
    if encoder is None or not task.tags or not _is_e5(encoder):
        return []
    groups = [group for preset in task.presets if preset.key == GROUPS for group in preset.value]
    why = later("the vectors of an e5's tokens are nearly alike: its head needs more (docs/tasks.md)")
    return [Preset(GROUPS, [*groups, {"match": "classifier", "learning_rate": 0.01}], why)]


def _is_e5(encoder: Encoder) -> bool:
    """By its name, or by the prompts that it comes with."""
    if _E5.search(encoder.name):
        return True
    folder = resolve_source(encoder.name).folder
    try:
        vectors = None if folder is None else read_sentence_folder(folder)
    except UserError:  # of which a tagger needs the network alone
        return False
    return vectors is not None and {"query: ", "passage: "} <= {*vectors.prompts.values()}


def unit_preset(words: Preset, seen: DataSummary) -> Preset:
    """What a network from scratch reads: `words`, or characters where the texts are Chinese and too many of the words
    of held-out ones are unknown: seen too seldom in the training text."""
    train, held_out = _texts(seen, "train"), _sample(_texts(seen, "dev"), _HELD_OUT)
    if not held_out:
        train, held_out = [text for i, text in enumerate(train) if i % 10], _sample(train[::10], _HELD_OUT)
    counted_all, train = sum(map(len, train)) <= _TRAIN, _sample(train, _TRAIN)
    share = _unknown_share(train, held_out, "words")
    of_words = percent(share)
    if language_of(held_out) != "zh":
        return Preset(words.key, words.value, say("{} of the words of held-out rows are unknown", of_words))
    if not counted_all:  # a word that is rare in a part of the text may be frequent in all of it
        why = say("as jieba splits them; at most {} of the words of held-out rows are unknown", of_words)
        return Preset(words.key, words.value, why)
    if share <= MANY_UNKNOWN_WORDS:
        why = say("as jieba splits them; {} of the words of held-out rows are unknown", of_words)
        return Preset(words.key, words.value, why)
    of_characters = percent(_unknown_share(train, held_out, "characters"))
    why = say(
        "{} of the words of held-out rows would be unknown ([UNK]), of their characters {}", of_words, of_characters
    )
    return Preset(words.key, "characters", why)


def _texts(seen: DataSummary, split: str) -> list[str]:
    return [text for row in seen.splits[split].good for text in row.passages] if split in seen.splits else []


def _sample(texts: list[str], characters: int) -> list[str]:
    """So many of the texts, from all over them, that they have at most so many characters."""
    return texts[:: 1 + sum(map(len, texts)) // characters]


def _unknown_share(train: Sequence[str], held_out: Sequence[str], unit: Unit) -> float:
    """The share of the units of `held_out` that a vocabulary of `train` would not have."""
    counts = Counter(each for text in train for each in split_units(text.lower(), unit))
    new = [counts[each] < ScratchSection.min_frequency for text in held_out for each in split_units(text.lower(), unit)]
    return sum(new) / len(new) if new else 0.0


def measured_presets(
    task: TaskInfo, seen: DataSummary, *, gpu: bool, scratch: bool, dev: bool, timing: TimedSteps | None = None
) -> list[Preset]:
    """What follows from the rows and the machine, with what the task begins with. `dev`: there are dev rows. `timing`:
    what the training takes here, if it was timed."""
    length = length_preset(task, seen, "gpu" if gpu else "cpu")
    own = [preset for preset in task.presets if dev or preset.key != METRIC]
    return [
        Preset("extends", [BASE, ON_GPU] if gpu else BASE),
        length,
        *bad_row_presets(seen),
        *training_presets(seen, length.value, scratch),
        *([] if gpu else bfloat16_presets(scratch, timing)),
        *([*few_dev_presets(seen), metric_preset(task, seen)] if dev else no_dev_presets()),
        *own,
    ]


def length_preset(task: TaskInfo, seen: DataSummary, device: str) -> Preset:
    """data.max_seq_length, so that 99 % of the rows fit where that is affordable."""
    windows, most, p99 = seen.rows.in_windows, _LONGEST[device], seen.lengths.percentiles[99]
    least = 16
    if windows:
        least, most = _LEAST_WINDOW, _LONGEST_WINDOW
    if task.window_frame is not None:
        least, most = _QUESTION_WINDOW, _LONGEST_QUESTION
    length = min(max(least, -(-int(p99 * _SPARE) // 8) * 8), most)
    longer = sum(row.tokens > length for row in seen.splits["train"].good) / len(seen.splits["train"].good)
    why = say("tokens, estimated: 99 % of the rows have at most {:,}, the longest {:,}", p99, seen.lengths.longest)
    if longer:
        why += say("; {} are read in windows" if windows else "; {} are cut", percent(longer))
    return Preset("data.max_seq_length", length, why)


def training_presets(seen: DataSummary, length: int, scratch: bool) -> list[Preset]:
    """Batches and epochs, so that a training has some hundred updates."""
    rows, batch = len(seen.splits["train"].good), _BATCH
    while batch > _LEAST_BATCH and (batch * length > _BATCH_TOKENS or rows < _FEW_UPDATES * batch):
        batch //= 2
    updates = -(-rows // batch)
    epochs = (10 if updates >= 100 else 20) if scratch else 3 if updates >= 150 else 5 if updates >= 50 else 10
    return [
        Preset("training.num_train_epochs", epochs, later("few rows need more epochs") if updates < 50 else ""),
        Preset("training.per_device_train_batch_size", batch, say(MORE_UPDATES if rows >= _MOST else UPDATES, updates)),
    ]


def bfloat16_presets(scratch: bool, timing: TimedSteps | None) -> list[Preset]:
    """training.bf16 on a processor that computes so: where `timing` shows that it pays; untimed for encoders, for which
    it has been measured (docs/benchmarks.md)."""
    if timing is not None:
        why = say("timed here: {:.1f} times as fast; other processors may refuse it", timing.times_faster)
        return [Preset("training.bf16", True, why)] if timing.bfloat16_pays else []
    if scratch or not cpu_info().trains_in_bfloat16:
        return []
    why = later(
        "of encoders on a processor like this one, about 1.5 times as fast (docs/benchmarks.md); others refuse it"
    )
    return [Preset("training.bf16", True, why)]


def few_dev_presets(seen: DataSummary) -> list[Preset]:
    """During the training, so many rows of dev that scoring them after every epoch takes about a seventh of the time:
    a row takes about a third of what it takes to train with one."""
    train, dev = (len(seen.splits[name].good) if name in seen.splits else 0 for name in ("train", "dev"))
    if train + seen.splits["train"].bad.total() >= _MOST:  # there are more, nobody knows how many
        return []
    batches = -(-max(train // 2, _LEAST_DEV) // _DEV_BATCH)
    if batches * _DEV_BATCH >= dev:
        return []
    why = say("batches of {} rows from all over dev after each epoch; all of it, at the end", _DEV_BATCH)
    return [Preset("training.max_evaluate_steps", batches, why)]


def metric_preset(task: TaskInfo, seen: DataSummary) -> Preset:
    """The score that selects the best checkpoint: for uneven labels one in which all labels count alike."""
    if seen.uneven >= UNEVEN and "macro_f1" in task.metrics:
        return Preset(METRIC, "macro_f1", say("one label comes {:.1f} times as often as another", seen.uneven))
    return Preset(METRIC, task.metrics[0])


def no_dev_presets() -> list[Preset]:
    """What a training without dev rows needs."""
    return [
        Preset("training.evaluation_strategy", "no", NO_DEV),
        Preset("training.save_strategy", "no"),
        Preset("training.load_best_model_at_end", False),
    ]


def hints(task: TaskInfo, seen: DataSummary, gpu: bool) -> list[Preset]:
    """Values that are worth a try."""
    presets = []
    if task.reads("loss.class_weights") and seen.uneven >= _FAR_UNEVEN:
        heavier = later("rare labels weigh more; docs/imbalance.md has measurements")
        presets.append(Preset("loss.class_weights", "balanced", heavier))
    if not gpu:
        cores = physical_cores()
        why = say("the default on this machine, which has {}", say_counted(cores, "cores"))
        presets.append(Preset("runtime.threads", cores, why))
    return presets


def in_order(presets: Sequence[Preset]) -> list[Preset]:
    """The values in the order of the sections of a recipe."""
    order = {name: place for place, name in enumerate(("extends", "task", *SECTIONS))}
    return sorted(presets, key=lambda preset: order[preset.key.partition(".")[0]])


def section_presets(values: Mapping[str, Any], seen: DataSummary) -> list[Preset]:
    """The section data; with the number of rows behind each file."""
    counts = {split: seen.count_text(split) for split in seen.splits}
    return [Preset(f"data.{name}", value, counts.get(name, "")) for name, value in values.items()]


def bad_row_presets(seen: DataSummary) -> list[Preset]:
    """Leaves out rows that cannot be used, if there are some."""
    bad = [row for split in seen.splits.values() for rows in split.first_bad.values() for row in rows]
    if not bad:
        return []
    total = sum(split.bad.total() for split in seen.splits.values())
    place = f"{Path(bad[0].source).name}:{bad[0].line}"
    why = say(CANNOT_BE_USED, say_counted(total, "rows"), place, bad[0].kind)
    return [Preset("data.on_bad_row", "skip", why)]
