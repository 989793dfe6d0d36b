"""Masked language models and few-shot classification through the command line, one on the other."""

from __future__ import annotations

import json
import random
import signal

import pytest

LANGUAGE_MODEL = """\
task: masked_language_model
model:
  from_scratch: {architecture: bert, vocab_size: 200, min_frequency: 1, hidden_size: 32, num_hidden_layers: 2,
                 intermediate_size: 64}
  config: {hidden_dropout_prob: 0.0, attention_probs_dropout_prob: 0.0}
data: {train: lm/train.txt, dev: lm/dev.txt, max_seq_length: 16}
masking: {probability: 0.4, dictionary: lm/words.txt}
training:
  output_dir: lm/base
  learning_rate: 6e-3
  num_train_epochs: 24
  per_device_train_batch_size: 16
  gradient_accumulation_steps: 2
  evaluation_strategy: epoch
  save_strategy: epoch
  load_best_model_at_end: true
  metric_for_best_model: perplexity
runtime: {device: cpu}
"""
CLASSIFIER = """\
model: {name_or_path: lm/base}
data: {train: lm/few.tsv, test: lm/test.tsv, max_seq_length: 24}
training: {output_dir: lm/few, learning_rate: 1e-3, num_train_epochs: 6, per_device_train_batch_size: 4}
runtime: {device: cpu}
"""
FEW_SHOT = f"""\
task: few_shot_classification
prompt:
  template: "{{'text': 'text'}} it is {{'mask'}}"
  verbalizer: {{neg: bad, pos: good}}
{CLASSIFIER}
"""
ADJECTIVES = {
    "neg": "dirty loud rude cold broken tiny dark stale slow dusty".split(),
    "pos": "clean quiet kind warm fresh large bright tasty quick cosy".split(),
}


def phrases(count: int, seed: int) -> list[tuple[str, str]]:
    """Phrases about a hotel; twenty adjectives decide the label, of which a few examples show a third."""
    chance, made = random.Random(seed), []
    for _ in range(count):
        label = chance.choice(("neg", "pos"))
        noun = chance.choice("room bed staff view food bar".split())
        made.append((f"the {noun} was {chance.choice(ADJECTIVES[label])}", label))
    return made


@pytest.fixture(scope="session")
def lm(work):
    """Folder of recipes and data, and the run of a language model that knows which adjectives are good."""
    folder = work / "lm"
    folder.mkdir()
    for split, count, seed in (("train", 500, 11), ("dev", 60, 12)):
        texts = [f"{text} it is {'good' if label == 'pos' else 'bad'}" for text, label in phrases(count, seed)]
        (folder / f"{split}.txt").write_text("\n\n".join(texts) + "\n")  # blank lines are no texts
    for split, count, seed in (("few", 8, 1), ("test", 200, 3)):
        rows = "".join(f"{text}\t{label}\n" for text, label in phrases(count, seed))
        (folder / f"{split}.tsv").write_text("text\tlabel\n" + rows)
    (folder / "words.txt").write_text("\u6df1\u5ea6\u5b66\u4e60\n", encoding="utf-8")
    (work / "lm.yaml").write_text(LANGUAGE_MODEL)
    (work / "few.yaml").write_text(FEW_SHOT)
    (work / "plain.yaml").write_text(f"task: sequence_classification\n{CLASSIFIER}")
    work.train("lm/base", recipe="lm.yaml")
    return folder


@pytest.fixture(scope="session")
def few(work, lm):
    return work.train("lm/few", recipe="few.yaml")


@pytest.fixture(scope="session")
def plain(work, lm):
    """The same examples on the same encoder, whose language model's head is dropped."""
    return work.train("lm/plain", recipe="plain.yaml")


def test_the_language_model_learns_and_the_best_is_the_least_perplexed(work, lm):
    perplexities = [event["eval_perplexity"] for event in work.events("lm/base") if event["event"] == "evaluate"]
    report = json.loads((lm / "base/metrics.json").read_text())["dev"]
    assert report["rows"] == 60 and report["masked_tokens"] > 100
    assert report["perplexity"] == pytest.approx(min(perplexities))
    assert report["perplexity"] < 0.9 * perplexities[0] and report["masked_accuracy"] > 0.5


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_scores_do_not_depend_on_the_batch(work, lm, batch):
    words = ("--set", f"data.dev={lm / 'dev.txt'}", "--per_device_eval_batch_size", str(batch), "--json")
    done = work.nlpctl("eval", lm / "base/model", *words)  # the model folder knows how to mask
    assert done.returncode == 0, done.stderr
    again = json.loads(done.stdout)["result"]["metrics"]["dev"]
    first = json.loads((lm / "base/metrics.json").read_text())["dev"]
    assert again["masked_tokens"] == first["masked_tokens"]
    assert again["loss"] == pytest.approx(first["loss"], abs=1e-5)


def test_masks_are_filled_and_index_the_text(work, lm):
    texts = ["the room was cosy it is [MASK]", "the\u3000👍🏽 [MASK] Cafe\u0301 it is [MASK]", "no mask"]
    texts.append("the [MASK] " * 30)  # longer than the window
    done = work.nlpctl("predict", lm / "base", "-", "--set", "decode.n_best=3", stdin="\n".join(texts) + "\n")
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["text"] for answer in answers] == texts
    assert answers[0]["masks"][0]["words"][0]["word"] == "good"
    assert [len(answer["masks"]) for answer in answers] == [1, 2, 0, 30]
    for answer in answers:
        for mask in answer["masks"]:
            assert answer["text"][mask["start"] : mask["end"]] == "[MASK]"
            assert len(mask["words"]) == 3
            probabilities = [word["probability"] for word in mask["words"]]
            assert probabilities == sorted(probabilities, reverse=True) and sum(probabilities) <= 1.00001


def test_no_more_guesses_than_the_vocabulary_has(work, lm):
    words = ("--set", "decode.n_best=100000", "--format", "text")
    done = work.nlpctl("predict", lm / "base", "-", *words, stdin="it is [MASK]\n")
    assert done.returncode == 0, done.stderr
    guesses = json.loads(done.stdout)["masks"][0]["words"]
    vocabulary = len((lm / "base/model/vocab.txt").read_text(encoding="utf-8").splitlines())
    assert len(guesses) == vocabulary and sum(one["probability"] for one in guesses) == pytest.approx(1, abs=1e-3)



@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_model(work, lm, same_bits):
    """Masks are a function of the step, also those of the second part of an accumulated step."""
    words = ("train", "lm.yaml", "--set", "training.output_dir=lm/killed")
    checkpoint = lm / "killed" / "checkpoints" / "checkpoint-160"
    work.end(work.start(*words), checkpoint.exists, signal.SIGKILL)
    work.train("lm/killed", "--resume", recipe="lm.yaml")
    assert same_bits(lm / "killed", lm / "base")


def test_a_handful_of_examples_is_enough_with_a_prompt_and_not_without(few, plain):
    scores = {run.name: json.loads((run / "metrics.json").read_text())["test"]["accuracy"] for run in (few, plain)}
    assert scores["few"] > 0.85 and scores["plain"] < 0.8


def test_the_model_folder_answers_as_the_run_did(work, lm, few):
    report = json.loads((few / "metrics.json").read_text())["test"]
    done = work.nlpctl("eval", few / "model", "--json", "--set", f"data.test={lm / 'test.tsv'}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["metrics"]["test"] == report
    texts = ["the room was cosy", "the [MASK] bed was dusty", "the bar was fresh " * 30]
    done = work.nlpctl("predict", few / "model", "-", stdin="\n".join(texts) + "\n")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["text"] for answer in answers] == texts
    assert [answer["label"] for answer in answers[:2]] == ["pos", "neg"]
    assert all(sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-5) for answer in answers)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "prompt.template=It is so"], "it has no {'text': 'text'}"),
        (["--set", "data.labels=[neg, pos, fair]"], "(prompt.verbalizer): no word for the label 'fair'"),
        (["--set", "prompt.verbalizer={so: so}"], "(prompt.verbalizer.so): there is no such label"),
        (["--set", "prompt.verbalizer={neg: bad, pos: 好}"], "(prompt.verbalizer.pos): the model's vocabulary has no"),
        (["--set", "prompt.verbalizer={pos: bad}"], "(prompt.verbalizer.pos): 'bad' is also the word of 'neg'"),
        (["--set", "data.max_seq_length=5"], "(data.max_seq_length): the template takes 5 tokens"),
        (["--set", "model.name_or_path=lm/plain"], "the model cannot predict words"),
    ],
)
def test_what_is_wrong_with_a_prompt_is_told_by_key(work, lm, plain, words, message):
    done = work.nlpctl("train", "few.yaml", "--set", "training.output_dir=lm/no", *words)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert message in done.stderr
    assert not (lm / "no").exists()
