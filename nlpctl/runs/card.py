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
from nlpctl.config.schema import SPLITS, Recipe
from nlpctl.config.tasks import task_info
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.errors import UserError
from nlpctl.files import write_text_atomic, writing
from nlpctl.layout import CARD, CONFIDENCE, ECE, EXPORT_MANIFEST, INTERVALS, MODEL, TASK, real_path
from nlpctl.models.export_folder import ExportManifest, read_manifest, way_name
from nlpctl.models.folder import read_labels, read_trained_card
from nlpctl.models.model_manifest import weights_sum
from nlpctl.names import nearest
from nlpctl.outputs import is_signed, is_stream, refuse_output, signed
from nlpctl.report.markdown import code, markdown_page, plain
from nlpctl.report.model import BulletList, Code, Part, Report, Section, Table, percent
from nlpctl.report.score_tables import without_counts
from nlpctl.runs.run_files import is_run, sound_slices, warn_of_damage
from nlpctl.runs.runs import RunRecord, open_run, tell_missing_slices
from nlpctl.tasks.slices import Slice

LANGUAGES = ("en", "zh")


def words(language: str) -> Mapping[str, str]:
    """What a card says, by name. `language`: one of LANGUAGES."""
    return {name: texts[LANGUAGES.index(language)] for name, texts in _WORDS.items()}


_WORDS: Mapping[str, tuple[str, str]] = {
    "comma": (", ", "、"),
    "colon": (": ", "："),
    # -- what it does --
    "does": ("What it does", "用途"),
    "task": ("Task", "任务"),
    "network": ("Network", "网络"),
    "parameters": ("{} parameters", "{} 个参数"),
    "scratch": ("{}, trained from scratch", "{}，从零训练"),
    "began": ("{}, trained further", "{}，在其上继续训练"),
    "ensemble": ("An ensemble, which averages the answers of {} models", "集成：对 {} 个模型的答案取平均"),
    "unknown_model": (
        "Known are only the files of this folder. Data, training and scores are in the run that it came from.",
        "已知的只有这个目录中的文件。数据、训练和得分在它所属的运行中。",
    ),
    "made_of": (
        "An export: graphs made of the trained network. The scores below are those of the network.",
        "这是一个导出：由训练好的网络生成的图。下面的得分是网络本身的。",
    ),
    # -- labels --
    "labels": ("Labels", "标签"),
    "thresholds": ("label and threshold", "标签与阈值"),
    "more_labels": ("... and {} more, in `labels.json`.", "……另有 {} 个，见 `labels.json`。"),
    # -- data --
    "data": ("Training data", "训练数据"),
    "file": ("file", "文件"),
    "split": ("split", "部分"),
    "rows": ("rows", "行数"),
    "data_set": (
        "The data set {} (PaddleNLP or Hugging Face), by splits.",
        "数据集 {}（PaddleNLP 或 Hugging Face），按部分。",
    ),
    "skipped": ("{} bad rows of {} were skipped.", "{1} 中有 {0} 个坏行被跳过。"),
    # -- procedure --
    "procedure": ("Training procedure", "训练过程"),
    "what": ("what", "项目"),
    "value": ("value", "值"),
    "steps": ("steps", "步数"),
    "epochs": ("epochs", "轮数"),
    "step_rows": ("rows of a step", "每步行数"),
    "kept": ("checkpoint kept", "保留的检查点"),
    "kept_by": ("step {:,}, chosen by {} on dev", "第 {:,} 步，按 dev 上的 {} 选出"),
    "seed": ("seed", "随机种子"),
    "device": ("device", "设备"),
    "processes": ("{} x {} processes", "{} × {} 个进程"),
    "time": ("time", "时长"),
    "ended": ("ended", "结束于"),
    "commit": ("git commit", "git 提交"),
    # -- scores --
    "scores": ("Scores", "得分"),
    "interval": ("95 % interval", "95 % 区间"),
    "ends": ("{} to {}", "{} 至 {}"),
    "score": ("score", "得分项"),
    "per_label": ("By label, on {}", "各标签，{}"),
    "label": ("label", "标签"),
    "more_scores": ("... and {} more labels, in `metrics.json`.", "……另有 {} 个标签，见 `metrics.json`。"),
    "interval_is": (
        "The interval is that of the percentile bootstrap over the rows: how far the score would move on other rows of "
        "the same kind. It does not cover the seed of the training.",
        "区间由对行的百分位自助法得出：换成另一批同类的行，得分会变动多少。它不包含训练随机种子的影响。",
    ),
    "dev_is": (
        "As far as dev chose checkpoint, thresholds or settings, its score is optimistic, and so is its interval.",
        "dev 若用来选择检查点、阈值或设置，它的得分就偏乐观，区间也一样。",
    ),
    "calibrated": (
        "`ece` is the expected calibration error of the probabilities, which were fitted to labelled rows; before: {}.",
        "`ece` 是概率的期望校准误差，概率已用带标签的行校准；校准之前：{}。",
    ),
    "not_scored": ("Nothing was scored: there is no dev or test data.", "没有评分：没有 dev 或 test 数据。"),
    "graphs": ("Graphs", "图"),
    "graph": ("graph", "图文件"),
    "engine": ("engine", "引擎"),
    "precision": ("precision", "精度"),
    "agreement": ("same decisions", "相同判定"),
    "difference": ("largest difference", "最大差异"),
    "compared": (
        "Each graph was compared with the network on {} rows when it was made.",
        "每个图在生成时都与网络在 {} 行上做过比较。",
    ),
    "dev_rows": ("{} on the first {} rows of dev", "dev 前 {1} 行上的 {0}"),
    "chosen": ("Chosen by speed and score: {} {}.", "按速度和得分选出：{} {}。"),
    # -- slices --
    "slices": ("Slices below the rest", "低于其余部分的切片"),
    "slices_are": (
        "Rows of {} whose {} lies below that of all other rows, by a 95 % interval without 0. {} slices were compared; "
        "of 40 without any difference about one is listed too:",
        "{} 中 {} 低于其余各行、且差值的 95 % 区间不含 0 的行。共比较 {} 个切片；40 个毫无差别的约有一个也会列出：",
    ),
    "no_slices": (
        "No label and no length of {} lies below the rest by more than chance explains.",
        "{} 中没有哪个标签或长度低于其余部分的程度超出随机波动。",
    ),
    "by": ("by", "按"),
    "of_label": ("label", "标签"),
    "of_length": ("length", "长度"),
    "slice": ("slice", "切片"),
    "above": ("above the rest", "与其余之差"),
    # -- limits --
    "limits": ("Limits", "局限"),
    "cut": (
        "Text beyond {} tokens is cut. How many training rows that touches was not recorded.",
        "超过 {} 个词元的文本会被截断。有多少训练行受影响没有记录。",
    ),
    "windows": (
        "Text beyond {} tokens is read in overlapping windows; what depends on words further apart is not seen.",
        "超过 {} 个词元的文本用重叠的窗口读取；相隔更远的词之间的关系看不到。",
    ),
    "few": (
        "Labels with fewer than {} rows of {}, so that their scores say little: {}.",
        "{1} 中少于 {0} 行、因而得分意义不大的标签：{2}。",
    ),
    "never": ("Labels of {} of which no row is predicted correctly: {}.", "{} 中没有一行被正确预测的标签：{}。"),
    "no_test": (
        "There is no test split. The scores on dev flatter, since dev also chose the checkpoint.",
        "没有 test 部分。dev 上的得分偏高，因为检查点也是由 dev 选出的。",
    ),
    "no_test_nor_choice": (
        "There is no test split. The scores on dev flatter as far as settings were chosen by them.",
        "没有 test 部分。如果设置是按 dev 上的得分选出的，这些得分就偏高。",
    ),
    "languages": ("The language of the training texts: {}.", "训练文本的语言：{}。"),
    "no_languages": ("The language of the training texts was not recorded.", "训练文本的语言没有记录。"),
    "one_seed": (
        "One training with one seed; another seed gives another model, whose scores may differ by more than the "
        "intervals.",
        "只用一个随机种子训练了一次；换一个种子会得到另一个模型，得分之差可能大于区间。",
    ),
    "incident": ("During the training: {} at step {:,}.", "训练期间：第 {1:,} 步发生 {0}。"),
    "no_license": ("The license was not given.", "没有给出许可证。"),
    # -- weights for another library --
    "lacks": ("Not in these weights: {}.", "这些权重中没有：{}。"),
    "lacks_thresholds": (
        "the thresholds of labels ({}): programs that load it take 0.5, or the largest",
        "标签的阈值（{}）：加载它的程序取 0.5，或概率最大者",
    ),
    "lacks_parents": (
        "that a label is given with all labels above it",
        "给出标签时一并给出其所有上级标签的规则",
    ),
    "lacks_calibration": (
        "the calibration, which no layer of the network can hold: probabilities are those from before it",
        "校准（网络的任何一层都无法表示它）：概率是校准之前的",
    ),
    "lacks_terms": ("the dictionary of decode.terms", "decode.terms 的词典"),
    "lacks_max_answer_length": (
        "decode.max_answer_length: give {0} to the pipeline as max_answer_len, which is 15 otherwise",
        "decode.max_answer_length：调用 pipeline 时请给出 max_answer_len={0}，否则为 15",
    ),
    "lacks_null_threshold": (
        "decode.null_threshold, {}: when a question has no answer",
        "decode.null_threshold（{}）：何时判定问题没有答案",
    ),
    "holds_calibration": (
        "The weights of the last layer hold the calibration: probabilities are those that nlpctl gives.",
        "校准已包含在最后一层的权重中：概率与 nlpctl 给出的相同。",
    ),
    # -- how to run --
    "run": ("How to run", "如何使用"),
    "with": (
        "With nlpctl {} or later, in the folder that holds `{}`:",
        "使用 nlpctl {} 或更高版本，在 `{}` 所在的目录中：",
    ),
    "row_keys": ("A row has the keys {}.", "每行的键：{}。"),
    # -- reproduce --
    "reproduce": ("Reproduce and cite", "复现与引用"),
    "recipe": (
        "This is the recipe of the run, its paths cut to their names. `nlpctl train` with it, the files above and the "
        "seed repeats the run.",
        "这是该运行的配方，路径只保留名称。用它、上述文件和同一种子执行 `nlpctl train`，即可重复这次运行。",
    ),
    "other_recipe": (
        "This is the recipe of the run, its paths cut to their names. `nlpctl train` with it does not repeat the run, "
        "which was made by {}.",
        "这是该运行的配方，路径只保留名称。仅用它执行 `nlpctl train` 并不能重复这次运行；它由 {} 得到。",
    ),
    "cite": (
        "To cite the model, name it with the hashes of its data and the seed.",
        "引用这个模型时，请写明其名称、数据的哈希值和随机种子。",
    ),
}


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
    `left_out`: what the weights for another library cannot hold, as `left_out_phrases` takes it; `holds_calibration`:
    they give calibrated probabilities.
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
    library: str = "paddlenlp"  # that loads what the card is beside, as the hub calls it
    use: str | None = None  # how, in Python; None: with nlpctl alone
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
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


def left_out_phrases(left_out: Mapping[str, str], say: Mapping[str, str]) -> list[str]:
    """What a layout of weights lacks, for people. `left_out`: thresholds, parents, calibration, terms,
    max_answer_length, null_threshold, each with its values."""
    return [say[f"lacks_{name}"].format(values) for name, values in left_out.items()]


def card_page(facts: CardFacts, language: str) -> str:
    """The text of README.md. `language`: of its words, one of LANGUAGES."""
    say = words(language)
    sections = [
        Section(say["does"], list(_does(facts, say, language))),
        Section(say["labels"], list(_labels(facts, say))),
        Section(say["data"], list(_data(facts, say))),
        Section(say["procedure"], list(_procedure(facts, say))),
        Section(say["scores"], list(_scores(facts, say))),
        Section(say["slices"], list(_slices(facts, say))),
        Section(say["graphs"], list(_graphs(facts, say))),
        Section(say["limits"], [BulletList(list(_limits(facts, say)))]),
        Section(say["run"], list(_how_to_run(facts, say))),
        Section(say["reproduce"], list(_reproduce(facts, say))),
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


def _does(facts: CardFacts, say: Mapping[str, str], language: str) -> Iterator[Part]:
    info = task_info(facts.recipe.task)
    lines = [f"{say['task']}{say['colon']}`{info.name}`. {_meaning(info, language)}"]
    if facts.record is not None:
        lines.append(f"{say['network']}{say['colon']}{_network(facts, say)}")
        members = [plain(_without_folder(name)) for name in _members(facts.record)]
        if members:
            lines.append(f"{say['ensemble'].format(len(members))}{say['colon']}{say['comma'].join(members)}")
    yield BulletList(lines)
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
    members = record.manifest.get("members")
    return [each for each in members if isinstance(each, str)] if isinstance(members, list) else []


def _network(facts: CardFacts, say: Mapping[str, str]) -> str:
    model = facts.recipe.model
    if model.from_scratch is not None:
        description = say["scratch"].format(plain(model.from_scratch.architecture))
    else:
        description = say["began"].format(plain(_without_folder(model.name_or_path or "")))
    assert facts.record is not None, "a model of a run"
    count = facts.record.manifest.get("parameters", {}).get("total")
    return description if count is None else description + say["comma"] + say["parameters"].format(f"{count:,}")


def _labels(facts: CardFacts, say: Mapping[str, str]) -> Iterator[str]:
    if not facts.labels:
        return
    names: list[str] = [plain(name) for name in facts.labels]
    if facts.thresholds is not None:
        names = [f"{name} ({value:.3f})" for name, value in zip(names, facts.thresholds, strict=True)]
        yield say["thresholds"] + say["colon"]
    listed = say["comma"].join(names[:MOST_LABELS])
    more = len(names) - MOST_LABELS
    yield listed if more <= 0 else f"{listed} {say['more_labels'].format(f'{more:,}')}"


def _data(facts: CardFacts, say: Mapping[str, str]) -> Iterator[Part]:
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
        splits = [split for split in SPLITS if split in known]
        yield Table([say["split"], say["rows"]], [[split, known[split]] for split in splits])
    files = [[plain(facts.public(file)), f"`{digest}`"] for file, digest in manifest["data"].items()]
    if files:
        yield Table([say["file"], "SHA-256"], files)
    for split, skipped in manifest["skipped_rows"].items():
        if skipped["total"]:
            yield say["skipped"].format(f"{skipped['total']:,}", split)


def _procedure(facts: CardFacts, say: Mapping[str, str]) -> Iterator[Part]:
    if facts.record is None:
        return
    record, manifest = facts.record, facts.record.manifest
    values: dict[str, Any] = {}
    steps = manifest.get("steps")
    if isinstance(steps, Mapping):
        values[say["epochs"]] = steps.get("epochs")
        values[say["step_rows"]] = steps.get("global_batch")
    values[say["steps"]] = record.step or None  # an ensemble makes none itself
    if record.best_step is not None:
        values[say["kept"]] = say["kept_by"].format(record.best_step, code(record.metric))
    training = {name: vars(facts.recipe.training)[name.removeprefix("training.")] for name in _KEYS}
    values |= {f"`{name}`": value for name, value in training.items() if value not in (None, 0, False)}
    values["`data.max_seq_length`"] = str(facts.recipe.data.max_seq_length)
    values[say["seed"]] = None if manifest["seed"] is None else str(manifest["seed"])
    processes = manifest["processes"] or 1
    device = manifest["device"]
    values[say["device"]] = device if processes == 1 or device is None else say["processes"].format(device, processes)
    values[say["time"]] = record.duration
    values[say["ended"]] = manifest["ended"]
    values[say["commit"]] = manifest["git_commit"]
    values |= {name: manifest["versions"].get(name) for name in _PACKAGES}
    rows = [[name, _value(value)] for name, value in values.items() if value is not None]
    yield Table([say["what"], say["value"]], rows)


def _value(value: Any) -> Any:
    """A value of the recipe as it is written there; whole numbers stay numbers."""
    return value if isinstance(value, int) and not isinstance(value, bool) else str(value)


# -- how good it is ------------------------------------------------------------------------------


def _scores(facts: CardFacts, say: Mapping[str, str]) -> Iterator[Part]:
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
    yield Table([say["split"], say["score"], say["value"], say["interval"]], rows)
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
        names = ("precision", "recall", "f1")
        rows = [[plain(label), *(each[name] for name in names), each["support"]] for label, each in labels.items()]
        yield Table([say["label"], *names, say["rows"]], rows[:MOST_LABELS])
        if len(rows) > MOST_LABELS:
            yield say["more_scores"].format(f"{len(rows) - MOST_LABELS:,}")


def _slices(facts: CardFacts, say: Mapping[str, str]) -> Iterator[Part]:
    slices = facts.slices
    if slices is None or not slices["by"]:
        return
    below: list[tuple[str, Slice]] = [
        (kind, each) for kind, listed in slices["by"].items() for each in listed if each.above_interval[1] < 0
    ]
    if not below:
        yield say["no_slices"].format(slices["split"])
        return
    compared = sum(map(len, slices["by"].values()))
    yield say["slices_are"].format(slices["split"], code(slices["score"]), compared)
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
    yield Table([say["by"], say["slice"], say["rows"], say["value"], ends, say["above"], ends], rows)


def _graphs(facts: CardFacts, say: Mapping[str, str]) -> Iterator[Part]:
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
        yield Table([say[name] for name in columns], rows)
        yield say["compared"].format(f"{export.rows:,}")
    if export.dev is not None:
        dev = export.dev
        title = say["dev_rows"].format(plain(dev.metric), f"{dev.rows:,}")
        yield Table([say["precision"], title], [["fp32", dev.fp32], *([plain(n), v] for n, v in dev.scores.items())])
    if export.chosen is not None:
        yield say["chosen"].format(export.chosen.engine, export.chosen.precision)


# -- what to beware of ---------------------------------------------------------------------------


def _limits(facts: CardFacts, say: Mapping[str, str]) -> Iterator[str]:
    in_windows = task_rows(facts.recipe.task, facts.recipe.data).in_windows
    yield say["windows" if in_windows else "cut"].format(facts.recipe.data.max_seq_length)
    for phrase in left_out_phrases(facts.left_out, say):
        yield say["lacks"].format(plain(phrase))
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


def _how_to_run(facts: CardFacts, say: Mapping[str, str]) -> Iterator[Part]:
    if facts.use is not None:
        yield Code(facts.use, "python")
        if facts.holds_calibration:
            yield say["holds_calibration"]
        return
    rows, name = task_rows(facts.recipe.task, facts.recipe.data), facts.name
    shell, exported = shlex.quote(name), shlex.quote(f"{name}-export")
    source = "texts.txt" if rows.plain_column is not None else "rows.jsonl"
    lines = [f"nlpctl predict {shell} {source} -o answers.jsonl", f"nlpctl serve {shell}"]
    if facts.export is None:
        lines.append(f"nlpctl export {shell} -o {exported}")
    yield say["with"].format(nlpctl.__version__, name.replace("`", "'"))
    yield Code("\n".join(lines), "bash")
    keys = rows.required(labelled=False)
    if rows.plain_column is None:
        yield say["row_keys"].format(say["comma"].join(code(key) for key in keys))
    row = '"..."' if rows.plain_column is not None else "{" + ", ".join(f"{key!r}: ..." for key in keys) + "}"
    yield Code(f"import nlpctl\n\nmodel = nlpctl.load({name!r})\nanswer = model.predict({row})", "python")


def _reproduce(facts: CardFacts, say: Mapping[str, str]) -> Iterator[Part]:
    if facts.record is None:
        return
    made_by = _made_by(facts.record)
    yield say["recipe"] if made_by is None else say["other_recipe"].format(code(made_by))
    yield Code(to_yaml(_public(_values(facts), facts.public)), "yaml")
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
    paths: list[str] = []

    def note(text: str) -> str:
        if os.path.isabs(text):
            paths.append(text)
        return text

    _public(values, note)
    return paths


def _without_folder(text: str) -> str:
    return Path(text).name if os.path.isabs(text) else text


_OUTPUT = "@[output=CARD.md]"
_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_LICENSE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def write_card(
    source: Path,
    output: Path | None = None,
    *,
    language: str = LANGUAGES[0],
    license: str | None = None,
    text_languages: Sequence[str] = (),
    overwrite: bool = False,
) -> Path:
    """Write the card of a run, a model folder or an export to `output`, by default README.md in it; returns the file.

    `language`: of the card, one of LANGUAGES; `text_languages`: codes of the languages of the training texts. Only a
    card that nlpctl wrote, and nobody changed, is replaced without `overwrite`. UserError.
    """
    _refuse_wrong_words(language, license, text_languages)
    facts = dataclasses.replace(card_facts(source), license=license, languages=tuple(text_languages))
    file = real_path(source) / CARD if output is None else output
    _refuse_other_card(file, overwrite, beside=output is None)
    with writing(file, f"name another file: {_OUTPUT}"):
        write_text_atomic(file, card_page(facts, language))
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
        hint = f"`nlpctl report {source}` shows what there is"
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
    card = read_trained_card(folder)
    return CardFacts(name, recipe_of(folder), card.labels, card.thresholds)


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


def _refuse_wrong_words(language: str, license: str | None, text_languages: Sequence[str]) -> None:
    if language not in LANGUAGES:
        raise UserError(f"there are no cards in {language!r}", "@[language]", f"one of {', '.join(LANGUAGES)}")
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
