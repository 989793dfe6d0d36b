"""`nlpctl card`: a model card from the files of a run, model folder or export; needs neither Paddle nor the data."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import nlpctl
from nlpctl.config.dump import recipe_values, to_yaml
from nlpctl.config.paths import TEXT_PATHS, holds_path
from nlpctl.config.recipe_of import recipe_of
from nlpctl.config.reference import task_meaning
from nlpctl.config.schema import SPLITS, Recipe
from nlpctl.config.tasks import task_info
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.errors import UserError
from nlpctl.files import write_text_atomic, writing
from nlpctl.layout import (
    CARD,
    CONFIDENCE,
    ECE,
    EXPORT_MANIFEST,
    INTERVALS,
    MODEL,
    TASK,
    model_folder_name,
    real_path,
)
from nlpctl.models.export_folder import ExportManifest, read_manifest, way_name
from nlpctl.models.folder import read_labels, read_trained_description
from nlpctl.models.model_manifest import weights_sum
from nlpctl.names import nearest
from nlpctl.outputs import is_signed, is_stream, refuse_output, signed
from nlpctl.report.language import Later, say, say_each
from nlpctl.report.markdown import code, markdown_page, plain
from nlpctl.report.model import BulletList, Code, Part, Report, Section, Table, percent
from nlpctl.report.score_tables import intervals_of, without_counts
from nlpctl.runs.comparison import slice_name
from nlpctl.runs.run_files import is_run, sound_slices, warn_of_damage
from nlpctl.runs.runs import INCIDENTS, RunRecord, open_run, tell_missing_slices, truncation_told
from nlpctl.tasks.slices import LABEL, LENGTH, Slice

# --------------------------------------------------------------------------------------------------
# A model card: YAML for the Hugging Face hub, then Markdown for people. Everything in it stands in the files of the
# run, the model folder or the export; what they do not say is left out.

FEW = 30  # rows of a label; with fewer, its scores say little
MOST_LABELS = 100
_KEYS = (
    "training.learning_rate", "training.lr_scheduler_type", "training.warmup_ratio", "training.warmup_steps",
    "training.weight_decay", "training.optim", "training.per_device_train_batch_size",
    "training.gradient_accumulation_steps", "training.fp16", "training.bf16",
)  # fmt: skip
_FOLDERS = re.compile(r"(?<![\w./~-])/(?:[^/,'\"\]]+/)+")  # those of an absolute path in a word of a command
_PACKAGES = ("paddlepaddle", "paddlepaddle-gpu", "paddlenlp")


@dataclass(frozen=True)
class CardFacts:
    """What is known of a model. `record`: its run, if it is at hand; `export`: what it was exported to.

    `slices`: as run_files.sound_slices gives them. `languages`: of the texts; `license`: as the hub calls it.
    `of_a_run`: nlpctl trained it, in a run that may not be at hand. `left_out`: what the weights for another library
    cannot hold; `holds_calibration`: they give calibrated probabilities.
    """

    name: str
    recipe: Recipe
    labels: Sequence[str]
    thresholds: Sequence[float] | None = None
    record: RunRecord | None = None
    slices: Mapping[str, Any] | None = None
    export: ExportManifest | None = None
    languages: Sequence[str] = ()
    license: str | None = None
    of_a_run: bool = True
    library: str = "paddlenlp"  # that loads what the card is beside, as the hub calls it
    use: str | None = None  # how, in Python; None: with nlpctl alone
    left_out: Sequence[Later] = ()
    holds_calibration: bool = False

    @property
    def metrics(self) -> Mapping[str, Mapping[str, Any]]:
        return {} if self.record is None else self.record.metrics

    def public(self, path: str) -> str:
        """An absolute path without the folders of this machine, but those that tell two files of the run apart."""
        if not os.path.isabs(path):
            return path
        data = () if self.record is None else self.record.manifest["data"]
        others = [Path(each).parts for each in {*data, *_paths(_values(self))} - {path}]
        parts = Path(path).parts
        telling = (n for n in range(1, len(parts)) if parts[-n:] not in [each[-n:] for each in others])
        return "/".join(parts[-next(telling, 1) :])


def card_page(facts: CardFacts) -> str:
    """The text of README.md, in the language of now."""
    sections = [
        Section(say("What it does"), list(_does(facts))),
        Section(say("Labels"), list(_labels(facts))),
        Section(say("Training data"), list(_data(facts))),
        Section(say("Training procedure"), list(_procedure(facts))),
        Section(say("Scores"), list(_scores(facts))),
        Section(say("Slices below the rest"), list(_slices(facts))),
        Section(say("Graphs"), list(_graphs(facts))),
        Section(say("Limits"), [BulletList(list(_limits(facts)))]),
        Section(say("How to run"), list(_how_to_run(facts))),
        Section(say("Reproduce and cite"), list(_reproduce(facts))),
    ]
    head = yaml.safe_dump(_front_matter(facts), sort_keys=False, allow_unicode=True, width=4096)
    return signed(f"---\n{head}---\n\n{markdown_page(Report(plain(facts.name), '', sections))}")


# -- for the hub ---------------------------------------------------------------------------------


def _front_matter(facts: CardFacts) -> dict[str, Any]:
    info = task_info(facts.recipe.task)
    head: dict[str, Any] = {}
    if facts.languages:
        head["language"] = list(facts.languages)
    if facts.license is not None:
        head["license"] = facts.license
    head["library_name"] = facts.library
    if info.pipeline is not None:
        head["pipeline_tag"] = info.pipeline
    tags = ["paddlepaddle", "paddlenlp"] if facts.use is None else [facts.library]
    head["tags"] = [*tags, "nlpctl", info.name.replace("_", "-")]
    if facts.record is not None and facts.recipe.data.dataset is not None:
        head["datasets"] = [facts.recipe.data.dataset]
    names = dict.fromkeys(name for report in facts.metrics.values() for name in without_counts(report))
    if names:
        head["metrics"] = list(names)
        head["model-index"] = [{"name": facts.name, "results": list(_results(facts))}]
    return head


def _results(facts: CardFacts) -> Iterator[dict[str, Any]]:
    info = task_info(facts.recipe.task)
    for split, report in facts.metrics.items():
        ends = intervals_of(report)
        metrics = []
        for name, value in without_counts(report).items():
            interval = {"args": {"confidence_level": 0.95, "confidence_interval": ends[name]}} if name in ends else {}
            metrics.append({"type": name, "name": name, "value": value, **interval})
        if metrics:
            named = facts.recipe.data.dataset
            files = ", ".join(facts.public(file) for file in vars(facts.recipe.data).get(split, ()))
            data = {"name": named or files or split, "type": named or "custom", "split": split}
            yield {"task": {"type": info.pipeline or info.name}, "dataset": data, "metrics": metrics}


# -- what it is ----------------------------------------------------------------------------------


def _does(facts: CardFacts) -> Iterator[Part]:
    info = task_info(facts.recipe.task)
    lines = [say("Task: `{}`. {}", info.name, task_meaning(info))]
    if facts.record is not None:
        lines.append(say("{}: {}", say("Network"), _network(facts)))
        members = [plain(_without_folder(name)) for name in _members(facts.record)]
        if members:
            ensemble = say("An ensemble, which averages the answers of {} models", len(members))
            lines.append(say("{}: {}", ensemble, say(", ").join(members)))
    yield BulletList(lines)
    if facts.export is not None and facts.record is not None:
        yield say("An export: graphs made of the trained network. The scores below are those of the network.")
    if not facts.of_a_run:
        yield say("Known are only the files of the model, which tell nothing of data, training and scores.")
    elif facts.record is None:
        yield say(
            "Known are only the files of this folder. Data, training and scores are in the run that it came from."
        )


def _members(record: RunRecord) -> list[str]:
    """The names of the models that an ensemble was made of."""
    members = record.manifest.get("members")
    return [each for each in members if isinstance(each, str)] if isinstance(members, list) else []


def _network(facts: CardFacts) -> str:
    model = facts.recipe.model
    if model.from_scratch is not None:
        description = say("{}, trained from scratch", plain(model.from_scratch.architecture))
    else:
        description = say("{}, trained further", plain(_without_folder(model.name_or_path or "")))
    assert facts.record is not None, "a model of a run"
    count = facts.record.manifest.get("parameters", {}).get("total")
    return description if count is None else say("{}, {} parameters", description, f"{count:,}")


def _labels(facts: CardFacts) -> Iterator[str]:
    if not facts.labels:
        return
    names: list[str] = [plain(name) for name in facts.labels]
    if facts.thresholds is not None:
        names = [f"{name} ({value:.3f})" for name, value in zip(names, facts.thresholds, strict=True)]
        yield say("label and threshold:")
    listed = say(", ").join(names[:MOST_LABELS])
    more = len(names) - MOST_LABELS
    yield listed if more <= 0 else say("{} ... and {:,} more, in `labels.json`.", listed, more)


def _data(facts: CardFacts) -> Iterator[Part]:
    if facts.record is None:
        return
    data, manifest = facts.recipe.data, facts.record.manifest
    if data.dataset is not None:
        yield say("The data set {} (PaddleNLP or Hugging Face), by splits.", code(data.dataset))
    rows = {split: report.get("rows") for split, report in facts.metrics.items()}
    steps = manifest.get("steps")
    rows["train"] = steps.get("examples") if isinstance(steps, Mapping) else None
    known = {split: count for split, count in rows.items() if isinstance(count, int)}
    if known:
        splits = [split for split in SPLITS if split in known]
        yield Table([say("split"), say("rows")], [[split, known[split]] for split in splits])
    files = [[plain(facts.public(file)), f"`{digest}`"] for file, digest in manifest["data"].items()]
    if files:
        yield Table([say("file"), "SHA-256"], files)
    for split, skipped in manifest["skipped_rows"].items():
        if skipped["total"]:
            yield say("{:,} bad rows of {} were skipped.", skipped["total"], split)


def _procedure(facts: CardFacts) -> Iterator[Part]:
    if facts.record is None:
        return
    record, manifest = facts.record, facts.record.manifest
    values: dict[str, Any] = {}
    steps = manifest.get("steps")
    if isinstance(steps, Mapping):
        values[say("epochs")] = steps.get("epochs")
        values[say("rows of a step")] = steps.get("global_batch")
    values[say("steps")] = record.step or None  # an ensemble makes none itself
    if record.best_step is not None:
        values[say("checkpoint kept")] = say("step {:,}, chosen by {} on dev", record.best_step, code(record.metric))
    training = {name: vars(facts.recipe.training)[name.removeprefix("training.")] for name in _KEYS}
    values |= {f"`{name}`": value for name, value in training.items() if value not in (None, 0, False)}
    values["`data.max_seq_length`"] = str(facts.recipe.data.max_seq_length)
    values[say("seed")] = None if manifest["seed"] is None else str(manifest["seed"])
    processes = manifest["processes"] or 1
    device = manifest["device"]
    values[say("device")] = device if processes == 1 or device is None else say("{} x {} processes", device, processes)
    values[say("time")] = record.duration
    values[say("ended")] = manifest["ended"]  # with its zone: others read it
    values[say("git commit")] = manifest["git_commit"]
    values |= {name: manifest["versions"].get(name) for name in _PACKAGES}
    rows = [[name, _value(value)] for name, value in values.items() if value is not None]
    yield Table([say("what"), say("value")], rows)


def _value(value: Any) -> Any:
    """A value of the recipe as it is written there; whole numbers stay numbers."""
    return value if isinstance(value, int) and not isinstance(value, bool) else str(value)


# -- how good it is ------------------------------------------------------------------------------


def _scores(facts: CardFacts) -> Iterator[Part]:
    if facts.record is None:
        return
    rows = []
    for split, report in facts.metrics.items():
        ends = intervals_of(report)
        for name, value in without_counts(report).items():
            interval = say("{} to {}", *(f"{end:.4f}" for end in ends[name])) if name in ends else None
            rows.append([split, plain(name), value, interval])
    if not rows:
        yield say("Nothing was scored: there is no dev or test data.")
        return
    yield Table([say("split"), say("score"), say("value"), say("95 % interval")], rows)
    if any(INTERVALS in report for report in facts.metrics.values()):
        yield say(
            "The interval is that of the percentile bootstrap over the rows: how far the score would "
            "move on other rows of the same kind. It does not cover the seed of the training."
        )
    if INTERVALS in facts.metrics.get("dev", {}):
        yield say(
            "As far as dev chose checkpoint, thresholds or settings, its score is optimistic, and so is its interval."
        )
    before = {
        split: report[CONFIDENCE]["before"][ECE]
        for split, report in facts.metrics.items()
        if report.get(CONFIDENCE, {}).get("before") is not None
    }
    if before:
        yield say(
            "`ece` is the expected calibration error of the probabilities, which were fitted to "
            "labelled rows; before: {}.",
            say(", ").join(f"{split} {value:.4f}" for split, value in before.items()),
        )
    split = list(facts.metrics)[-1]
    labels = facts.metrics[split].get("labels", {})
    if labels:
        yield f"### {say('By label, on {}', split)}"
        names = ("precision", "recall", "f1")
        rows = [[plain(label), *(each[name] for name in names), each["support"]] for label, each in labels.items()]
        yield Table([say("label"), *names, say("support")], rows[:MOST_LABELS])
        if len(rows) > MOST_LABELS:
            yield say("... and {} more labels, in `metrics.json`.", f"{len(rows) - MOST_LABELS:,}")


def _slices(facts: CardFacts) -> Iterator[Part]:
    slices = facts.slices
    if slices is None or not slices["by"]:
        return
    below: list[tuple[str, Slice]] = [
        (kind, each) for kind, listed in slices["by"].items() for each in listed if each.above_interval[1] < 0
    ]
    if not below:
        yield say("No label and no length of {} lies below the rest by more than chance explains.", slices["split"])
        return
    compared = sum(map(len, slices["by"].values()))
    yield say(
        "Rows of {} whose {} lies below that of all other rows, by a 95 % interval without 0. {} "
        "slices were compared; of 40 without any difference about one is listed too:",
        slices["split"],
        code(slices["score"]),
        compared,
    )
    rows = [
        [
            say(kind) if kind in (LABEL, LENGTH) else plain(kind),
            plain(slice_name(kind, each.name)),
            each.rows,
            each.score,
            say("{} to {}", *(f"{end:.3f}" for end in each.interval)),
            f"{each.above:+.4f}",
            say("{} to {}", *(f"{end:+.4f}" for end in each.above_interval)),
        ]
        for kind, each in sorted(below, key=lambda pair: pair[1].above)
    ]
    ends = say("95 % interval")
    yield Table([say("by"), say("slice"), say("rows"), say("value"), ends, say("above the rest"), ends], rows)


def _graphs(facts: CardFacts) -> Iterator[Part]:
    export = facts.export
    if export is None:
        return
    rows = [
        [
            plain(graph.files[0]),
            check.engine,
            way_name("", check.precision, graph.method).strip(),
            percent(check.agreement),
            None if check.difference is None else f"{check.difference:.2g}",
        ]
        for graph in export.graphs
        for check in graph.checks
    ]
    if rows:
        columns = say_each("graph", "engine", "precision", "same decisions", "largest difference")
        yield Table(columns, rows)
        yield say("Each graph was compared with the network on {} rows when it was made.", f"{export.rows:,}")
    if export.dev is not None:
        dev = export.dev
        title = say("{} on the first {} rows of dev", plain(dev.metric), f"{dev.rows:,}")
        yield Table([say("precision"), title], [["fp32", dev.fp32], *([plain(n), v] for n, v in dev.scores.items())])
    if export.chosen is not None:
        yield say("Chosen by speed and score: {} {}.", export.chosen.engine, export.chosen.precision)


# -- what to beware of ---------------------------------------------------------------------------


def _limits(facts: CardFacts) -> Iterator[str]:
    in_windows = task_rows(facts.recipe.task, facts.recipe.data).in_windows
    longest = facts.recipe.data.max_seq_length
    if in_windows:
        yield say(
            "Text beyond {} tokens is read in overlapping windows; what depends on words further apart is not seen.",
            longest,
        )
    else:
        yield _truncation(facts, longest)
    for phrase in facts.left_out:
        yield say("Not in these weights: {}.", plain(say(phrase)))
    for split, report in facts.metrics.items():
        labels = report.get("labels", {})
        few = [f"{plain(name)} ({each['support']})" for name, each in labels.items() if each["support"] < FEW]
        if few:
            yield say(
                "Labels with fewer than {} rows of {}, so that their scores say little: {}.",
                FEW,
                split,
                say(", ").join(few),
            )
        never = [plain(name) for name, each in labels.items() if each["support"] and not each["recall"]]
        if never:
            yield say("Labels of {} of which no row is predicted correctly: {}.", split, say(", ").join(never))
    if facts.metrics and "test" not in facts.metrics:
        chosen = facts.record is not None and facts.record.best_step is not None
        if chosen:
            yield say("There is no test split. The scores on dev flatter, since dev also chose the checkpoint.")
        else:
            yield say("There is no test split. The scores on dev flatter as far as settings were chosen by them.")
    if facts.languages:
        yield say("The language of the training texts: {}.", say(", ").join(facts.languages))
    else:
        yield say("The language of the training texts was not recorded.")
    if facts.record is not None:
        if not _members(facts.record):
            yield say(
                "One training with one seed; another seed gives another model, whose scores may "
                "differ by more than the intervals."
            )
        for event in facts.record.incidents():
            yield say("During the training: {} at step {:,}.", say(INCIDENTS[event["event"]]), event["step"])
    if facts.license is None:
        yield say("The license was not given.")


def _truncation(facts: CardFacts, longest: int) -> str:
    told = None if facts.record is None else truncation_told(facts.record)
    if told is not None:
        return told
    if not facts.of_a_run:
        return say("Text beyond {} tokens is cut.", longest)
    return say("Text beyond {} tokens is cut. How many training rows that touches was not recorded.", longest)


# -- what to do with it --------------------------------------------------------------------------


def _how_to_run(facts: CardFacts) -> Iterator[Part]:
    if facts.use is not None:
        yield Code(facts.use, "python")
        if facts.holds_calibration:
            yield say("The weights of the last layer hold the calibration: probabilities are those that nlpctl gives.")
        return
    rows, name = task_rows(facts.recipe.task, facts.recipe.data), facts.name
    shell, exported = shlex.quote(name), shlex.quote(f"{name}-export")
    source = "texts.txt" if rows.plain_column is not None else "rows.jsonl"
    lines = [f"nlpctl predict {shell} {source} -o answers.jsonl", f"nlpctl serve {shell}"]
    if facts.export is None:
        lines.append(f"nlpctl export {shell} -o {exported}")
    yield say("With nlpctl {} or later, in the folder that holds `{}`:", nlpctl.__version__, name.replace("`", "'"))
    yield Code("\n".join(lines), "bash")
    keys = rows.required(labelled=False)
    if rows.plain_column is None:
        yield say("A row has the keys {}.", say(", ").join(code(key) for key in keys))
    row = '"..."' if rows.plain_column is not None else "{" + ", ".join(f"{key!r}: ..." for key in keys) + "}"
    yield Code(f"import nlpctl\n\nmodel = nlpctl.load({name!r})\nanswer = model.predict({row})", "python")


def _reproduce(facts: CardFacts) -> Iterator[Part]:
    if facts.record is None:
        return
    made_by = _made_by(facts.record)
    if made_by is None:
        yield say(
            "This is the recipe of the run, its paths cut to their names. `nlpctl train` with it, the files above and "
            "the seed repeats the run."
        )
    else:
        yield say(
            "This is the recipe of the run, its paths cut to their names. `nlpctl train` with it does not repeat the "
            "run, which was made by {}.",
            code(made_by),
        )
    yield Code(to_yaml(_public(_values(facts), facts.public)), "yaml")
    yield say("To cite the model, name it with the hashes of its data and the seed.")


def _made_by(record: RunRecord) -> str | None:
    """The command that made the run, without folders; None if its recipe alone, trained again, gives the same."""
    maker = record.manifest.get("made_by")
    if maker is None and "continues" not in record.manifest:
        return None
    words = record.manifest["command"][1:] or [str(maker)]
    return shlex.join(["nlpctl", *(_FOLDERS.sub("", word) for word in words)])


def _values(facts: CardFacts) -> dict[str, Any]:
    """The recipe without what is of this machine."""
    values = recipe_values(facts.recipe, everything=False)
    values.pop("runtime", None)
    for name in ("output_dir", "logging_dir"):
        values.get("training", {}).pop(name, None)
    return values


def _public(value: Any, cut: Callable[[str], str], dotted: str = "") -> Any:
    """`value`, the recipe or a part of it under the key `dotted`, with each path as `cut` gives it."""
    if isinstance(value, Mapping):
        return {name: _public(each, cut, f"{dotted}.{name}".lstrip(".")) for name, each in value.items()}
    if isinstance(value, list):
        return value if dotted in TEXT_PATHS else [_public(each, cut, dotted) for each in value]
    return cut(value) if isinstance(value, str) and holds_path(dotted) else value


def _paths(values: Any) -> list[str]:
    """The absolute paths in a recipe."""
    paths: list[str] = []

    def note(text: str) -> str:
        if os.path.isabs(text):
            paths.append(text)
        return text

    _public(values, note)
    return paths


def _without_folder(text: str) -> str:
    return model_folder_name(Path(text)) if os.path.isabs(text) else text


_OUTPUT = "@[output=CARD.md]"
_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_LICENSE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def write_card(
    source: Path,
    output: Path | None = None,
    *,
    license: str | None = None,
    text_languages: Sequence[str] = (),
    overwrite: bool = False,
) -> Path:
    """Write the card of a run, a model folder or an export to `output`, by default README.md in it; returns the file.

    `text_languages`: codes of the languages of the training texts. Only a card that nlpctl wrote, and nobody changed,
    is replaced without `overwrite`. UserError.
    """
    _refuse_wrong_words(license, text_languages)
    facts = dataclasses.replace(card_facts(source), license=license, languages=tuple(text_languages))
    file = real_path(source) / CARD if output is None else output
    _refuse_other_card(file, overwrite, beside=output is None)
    with writing(file, f"name another file: {_OUTPUT}"):
        write_text_atomic(file, card_page(facts))
    return file


def card_facts(source: Path) -> CardFacts:
    """What the files in `source` tell. UserError if it is no run that is finished, model folder or export."""
    name = real_path(source).name
    if is_run(source):
        return _of_run(source, name)
    if (source / EXPORT_MANIFEST).is_file():
        return _of_export(source, name)
    if (source / TASK).is_file():
        return _of_model(source, name)
    beside = sorted(path.name for path in source.parent.glob("*/")) if not source.exists() else []
    near = nearest(source.name, beside)
    hint = f"did you mean {source.parent / near}?" if near else "name a folder with a trained model"
    raise UserError("this is no run, model folder or export", where=str(source), hint=hint)


def _of_run(source: Path, name: str) -> CardFacts:
    record = open_run(source)
    if record.manifest["state"] != "finished":
        hint = f"`nlpctl report {shlex.quote(str(source))}` shows what there is"
        raise UserError(f"the run is {record.state}; a card is of a finished one", where=str(source), hint=hint)
    damage = list(record.damage)
    slices = sound_slices(record.run.slices_file, damage)
    warn_of_damage(damage)
    tell_missing_slices(record)
    has_model = (record.run.model / TASK).is_file()
    labels, thresholds = read_labels(record.run.model) if has_model else ((), None)
    return CardFacts(name, record.recipe, labels, thresholds, record, slices)


def _of_model(source: Path, name: str) -> CardFacts:
    folder = real_path(source)
    if folder.name == MODEL and is_run(folder.parent):
        return _of_run(folder.parent, folder.parent.name)
    description = read_trained_description(folder)
    return CardFacts(name, recipe_of(folder), description.labels, description.thresholds)


def _of_export(source: Path, name: str) -> CardFacts:
    folder = real_path(source)
    manifest = read_manifest(folder)
    labels, thresholds = read_labels(folder)
    record = _run_of_export(manifest)
    if record is None:
        return CardFacts(name, recipe_of(folder), labels, thresholds, export=manifest)
    of_run = _of_run(record.run.path, name)
    return dataclasses.replace(of_run, labels=labels, thresholds=thresholds, export=manifest)


def _run_of_export(manifest: ExportManifest) -> RunRecord | None:
    """The run whose model was exported, as long as it is still that one."""
    model = Path(manifest.source)
    if not (model.is_absolute() and model.name == MODEL and is_run(model.parent)):
        return None
    if manifest.weights is None or weights_sum(model) != manifest.weights:
        return None  # trained again since
    record = open_run(model.parent)
    return record if record.manifest["state"] == "finished" else None


def _refuse_wrong_words(license: str | None, text_languages: Sequence[str]) -> None:
    if license is not None and not _LICENSE.fullmatch(license):
        hint = "the short name of a license, such as apache-2.0, mit, cc-by-4.0 or other"
        raise UserError(f"{license!r} is no name of a license", "@[license]", hint)
    wrong = [each for each in text_languages if not _LANGUAGE_CODE.fullmatch(each)]
    if wrong:
        hint = "codes of ISO 639, such as zh or zh,en"
        raise UserError(f"{wrong[0]!r} is no code of a language", "@[text-language]", hint)


def _refuse_other_card(file: Path, overwrite: bool, *, beside: bool) -> None:
    """UserError if `file` must not be written. `beside`: it lies beside a model on purpose, and is no part of it."""
    if not beside:
        refuse_output(file, overwrite=True)
    if overwrite or is_stream(file) or not os.path.lexists(file) or is_signed(file):
        return
    message = "this file was not written by nlpctl, or was changed since, and is not replaced"
    raise UserError(message, where=str(file), hint=f"use @[overwrite=true], or name another file: {_OUTPUT}")
