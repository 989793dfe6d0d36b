"""Further texts for a student besides the training rows: the user's files, and variations of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nlpctl.config.schema import Recipe
from nlpctl.data.examples import BadRowLog
from nlpctl.data.inputs import open_input
from nlpctl.data.jieba_words import load_jieba
from nlpctl.data.multi_label_rows import MultiLabelExample
from nlpctl.data.row import BadRow, is_bad
from nlpctl.data.tagged_rows import TaggedExample, put_together
from nlpctl.data.task_rows import TaskRows
from nlpctl.data.text_rows import TextExample
from nlpctl.data.variations import Variations, Words
from nlpctl.data.word_spans import is_ideograph


def unlabelled_examples(recipe: Recipe, rows: TaskRows) -> list[Any]:
    """The examples of distillation.unlabelled, without labels. UserError: a file or row that cannot be read."""
    found = []
    for path in recipe.distillation.unlabelled:
        log = BadRowLog(recipe.data.on_bad_row)
        for example in open_input(rows, path, "auto").rows():
            if is_bad(example):
                log.add(example)
            elif not isinstance(example, BadRow):
                found.append(example)
        log.finish()
    return found


def varied_examples(
    recipe: Recipe, examples: Sequence[Any], similar: Mapping[str, Sequence[str]], mask: str | None
) -> list[Any]:
    """distillation.generate.copies new unlabelled examples per example, without duplicates of each other or of
    `examples`."""
    settings = recipe.distillation.generate
    parts = [texts_of(example) for example in examples]
    vary = Variations([words for texts in parts for words in texts], settings, similar, mask, recipe.training.seed)
    known = {key_of(example) for example in examples}
    found = []
    for _ in range(settings.copies):
        for example, texts in zip(examples, parts, strict=True):
            change = vary.whole if len(texts) == 1 else vary.reworded  # texts of a pair must still match
            varied = [change(words) for words in texts]
            made = _example(example, varied) if all(varied) else None
            if made is not None and key_of(made) not in known:
                known.add(key_of(made))
                found.append(made)
    return found


def texts_of(example: Any) -> list[Words]:
    """The texts of an example, each split into words."""
    if isinstance(example, TaggedExample):
        return [tuple(example.words())]
    texts = (example.text,) if example.text_pair is None else (example.text, example.text_pair)
    return [tuple(load_jieba().lcut(text)) if _unspaced(text) else tuple(text.split()) for text in texts]


def key_of(example: Any) -> Any:
    """The key of an example without its labels, for finding duplicates."""
    if isinstance(example, TaggedExample):
        return example.text, example.bounds.tobytes()
    return example.text, example.text_pair


def without_label(example: Any) -> Any:
    """The same example without labels."""
    return replace(example, **{_label_field(example): None})


def _label_field(example: Any) -> str:
    return {TextExample: "label", MultiLabelExample: "labels", TaggedExample: "tags"}[type(example)]


def _example(model: Any, texts: Sequence[Words]) -> Any | None:
    """An unlabelled example of the kind of `model` with these words; None if it would be empty."""
    if isinstance(model, TaggedExample):
        text, bounds = put_together(texts[0])
        return None if text.isspace() else TaggedExample(text, bounds, None, model.in_words)
    joined = list(_joined(texts))
    if not all(text.strip() for text in joined):
        return None
    second = joined[1] if len(joined) == 2 else None
    return replace(without_label(model), text=joined[0], text_pair=second)


def _joined(texts: Sequence[Words]) -> Iterator[str]:
    """Join words to a text; words of jieba include their white space."""
    for words in texts:
        yield ("" if _unspaced("".join(words)) else " ").join(words)


def _unspaced(text: str) -> bool:
    return any(map(is_ideograph, text))
