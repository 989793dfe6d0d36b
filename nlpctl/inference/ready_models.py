"""The folders of ready models, each of which is made once, in the cache folder.

It is made by another process (`python -m nlpctl.inference.ready_models NAME FOLDER`), since this one has not chosen
its device and threads yet, and Paddle fixes them when it is imported.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from nlpctl import __version__, console
from nlpctl.errors import EXIT_FAILED, EXIT_OK, EXIT_USER, NlpctlError, Problem, RunFailed, UserError
from nlpctl.extras import require
from nlpctl.files import staged_dir
from nlpctl.models.ready_models import ReadyModel, ready_model
from nlpctl.runtime.lock import held
from nlpctl.runtime.worker import run_python


def ready_folder(entry: ReadyModel, cache: Path) -> Path:
    """The model folder of `entry` below `cache`; of each version of nlpctl one.

    UserError: its files can neither be found nor downloaded.
    """
    folder = cache / "nlpctl" / "ready" / f"{entry.name}-{__version__}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with held(folder.parent, wait=True):
        # Another command may have made it meanwhile, and be reading it.
        return folder if folder.is_dir() else _make(entry, cache, folder)


def _make(entry: ReadyModel, cache: Path, folder: Path) -> Path:
    console.note(f"{entry.name}: {entry.help}; licence: {entry.licence}")
    console.note(f"preparing {entry.source}, once for the cache folder {cache}")
    answer = run_python(
        "-m", "nlpctl.inference.ready_models", entry.name, str(folder), environ={"PPNLP_HOME": str(cache)}
    )
    if answer.code != EXIT_OK:
        problems = _problems(answer.output)
        if problems and answer.code == EXIT_USER:
            raise UserError(problems=problems)
        raise RunFailed(problems=problems or [Problem(f"cannot be prepared: {answer.failure}", entry.source)])
    return folder


def _problems(output: str) -> list[Problem]:
    try:
        return [Problem(**each) for each in json.loads(output.splitlines()[-1])]
    except (ValueError, IndexError, TypeError):
        return []


def make_ready(entry: ReadyModel, folder: Path) -> None:
    """Write the model folder of `entry` to `folder`, whole or not at all. Imports Paddle. UserError, RunFailed."""
    require("paddle")
    if entry.convert_to is not None:
        from nlpctl.convert.convert_static import ConversionRequest, convert_static

        convert_static(ConversionRequest(entry.source, entry.convert_to), folder)
        return
    from nlpctl.config.load import load_recipe
    from nlpctl.runtime.process import set_up_process

    values = {"task": entry.task, "model": {"name_or_path": entry.source}, "data": dict(entry.data)}
    recipe = load_recipe({**values, "runtime": {"device": "cpu"}}, (), "apply")
    set_up_process(recipe)
    from nlpctl.models.folder import make_description, save_model_folder
    from nlpctl.models.load import load_trained
    from nlpctl.tasks.base import task_class

    loaded = load_trained(entry.source, task_class(entry.task).head(recipe), labels_of_head=entry.labels)
    with staged_dir(folder) as staged:
        save_model_folder(staged, loaded.network, loaded.tokenizer, make_description(recipe, loaded.labels))


def main() -> int:
    """Problems are printed as JSON, for `ready_folder`."""
    name, folder = sys.argv[1:]
    try:
        make_ready(ready_model(name), Path(folder))
    except NlpctlError as error:
        print(json.dumps([vars(problem) for problem in error.problems]))
        return EXIT_USER if isinstance(error, UserError) else EXIT_FAILED
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
