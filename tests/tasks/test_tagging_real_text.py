"""Every entity that predict gives indexes its text, on real sentences with difficult characters mixed in."""

from __future__ import annotations

import random
from dataclasses import replace

import paddle
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.load import load_recipe
from nlpctl.config.schema import DataSection
from nlpctl.data.open_split import open_split
from nlpctl.data.rows.examples import BadRowLog, ExampleReader, load_examples
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.tagged_rows import TaggedRows
from nlpctl.data.text.tokenizers import build_encoder
from nlpctl.data.text.word_spans import word_spans
from nlpctl.engines.engine import DygraphPredictor
from nlpctl.engines.pipeline import prediction_pipeline
from nlpctl.tasks.base import make_task

RECIPE = """
task: token_classification
model:
  from_scratch: {{vocab_size: 2000, min_frequency: 1, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2,
                 intermediate_size: 32}}
  config: {{initializer_range: 0.5}}
  head: {head}
data: {{train: none.conll, max_seq_length: 32, doc_stride: 12}}
training: {{output_dir: run}}
"""
LABELS = LabelSet(["B-LOC", "B-PER", "I-LOC", "I-PER", "O"])
SPACES = (" ", "  ", "\t", "\u3000", "\u00a0")
LETTERS = ("Ａ１", "，", "～", "ﬁ", "\u0301", "e\u0301\u0302", "중", "カﾞ", "𠀀", "İ", "ß")
INVISIBLE = ("\u200b", "\ufeff", "\u200d", "\u00ad")
EMOJI = ("👍", "👍\U0001f3fd", "\U0001f468\u200d\U0001f469", "\U0001f1e8\U0001f1f3", "1\ufe0f\u20e3")
DIFFICULT = (*SPACES, *LETTERS, *INVISIBLE, *EMOJI)


def sentences(data, count, seed):
    """Chinese and English sentences, each with up to six difficult characters at random places."""
    draw = random.Random(seed)
    texts = [line.split("\t")[0] for name in ("chnsenticorp", "sst2")
             for line in (data / name / "dev.tsv").read_text(encoding="utf-8").split("\n")[1:] if line]  # fmt: skip
    for sentence in (data / "msra_ner" / "test.txt").read_text(encoding="utf-8").split("\n\n"):
        texts.append("".join(line.split("\t")[0] for line in sentence.split("\n")))
    for text in draw.sample([text for text in texts if text.strip()], count):
        for _ in range(draw.randrange(7)):
            place = draw.randrange(len(text) + 1)
            text = text[:place] + draw.choice(DIFFICULT) + text[place:]
        yield text


@pytest.mark.parametrize(("head", "unit"), [("linear", "words"), ("crf", "characters")])
def test_offsets_on_2000_sentences(shared_data, tmp_path, head, unit):
    texts = list(sentences(shared_data, 2000, unit))
    (tmp_path / "none.conll").touch()
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(head=head))
    recipe = load_recipe(tmp_path / "recipe.yaml")
    recipe = replace(recipe, data=replace(recipe.data, unit=unit))
    task, rows = make_task(recipe, LABELS), TaggedRows(recipe.data)
    paddle.seed(5)
    model = task.build_model(lambda: texts[:500])
    pipeline = prediction_pipeline(task, build_encoder(model.tokenizer), DygraphPredictor(model.network))
    examples = [rows.read({"text": text}, None) for text in texts]
    found = 0
    for text, example, parts in zip(texts, examples, pipeline.predictions(examples, 128), strict=True):
        answer = {**rows.input_columns(example), **task.answer(example, parts)}
        assert answer["text"] == text
        words = word_spans(text)
        starts, ends = {start for start, _ in words}, {end for _, end in words}
        end = 0
        for entity in answer["entities"]:
            assert text[entity["start"] : entity["end"]] == entity["text"] != ""
            assert end <= entity["start"] and not entity["text"][0].isspace() and not entity["text"][-1].isspace()
            assert unit == "characters" or (entity["start"] in starts and entity["end"] in ends)
            end = entity["end"]
        found += len(answer["entities"])
    assert found > 2000


def test_all_sentences_of_msra_ner_are_read(shared_data):
    folder = shared_data / "msra_ner"
    data = DataSection(**{split: (str(folder / f"{split}.txt"),) for split in ("train", "dev", "test")})
    rows = TaggedRows(data)
    labels = rows.collect_labels(open_split(rows, "train"))
    assert labels.names == ("B-LOC", "B-ORG", "B-PER", "I-LOC", "I-ORG", "I-PER", "O")
    for split, count in (("train", 8000), ("dev", 1000), ("test", 1000)):
        log = BadRowLog("error")
        examples = load_examples(open_split(rows, split), ExampleReader(rows, labels), log)
        lines = (folder / f"{split}.txt").read_text(encoding="utf-8").split("\n")
        assert len(examples) == count and log.total == 0
        assert sum(map(len, examples)) == sum(1 for line in lines if line)
        assert examples[-1].words()[-1] == [line for line in lines if line][-1].split("\t")[0]
        assert all(example.by_character for example in examples)
