"""Folders that PaddleNLP's save_pretrained and Transformers wrote: every command takes them, and the head is kept."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from saved_models import save_huggingface, save_paddlenlp

TEXTS = ["the room was good", "the staff was bad", "very clean food in", "dirty room was bad"]
LABELS = ["pos", "neg", "pos", "neg"]
TAGS = ["O B-PART O O", "O B-PART O O", "O O B-PART O", "O B-PART I-PART O"]
QUESTIONS = [("what was good", "the room was good", "room"), ("who was bad", "the staff was bad", "staff")]
NAMES = {"SequenceClassification": ("neg", "pos"), "TokenClassification": ("O", "B-PART", "I-PART")}
TASKS = {
    "SequenceClassification": "sequence_classification",
    "TokenClassification": "token_classification",
    "QuestionAnswering": "question_answering",
}
FILES = {"SequenceClassification": "rows.tsv", "TokenClassification": "rows.conll", "QuestionAnswering": "rows.jsonl"}
STILL = "--max_steps 1 --learning_rate 1e-12 --logging_steps 1 --per_device_train_batch_size 4"
STILL += " --set model.config={hidden_dropout_prob: 0.0, attention_probs_dropout_prob: 0.0}"

ALL = [(kind, origin) for kind in TASKS for origin in ("paddlenlp", "huggingface")]
SLOW = (("TokenClassification", "huggingface"), ("QuestionAnswering", "paddlenlp"))
TRAINED = [pytest.param(*each, marks=pytest.mark.slow) if each in SLOW else each for each in ALL]


@dataclass(frozen=True)
class Place:
    """A folder of data and of saved models, `kind-origin`; `networks` are PaddleNLP's, of the same names."""

    work: Any
    folder: Path
    networks: dict[str, Any]

    def run(self, *words: str | Path, code: int = 0) -> Any:
        done = self.work.nlpctl(*(word for each in words for word in _split(each)))
        assert done.returncode == code, done.stderr
        return done

    def labels(self, kind: str, origin: str) -> tuple[str, ...]:
        """The words that name the labels, where the folder does not."""
        return ("--labels", ",".join(NAMES[kind])) if origin == "paddlenlp" and kind in NAMES else ()


def _split(words: str | Path) -> list[str]:
    if isinstance(words, Path):
        return [str(words)]
    first, braces, rest = words.partition(" --set model.config=")
    return [*first.split(), *(["--set", f"model.config={rest}"] if braces else [])]


@pytest.fixture(scope="session")
def place(work, tmp_path_factory) -> Place:
    folder = tmp_path_factory.mktemp("saved")
    rows = zip(TEXTS, LABELS, strict=True)
    (folder / "rows.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    tagged = [zip(text.split(), tags.split(), strict=True) for text, tags in zip(TEXTS, TAGS, strict=True)]
    (folder / "rows.conll").write_text("\n".join("".join(f"{w}\t{t}\n" for w, t in row) for row in tagged))
    asked = [
        {"question": question, "context": text, "answers": [{"text": answer, "answer_start": text.index(answer)}]}
        for question, text, answer in QUESTIONS
    ]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in asked))
    networks = {}
    for kind in TASKS:
        names = NAMES.get(kind)
        count = {} if names is None else {"num_labels": len(names)}
        networks[f"{kind}-paddlenlp"] = save_paddlenlp(folder / f"{kind}-paddlenlp", "Ernie", kind, **count)
        named = None if names is None else dict(enumerate(names))
        networks[f"{kind}-huggingface"] = save_huggingface(folder / f"{kind}-huggingface", kind, named)
    return Place(work, folder, networks)


def theirs(place: Place, name: str, texts: list[Any]) -> list[np.ndarray]:
    """What PaddleNLP's network of this name computes for texts or pairs, with PaddleNLP's tokenizer: a row each."""
    import paddle
    from paddlenlp.transformers import BertTokenizer, ErnieTokenizer

    tokenizer = (BertTokenizer if "huggingface" in name else ErnieTokenizer).from_pretrained(str(place.folder / name))
    found = []
    for text in texts:
        encoded = tokenizer(*text) if isinstance(text, tuple) else tokenizer(text)
        outputs = place.networks[name](**{key: paddle.to_tensor([value]) for key, value in encoded.items()})
        arrays = [each.numpy()[0] for each in (outputs if isinstance(outputs, tuple) else (outputs,))]
        found.append(arrays[0] if len(arrays) == 1 else np.stack(arrays))
    return found


def answers(done: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def check_answers(place: Place, kind: str, name: str, done: Any) -> None:
    """Whether the answers of `predict` are those of PaddleNLP's network."""
    found = answers(done)
    if kind == "SequenceClassification":
        for answer, logits in zip(found, theirs(place, name, TEXTS), strict=True):
            assert list(answer["probabilities"]) == list(NAMES[kind])
            np.testing.assert_allclose(list(answer["probabilities"].values()), softmax(logits), atol=2e-6)
            assert answer["label"] == NAMES[kind][int(logits.argmax())]
    elif kind == "TokenClassification":
        for answer, logits in zip(found, theirs(place, name, TEXTS), strict=True):
            tags = [NAMES[kind][tag] for tag in logits[1:-1].argmax(-1)]
            begun = [place for place, tag in enumerate(tags) if tag.startswith("B")]
            words = answer["text"].split()
            starts = [answer["text"].index(words[place]) for place in begun]
            assert set(starts) <= {entity["start"] for entity in answer["entities"]}
            covered = {word for entity in answer["entities"] for word in entity["text"].split()}
            assert covered == {word for word, tag in zip(words, tags, strict=True) if tag != "O"}
    else:
        pairs = [(question, text) for question, text, _ in QUESTIONS]
        for answer, (starts, ends), (question, text) in zip(found, theirs(place, name, pairs), pairs, strict=True):
            first, words = len(question.split()) + 2, text.split()
            spans = combinations_with_replacement(range(len(words)), 2)
            begin, end = max(spans, key=lambda span: starts[first + span[0]] + ends[first + span[1]])
            assert answer["answer"] == " ".join(words[begin : end + 1])


@pytest.mark.parametrize(("kind", "origin"), ALL)
def test_predict_eval_and_parameters(place, kind, origin):
    name = f"{kind}-{origin}"
    folder, file, labels = place.folder / name, place.folder / FILES[kind], place.labels(kind, origin)
    asked = file if kind == "QuestionAnswering" else place.folder / "texts.txt"
    done = place.run("predict", folder, asked, *labels)
    check_answers(place, kind, name, done)
    assert "LABEL_" not in done.stdout + done.stderr
    scores = json.loads(place.run("eval", folder, file, *labels, "--json").stdout)["result"]["metrics"]["test"]
    assert scores["rows"] == (len(QUESTIONS) if kind == "QuestionAnswering" else len(TEXTS))
    if kind == "SequenceClassification":
        right = [row["label"] == label for row, label in zip(answers(done), LABELS, strict=True)]
        assert scores["accuracy"] == np.mean(right)
    listed = place.run("params", "ls", folder, "--match", "classifier.*", "--json").stdout
    assert "classifier.weight" in listed and "classifier.bias" in listed


@pytest.mark.parametrize(("kind", "origin"), TRAINED)
def test_training_keeps_the_head(place, kind, origin):
    """At a learning rate of almost nothing the head stays what PaddleNLP's is; the first loss is that of its logits."""
    name, task = f"{kind}-{origin}", TASKS[kind]
    recipe = {"task": task, "model": {"name_or_path": name}, "data": {"train": FILES[kind], "max_seq_length": 32}}
    recipe["data"] |= {"labels": list(NAMES[kind])} if kind in NAMES else {"doc_stride": 8}
    (place.folder / f"{name}.yaml").write_text(json.dumps(recipe | {"runtime": {"device": "cpu"}}))
    run = place.folder / f"{name}-run"
    done = place.run("train", place.folder / f"{name}.yaml", f"--output_dir {run} {STILL}")
    assert "newly initialised" not in done.stderr
    assert ("the head of" in done.stderr) is (origin == "paddlenlp" and kind in NAMES)
    import paddle

    kept = paddle.load(str(run / "model" / "model_state.pdparams"), return_numpy=True)
    for entry in ("classifier.weight", "classifier.bias"):
        np.testing.assert_allclose(kept[entry], place.networks[name].state_dict()[entry].numpy(), atol=1e-6)
    if kind == "SequenceClassification":
        logged = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        loss = next(event["loss"] for event in logged if event["event"] == "log" and "loss" in event)
        logits = np.stack(theirs(place, name, TEXTS))
        gold = [NAMES[kind].index(label) for label in LABELS]
        assert loss == pytest.approx(-np.log(softmax(logits)[range(4), gold]).mean(), abs=1e-4)


def test_labels_in_another_order(place):
    """Names of config.json are matched by name; what a config only counts is named by position."""
    named, counted = (place.folder / f"SequenceClassification-{origin}" for origin in ("huggingface", "paddlenlp"))
    texts = place.folder / "texts.txt"
    plain = [answer["probabilities"] for answer in answers(place.run("predict", named, texts))]
    turned = [answer["probabilities"] for answer in answers(place.run("predict", named, texts, "--labels", "pos,neg"))]
    assert turned == plain and [list(each) for each in turned] == [["pos", "neg"]] * len(TEXTS)
    first = answers(place.run("predict", counted, texts, "--labels", "neg,pos"))
    other = answers(place.run("predict", counted, texts, "--labels", "pos,neg"))
    assert [each["probabilities"]["neg"] for each in first] == [each["probabilities"]["pos"] for each in other]


def test_a_checkpoint_of_an_old_paddlenlp(place):
    """model_config.json of PaddleNLP before 2.5, in a folder of a Trainer."""
    folder = place.folder / "old" / "checkpoint-7"
    shutil.copytree(place.folder / "SequenceClassification-paddlenlp", folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    inner = {name: value for name, value in config.items() if name not in ("architectures", "model_type")}
    old = {"init_args": [{**inner, "init_class": "ErnieModel"}], "init_class": config["architectures"][0]}
    (folder / "model_config.json").write_text(json.dumps(old | {"num_classes": 2}))
    (folder / "config.json").unlink()
    done = place.run("predict", folder, place.folder / "texts.txt", "--labels", "neg,pos")
    check_answers(place, "SequenceClassification", "SequenceClassification-paddlenlp", done)


def exported(place: Place, kind: str, origin: str) -> None:
    name = f"{kind}-{origin}"
    folder, output, file = place.folder / name, place.folder / f"{name}-export", place.folder / FILES[kind]
    place.run("export", folder, "-o", output, "--format", "onnx", "--rows", "8", "--data", file,
              *place.labels(kind, origin))  # fmt: skip
    asked = file if kind == "QuestionAnswering" else place.folder / "texts.txt"
    check_answers(place, kind, name, place.run("predict", output, asked))


def compressed(place: Place, kind: str, origin: str) -> None:
    name = f"{kind}-{origin}"
    output, file = place.folder / f"{name}-small", place.folder / FILES[kind]
    place.run("compress", place.folder / name, "-o", output, "--strategy", "ort-dynamic", "--set", f"data.dev={file}",
              "--set", "compression.batch_sizes=1", *place.labels(kind, origin))  # fmt: skip
    asked = file if kind == "QuestionAnswering" else place.folder / "texts.txt"
    assert len(answers(place.run("predict", output / "best", asked))) in (2, 4)


def test_export(place):
    exported(place, *ALL[0])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "origin"), ALL[1:])
def test_export_every_task(place, kind, origin):
    exported(place, kind, origin)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "origin"), ALL)
def test_compress(place, kind, origin):
    compressed(place, kind, origin)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("predict SequenceClassification-paddlenlp texts.txt --labels neg,so-so,pos", "head with 2 outputs"),
        ("predict SequenceClassification-huggingface texts.txt --labels bad,good", "those of the head: 'neg', 'pos'"),
        ("predict TokenClassification-paddlenlp texts.txt", "config.json says that there are 3 tags, but not which"),
        ("predict trainer texts.txt", "give trainer/checkpoint-20"),
        ("predict encoder texts.txt", "a BertModel, an encoder"),
        ("predict score texts.txt", "gives a number, not a label"),
        ("train SequenceClassification-paddlenlp", "nothing to train from"),
        ("compress SequenceClassification-paddlenlp --labels neg,pos", "there is no dev data"),
        ("export SequenceClassification-paddlenlp --labels neg,pos", "-o FOLDER"),
    ],
)
def test_one_clear_message(place, words, told):
    """What cannot work ends at once, with exit code 2."""
    for folder, config in {
        "encoder": {"architectures": ["BertModel"]},
        "score": {"architectures": ["BertForSequenceClassification"], "problem_type": "regression"},
    }.items():
        (place.folder / folder).mkdir(exist_ok=True)
        (place.folder / folder / "config.json").write_text(json.dumps(config))
    for step in (9, 20):
        (place.folder / "trainer" / f"checkpoint-{step}").mkdir(parents=True, exist_ok=True)
    command, model, *rest = words.split()
    rest = [str(place.folder / word) if word == "texts.txt" else word for word in rest]
    done = place.run(command, place.folder / model, *rest, code=2)
    assert told in done.stderr.replace(f"{place.folder}/", "")
