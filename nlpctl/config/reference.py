"""docs/recipes.md, written from the schema.

python -m nlpctl.config.reference            # write it
python -m nlpctl.config.reference --check    # exit 1 if it is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nlpctl.config.keys import SECTIONS, Key, all_keys
from nlpctl.config.managed import MANAGED, REFUSED, UNSUPPORTED
from nlpctl.config.tasks import KNOWN_TASKS

TARGET = Path(__file__).resolve().parent.parent.parent / "docs" / "recipes.md"

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

## Rules

- **Precedence**: default < extended file < recipe < command line. `nlpctl recipe show FILE --origins`
  prints where each value came from.
- **`extends`**: one file or a list; relative to the file that has it, or `nlpctl:configs/...` for those that
  come with nlpctl. Mappings merge key by key; lists and single values replace. `key: null` takes a value back.
- **Command line**: every `training` and `compression` key is a flag under its own name
  (`--learning_rate 3e-5`, `--learning-rate=3e-5`; `--fp16`, `--fp16 false`, `--no-fp16`;
  `--report_to visualdl wandb`). `--set data.max_seq_length=256` reaches every other key.
  `nlpctl recipe flags [PATTERN]` lists the flags. `--device`, `--devices`, `--nproc`, `--threads`,
  `--deterministic`, `--cache_dir` and `--trust-edits` are short for `runtime.*`, `--labels` for `data.labels`.
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


def reference() -> str:
    """The whole document."""
    parts = [
        INTRO,
        "".join(f"- `{task.name}`: {task.help}\n  Scores: {_code(task.metrics)}.\n" for task in KNOWN_TASKS),
    ]
    for name, section in SECTIONS.items():
        keys = [key for key in all_keys().values() if key.dotted.startswith(f"{name}.")]
        parts.append(f"\n## {name}\n\n{(section.__doc__ or '').strip()}\n\n")
        parts.append(_table([key for key in keys if key.dotted not in REFUSED]))
        parts += _apart("nlpctl sets these itself and refuses them in a recipe:", keys, MANAGED)
        parts += _apart("nlpctl does not support these and refuses values that turn them on:", keys, UNSUPPORTED)
    return "".join(parts)


def _apart(title: str, keys: list[Key], refused: Mapping[str, str]) -> list[str]:
    """The list of the keys that are in `refused`; nothing if there are none."""
    found = [f"- `{key.dotted}`: {refused[key.dotted]}\n" for key in keys if key.dotted in refused]
    return [f"\n{title}\n\n", *found] if found else []


def _table(keys: list[Key]) -> str:
    rows = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for key in keys:
        default = "" if key.section else f"`{_default(key.default)}`"
        cells = (f"`{key.dotted}`", key.type_text, default, key.help)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _default(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if value in ((), {}):
        return "[]" if value == () else "{}"
    return '""' if value == "" else str(value)


def _code(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main() -> int:
    current = TARGET.read_text(encoding="utf-8") if TARGET.is_file() else ""
    if "--check" in sys.argv[1:]:
        print(
            "up to date" if current == reference() else f"out of date: run python -m nlpctl.config.reference ({TARGET})"
        )
        return 0 if current == reference() else 1
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(reference(), encoding="utf-8")
    print(f"written: {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
