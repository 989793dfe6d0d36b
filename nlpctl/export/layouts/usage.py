"""The Python of a model card: how the program that a layout of weights is for loads them, and answers as nlpctl does.

scripts/check_transformers.py takes this code out of written cards, and runs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from nlpctl.config.schema import Recipe
from nlpctl.config.sentence_folder import PASSAGE_PROMPTS, QUERY_PROMPT
from nlpctl.config.tasks import task_info
from nlpctl.export.layouts.weights import CROSS_ENCODER, SENTENCES

_PAIRS = '[{"text": "...", "text_pair": "..."}]'
# Transformers 5 has no pipeline that reads answers; the windows are those of question_windows (data/batches/).
_ANSWERS = """\
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({folder})
network = AutoModelForQuestionAnswering.from_pretrained({folder})


def answer(question, context):
    free = tokenizer.model_max_length - tokenizer.num_special_tokens_to_add(pair=True)
    free -= len(tokenizer(question, add_special_tokens=False)["input_ids"])
    windows = tokenizer(
        question, context, truncation="only_second", padding=True, stride=max(0, free - {doc_stride}),
        return_overflowing_tokens=True, return_offsets_mapping=True, return_tensors="pt",
    )
    spans, _ = windows.pop("offset_mapping"), windows.pop("overflow_to_sample_mapping")
    with torch.no_grad():
        outputs = network(**windows)
    found = []
    for row, (starts, ends) in enumerate(zip(outputs.start_logits, outputs.end_logits)):
        places = [place for place, part in enumerate(windows.sequence_ids(row)) if part == 1]  # of the context
        if places:
            allowed = torch.ones(len(places), len(places)).triu().tril({further})  # at most {longest} tokens
            scores = (starts[places, None] + ends[places]).masked_fill(allowed == 0, -torch.inf)
            first, last = divmod(int(scores.argmax()), len(places))
            span = int(spans[row, places[first], 0]), int(spans[row, places[last], 1])
            found.append((float(scores[first, last]), *span))
    if not found:
        return None
    score, start, end = max(found, key=lambda each: each[0])
{none}    return {{"answer": context[start:end], "start": start, "end": end}}


print(answer("...", "..."))"""
_NO_ANSWER = """\
    if float((outputs.start_logits[:, 0] + outputs.end_logits[:, 0]).min()) - score > {threshold}:
        return None
"""


def usage(layout: str, recipe: Recipe, name: str, room: int) -> str:
    """Code that runs in the folder that holds the folder `name`. `room`: tokens of a text that the network reads."""
    return "\n".join(_lines(layout, recipe, json.dumps(name, ensure_ascii=False), room))


def _lines(layout: str, recipe: Recipe, folder: str, room: int) -> Iterator[str]:
    """`folder`: as a string of Python."""
    info, data, decode = task_info(recipe.task), recipe.data, recipe.decode
    if layout == SENTENCES:
        yield f"from sentence_transformers import SentenceTransformer\n\nmodel = SentenceTransformer({folder})"
        if any(recipe.retrieval.prompts.get(name) for name in (QUERY_PROMPT, *PASSAGE_PROMPTS)):
            yield 'queries = model.encode_query(["..."])  # each kind of text has its prompt'
            yield 'documents = model.encode_document(["..."])'
        else:
            yield 'vectors = model.encode(["..."])'
        return
    if layout == CROSS_ENCODER:
        yield f"from sentence_transformers import CrossEncoder\n\nmodel = CrossEncoder({folder})"
        yield 'scores = model.predict([["...", "..."]])'
        return
    if info.network_class == "QuestionAnswering":
        threshold = decode.null_threshold
        none = "" if threshold is None else _NO_ANSWER.format(threshold=threshold)
        longest = decode.max_answer_length
        lengths = {"longest": longest, "further": longest - 1, "doc_stride": data.doc_stride}
        yield _ANSWERS.format(folder=folder, none=none, **lengths)
        return
    texts = _PAIRS if data.columns.text_pair is not None else '["..."]'
    if info.tags:  # it cuts by itself what is longer than the tokenizer allows, unless it has a stride: the overlap
        options = f'aggregation_strategy="first", stride={room - min(data.doc_stride, room)}'
    elif info.pipeline == "fill-mask":
        options, texts = 'tokenizer_kwargs={"truncation": True}', '["... " + model.tokenizer.mask_token]'
    else:
        options = "truncation=True" + (", top_k=None" if info.problem_type else "")
    yield f'from transformers import pipeline\n\nmodel = pipeline("{info.pipeline}", {folder}, {options})'
    yield f"answers = model({texts})"
