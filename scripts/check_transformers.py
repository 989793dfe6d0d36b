#!/usr/bin/env python
"""Do Transformers and sentence-transformers load what `nlpctl export --layout` writes, and answer alike?

Not part of the tests: it needs PyTorch, Transformers 5 and sentence-transformers 6, in an environment of their own.

    python scripts/check_transformers.py /path/to/that/bin/python [--encoder FOLDER ...]

Three steps, in turns by both interpreters, in one temporary folder:

    1. theirs: small random networks of every family and head that nlpctl reads, saved by Transformers
    2. ours:   each is read, exported (--layout), and computes; small models are trained and exported too
    3. theirs: each export is loaded; token ids, outputs and answers are compared with ours. Answers are those of the
       Python on the model card of the export, as it stands there

`--encoder`: real encoders besides, whose vectors of 200 sentences are compared. Exit code 1 if anything differs by
more than TOLERANCE.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

TOLERANCE = 1e-5
ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "models" / "encoders"  # of families that need a tokenizer of their own
SENTENCE_FOLDERS = ROOT / "tests" / "models" / "sentence_folders"
TEXTS = ["the room was good", "BAD food, clean staff!", "房间很干净，服务差", "Ünïcode ﬁne 123", "a", "good bad " * 30]
LABELS = {0: "O", 1: "B-PART", 2: "I-PART"}
HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MaskedLM")
LENGTH = 32
NO_TOKENIZER = ("model.safetensors", "expected.npz", "word_head.npz")
POOLINGS = ("cls", "mean", "max", "weightedmean")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", help="the interpreter that has PyTorch")
    parser.add_argument("--encoder", type=Path, nargs="+", default=[], help="folders with real encoders")
    parser.add_argument("--step", choices=("make", "check"))
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    if asked.step == "make":
        return make(asked.folder)
    if asked.step == "check":
        return check(asked.folder)
    from nlpctl.models.huggingface_layout import LAYOUTS

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "families.json").write_text(json.dumps([layout.model_type for layout in LAYOUTS.values()]))
        theirs = [asked.python, __file__, asked.python, "--folder", name, "--step"]
        subprocess.run([*theirs, "make"], check=True)
        ours(folder, asked.encoder)
        raise SystemExit(subprocess.run([*theirs, "check"]).returncode)


# -- 1. with PyTorch: networks of every family -----------------------------------------------------


def make(folder: Path) -> None:
    import torch
    import transformers
    from transformers import CONFIG_MAPPING, AutoConfig, BertTokenizer, logging

    logging.set_verbosity_error()
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", "!", "，", *letters, *(f"##{each}" for each in letters)]
    words += ["the", "room", "was", "food", "good", "bad", "clean", "staff", *"房间很干净服务差"]
    wordpiece = BertTokenizer(vocab={word: number for number, word in enumerate(words)})
    fixtures = {each.name: each for each in sorted(FIXTURES.iterdir()) if (each / "config.json").is_file()}
    known = json.loads((folder / "families.json").read_text())
    written = {json.loads((each / "config.json").read_text())["model_type"] for each in fixtures.values()}
    for family in [*fixtures, *(each for each in known if each not in written)]:
        fixture = fixtures.get(family)
        kind = family if fixture is None else json.loads((fixture / "config.json").read_text())["model_type"]
        if kind not in CONFIG_MAPPING:
            print(f"{family}: this Transformers has no such network")
            continue
        if fixture is None:
            sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
            sizes |= {"vocab_size": len(words), "max_position_embeddings": 64, "pad_token_id": 0}
            config = AutoConfig.for_model(family, **sizes, initializer_range=0.2)
        else:
            config = AutoConfig.from_pretrained(fixture)
        for head in ("Model", *HEADS):
            labels = dict(LABELS) if head == "TokenClassification" else {0: "neg", 1: "pos"}
            config.id2label, config.label2id = labels, {label: number for number, label in labels.items()}
            loader = transformers.AutoModel if head == "Model" else getattr(transformers, f"AutoModelFor{head}")
            torch.manual_seed(5)
            try:
                network = loader.from_config(config)
            except ValueError as error:
                print(f"{family} {head}: Transformers has none ({str(error).splitlines()[0][:60]})")
                continue
            made = folder / "made" / f"{family}-{head}"
            network.save_pretrained(made)
            if fixture is None:
                wordpiece.save_pretrained(made)
            else:  # its own, as it is: RoFormer's wants a further library to be opened
                for file in (each for each in fixture.iterdir() if each.name not in ("config.json", *NO_TOKENIZER)):
                    shutil.copyfile(file, made / file.name)


# -- 2. with nlpctl: read, trained, exported -------------------------------------------------------


def ours(folder: Path, encoders: list[Path]) -> None:
    import logging

    from nlpctl.errors import UserError

    for made in sorted((folder / "made").iterdir()):
        head = made.name.rpartition("-")[2]
        jobs = {"transformers": {}}
        if head == "Model":
            jobs = {f"sentence-transformers-{mode}": {"retrieval.pooling": mode} for mode in POOLINGS}
        elif head == "SequenceClassification":
            jobs["cross-encoder"] = {"task": "text_matching", "data.labels": ["neg", "pos"]}
        for job, changes in jobs.items():
            try:
                _export(folder, made, job, changes)
            except UserError as error:
                print(f"{made.name} {job}: refused: {error.problems[0]}")
    for source in sorted(SENTENCE_FOLDERS.iterdir()):
        if (source / "1_Pooling").is_dir():
            _export(folder, source, "sentence-transformers", {"data.max_seq_length": 24})
            shutil.copyfile(source / "expected.json", folder / f"{source.name}-expected.json")
    _train(folder)
    for number, encoder in enumerate(encoders):
        file = ROOT / "recipes" / "samples" / "pairs_dev.tsv"
        cells = [cell for line in file.read_text(encoding="utf-8").splitlines()[1:] for cell in line.split("\t")]
        texts = sorted({cell for cell in cells if len(cell) > 5})[:200]
        job, changes = "sentence-transformers-mean", {"retrieval.pooling": "mean"}
        _export(folder, encoder, job, changes, texts, name=f"real-{number}")
    logging.shutdown()


def _export(
    folder: Path, source: Path, job: str, changes: dict[str, Any], texts: list[str] = TEXTS,
    pairs: list[str] | None = None, name: str | None = None,
) -> None:  # fmt: skip
    """Export `source` in the layout that `job` begins with, and keep what it computes beside it as expected.npz.

    The weights of a calibrated classifier give its calibrated logits.
    """
    import numpy as np

    from nlpctl.api import overrides_of
    from nlpctl.config.load import load_recipe
    from nlpctl.engines.trained import load_network
    from nlpctl.export.export import export
    from nlpctl.export.request import ExportRequest
    from nlpctl.tasks.confidence import scales_and_shifts

    layout = next(each for each in ("transformers", "sentence-transformers", "cross-encoder") if job.startswith(each))
    given = {"data.max_seq_length": LENGTH, "runtime.device": "cpu", **changes}
    head = source.name.rpartition("-")[2]
    given |= {"task": "masked_language_model"} if head == "MaskedLM" else {}
    given |= {"data.columns.text_pair": "b"} if layout == "cross-encoder" else {}
    given |= {"data.doc_stride": 8} if head in ("TokenClassification", "QuestionAnswering") else {}
    if not (source / "recipe.yaml").is_file():
        purpose = "embed" if layout == "sentence-transformers" else "apply"
        recipe = load_recipe(source, overrides_of(given, {}), purpose)
    else:
        recipe = load_recipe(source, (), "apply")
        source = source / "model"
    target = folder / "exports" / f"{name or source.name}-{job}"
    export(recipe, str(source), ExportRequest(), output=target, layout=layout)
    model = load_network(recipe, str(source))
    if pairs is None and layout == "cross-encoder":
        pairs = [*texts[1:], texts[0]]
    encoded = model.encoder.encode(texts, pairs, recipe.data.max_seq_length)
    scale, shift = 1.0, 0.0
    if model.task.calibration is not None:
        scale, shift = scales_and_shifts(model.task.calibration, model.task.labels.names)
    collator, arrays = model.task.collator(model.encoder, labelled=False), {}
    for row, one in enumerate(encoded):  # alone, since the outputs of Transformers' ConvBERT depend on padding
        batch = collator.pad([one])
        if head == "MaskedLM":  # scores of the token at one place
            batch["masked_positions"] = np.ones((1, 1), np.int64)
        arrays[f"ids-{row}"] = batch["input_ids"][0]
        outputs = model.predictor.outputs(batch)
        arrays |= {f"{place}-{row}": array[0] * scale + shift for place, array in enumerate(outputs)}
    np.savez(folder / f"{target.name}.npz", **arrays)
    facts = {"layout": layout, "head": head, "texts": texts, "pairs": pairs or [None] * len(texts)}
    (folder / f"{target.name}.json").write_text(json.dumps(facts))


SENTENCES = ["{0} was very {1}", "I found the {0} {1}", "the {0} is {1} today", "{1} {0}"]
SCRATCH = {"vocab_size": 80, "min_frequency": 1, "hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64}
# What is trained: its task, sections of its recipe, and its calibration.
TRAINED: dict[str, tuple[str, dict[str, Any], tuple[Any, ...] | None]] = {
    "classifier": ("sequence_classification", {}, ("temperature", (0.5,), (0.0,))),
    "added-words": ("sequence_classification", {"model": {"add_tokens": ["wi-fi", "C++", "格利泽"]}}, None),
    "labels": (
        "multi_label_classification", {"decode": {"threshold": 0.4}}, ("logistic", (0.5, 2.0, 1.0), (0.25, -1.0, 0.0)),
    ),
    "pairs": (
        "sequence_classification", {"data": {"columns": {"text_pair": "text_pair"}}}, ("temperature", (2.0,), (0.0,)),
    ),
    "tagger": ("token_classification", {"data": {"doc_stride": 8}}, None),
    "reader": ("question_answering", {"data": {"doc_stride": 8}, "decode": {"max_answer_length": 6}}, None),
    "unsure-reader": (
        "question_answering", {"data": {"doc_stride": 8}, "decode": {"max_answer_length": 6, "null_threshold": 0.0}},
        None,
    ),
}  # fmt: skip
INPUTS = ("text", "text_pair", "question", "context")  # columns that a row is answered by


def _train(folder: Path) -> None:
    """Models that have learnt something, so that pipelines give answers that can be compared."""
    import nlpctl
    from nlpctl.models.calibration import Calibration, write_calibration

    for name, (task, sections, calibration) in TRAINED.items():
        rows = _rows(name)
        file = folder / f"{name}.jsonl"
        file.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
        recipe = {
            "task": task,
            "model": {"from_scratch": SCRATCH, **sections.get("model", {})},
            "data": {"train": str(file), "max_seq_length": LENGTH, **sections.get("data", {})},
            "decode": sections.get("decode", {}),
            "training": {"learning_rate": 5e-3, "num_train_epochs": 4, "per_device_train_batch_size": 20},
            "runtime": {"device": "cpu"},
        }
        run = nlpctl.train(recipe, set={"training.output_dir": str(folder / name)})
        model = nlpctl.load(run.path)
        if calibration is not None:  # without dev it has none
            method, scales, shifts = calibration
            names = model.labels if len(scales) > 1 else ()
            write_calibration(run.path / "model", Calibration(method, scales, shifts, tuple(names)))
            (run.path / "model" / "manifest.json").unlink()
            model = nlpctl.load(run.path)
        asked = [{key: row[key] for key in INPUTS if key in row} for row in rows[:20]]
        asked += [_long(rows[place : place + 9]) for place in (20, 40, 60)]  # which no network here takes as a whole
        answers = model.predict(asked)
        first, second = ("question", "context") if task == "question_answering" else ("text", "text_pair")
        texts, pairs = [row[first] for row in asked], [row[second] for row in asked if second in row]
        for layout in ("transformers", *(["cross-encoder"] if pairs and first == "text" else [])):
            _export(folder, folder / name, layout, {}, texts, pairs or None, name=name)
        (folder / f"{name}-answers.json").write_text(json.dumps(answers, ensure_ascii=False))


def _rows(name: str) -> list[dict[str, Any]]:
    chance, rows = random.Random(1), []
    things = ("room", "staff", "food", "view") if name != "added-words" else ("room", "wi-fi", "C++", "格利泽")
    for _ in range(200):
        label = chance.choice(("neg", "pos"))
        thing, other = chance.choice(things), chance.choice(things)
        how = chance.choice(("bad", "dirty") if label == "neg" else ("good", "clean"))
        text = chance.choice(SENTENCES).format(thing, how)
        words = text.split()
        rows.append(
            {"text": text, "label": [label, *(["place"] if thing in ("room", "view") else [])]} if name == "labels"
            else {"text": text, "text_pair": f"the {other}", "label": f"{label}-{thing == other}"} if name == "pairs"
            else {"text": text, "tokens": words, "tags": ["B-PART" if word == thing else "O" for word in words]}
            if name == "tagger"
            else _question(chance.choice(("which thing", "how was it", "who came")), text, thing, how)
            if name.endswith("reader") else {"text": text, "label": label}
        )  # fmt: skip
    return rows


def _question(question: str, text: str, thing: str, how: str) -> dict[str, Any]:
    """A row that asks for a word of `text`, or for what is not in it."""
    word = {"which thing": thing, "how was it": how}.get(question)
    answers = [] if word is None else [{"text": word, "answer_start": text.index(word)}]
    return {"question": question, "context": text, "answers": answers}


def _long(rows: list[dict[str, Any]]) -> dict[str, str]:
    """The texts of several rows as one, and the other columns of the first."""
    first = {key: rows[0][key] for key in INPUTS if key in rows[0]}
    last = next(key for key in ("context", "text") if key in first)
    return {**first, last: " and ".join(row[last] for row in rows)}


# -- 3. with PyTorch: what was exported ------------------------------------------------------------


def check(folder: Path) -> None:
    from transformers import logging

    logging.set_verbosity_error()
    failed = 0
    for export in sorted((folder / "exports").iterdir()):
        facts = json.loads((folder / f"{export.name}.json").read_text())
        try:
            found = _check_export(folder, export, facts)
        except Exception as error:  # of these libraries, so that the others are checked too
            found = f"FAILED: {type(error).__name__}: {str(error)[:200]}"
        failed += "FAILED" in found
        print(f"{export.name:58} {found}")
    for name, (task, *_) in TRAINED.items():
        try:
            found = _check_card(folder, name, task)
        except Exception as error:
            found = f"FAILED: {type(error).__name__}: {str(error)[:200]}"
        failed += "FAILED" in found
        print(f"{f'the card of {name}':58} {found}")
    print(f"{failed} failed" if failed else "all alike")
    shutil.rmtree(folder / "exports")
    raise SystemExit(1 if failed else 0)


def _check_export(folder: Path, export: Path, facts: dict[str, Any]) -> str:
    import numpy as np
    import torch
    import transformers
    from transformers import AutoTokenizer

    ours, texts = np.load(folder / f"{export.name}.npz"), facts["texts"]
    tokenizer = AutoTokenizer.from_pretrained(export)
    pairs = facts["pairs"]
    rows = [tokenizer(*both, truncation=True, return_tensors="pt") for both in zip(texts, pairs, strict=True)]
    for row, encoded in enumerate(rows):
        if encoded["input_ids"][0].tolist() != ours[f"ids-{row}"].tolist():
            return f"FAILED: the token ids of {texts[row]!r} differ"
    firsts = [ours[f"0-{row}"] for row in range(len(texts))]
    left = _run_card(export)
    if facts["layout"] == "sentence-transformers":
        made = left["model"]
        expected = folder / f"{export.name.removesuffix('-sentence-transformers')}-expected.json"
        if not expected.is_file():
            return _told(np.stack(firsts), made.encode(texts, batch_size=1))
        told = json.loads(expected.read_text())  # of the folder that was read, with its prompts
        ways = {"encode": made.encode, "query": made.encode_query, "document": made.encode_document}
        mine = [np.array(told[way], np.float32) for way in ways]
        if any(made.prompts.values()) is not ("queries" in left):
            return f"FAILED: prompts {made.prompts}, but the card leaves {sorted(left)}"
        return _told(np.stack(mine), np.stack([encode(told["texts"]) for encode in ways.values()]))
    if facts["layout"] == "cross-encoder":
        scores = left["model"].predict(list(zip(texts, pairs, strict=True)), batch_size=1)
        logits = np.stack(firsts).astype(np.float64)
        if scores.ndim == 2:  # classes of pairs
            return _told(logits, scores)
        return _told(1 / (1 + np.exp(logits[:, 0] - logits[:, 1])), scores)
    name = json.loads((export / "config.json").read_text())["architectures"][0]
    network, report = getattr(transformers, name).from_pretrained(export, output_loading_info=True)
    unread = {key: sorted(map(str, names)) for key, names in report.items() if names}
    if unread:
        return f"FAILED: {json.dumps(unread)[:200]}"
    mine, theirs = [], []
    for row, encoded in enumerate(rows):
        with torch.no_grad():
            outputs = network.eval()(**encoded)
        logits = [outputs.start_logits, outputs.end_logits] if "start_logits" in outputs else [outputs.logits]
        if facts["head"] == "MaskedLM":  # the five most probable tokens
            best = logits[0].softmax(-1)[0, 1].topk(5)
            if not np.array_equal(ours[f"1-{row}"][0], best.indices.numpy()):
                return "FAILED: other words are the most probable"
            mine.append(ours[f"0-{row}"][0])
            theirs.append(best.values.numpy())
            continue
        mine += [ours[f"{place}-{row}"].ravel() for place in range(len(logits))]
        theirs += [each[0].numpy().ravel() for each in logits]
    return _told(np.concatenate(mine), np.concatenate(theirs))


def _told(mine: Any, theirs: Any) -> str:
    import numpy as np

    if mine.shape != theirs.shape:
        return f"FAILED: {mine.shape} here, {theirs.shape} there"
    worst = float(np.abs(mine - theirs).max())
    return f"{'FAILED: ' if worst > TOLERANCE else ''}largest difference {worst:.1e}"


def _run_card(export: Path) -> dict[str, Any]:
    """Run the Python on the card of an export, in the folder that it lies in; the names that it leaves."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", (export / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    left: dict[str, Any] = {}
    with contextlib.chdir(export.parent), contextlib.redirect_stdout(io.StringIO()):
        exec(code, left)
    return left


def _check_card(folder: Path, name: str, task: str) -> str:
    answers = json.loads((folder / f"{name}-answers.json").read_text())
    left, counted = _run_card(folder / "exports" / f"{name}-transformers"), 0
    for answer in answers:
        given = {key: answer[key] for key in INPUTS if key in answer}
        if task == "question_answering":
            mine = answer["answer"] and {key: answer[key] for key in ("answer", "start", "end")}
            found = left["answer"](**given)
        elif task == "token_classification":
            mine = [(each["start"], each["end"], each["type"]) for each in answer["entities"]]
            found = [(each["start"], each["end"], each["entity_group"]) for each in left["model"](given["text"])]
            if len(given["text"]) > 100:  # joins what windows say of one place: must be read to its end, no more
                found = [each for each in found if each in mine]
        else:
            mine, found = answer["probabilities"], left["model"](given, top_k=None)
            best, found = found[0]["label"], {each["label"]: each["score"] for each in found}
            if found.keys() == mine.keys() and all(abs(found[each] - mine[each]) <= TOLERANCE for each in mine):
                mine = found
            if answer.get("label", best) != best:
                return f"FAILED: {answer} here, {best} there"
        if mine != found:
            return f"FAILED: {answer} here, {found} there"
        counted += len(mine) if isinstance(mine, list) else mine is not None
    what = "entities" if task == "token_classification" else "answers"
    return f"{len(answers)} rows: the same {counted} {what}"


if __name__ == "__main__":
    main()
