"""`nlpctl new`: looks at data files, asks what it cannot know, and writes a recipe; on demand it times the training.

Imports no Paddle before the recipe is written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.config.input_formats import INPUT_FORMATS, OF_DATA
from nlpctl.config.load import load_recipe
from nlpctl.config.recipe_text import named_from, recipe_text
from nlpctl.config.reference import task_meaning
from nlpctl.config.sentence_folder import is_sentence_folder
from nlpctl.config.tasks import Preset, TaskInfo, find_task, known_tasks, load_class, nearest_task
from nlpctl.console import display, wrapped
from nlpctl.data.readers.packed import PACKED, stem_of, suffix_of
from nlpctl.data.rows.task_rows import TaskRows
from nlpctl.data.validate import column_problems
from nlpctl.datatools import recipe_defaults as values
from nlpctl.datatools.file_sniffer import Preview, preview_file
from nlpctl.datatools.task_fit import Match, match_task, matching_labels, task_roles
from nlpctl.errors import Interrupted, NlpctlError, Problem, UserError
from nlpctl.files import staged_path, write_text_atomic, writing
from nlpctl.models.pretrained import Encoder, available, language_of, lies_here, named_encoder
from nlpctl.models.source import resolve_source
from nlpctl.names import did_you_mean, full_width_signs, link_hint, listed, listed_with_guess, nearest_file
from nlpctl.outputs import refuse_output
from nlpctl.report.language import Later, later, say
from nlpctl.runtime.device import usable_gpu
from nlpctl.spelling import option

if TYPE_CHECKING:
    from nlpctl.datatools.split import SplitResult
    from nlpctl.training.timed_steps import TimedSteps

NONE, SCRATCH = "none", "scratch"
_ENDINGS = tuple(ending for name in OF_DATA for ending in INPUT_FORMATS[name].endings)
_OTHERS = {"dev": ("dev", "val", "valid", "validation", "eval"), "test": ("test",)}
_TEXTS = 200  # rows whose texts tell the language
_OF_UIE = {"content", "result_list", "prompt"}  # keys of PaddleNLP's rows for UIE


@dataclass(frozen=True)
class Question:
    """What must be known: the `flag` that tells it, the `text` (`later`) by which a person is asked, and the default.

    `unasked`: the answer where nobody is asked; None: the default. `hint`: what to do where nobody is asked and there
    is no default; None: give the flag. `check` raises a UserError for a bad answer.
    """

    flag: str
    text: str
    default: str | None
    options: tuple[str, ...] = ()
    unasked: str | None = None
    hint: str | None = None
    check: Callable[[str], object] | None = None


Ask = Callable[[Question], str]


@dataclass(frozen=True)
class Given:
    """What the flags say; None (no columns): to be found out."""

    train: str | None = None
    dev: str | None = None
    test: str | None = None
    task: str | None = None
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    model: str | None = None
    split: str | None = None
    time: bool | None = None
    output: Path | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class NewRecipe:
    """The recipe, what it names, what was decided and why, and the command lines that come next, both `later`.
    `seconds`: of the training here; None: not timed."""

    path: Path
    task: str
    model: str
    files: Mapping[str, Path]
    seconds: float | None
    decided: tuple[tuple[str, str], ...]
    next: tuple[str, ...]


def new_recipe(given: Given, ask: Ask) -> NewRecipe:
    """Write a recipe for the files in `given`; `ask` is called for what is not given there.

    Raises UserError, before anything is written, for files that cannot be used, and what makes no recipe.
    """
    files = _files(given, ask)
    preview = preview_file(files["train"], named=set(given.columns.values()) - {NONE})
    preview, task, columns, match = _meaning(preview, given, ask)
    previews = {"train": preview} | {
        split: preview_file(files[split], preview, _rows(task).annotation)
        for split in ("dev", "test")
        if split in files
    }
    left_out = _refuse_other_columns(previews, columns, task)
    gpu = _has_gpu()
    encoder, about = _encoder(given, ask, preview, columns, gpu)
    here = encoder is None or lies_here(encoder.name)
    if given.time and encoder is not None and not here:
        message = f"{encoder.name} is not on this machine, and is not downloaded to time a training"
        raise UserError(message, "@[time]", "leave it out: `train` tells the time after its first steps")
    own = _says_how_it_makes_vectors(encoder)
    head = values.head_presets(task, encoder)
    output = _output(given, ask, files["train"])
    if encoder is not None and (folder := Path(encoder.name).expanduser()).is_dir():
        encoder = dataclasses.replace(encoder, name=named_from(output.parent, folder))
    absolute: dict[str, Any] = {split: [os.path.abspath(each.path)] for split, each in previews.items()}
    data = values.data_values(previews, absolute, columns, _rows(task)) | {
        preset.key.removeprefix("data."): preset.value for preset in match.presets if preset.key.startswith("data.")
    }
    seen = values.summarise_data(task, data)
    model = values.model_presets(task, encoder, about, seen)
    paths = {split: each.path for split, each in previews.items()}

    def text(seen: values.DataSummary, paths: Mapping[str, Path], timing: TimedSteps | None = None) -> str:
        named = {split: named_from(output.parent, path) for split, path in paths.items()}
        presets = [
            Preset("task", task.name, match.reason),
            *model,
            *values.section_presets(data | named, seen),
            *match.presets,
            Preset("training.output_dir", f"outputs/{output.stem}"),
            *values.measured_presets(task, seen, gpu=gpu, scratch=encoder is None, dev="dev" in paths, timing=timing),
            *head,
        ]
        presets = [preset for preset in presets if not (own and preset.key.startswith("retrieval."))]
        return recipe_text(_head(output, task), values.in_order(presets), values.hints(task, seen, gpu))

    parts_folder = None if "dev" in previews else _parts_folder(given, ask, output)
    timed = here and _is_timed(given, ask)
    if parts_folder is not None:
        with _checked(output, text(seen, paths)):  # before the training file is cut
            made = _parts(parts_folder, task, data, given.overwrite)
        paths |= made.files
        if made.skipped:
            left_out = [*left_out, later("rows that cannot be used, and are in no part: {:,}", made.skipped)]
        seen = values.summarise_data(task, data | {split: [os.path.abspath(path)] for split, path in paths.items()})
    with _checked(output, text(seen, paths)) as staged:
        os.replace(staged, output)
    timing = _time_training(output) if timed else None
    if timing is not None:
        with _checked(output, text(seen, paths, timing)) as staged:
            os.replace(staged, output)
    name = SCRATCH if encoder is None else encoder.name
    decided = [(later("task"), later("{}: {}", task.name, match.reason))]
    decided.append((later("model"), later("{}: {}", name, about)))
    for split, path in paths.items():
        decided.append((later("data"), later("{}: {}", split, f"{display(path)}{_program(previews.get(split))}")))
    decided += [(later("left out"), left) for left in left_out]
    label = columns.get("label", "")
    for twin in preview.twins(label):
        place = f"{option('columns')} {shlex.quote(f'label={twin}')}"
        remark = later("column {!r} says the same as {!r}; in its place: {}", twin, label, place)
        decided.append((later("left out"), remark))
    for other in _other_texts(preview, task, columns) if given.columns.get("text_pair") != NONE else ():
        place = f"{option('columns')} {shlex.quote(f'text_pair={other}')}"
        decided.append((later("left out"), later("column {!r} holds texts, too; as the second text: {}", other, place)))
    if timing is not None:
        decided.append((later("time"), _told(timing)))
    seconds = None if timing is None else timing.seconds
    return NewRecipe(output, task.name, name, paths, seconds, tuple(decided), _next(output, "dev" in paths))


# -- files --


def _files(given: Given, ask: Ask) -> dict[str, Path]:
    """The file of each split that there is."""
    question = Question("TRAIN", later("Training file, or the folder of all files"), None, check=_existing)
    start = _existing(given.train if given.train is not None else ask(question))
    files = _in_folder(start) if start.is_dir() else {"train": start, **_beside(start)}
    for split, meaning in (("dev", later("selects the best model")), ("test", later("scored once at the end"))):
        default = str(files.pop(split)) if split in files else NONE
        named: str | None = getattr(given, split)
        if named is None:
            text = later("File for {} ({}); none: there is none", split, meaning)
            named = ask(Question(f"@[{split}]", text, default, check=lambda name: name == NONE or _existing(name)))
        if named != NONE:
            files[split] = _existing(named)
    return files


def _existing(name: str) -> Path:
    path = Path(name).expanduser()
    if path.exists():
        return path
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent}", where=name, hint="check the path")
    guess = nearest_file(path.name, [entry.name for entry in path.parent.iterdir()])
    hint = f"did you mean {path.parent / guess}?" if guess else "check the path"
    raise UserError("there is no such file", where=name, hint=link_hint(path) or hint)


def _in_folder(folder: Path) -> dict[str, Path]:
    """The training file of a folder and those beside it."""
    data_files = sorted(path for path in folder.iterdir() if suffix_of(path) in _ENDINGS and path.is_file())
    trains = [path for path in data_files if "train" in stem_of(path).lower()]
    if len(trains) != 1 and len(data_files) != 1:
        names = listed(path.name for path in trains or data_files)
        message = (
            f"which of them is the training file? There are {names}" if data_files else "there is no data file in it"
        )
        raise UserError(message, where=str(folder), hint=f"name the file; known endings: {', '.join(_ENDINGS)}")
    (train,) = trains if len(trains) == 1 else data_files
    return {"train": train, **_beside(train)}


def _beside(train: Path) -> dict[str, Path]:
    """Files whose names say dev and test where that of the training file says train."""
    others: dict[str, Path] = {}
    stem = stem_of(train)
    if "train" not in stem.lower():
        return others
    endings = dict.fromkeys((train.name[len(stem) :], *(f"{end}{pack}" for pack in ("", *PACKED) for end in _ENDINGS)))
    for split, words in _OTHERS.items():
        names = [re.sub("train", word, stem, flags=re.IGNORECASE) for word in words]
        paths = (train.with_name(name + ending) for name in names for ending in endings)
        path = next((path for path in paths if path.is_file()), None)
        if path is not None:
            others[split] = path
    return others


# -- task and columns --


def _holds_spans(preview: Preview, name: str) -> bool:
    """Whether lists of a column hold objects with a start and an end, as many programs write entities."""
    found = [each for row in preview.rows if isinstance(row.get(name), list) for each in row[name]]
    return bool(found) and all(isinstance(each, dict) and {"start", "end"} <= each.keys() for each in found)


def _meaning(preview: Preview, given: Given, ask: Ask) -> tuple[Preview, TaskInfo, dict[str, str], Match]:
    """The task, its columns, and why; with the preview of the file as this task reads it."""
    _refuse_unknown_columns(preview, given.columns)
    infos = {info.name: info for info in known_tasks()}
    known = {role: name for role, name in given.columns.items() if name != NONE}
    tried = {name: match_task(info, preview, known) for name, info in infos.items() if _reads(info, preview)}
    matches = {name: match for name, match in tried.items() if match is not None}
    best = max(matches, key=lambda name: matches[name].sure, default=None)
    name = given.task
    if name is None and all(map(_OF_UIE.issubset, preview.rows)):
        message = "these are PaddleNLP's rows for UIE, which nlpctl has no task for"
        hint = "a tagger (token_classification) is trained from doccano's export, of which they were made"
        raise UserError(message, where=str(preview.path), hint=hint)
    spans = next((column.name for column in preview.columns if _holds_spans(preview, column.name)), None)
    only_texts = name is None and (best is None or set(matches[best].columns) == {"text"})
    if spans and (only_texts or (name is not None and "tags" in task_roles(_known_task(name)))):
        message = f"{spans!r} holds spans from start to end, in a form that is not read"
        hint = 'write them as {"text": "Paris is far", "entities": [{"start": 0, "end": 5, "label": "LOC"}]}'
        raise UserError(message, where=str(preview.path), hint=hint)
    if name is None:
        text = later("Task ({})", matches[best].reason) if best else later("Task")
        name = ask(Question("@[task]", text, best, tuple(infos), check=_known_task))
    task = _known_task(name)
    if preview.only_spans and _rows(task).annotation != "spans":
        plain = preview_file(preview.path, annotation=_rows(task).annotation)
        return _meaning(plain, dataclasses.replace(given, task=name), ask)
    match = matches.get(name)
    if not preview.names_columns:
        if match is None:
            message = f"{task.name} cannot be learned from this file, which was read as {preview.format}"
            raise UserError(
                message, where=str(preview.path), hint="name another task, or write a recipe with data.format"
            )
        return preview, task, dict(match.columns), match
    columns = _columns(preview, task, given.columns, match, ask)
    match = match_task(task, preview, columns) or Match(columns, later("as asked"), 0)
    if match.unordered:
        match = dataclasses.replace(match, presets=(*match.presets, _order_of_labels(match.unordered, ask)))
    return preview, task, columns, match


def _order_of_labels(labels: Sequence[str], ask: Ask) -> Preset:
    """data.labels for two labels of pairs, by asking which one means a match."""

    def check(label: str) -> None:
        if label not in labels:
            raise UserError(f"{label!r} is none of the labels", "data.labels", f"one of {listed(labels)}")

    hint = "answer it on a terminal; or @[task=sequence_classification], which learns pairs whatever their labels mean"
    text = later("Which of the labels {!r} and {!r} means that two texts match?", *labels)
    match = ask(Question("data.labels", text, None, tuple(labels), hint=hint, check=check))
    return matching_labels(next(label for label in labels if label != match), match)


def _reads(task: TaskInfo, preview: Preview) -> bool:
    """Whether the task reads what people annotated elsewhere, if this is such a file."""
    return INPUT_FORMATS[preview.format].annotator is None or _rows(task).annotation is not None


def _other_texts(preview: Preview, task: TaskInfo, columns: Mapping[str, str]) -> list[str]:
    """The columns of texts that are not read, where the task could read a second one."""
    if "text" not in columns or "text_pair" in columns or not task.reads("data.columns.text_pair"):
        return []
    return [column.name for column in preview.of_kind("text") if column.name not in columns.values()]


def _columns(
    preview: Preview, task: TaskInfo, given: Mapping[str, str], match: Match | None, ask: Ask
) -> dict[str, str]:
    """The column for every role that the task needs, or that was found for it and is wanted."""
    proposed, needed = {} if match is None else match.columns, task_roles(task)
    names = tuple(column.name for column in preview.columns)
    columns = dict(given)
    for role in dict.fromkeys((*needed, *proposed)):
        if role not in columns:
            text = later("Column for {}" if role in needed else "Column for {}; none: leave it out", role)
            taken = [*proposed.values(), *columns.values()]
            default = proposed.get(role) or preview.named_as(role, taken)
            if default is None and role == "text":
                default = preview.role(role, {}, ("text",), taken)
            question = Question(f"@[columns={role}=COLUMN]", text, default, names)
            columns[role] = ask(dataclasses.replace(question, check=lambda column: _known_column(preview, column)))
    return {role: name for role, name in columns.items() if name != NONE or role in needed}


def _known_task(name: str) -> TaskInfo:
    task = find_task(name)
    if task is None:
        near, names = nearest_task(name), ", ".join(info.name for info in known_tasks())
        guess = f" (did you mean {near!r}?)" if near else ""
        raise UserError(f"there is no task {name!r}{guess}", "@[task]", f"one of {names}")
    return task


def _rows(task: TaskInfo) -> type[TaskRows]:
    rows: type[TaskRows] = load_class(task.rows)
    return rows


def _refuse_unknown_columns(preview: Preview, columns: Mapping[str, str]) -> None:
    for role, name in columns.items():
        if role not in values.ROLES:
            hint = f"write one of {', '.join(values.ROLES)} before the ="
            raise UserError(f"there is no column for {role!r}{did_you_mean(role, values.ROLES)}", "@[columns]", hint)
        _known_column(preview, name)


def _known_column(preview: Preview, name: str) -> None:
    names = [column.name for column in preview.columns]
    if name not in (*names, NONE):
        hint = "name one of them: @[columns=text=COLUMN,label=COLUMN]" + full_width_signs(name)
        message = f"no column {name!r}: the columns are {listed_with_guess(names, name)}"
        raise UserError(message, where=str(preview.path), hint=hint)


def _refuse_other_columns(previews: dict[str, Preview], columns: Mapping[str, str], task: TaskInfo) -> list[Later]:
    """UserError if dev lacks a column; a test file without its labels is taken out of `previews`, which is told."""
    left_out = []
    for split in [split for split in previews if split != "train"]:
        names = {column.name for column in previews[split].columns}
        missing = [columns[role] for role in task_roles(task) if role in columns and columns[role] not in names]
        if missing and split == "test":
            file = display(previews.pop(split).path)
            left_out.append(later("{}: it has no column {}, so it cannot be scored", file, listed(missing)))
        elif missing:
            hint = f"name another file, or --{split} {NONE}; data.by_split of a recipe can rename columns"
            message = f"no column {listed(missing)}; the columns are {listed(sorted(names))}"
            raise UserError(message, where=str(previews[split].path), hint=hint)
    return left_out


# -- the encoder, the file --


def _has_gpu() -> bool:
    try:
        return usable_gpu().usable
    except UserError:  # Paddle is not installed, which train will say
        return False


def _encoder(
    given: Given, ask: Ask, preview: Preview, columns: Mapping[str, str], gpu: bool
) -> tuple[Encoder | None, Later]:
    """The encoder to start from, None for a network from scratch, and a comment on it."""
    chosen, why = given.model, later("a new network, and a vocabulary from the training text")
    if chosen is None:
        proposed = available(language_of(_texts(preview, columns)), small=not gpu)
        if proposed is None:
            why = later("no pretrained encoder for these texts is on this machine, and PaddleNLP's hub does not answer")
        about = proposed[0].about if proposed else why
        text = later("Model: a folder, a name of PaddleNLP's hub, or scratch ({})", about)
        default = proposed[0].name if proposed else SCRATCH
        chosen = ask(Question("@[model]", text, default, check=lambda name: name == SCRATCH or named_encoder(name)))
    if chosen == SCRATCH:
        return None, why
    encoder, state = named_encoder(chosen)
    return encoder, encoder.about if state == "here" else later("{}; will be downloaded", encoder.about)


def _texts(preview: Preview, columns: Mapping[str, str]) -> list[str]:
    """Texts of the first rows; of tagged ones the words."""
    texts: list[str] = []
    for row in preview.rows[:_TEXTS]:
        for role in ("text", "text_pair", "question", "context", "tokens"):
            value = row.get(columns.get(role, ""), "")
            texts.append("".join(map(str, value)) if isinstance(value, list) else str(value))
    return texts


def _output(given: Given, ask: Ask, train: Path) -> Path:
    """The file of the recipe, by default named after the data; `refuse_output`."""
    name = stem_of(train) if "train" not in stem_of(train).lower() else train.absolute().parent.name
    default = re.sub(r"[^\w.-]+", "_", name).strip("_.") or "recipe"

    def checked(text: str) -> Path:
        path = Path(text).expanduser()
        if not path.name:  # such as `.`
            raise UserError("this is a folder", where=text, hint="name a file in it: @[output=FILE.yaml]")
        path = path if path.suffix in (".yaml", ".yml") else path.with_name(f"{path.name}.yaml")
        elsewhere = "name another file: @[output=FILE.yaml]"
        refuse_output(path, given.overwrite, exists="the recipe exists", elsewhere=elsewhere)
        return path

    text = str(given.output) if given.output is not None else None
    question = Question("@[output]", later("Recipe file"), f"{default}.yaml", check=checked)
    return checked(text if text is not None else ask(question))


def _says_how_it_makes_vectors(encoder: Encoder | None) -> bool:
    """Whether it comes with pooling and prompts, which section retrieval of a recipe would overrule."""
    folder = None if encoder is None else resolve_source(encoder.name).folder
    return folder is not None and is_sentence_folder(folder)


def _parts_folder(given: Given, ask: Ask, output: Path) -> Path | None:
    """The folder for train, dev and test cut from the training file; None if that is not wanted."""
    folder = given.split
    if folder is None:
        text = later("There is no dev file. Folder for train, dev and test cut from the training file; none: later")
        folder = ask(Question("@[split]", text, str(output.with_suffix("")) + "_parts", unasked=NONE))
    return None if folder == NONE else Path(folder)


def _parts(folder: Path, task: TaskInfo, data: Mapping[str, Any], overwrite: bool) -> SplitResult:
    """train, dev and test cut from the training file. UserError: too many rows are bad, of which `summarise_data` has
    looked at the first ones."""
    from nlpctl.datatools.split import split_data

    shares = {"dev": 0.1} | ({} if "test" in data else {"test": 0.1})
    recipe = load_recipe({"task": task.name, "data": {**data, "on_bad_row": "skip"}}, (), "apply")
    return split_data(recipe, folder, shares, overwrite=overwrite, most_bad=values.MOST_BAD)


@contextlib.contextmanager
def _checked(output: Path, text: str) -> Iterator[Path]:
    """A file beside `output` with the text of a recipe that `recipe validate` has nothing against. UserError."""
    staged = staged_path(output)  # beside it: paths are relative to the recipe
    try:
        with writing(output, "name another file: @[output=FILE.yaml]"):
            output.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomic(staged, text)
        try:
            problems = column_problems(load_recipe(staged))
        except UserError as error:
            problems = list(error.problems)
        if problems:
            raise UserError(problems=[_renamed(problem, staged, output) for problem in problems])
        yield staged
    finally:
        with contextlib.suppress(OSError):
            staged.unlink()


def _renamed(problem: Problem, staged: Path, output: Path) -> Problem:
    """The problem with the name of the recipe in place of that of the file it was checked in."""
    said = {key: text.replace(staged.name, output.name) for key, text in dataclasses.asdict(problem).items()}
    return Problem(**said)


# -- how long it takes --


def _is_timed(given: Given, ask: Ask) -> bool:
    """Whether the training is to be timed."""
    if given.time is not None:
        return given.time

    def check(answer: str) -> None:
        if answer not in ("yes", "no"):
            raise UserError(f"{answer!r} is neither yes nor no", "@[time]", "answer yes or no")

    text = later("Time some steps of the training, for how long it takes here and in what precision (about a minute)?")
    return ask(Question("@[time]", text, "yes", ("yes", "no"), unasked="no", check=check)) == "yes"


def _time_training(recipe: Path) -> TimedSteps | None:
    """The training of the recipe, timed; None if that fails, which is told."""
    try:
        from nlpctl.training.overfit import ready_to_train

        prepared = ready_to_train(load_recipe(recipe))
        from nlpctl.training.timed_steps import time_training  # imports Paddle, which is set up by now

        return time_training(prepared)
    except Interrupted:
        raise
    except Exception as error:  # also a library's: the recipe is written, and this was a question of time alone
        reason = str(error) if isinstance(error, NlpctlError) else f"{type(error).__name__}: {error}"
        console.warn(f"the training could not be timed: {reason}")
        return None


def _told(timing: TimedSteps) -> Later:
    """How long the training takes, for people."""
    text = later("the training takes about {} on this machine", console.duration(timing.seconds))
    if timing.with_bf16 is None:
        return text
    if timing.bfloat16_pays:
        return later("{}, in bf16 (steps {:.1f} times as fast)", text, timing.times_faster)
    return later("{}, in 32 bits (steps in bf16: {:.1f} times as fast)", text, timing.times_faster)


def _head(output: Path, task: TaskInfo) -> list[str]:
    file, name, meaning = shlex.quote(output.name), output.stem, task_meaning(task)
    return [
        *wrapped(say("{}: {}", name, f"{meaning[0].lower()}{meaning[1:]}"), 110),
        "",
        say("Written by `nlpctl new`; every value can be changed."),
        "",
        f"  nlpctl data inspect {file}        # {say('labels, lengths, repetitions, suspicious rows')}",
        f"  nlpctl train {file}",
        "",
        say("`nlpctl recipe show {} --all` lists every key; docs/recipes.md explains them.", file),
    ]


def _program(preview: Preview | None) -> str:
    """What exported a file, for people."""
    annotator = None if preview is None else INPUT_FORMATS[preview.format].annotator
    return "" if annotator is None else f" ({annotator})"


def _next(output: Path, has_dev: bool) -> tuple[str, ...]:
    """The commands that come next."""
    file = shlex.quote(str(output))
    split = f"nlpctl data split {file} -o {shlex.quote(str(output.with_suffix('')) + '_parts')} --write"
    first = () if has_dev else (later("{}    # a dev file; the three lines that do without one go", split),)
    return (*first, f"nlpctl data inspect {file}", f"nlpctl train {file}")
