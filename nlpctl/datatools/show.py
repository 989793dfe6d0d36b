"""`nlpctl data show`: what the tokenizer makes of the first rows, and how batches are padded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from nlpctl.config.schema import SPLITS, Recipe
from nlpctl.config.tasks import resolve_by_model
from nlpctl.console import display_width
from nlpctl.data.inspection.lengths import CountedTokens
from nlpctl.data.open_split import has_split, open_split
from nlpctl.data.readers.row import place
from nlpctl.data.rows.examples import BadRowLog, ExampleReader, FeatureList, good_rows
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import resolve_labels
from nlpctl.datatools.inspect import prepare_to_read, token_counter
from nlpctl.errors import UserError
from nlpctl.extras import require
from nlpctl.launch.launch import processes_wanted
from nlpctl.report.language import say

if TYPE_CHECKING:
    from nlpctl.data.batches.collate import Collator
    from nlpctl.data.text.encoder import TextEncoder
    from nlpctl.tasks.base import Task

SAMPLE = 2000  # rows that the batches are made of
TYPES = "types"
_NAME = 10  # width of the first column


def show_rows(recipe: Recipe, split: str | None, count: int) -> dict[str, Any]:
    """The first `count` rows of `split` (default: the first that there is) as the network gets them; JSON-ready.

    {tokenizer, split, rows: [{where, texts, windows: [{inputs: [{name, tokens, ids, types}], labels, per_token}]}],
    bad_rows, batch}. Labels are told by name; those that `per_token` names have one per token of the first input, or
    None. `bad_rows` counts the rows that were read and left out. UserError: the tokenizer is not on this machine, or no
    row is good.
    """
    require("paddlenlp")  # its tokenizers, and the collator of the task
    recipe = resolve_by_model(recipe)
    rows = task_rows(recipe.task, recipe.data)
    name = split or next((each for each in SPLITS if has_split(recipe.data, each)), "train")
    if recipe.data.dataset is not None:  # may import Paddle
        prepare_to_read(recipe)
    source = open_split(rows, name)
    collected = open_split(rows, "train") if has_split(recipe.data, "train") else source
    labels = resolve_labels(rows, collected)
    counter = token_counter(recipe, rows, collected)
    if not isinstance(counter, CountedTokens):
        hint = "name a folder on this machine, or let `nlpctl train` download it first"
        raise UserError("the tokenizer is not on this machine", recipe.where("model.name_or_path"), hint)
    prepare_to_read(recipe)
    from nlpctl.tasks.base import make_task

    task = make_task(recipe, labels)
    collate = task.collator(counter.encoder, labelled=True)
    bad = BadRowLog("skip")
    good = good_rows(source, ExampleReader(rows, labels), bad)
    examples = [(place(row.source, row.line), example) for row, example in islice(good, SAMPLE)]
    if not examples:
        raise UserError("no row is usable", source.description, "`nlpctl data inspect` tells what is wrong with them")
    shown_rows = [
        {
            "where": where,
            "texts": rows.passages(example),
            "windows": [_window(task, collate, each) for each in task.features(example, counter.encoder)],
        }
        for where, example in examples[:count]
    ]
    batch = _batch(recipe, task, counter.encoder, name, [example for _, example in examples])
    result = {"tokenizer": counter.description, "split": name, "rows": shown_rows, "bad_rows": bad.total}
    return {**result, "batch": batch}


def _window(task: Task, collate: Collator, feature: Any) -> dict[str, Any]:
    """One input of the network: the tokens of each of its texts, and the labels."""
    import numpy as np

    batch = collate.collate([feature])
    if task.masks_inputs:
        batch = task.apply_mask(batch, np.random.default_rng(task.recipe.training.seed))
    encoder, inputs, others = collate.encoder, [], {}
    for name, array in batch.items():
        if name in task.label_names or not name.endswith("_ids") or name.endswith("type_ids"):
            continue
        ids = array[0].tolist()
        types = batch.get("token_type_ids" if name == "input_ids" else name.replace("_ids", "_type_ids"))
        texts = {"name": name, "tokens": encoder.forms(ids), "ids": ids}
        inputs.append(texts if types is None else {**texts, TYPES: types[0].tolist()})
    tokens = inputs[0]["tokens"]
    for name, array in batch.items():
        if name in task.label_names or not name.endswith("_ids"):
            others[name] = _label_names(task, name, array[0], tokens)
    per_token = [name for name in others if name == "labels" and _is_per_token(task, batch[name][0], tokens)]
    return {"inputs": inputs, "labels": others, "per_token": per_token}


def _label_names(task: Task, name: str, value: Any, tokens: Sequence[str]) -> Any:
    """A label of one row by name: of the row, of each token, or several; numbers where it has no name."""
    names = task.labels.names if name == "labels" else ()
    numbers = value.tolist()
    if name.endswith("positions"):
        return [f"{i} ({tokens[i]})" for i in (numbers if isinstance(numbers, list) else [numbers])]
    if not names:
        return numbers
    if not isinstance(numbers, list):
        return names[numbers]
    if _is_per_token(task, value, tokens):
        return [names[i] if 0 <= i < len(names) else None for i in numbers]
    return [label for label, chosen in zip(names, numbers, strict=True) if chosen]


def _is_per_token(task: Task, value: Any, tokens: Sequence[str]) -> bool:
    """Whether `value` numbers a label per token. Several labels of a row are a number per label, and no integers."""
    return bool(task.labels.names) and value.shape == (len(tokens),) and value.dtype.kind == "i"


def _batch(recipe: Recipe, task: Task, encoder: TextEncoder, split: str, examples: Sequence[Any]) -> dict[str, Any]:
    """The first training batch that the rows would make, of the first process, and the padding of all of them."""
    from nlpctl.data.batches.batching import token_lengths
    from nlpctl.training.batches import batch_sampler
    from nlpctl.training.user_code import training_collator

    exact = _are_trained(recipe, split, examples)
    if not exact:  # there are other rows to fill the last batch
        recipe = replace(recipe, training=replace(recipe.training, dataloader_drop_last=False))
    features = FeatureList(examples, task.training_cut(examples, encoder))
    lengths = token_lengths(features, task.collator(encoder, labelled=True), task.label_names)
    by_tokens, processes = recipe.data.batch_tokens is not None, processes_wanted(recipe.runtime)
    sampler = batch_sampler(recipe, lengths if by_tokens else features.lengths(), processes=processes)
    batches = list(sampler)
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    used = sum(int(lengths[batch].sum()) for batch in batches)
    batch: list[Any] = [features[i] for i in batches[0]]
    arrays = training_collator(recipe, task, encoder).collate(batch)
    first = lengths[batches[0]]
    return {
        "exact": exact,
        "rows": len(first),
        "shape": {name: list(array.shape) for name, array in arrays.items()},
        "tokens": first.tolist(),
        "padding": round(1 - float(first.sum()) / (len(first) * int(first.max())), 4),
        "padding_id": encoder.pad_id,
        "of_rows": len(examples),
        "batches": len(batches),
        "padding_of_all": round(1 - used / padded, 4),
    }


def _are_trained(recipe: Recipe, split: str, examples: Sequence[Any]) -> bool:
    """Whether a training sees just these examples, in batches drawn from all of them."""
    data = recipe.data
    drawn = data.balance.method is not None or bool(data.balance.counts) or data.streaming
    return split == "train" and len(examples) < SAMPLE and not drawn


# -- for the console --------------------------------------------------------------------------


def format_rows(result: Mapping[str, Any], width: int) -> Iterator[str]:
    """Lines for a terminal of `width` columns: tokens, ids, types and labels below each other."""
    for row in result["rows"]:
        yield row["where"]
        for column, text in row["texts"].items():
            yield from _wrapped(column, text, width)
        for number, window in enumerate(row["windows"], 1):
            if len(row["windows"]) > 1:
                yield say("  window {} of {}", number, len(row["windows"]))
            yield from _format_window(window, width)
        yield ""
    yield from _format_batch(result["batch"], width)
    yield from _wrapped("tokenizer", say(result["tokenizer"]), width)


def _format_window(window: Mapping[str, Any], width: int) -> Iterator[str]:
    first = window["inputs"][0]["tokens"]
    beside = {name: window["labels"][name] for name in window["per_token"]}
    for each in window["inputs"]:
        lines = {"tokens": each["tokens"], "ids": each["ids"], **({TYPES: each[TYPES]} if TYPES in each else {})}
        if each["tokens"] is first:
            lines |= {name: ["." if one is None else one for one in label] for name, label in beside.items()}
        else:
            yield f"  {each['name']}"
        yield from _columns(lines, width)
    for name, label in window["labels"].items():
        if name not in beside:
            value = ", ".join(map(str, label)) if isinstance(label, list) else str(label)
            yield from _wrapped(name, value, width)


def _columns(lines: Mapping[str, Sequence[Any]], width: int) -> Iterator[str]:
    """Rows of cells, one under the other, continued below where they are wider than `width`."""
    cells = list(zip(*[[str(cell) for cell in line] for line in lines.values()], strict=True))
    sizes = [max(map(display_width, column)) for column in cells]
    start = 0
    while start < len(cells):
        end, used = start + 1, _NAME + 2 + sizes[start]
        while end < len(cells) and used + 1 + sizes[end] <= width:
            used += 1 + sizes[end]
            end += 1
        for i, name in enumerate(lines):
            row = " ".join(_padded(cells[k][i], sizes[k]) for k in range(start, end))
            yield f"  {_padded(name, _NAME)}{row}".rstrip()
        start = end


def _wrapped(name: str, text: str, width: int) -> Iterator[str]:
    """A named text, continued below itself at a blank, or within what is longer than a line, as Chinese is."""
    room, line = max(width - _NAME - 2, 8), ""
    for word in text.split():
        if line and display_width(f"{line} {word}") > room and display_width(word) <= room:
            yield f"  {_padded(name, _NAME)}{line}"
            name, line = "", word
            continue
        for character in f" {word}" if line else word:
            if display_width(line + character) > room:
                yield f"  {_padded(name, _NAME)}{line}".rstrip()
                name, line = "", ""
            line += character
    yield f"  {_padded(name, _NAME)}{line}".rstrip()


def _format_batch(batch: Mapping[str, Any], width: int) -> Iterator[str]:
    yield say("the first batch of training" if batch["exact"] else "a batch of training, as these rows would make it")
    for name, shape in batch["shape"].items():
        yield f"  {name} {shape}"
    yield from _wrapped("tokens", " ".join(map(str, batch["tokens"])), width)
    padding = say(
        "{:.1%} of this batch (id {}, which attention leaves out); {:.1%} of all batches of {:,} rows",
        batch["padding"], batch["padding_id"], batch["padding_of_all"], batch["of_rows"],
    )  # fmt: skip
    yield from _wrapped("padding", padding, width)


def _padded(text: str, width: int) -> str:
    return text + " " * max(width - display_width(text), 1 if width == _NAME else 0)
