"""A model card: YAML for the Hugging Face hub, then Markdown for people.

Everything stands in the files of the run, the model folder or the export. What they do not say is left out.
"""

from __future__ import annotations

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
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import task_info
from nlpctl.data.task_rows import task_rows
from nlpctl.layout import CONFIDENCE, ECE, INTERVALS
from nlpctl.models.export_folder import ExportManifest, way_name
from nlpctl.outputs import signed
from nlpctl.report.markdown import code, fenced, plain, table
from nlpctl.report.page import percent
from nlpctl.report.score_tables import without_counts
from nlpctl.runners.pages.card_words import words
from nlpctl.runners.runs import RunRecord
from nlpctl.tasks.slices import Slice

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


def card_page(facts: CardFacts, language: str) -> str:
    """The text of README.md. `language`: of its words, one of card_words.LANGUAGES."""
    say = words(language)
    sections = {
        say["does"]: _does(facts, say, language),
        say["labels"]: _labels(facts, say),
        say["data"]: _data(facts, say),
        say["procedure"]: _procedure(facts, say),
        say["scores"]: _scores(facts, say),
        say["slices"]: _slices(facts, say),
        say["graphs"]: _graphs(facts, say),
        say["limits"]: _limits(facts, say),
        say["run"]: _how_to_run(facts, say),
        say["reproduce"]: _reproduce(facts, say),
    }
    parts = [f"---\n{_front_yaml(facts)}---", f"# {plain(facts.name)}"]
    for title, blocks in sections.items():
        shown = list(blocks)
        parts += [f"## {title}", *shown] if shown else []
    return signed("\n\n".join(parts) + "\n")


# -- for the hub ---------------------------------------------------------------------------------


def _front_yaml(facts: CardFacts) -> str:
    return yaml.safe_dump(_front_matter(facts), sort_keys=False, allow_unicode=True, width=4096)


def _front_matter(facts: CardFacts) -> dict[str, Any]:
    info = task_info(facts.recipe.task)
    found: dict[str, Any] = {}
    if facts.languages:
        found["language"] = list(facts.languages)
    if facts.license is not None:
        found["license"] = facts.license
    found["library_name"] = "paddlenlp"
    if info.pipeline is not None:
        found["pipeline_tag"] = info.pipeline
    found["tags"] = ["paddlepaddle", "paddlenlp", "nlpctl", info.name.replace("_", "-")]
    if facts.record is not None and facts.recipe.data.dataset is not None:
        found["datasets"] = [facts.recipe.data.dataset]
    names = dict.fromkeys(name for report in facts.metrics.values() for name in without_counts(report))
    if names:
        found["metrics"] = list(names)
        found["model-index"] = [{"name": facts.name, "results": list(_results(facts))}]
    return found


def _results(facts: CardFacts) -> Iterator[dict[str, Any]]:
    info = task_info(facts.recipe.task)
    for split, report in facts.metrics.items():
        ends = report.get(INTERVALS, {})
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


def _does(facts: CardFacts, say: Mapping[str, str], language: str) -> Iterator[str]:
    info = task_info(facts.recipe.task)
    lines = [f"- {say['task']}{say['colon']}`{info.name}`. {_meaning(info, language)}"]
    if facts.record is not None:
        lines.append(f"- {say['network']}{say['colon']}{_network(facts, say)}")
        members = [plain(_without_folder(name)) for name in _members(facts.record)]
        if members:
            lines.append(f"- {say['ensemble'].format(len(members))}{say['colon']}{say['comma'].join(members)}")
    yield "\n".join(lines)
    if facts.export is not None and facts.record is not None:
        yield say["made_of"]
    if facts.record is None:
        yield say["unknown_model"]


def _meaning(info: Any, language: str) -> str:
    """What the task does; a task of somebody else's has English words alone."""
    from nlpctl.config.reference import Chinese
    from nlpctl.config.tasks import KNOWN_TASKS

    return Chinese().task(info) if language == "zh" and info in KNOWN_TASKS else info.help


def _members(record: RunRecord) -> list[str]:
    """The names of the models that an ensemble was made of."""
    found = record.manifest.get("members")
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _network(facts: CardFacts, say: Mapping[str, str]) -> str:
    model = facts.recipe.model
    if model.from_scratch is not None:
        told = say["scratch"].format(plain(model.from_scratch.architecture))
    else:
        told = say["began"].format(plain(_without_folder(model.name_or_path or "")))
    count = facts.record.manifest.get("parameters", {}).get("total")
    return told if count is None else told + say["comma"] + say["parameters"].format(f"{count:,}")


def _labels(facts: CardFacts, say: Mapping[str, str]) -> Iterator[str]:
    if not facts.labels:
        return
    names = [plain(name) for name in facts.labels]
    if facts.thresholds is not None:
        names = [f"{name} ({value:.3f})" for name, value in zip(names, facts.thresholds, strict=True)]
        yield say["thresholds"] + say["colon"]
    shown = say["comma"].join(names[:MOST_LABELS])
    more = len(names) - MOST_LABELS
    yield shown if more <= 0 else f"{shown} {say['more_labels'].format(f'{more:,}')}"


def _data(facts: CardFacts, say: Mapping[str, str]) -> Iterator[str]:
    if facts.record is None:
        return
    data, manifest = facts.recipe.data, facts.record.manifest
    if data.dataset is not None:
        yield say["data_set"].format(code(data.dataset))
    rows = {split: report.get("rows") for split, report in facts.metrics.items()}
    steps = manifest.get("steps")
    rows["train"] = steps.get("examples") if isinstance(steps, Mapping) else None
    known = {split: count for split, count in rows.items() if isinstance(count, int)}
    if known:
        splits = [split for split in ("train", "dev", "test") if split in known]
        yield table([say["split"], say["rows"]], [[split, known[split]] for split in splits])
    files = [[plain(facts.public(file)), f"`{digest}`"] for file, digest in manifest["data"].items()]
    if files:
        yield table([say["file"], "SHA-256"], files)
    for split, skipped in manifest["skipped_rows"].items():
        if skipped["total"]:
            yield say["skipped"].format(f"{skipped['total']:,}", split)


def _procedure(facts: CardFacts, say: Mapping[str, str]) -> Iterator[str]:
    if facts.record is None:
        return
    record, manifest = facts.record, facts.record.manifest
    told: dict[str, Any] = {}
    steps = manifest.get("steps")
    if isinstance(steps, Mapping):
        told[say["epochs"]] = steps.get("epochs")
        told[say["step_rows"]] = steps.get("global_batch")
    told[say["steps"]] = record.step or None  # an ensemble makes none itself
    if record.best_step is not None:
        told[say["kept"]] = say["kept_by"].format(record.best_step, code(record.metric))
    values = {name: vars(facts.recipe.training)[name.removeprefix("training.")] for name in _KEYS}
    told |= {f"`{name}`": value for name, value in values.items() if value not in (None, 0, False)}
    told["`data.max_seq_length`"] = str(facts.recipe.data.max_seq_length)
    told[say["seed"]] = None if manifest["seed"] is None else str(manifest["seed"])
    processes = manifest["processes"] or 1
    device = manifest["device"]
    told[say["device"]] = device if processes == 1 or device is None else say["processes"].format(device, processes)
    told[say["time"]] = record.duration
    told[say["ended"]] = manifest["ended"]
    told[say["commit"]] = manifest["git_commit"]
    told |= {name: manifest["versions"].get(name) for name in _PACKAGES}
    rows = [[name, _value(value)] for name, value in told.items() if value is not None]
    yield table([say["what"], say["value"]], rows)


def _value(value: Any) -> Any:
    """A value of the recipe as it is written there; whole numbers stay numbers."""
    return value if isinstance(value, int) and not isinstance(value, bool) else str(value)


# -- how good it is ------------------------------------------------------------------------------


def _scores(facts: CardFacts, say: Mapping[str, str]) -> Iterator[str]:
    if facts.record is None:
        return
    rows = []
    for split, report in facts.metrics.items():
        ends = report.get(INTERVALS, {})
        for name, value in without_counts(report).items():
            interval = say["ends"].format(*(f"{end:.4f}" for end in ends[name])) if name in ends else None
            rows.append([split, plain(name), value, interval])
    if not rows:
        yield say["not_scored"]
        return
    yield table([say["split"], say["score"], say["value"], say["interval"]], rows)
    if any(INTERVALS in report for report in facts.metrics.values()):
        yield say["interval_is"]
    if INTERVALS in facts.metrics.get("dev", {}):
        yield say["dev_is"]
    before = {
        split: report[CONFIDENCE]["before"][ECE]
        for split, report in facts.metrics.items()
        if report.get(CONFIDENCE, {}).get("before") is not None
    }
    if before:
        yield say["calibrated"].format(say["comma"].join(f"{split} {value:.4f}" for split, value in before.items()))
    split = list(facts.metrics)[-1]
    labels = facts.metrics[split].get("labels", {})
    if labels:
        yield f"### {say['per_label'].format(split)}"
        of_label = ("precision", "recall", "f1")
        found = [[plain(label), *(each[name] for name in of_label), each["support"]] for label, each in labels.items()]
        yield table([say["label"], *of_label, say["rows"]], found[:MOST_LABELS])
        if len(found) > MOST_LABELS:
            yield say["more_scores"].format(f"{len(found) - MOST_LABELS:,}")


def _slices(facts: CardFacts, say: Mapping[str, str]) -> Iterator[str]:
    found = facts.slices
    if found is None or not found["by"]:
        return
    below: list[tuple[str, Slice]] = [
        (kind, each) for kind, listed in found["by"].items() for each in listed if each.above_interval[1] < 0
    ]
    if not below:
        yield say["no_slices"].format(found["split"])
        return
    looked_at = sum(map(len, found["by"].values()))
    yield say["slices_are"].format(found["split"], code(found["score"]), looked_at)
    rows = [
        [
            say.get(f"of_{kind}", plain(kind)),
            plain(each.name),
            each.rows,
            each.score,
            say["ends"].format(*(f"{end:.3f}" for end in each.interval)),
            f"{each.above:+.4f}",
            say["ends"].format(*(f"{end:+.4f}" for end in each.above_interval)),
        ]
        for kind, each in sorted(below, key=lambda pair: pair[1].above)
    ]
    ends = say["interval"]
    yield table([say["by"], say["slice"], say["rows"], say["value"], ends, say["above"], ends], rows)


def _graphs(facts: CardFacts, say: Mapping[str, str]) -> Iterator[str]:
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
        columns = ("graph", "engine", "precision", "agreement", "difference")
        yield table([say[name] for name in columns], rows)
        yield say["compared"].format(f"{export.rows:,}")
    if export.dev is not None:
        dev = export.dev
        title = say["dev_rows"].format(plain(dev.metric), f"{dev.rows:,}")
        yield table([say["precision"], title], [["fp32", dev.fp32], *([plain(n), v] for n, v in dev.scores.items())])
    if export.chosen is not None:
        yield say["chosen"].format(export.chosen.engine, export.chosen.precision)


# -- what to beware of ---------------------------------------------------------------------------


def _limits(facts: CardFacts, say: Mapping[str, str]) -> Iterator[str]:
    told = list(_limit_lines(facts, say))
    yield "\n".join(f"- {line}" for line in told)


def _limit_lines(facts: CardFacts, say: Mapping[str, str]) -> Iterator[str]:
    in_windows = task_rows(facts.recipe.task, facts.recipe.data).in_windows
    yield say["windows" if in_windows else "cut"].format(facts.recipe.data.max_seq_length)
    for split, report in facts.metrics.items():
        labels = report.get("labels", {})
        few = [f"{plain(name)} ({each['support']})" for name, each in labels.items() if each["support"] < FEW]
        if few:
            yield say["few"].format(FEW, split, say["comma"].join(few))
        never = [plain(name) for name, each in labels.items() if each["support"] and not each["recall"]]
        if never:
            yield say["never"].format(split, say["comma"].join(never))
    if facts.metrics and "test" not in facts.metrics:
        chosen = facts.record is not None and facts.record.best_step is not None
        yield say["no_test" if chosen else "no_test_nor_choice"]
    if facts.languages:
        yield say["languages"].format(say["comma"].join(facts.languages))
    else:
        yield say["no_languages"]
    if facts.record is not None:
        if not _members(facts.record):
            yield say["one_seed"]
        for event in facts.record.incidents():
            yield say["incident"].format(event["event"].replace("_", " "), event["step"])
    if facts.license is None:
        yield say["no_license"]


# -- what to do with it --------------------------------------------------------------------------


def _how_to_run(facts: CardFacts, say: Mapping[str, str]) -> Iterator[str]:
    rows, name = task_rows(facts.recipe.task, facts.recipe.data), facts.name
    shell, exported = shlex.quote(name), shlex.quote(f"{name}-export")
    source = "texts.txt" if rows.plain_column is not None else "rows.jsonl"
    lines = [f"nlpctl predict {shell} {source} -o answers.jsonl", f"nlpctl serve {shell}"]
    if facts.export is None:
        lines.append(f"nlpctl export {shell} -o {exported}")
    yield say["with"].format(nlpctl.__version__, name.replace("`", "'"))
    yield fenced("bash", "\n".join(lines))
    keys = rows.required(labelled=False)
    if rows.plain_column is None:
        yield say["row_keys"].format(say["comma"].join(code(key) for key in keys))
    row = '"..."' if rows.plain_column is not None else "{" + ", ".join(f"{key!r}: ..." for key in keys) + "}"
    yield fenced("python", f"import nlpctl\n\nmodel = nlpctl.load({name!r})\nanswer = model.predict({row})")


def _reproduce(facts: CardFacts, say: Mapping[str, str]) -> Iterator[str]:
    if facts.record is None:
        return
    made_by = _made_by(facts.record)
    yield say["recipe"] if made_by is None else say["other_recipe"].format(code(made_by))
    yield fenced("yaml", to_yaml(_public(_values(facts), facts.public)))
    yield say["cite"]


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
    found: list[str] = []

    def note(text: str) -> str:
        if os.path.isabs(text):
            found.append(text)
        return text

    _public(values, note)
    return found


def _without_folder(text: str) -> str:
    return Path(text).name if os.path.isabs(text) else text

