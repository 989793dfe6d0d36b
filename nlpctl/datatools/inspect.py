"""`nlpctl data inspect`: what the rows of a recipe hold, and what is wrong with them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.checksums import AlteredFiles
from nlpctl.config.schema import SPLITS, Recipe
from nlpctl.data.inspection.lengths import CountedTokens, EstimatedTokens, TokenCounter
from nlpctl.data.inspection.page import Extent, all_tables, current_folder, inspection_page
from nlpctl.data.inspection.report import Inspection, advice, inspect_rows
from nlpctl.data.inspection.rows import inspect_split
from nlpctl.data.open_split import has_split, open_split
from nlpctl.data.readers.row import RowSource
from nlpctl.data.rows.task_rows import TaskRows, task_rows
from nlpctl.data.training_data import resolve_labels
from nlpctl.errors import UserError
from nlpctl.extras import is_installed
from nlpctl.files import write_text_atomic, writing
from nlpctl.models.find import find_trained_model
from nlpctl.models.source import read_config, resolve_source
from nlpctl.report.language import later
from nlpctl.report.model import Table
from nlpctl.report.page import refuse_other_page
from nlpctl.runtime.process import configure_paddle, one_process, prepare_process, quiet_libraries

SHOWN = 20  # rows listed per finding


def inspect_data(recipe: Recipe, *, most: int | None = None, estimate: bool = False, shown: int = SHOWN) -> Inspection:
    """Inspect all splits of the recipe: at most `most` rows of each; keep `shown` rows per finding.

    Tokens are counted by the model's tokenizer if it is on this machine, unless `estimate`. Bad rows do not stop the
    inspection. Raises UserError for missing data, an unreadable file, or a missing label set.
    """
    rows = task_rows(recipe.task, dataclasses.replace(recipe.data, on_bad_row="skip"))
    names = [split for split in SPLITS if has_split(recipe.data, split)]
    if not names:
        raise UserError("the recipe names no data", where="data.train", hint="set data.train: FILE")
    if recipe.data.dataset is not None:  # may import Paddle
        prepare_to_read(recipe)
    sources = {split: open_split(rows, split) for split in names}
    collected = sources["train"] if "train" in sources else next(iter(sources.values()))
    labels = resolve_labels(rows, collected)
    counter = EstimatedTokens() if estimate else token_counter(recipe, rows, collected)
    read = []
    for split, source in sources.items():
        console.note(f"reading {split}: {source.description}")
        read.append(inspect_split(source, split, rows, labels, counter, most=most, shown=shown))
    return inspect_rows(read, recipe, counter, rows, shown)


def format_inspection(inspection: Inspection, rows: int, width: int) -> tuple[list[Table], list[str]]:
    """The inspection for the console: tables of at most `rows` rows, texts cut to `width`, and advice."""
    return list(all_tables(inspection, Extent(rows, width, current_folder()))), list(advice(inspection))


def write_page(inspection: Inspection, name: str, path: Path) -> None:
    """The inspection as one self-contained HTML file. UserError as for `refuse_page`."""
    refuse_page(path)
    with writing(path, "name another file: @[html=PAGE.html]"):
        write_text_atomic(path, inspection_page(inspection, name))


def refuse_page(path: Path) -> None:
    """UserError if `path` exists and is not a page of nlpctl: an older page is replaced, other files never."""
    refuse_other_page(path, "name another file: @[html=PAGE.html]")


def token_counter(recipe: Recipe, rows: TaskRows, source: RowSource) -> TokenCounter:
    """Count with the tokenizer of the run, of the recipe's model, or of the network that it would build.

    Nothing is downloaded: if the model is not on this machine, tokens are estimated.
    """
    if not is_installed("paddlenlp"):
        console.note("PaddleNLP is not installed: tokens are estimated from characters and words")
        return EstimatedTokens()
    if recipe.model.from_scratch is not None and not _is_trained(recipe):
        return _scratch_counter(recipe, rows, source)
    folder = _tokenizer_folder(recipe)
    if folder is None:
        console.note("the model is not on this machine: tokens are estimated from characters and words")
        return EstimatedTokens()
    prepare_to_read(recipe)
    from nlpctl.models.families import family_of_config
    from nlpctl.models.tokenizer import load_tokenizer

    quiet_libraries()
    tokenizer = load_tokenizer(folder, family_of_config(read_config(folder), str(folder)))
    description = later("counted by the tokenizer in {}", folder)
    return _exact_counter(recipe, tokenizer, description, grows=not _is_trained(recipe))


def _scratch_counter(recipe: Recipe, rows: TaskRows, source: RowSource) -> TokenCounter:
    """Count with the vocabulary that training would build from the same text."""
    prepare_to_read(recipe)
    from nlpctl.data.rows.examples import BadRowLog, ExampleReader, iter_examples
    from nlpctl.models.scratch import make_vocabulary

    def texts() -> Any:
        for example in iter_examples(source, ExampleReader(rows, None), BadRowLog("skip")):
            yield from rows.texts(example)

    quiet_libraries()
    assert recipe.model.from_scratch is not None
    _, _, tokenizer = make_vocabulary(recipe.model.from_scratch, texts)
    return _exact_counter(recipe, tokenizer, later("counted with the vocabulary that training builds"), grows=True)


def _exact_counter(recipe: Recipe, tokenizer: Any, description: str, *, grows: bool) -> TokenCounter:
    """`grows`: model.add_tokens must still be added."""
    from nlpctl.data.text.tokenizers import build_encoder
    from nlpctl.models.add_tokens import add_tokens, read_tokens

    if grows and recipe.model.add_tokens:
        tokenizer = add_tokens(tokenizer, read_tokens(recipe.model.add_tokens)).tokenizer
    return CountedTokens(build_encoder(tokenizer), description)


def prepare_to_read(recipe: Recipe) -> None:
    """Set up the process before Paddle is imported; nothing here needs a GPU."""
    runtime = dataclasses.replace(one_process(recipe.runtime), device="cpu", devices=())
    configure_paddle(prepare_process(runtime, recipe.training.seed), recipe.training.seed)


def _is_trained(recipe: Recipe) -> bool:
    """Whether the recipe has a trained model, whose tokenizer counts. UserError: its files were altered.

    The model that training starts from is none, even if it was trained before.
    """
    try:
        trained = find_trained_model(recipe)
    except AlteredFiles:  # another tokenizer's counts would pass for those of the run
        raise
    except UserError:  # not trained yet, or no model of a task: the model that training starts from counts
        return False
    start = recipe.model.name_or_path
    return start is None or trained not in (start, str(resolve_source(start).folder))


def _tokenizer_folder(recipe: Recipe) -> Path | None:
    """The folder of the run's model, or of the model that the recipe starts from; None if it is not on this machine."""
    name = find_trained_model(recipe) if _is_trained(recipe) else recipe.model.name_or_path
    if name is None:
        return None
    source = resolve_source(name)
    if source.folder is not None:
        return source.folder
    home = recipe.runtime.cache_dir or os.environ.get("PPNLP_HOME") or "~/.paddlenlp"
    cached = Path(home).expanduser() / "models" / source.name
    return cached if (cached / "config.json").is_file() and any(cached.glob("vocab*")) else None
