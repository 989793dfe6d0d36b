"""docs/recipes.md and docs/zh-CN/recipes.md, written from the schema.

python -m nlpctl.config.reference            # write them
python -m nlpctl.config.reference --check    # exit 1 if one is out of date

The English words are those of the schema. The Chinese ones stand in data/reference.zh-CN.yaml, by the key's path.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from nlpctl.config.keys import SECTIONS, Key, all_keys
from nlpctl.config.refused_keys import MANAGED, REFUSED, UNSUPPORTED
from nlpctl.config.tasks import KNOWN_TASKS, TaskInfo
from nlpctl.errors import UserError
from nlpctl.report.language import language
from nlpctl.report.markdown import markdown_table
from nlpctl.report.model import Table
from nlpctl.spelling import spell_as_flags, spelled

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
CHINESE_WORDS = Path(__file__).resolve().parent / "data" / "reference.zh-CN.yaml"

INTRO = """\
# Recipe reference

<!-- Written by `python -m nlpctl.config.reference`. Change nlpctl/config/schema.py, not this file. -->

A recipe is a YAML file that says everything about a run. `nlpctl recipe ls` lists the recipes that come
with nlpctl, `nlpctl recipe copy NAME FOLDER` gives you one to change, `nlpctl recipe validate FILE`
checks yours in half a second, and `nlpctl recipe schema` prints the JSON Schema for your editor.

```yaml
# What this recipe does, in one line: `nlpctl recipe ls` shows it.
extends: nlpctl:configs/base.yaml
task: sequence_classification
model:
  name_or_path: ernie-3.0-medium-zh
data:
  train: data/train.tsv
  dev: data/dev.tsv
training:
  output_dir: outputs/reviews
  learning_rate: 3e-5
  num_train_epochs: 3
```

The default of a key holds where neither the recipe nor a file that it extends sets the key. `configs/base.yaml`, which
this example and most shipped recipes extend, sets `evaluation_strategy: epoch`, `save_strategy: epoch`,
`load_best_model_at_end: true`, `save_total_limit: 2`, `num_train_epochs: 3`, `learning_rate: 3e-5`,
`lr_scheduler_type: linear`, `warmup_ratio: 0.1`, `weight_decay: 0.01`, `per_device_train_batch_size: 32`,
`per_device_eval_batch_size: 64`, `logging_steps: 20`, `report_to: visualdl`, `seed: 42`, `max_seq_length: 128` and
`length_grouped: true`.

## Rules

- **Precedence**: default < extended file < recipe < command line. `nlpctl recipe show FILE --origins`
  prints where each value came from.
- **`extends`**: one file or a list; relative to the file that has it, or `nlpctl:configs/...` for those that
  come with nlpctl. Mappings merge key by key; lists and single values replace. `key: null` takes a value back.
- **Command line**: every `training` and `compression` key is a flag under its own name
  (`--learning_rate 3e-5`, `--learning-rate=3e-5`; `--fp16`, `--fp16 false`, `--no-fp16`;
  `--report_to visualdl wandb`). `--set data.max_seq_length=256` reaches every other key.
  `nlpctl recipe flags [PATTERN]` lists the flags, and `eval "$(nlpctl completion bash)"` lets bash complete them,
  the keys of `--set`, commands, recipes and runs (`nlpctl completion --help`: zsh, fish).
  `--device`, `--devices`, `--nproc`, `--threads`,
  `--deterministic`, `--cache-dir` and `--trust-edits` are short for `runtime.*`, `--labels` for `data.labels`.
- **Types**: a value is read by the type of its key. `5e-5` and `3/4` are numbers where a number is wanted,
  `no` is a text where a text is wanted, and one value will do for a list.
- **Paths**: inputs are relative to the file that names them; `training.output_dir`, `training.logging_dir`,
  paths on the command line and paths that begin with `${env:...}` are relative to the current directory.
  `~` is your home folder.
- **Interpolation**: `${env:NAME}` is an environment variable, `${section.key}` another value of the recipe,
  `$${` the characters `${`.
- **Errors**: unknown keys, wrong types and keys that clash are reported all at once, with file and line,
  before anything is loaded. The command ends with exit code 2.
- A recipe can be replaced by a **run directory** (its `recipe.yaml` is used) or a **model folder**
  (task and data settings come from its `task.json`) in every command.

## task

One of:

"""


class English:
    """The words of the reference, as the schema has them."""

    intro = INTRO
    table = ["key", "type", "default", "meaning"]
    colon = ": "
    comma = ", "
    scores = "Scores: {}."
    managed_by_nlpctl = "nlpctl sets these itself and refuses them in a recipe:"
    unsupported = "nlpctl does not support these and refuses values that turn them on:"

    def task(self, task: TaskInfo) -> str:
        return task.help

    def section(self, name: str) -> str:
        return (SECTIONS[name].__doc__ or "").strip()

    def type_text(self, key: Key) -> str:
        return key.type_text

    def meaning(self, key: Key) -> str:
        return key.help

    def refused(self, dotted: str) -> str:
        return spelled(REFUSED[dotted])


class Chinese(English):
    """The same in Chinese."""

    def __init__(self) -> None:
        self.words = yaml.safe_load(CHINESE_WORDS.read_text(encoding="utf-8"))
        for name in ("intro", "table", "colon", "comma", "scores", "managed_by_nlpctl", "unsupported"):
            setattr(self, name, self.words[name])

    def word(self, kind: str, name: str) -> str:
        """An entry of the catalogue. Raises UserError if there is none."""
        if name not in self.words[kind]:
            raise UserError("a key without Chinese words", f"{CHINESE_WORDS}, {kind}: {name}", "add them there")
        return self.words[kind][name]

    def task(self, task: TaskInfo) -> str:
        return self.word("tasks", task.name)

    def section(self, name: str) -> str:
        return self.word("sections", name)

    def type_text(self, key: Key) -> str:
        """The catalogue's words for the parts of a type; the choices stay as a recipe has them."""
        # "\0" is in no type, so a key without choices is all `before`.
        before, _, after = key.type_text.partition(", ".join(key.choices) or "\0")
        return self._in_words(before) + self.comma.join(key.choices) + self._in_words(after)

    def _in_words(self, text: str) -> str:
        for english, chinese in self.words["types"].items():
            text = text.replace(english, chinese)
        return text.replace(": ", self.colon)

    def meaning(self, key: Key) -> str:
        return self.word("keys", shared_entry(key.dotted))

    def refused(self, dotted: str) -> str:
        return self.word("refused", dotted)


def shared_entry(dotted: str) -> str:
    """The path under which the catalogue has a key: a student's network is described like any other."""
    shared = dotted.removeprefix("distillation.")
    return shared if shared.startswith("model.") else dotted


# The words of each language of pages and tables; made when they are needed, so that nothing else reads the catalogue.
WORDS: dict[str, Callable[[], English]] = {"en": English, "zh": Chinese}
PAGES = {"recipes.md": "en", "zh-CN/recipes.md": "zh"}


def task_meaning(task: TaskInfo) -> str:
    """What the task does, in the language of now; a task of somebody else's has English words alone."""
    return WORDS[language()]().task(task) if task in KNOWN_TASKS else task.help


def reference(words: English) -> str:
    """The whole document in one language."""
    parts = [
        words.intro,
        "".join(f"- `{task.name}`{words.colon}{words.task(task)}\n  {_scores(words, task)}\n" for task in KNOWN_TASKS),
    ]
    for name in SECTIONS:
        keys = [key for key in all_keys().values() if key.dotted.startswith(f"{name}.")]
        parts.append(f"\n## {name}\n\n{words.section(name)}\n\n")
        parts.append(_table(words, [key for key in keys if key.dotted not in REFUSED]))
        parts += _apart(words, words.managed_by_nlpctl, keys, MANAGED)
        parts += _apart(words, words.unsupported, keys, UNSUPPORTED)
    return "".join(parts)


def _apart(words: English, title: str, keys: list[Key], refused: Mapping[str, str]) -> list[str]:
    """The list of the keys that are in `refused`; nothing if there are none."""
    lines = [f"- `{key.dotted}`{words.colon}{words.refused(key.dotted)}\n" for key in keys if key.dotted in refused]
    return [f"\n{title}\n\n", *lines] if lines else []


def _scores(words: English, task: TaskInfo) -> str:
    return words.scores.format(words.comma.join(f"`{name}`" for name in task.metrics))


def _table(words: English, keys: list[Key]) -> str:
    rows = []
    for key in keys:
        default = "" if key.section else f"`{_default(key.default)}`"
        cells = [f"`{key.dotted}`", words.type_text(key), default, words.meaning(key)]
        rows.append([cell.replace("<", "&lt;") for cell in cells])  # or <TAB> would be taken for HTML
    return markdown_table(Table(words.table, rows)) + "\n"


def _default(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if value in ((), {}):
        return "[]" if value == () else "{}"
    return '""' if value == "" else str(value)


def main() -> int:
    """Writes the pages, or with --check says whether they are up to date. Returns the exit code."""
    spell_as_flags()
    try:
        wanted = {DOCS / name: reference(WORDS[code]()) for name, code in PAGES.items()}
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    old = [path for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        hint = f"out of date: run python -m nlpctl.config.reference ({', '.join(map(str, old))})"
        print(hint if old else "up to date")
        return 1 if old else 0
    for path in wanted:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
        print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
