"""Every command line of every page is one that nlpctl understands: options, keys, and files that exist by then.

Nothing is trained here: a run, an export or an output file is put in place as the command would name it. The slow test
of test_pages.py runs them all.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pages
import pytest

from nlpctl.cli import app
from nlpctl.config.dump import recipe_values, to_yaml
from nlpctl.config.library import find_recipe, shipped_recipes
from nlpctl.config.load import load_recipe

ROOT = pages.ROOT
INPUTS = ("FILE", "[FILE]", "INPUT", "CORPUS", "QUERIES", "FOLDER", "[FOLDER]", "RUN", "RUN RUN...", "OTHER")
SOURCES = ("RECIPE", "RECIPE...", "MODEL", "MODEL...", *INPUTS)


class Wrong(Exception):
    """What would not work in a line."""


def must(true: bool, message: str) -> None:
    if not true:
        raise Wrong(message)


class Reader:
    """Follows the command lines of a page in `folder`, and says what is wrong with one."""

    def __init__(self, folder: Path, named: dict[str, Path]):
        self.folder, self.named = folder, named

    def follow(self, line: pages.Line) -> None:
        """Raises Wrong or NlpctlError for a line that would not work."""
        for pipeline in pages.pipelines(line.text):
            bare = [_without_variables(words) for words in pipeline]
            calls = [words for words in bare if words[:1] == ["nlpctl"]]
            for words in calls:
                self.nlpctl(words[1:], line.needs is not None)
            if pipeline[0][:1] == ["cd"]:
                self.folder = self.folder / pipeline[0][1]
            elif not calls and line.needs is None:
                self.shell(line.text if "<<" in line.text else _quoted(pipeline, line.text))

    def shell(self, text: str) -> None:
        for saved in re.findall(r'save_pretrained\("(\w+)"\)', text):
            _touch(self.folder / saved / "config.json")
        if text.startswith(("curl ", "python ", "bash ", "visualdl ", "source ", "pip ")):
            return  # test_pages.py runs these, or a mark says why not
        done = subprocess.run(["bash", "-c", text], cwd=self.folder, capture_output=True, text=True)
        must(done.returncode == 0, done.stderr)

    def nlpctl(self, words: Sequence[str], marked: bool) -> None:
        """`marked`: the line needs what is not here, so its files need not exist, and nothing may build on it."""
        if words[0].startswith("-"):
            return
        with _inside(self.folder):
            name, command, ctx = _parsed(words)
            if marked:
                recipe = find_recipe(str(ctx.params.get("recipe")))
                if recipe is not None and self.named:
                    with pytest.MonkeyPatch.context() as patch:
                        for variable in self.named:
                            patch.setenv(variable, str(self.named[variable]))
                        load_recipe(recipe.path, ctx.meta.get("nlpctl.overrides", []))
                return
            inputs = () if name == "recipe copy" else SOURCES
            given = {param: ctx.params[param.name] for param in command.params if ctx.params.get(param.name)}
            for param, value in given.items():
                if param.param_type_name == "argument" and param.metavar in inputs or param.name == "data":
                    for each in value if isinstance(value, list | tuple) else [value]:
                        self.exists(str(each), recipes=param.metavar not in INPUTS)
            model = ctx.params.get("model")
            if model and Path(model, "recipe.yaml").exists():
                load_recipe(model, ctx.meta.get("nlpctl.overrides", []), "apply")
            self.make(name, ctx)

    def exists(self, name: str, recipes: bool) -> None:
        known = name == "-" or name.startswith(("python:", "task:")) or Path(name).exists()
        must(known or (recipes and find_recipe(name) is not None), f"no {name} by then")

    def make(self, name: str, ctx: Any) -> None:
        """Put in place what the command would write."""
        params, fresh = ctx.params, not (ctx.params.get("overwrite") or ctx.params.get("resume"))
        if name == "recipe copy":
            must(app.main(["recipe", "copy", params["name"], str(params["dest"])]) == 0, "cannot be copied")
            return
        for written in filter(None, (params.get("output"), params.get("html"), params.get("embeddings"))):
            must(name == "compress" or not Path(written).exists() or not fresh, f"{written} exists")
        overrides = ctx.meta.get("nlpctl.overrides", [])
        if name in ("train", "data inspect", "recipe validate", "recipe show"):
            recipe = load_recipe(params.get("recipe") or params["recipes"][0], overrides)
            if name == "train" and not params.get("overfit") and not params.get("node_rank"):  # which write nothing
                same = params.get("more") and not any(each.key == "training.output_dir" for each in overrides)
                self.trained(recipe, Path(f"{recipe.training.output_dir}{'-longer' if same else ''}"), fresh)
        elif name == "sweep":
            recipe = load_recipe(params["recipe"], overrides)
            folder = Path(params["output"] or f"{recipe.training.output_dir}-sweep")
            self.trained(recipe, folder / "trials" / "000", fresh)
            text = to_yaml(recipe_values(recipe, everything=False)).replace("outputs/", "outputs/best-of-")
            (folder / "best.yaml").write_text(text, encoding="utf-8")
        elif name == "data split":
            ending = Path(load_recipe(params["recipe"], overrides).data.train[0]).suffix
            for part in ("train", "dev", "test"):
                _touch(Path(params["output"]) / f"{part}{ending}")
        elif name in FOLDERS:
            target = Path(params["output"] or Path(params["model"], params.get("layout") or FOLDERS[name]))
            must(name == "compress" or not fresh or not target.exists(), f"{target} exists")
            _touch(target / "best" / "export.json" if name == "compress" else target / "export.json")
        elif name == "new" and params["output"] is not None:
            train, output = Path(params["train"]), Path(params["output"])
            recipe = {
                "task": "sequence_classification",
                "model": {"from_scratch": {}},
                "data": {"train": str(train / "train.tsv" if train.is_dir() else train)},
                "training": {"output_dir": f"outputs/{output.stem}"},
            }
            output.write_text(to_yaml(recipe), encoding="utf-8")
        elif params.get("output") is not None:
            _touch(Path(params["output"]))
        for written in filter(None, (params.get("html"), params.get("embeddings"))):
            _touch(Path(written))

    def trained(self, recipe: Any, run: Path, fresh: bool) -> None:
        must(not fresh or not run.exists(), f"{run} exists, and there is no --overwrite")
        start = recipe.model.name_or_path
        if start is not None and "outputs/" in start:
            must(Path(start).exists(), f"no model {start} by then")
        _touch(run / "model" / "model_state.pdparams")
        _touch(run / "logs" / "rank-0.log")
        (run / "recipe.yaml").write_text(to_yaml(recipe_values(recipe, everything=False)), encoding="utf-8")


FOLDERS = {"export": "export", "compress": "compress", "params set": "", "index build": "", "convert-static": ""}


def _without_variables(words: list[str]) -> list[str]:
    """The command without `NAME=value` before it."""
    if words[:2] == ["timeout", "--signal"]:
        return words[4:]
    return words[1:] if words and re.match(r"\w+=", words[0]) else words


def _quoted(pipeline: list[list[str]], text: str) -> str:
    """The part of `text` that the pipeline stands for: all of it, where it is the only one."""
    parts = re.split(r"\s(?:&&|;)\s", text)
    return next((part for part in parts if part.split()[:1] == pipeline[0][:1]), text)


def _parsed(words: Sequence[str]) -> tuple[str, Any, Any]:
    """The command's name, the command, and its context with the parsed values."""
    found = app._find(words[0])
    must(found is not None, f"no command {words[0]}")
    command, name, rest = app._load(found), [words[0]], list(words[1:])
    while hasattr(command, "commands"):
        name.append(rest.pop(0))
        command = command.commands[name[-1]]
    return " ".join(name), command, command.make_context(name[-1], rest)


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


class _inside:
    def __init__(self, folder: Path):
        self.folder = folder

    def __enter__(self) -> None:
        self.before = Path.cwd()
        os.chdir(self.folder)

    def __exit__(self, *_: object) -> None:
        os.chdir(self.before)


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of the data sets that recipes read through variables, with empty files."""
    folders = {}
    for recipe in shipped_recipes():
        for name, file in re.findall(r"\$\{env:(\w+)\}/([\w./-]+)", recipe.path.read_text(encoding="utf-8")):
            folders.setdefault(name, tmp_path_factory.mktemp(name))
            _touch(folders[name] / file)
    return folders


@pytest.mark.parametrize("page", pages.pages())
def test_every_printed_line_is_understood(page: str, tmp_path: Path, named: dict[str, Path]) -> None:
    reader = Reader(tmp_path, named)
    wrong = []
    for line in pages.lines_of(page):
        try:
            reader.follow(line)
        except Exception as error:  # Wrong, a UserError, a usage error of Typer
            wrong.append(f"{line.where}: {line.text}\n  {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def test_marks_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = "Save as mine.py:\n\n```python\nx = 1\n```\n\n"
    text = f"{saved}```bash\na\n# needs a card: fp16\nb \\\n  c\n\ncat > x <<'END'\n1\nEND\n# 需要联网：权重\nd\n```\n"
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    read = [(line.text, line.needs) for line in pages.lines_of("page.md")]
    assert read == [
        ("cat > mine.py <<'END'\nx = 1\nEND", None),
        ("a", None),
        ("b \\\n  c", "needs a card: fp16"),
        ("cat > x <<'END'\n1\nEND", None),
        ("d", "需要联网: 权重"),
    ]
