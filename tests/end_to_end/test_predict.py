"""`nlpctl predict`: every input format, bad rows, and interruptions."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

TEXTS = ["the room was good", "dirty bed and awful view", "a very clean staff", "food 好吃 was bad"]


def answers(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_format_gives_the_same_answers(work, base):
    (work / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (work / "in.tsv").write_text("id\ttext\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(TEXTS)))
    (work / "in.jsonl").write_text("".join(json.dumps({"text": text, "more": 1}) + "\n" for text in TEXTS))
    started = [
        work.start("predict", "base", "in.txt", "-o", "out/from-txt.jsonl"),
        work.start("predict", "base/model", "in.tsv", "--device", "cpu"),
        work.start("predict", "recipe.yaml", "in.jsonl"),
        work.start("predict", "base"),
    ]
    done = [process.communicate("".join(f"{text}\n" for text in TEXTS)) for process in started]
    assert [process.returncode for process in started] == [0, 0, 0, 0], done
    assert done[0][0] == ""
    of_txt = answers((work / "out/from-txt.jsonl").read_text())
    others = [answers(out) for out, _ in done[1:]]
    assert [answer.pop("more") for answer in others[1]] == [1] * 4  # of an object nothing is lost
    assert [other == of_txt for other in others] == [True, True, True]
    assert [answer["text"] for answer in of_txt] == TEXTS
    for answer in of_txt:
        assert list(answer) == ["text", "label", "probabilities"] and list(answer["probabilities"]) == ["neg", "pos"]
        assert sum(answer["probabilities"].values()) == pytest.approx(1.0, abs=1e-5)
        assert answer["label"] == max(answer["probabilities"], key=answer["probabilities"].get)
    assert [answer["label"] for answer in of_txt] == ["pos", "neg", "pos", "neg"]
    assert "好吃" in (work / "out/from-txt.jsonl").read_text(encoding="utf-8")
    assert [path.name for path in (work / "out").iterdir()] == ["from-txt.jsonl"]  # no .partial is left


def test_bad_rows(work, base):
    """skip: an error in place of the answer; error: nothing is answered, and an older output stays."""
    rows = ['{"text": "good"}', '{"text": "  "}', "{broken", '{"text": "bad"}', '{"other": 1}']
    (work / "bad.jsonl").write_text("".join(f"{row}\n" for row in rows))
    done = work.nlpctl("predict", "base", "bad.jsonl", "--set", "data.on_bad_row=skip")
    assert done.returncode == 0, done.stderr
    found = answers(done.stdout)
    assert [list(answer)[0] for answer in found] == ["text", "error", "error", "text", "error"]
    assert "warning: 3 of 5 rows were bad" in done.stderr
    for line, answer in ((2, found[1]), (3, found[2]), (5, found[4])):
        assert answer["error"].startswith(f"bad.jsonl:{line}: ")

    (work / "bad.out").write_text("precious")
    done = work.nlpctl("predict", "base", "bad.jsonl", "-o", "bad.out", "--overwrite")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert all(f"bad.jsonl:{line}:" in done.stderr for line in (2, 3, 5))
    assert (work / "bad.out").read_text() == "precious"


def test_what_a_row_holds_is_kept(work, base):
    rows = [
        {"id": 7, "text": "good", "label": "neg", "half": "\ud800"},
        {"id": 8, "text": " ", "error": "none"},
        {"text": "bad", "given_label": 0, "label": "x"},
    ]
    (work / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (work / "more.tsv").write_text("id\ttext\tdate\n7\tgood\tmay\n8\tbad\tjune\n")
    skip = ("--set", "data.on_bad_row=skip")
    done = work.nlpctl("predict", "base", "more.jsonl", *skip)
    assert done.returncode == 0, done.stderr
    first, bad, last = answers(done.stdout)
    assert list(first) == ["text", "label", "probabilities", "id", "given_label", "half"] and first["label"] == "pos"
    assert first["given_label"] == "neg" and first["half"] == "\ud800"
    assert list(bad.items())[1:] == [("id", 8), ("given_error", "none")] and "blank text" in bad["error"]
    assert last["given_label"] == 0 and last["given_given_label"] == "x"
    done = work.nlpctl("predict", "base", "more.jsonl", "--keep", "id", *skip)
    assert [answer["id"] for answer in answers(done.stdout)] == [7, 8, None]
    done = work.nlpctl("predict", "base", "more.tsv", "--keep", "all")
    assert [(answer["id"], answer["date"]) for answer in answers(done.stdout)] == [("7", "may"), ("8", "june")]
    done = work.nlpctl("predict", "base", "more.tsv", "--keep", "idd")
    assert done.returncode == 2 and "there is no 'idd' to keep (did you mean 'id'?)" in done.stderr, done.stderr
    done = work.nlpctl("predict", "base", "more.tsv", "--keep", "all,id")
    assert done.returncode == 2 and "all stands alone" in done.stderr and "give --keep all, or" in done.stderr
    done = work.nlpctl("predict", "base", "--keep", "id", stdin="good\n")
    assert done.returncode == 2 and "nothing else to keep" in done.stderr


def test_a_text_called_error_is_no_bad_row(work, base):
    (work / "log.jsonl").write_text('{"error": "good"}\n{"error": " "}\n')
    settings = ("--set", "data.columns.text=error", "--set", "data.on_bad_row=skip")
    done = work.nlpctl("predict", "base", "log.jsonl", *settings)
    assert done.returncode == 0 and "1 of 2 rows was bad" in done.stderr, done.stderr
    good, bad = answers(done.stdout)
    assert good["given_error"] == "good" and good["label"] == "pos" and "error" not in good
    assert "blank" in bad["error"]


def test_a_blank_line_has_its_answer(work, base):
    """Standard input and a file alike; lines of text and answers belong to each other."""
    text = "good\n\n \nbad\n\n"
    (work / "blank.txt").write_text(text)
    from_pipe = work.nlpctl("predict", "base", stdin=text)
    from_file = work.nlpctl("predict", "base", "blank.txt")
    assert from_pipe.returncode == from_file.returncode == 0 and from_pipe.stdout == from_file.stdout, from_file.stderr
    found = answers(from_pipe.stdout)
    assert [answer["label"] for answer in found] == ["pos", None, None, "neg", None]
    assert found[1] == {"text": "", "label": None, "probabilities": None} and "bad" not in from_pipe.stderr
    explained = work.nlpctl("explain", "base", "blank.txt", "--json")
    assert [row["text"] for row in json.loads(explained.stdout)["result"]["texts"]] == ["good", "bad"], explained.stderr


def test_objects_on_standard_input_are_not_taken_for_texts(work, base):
    rows = '{"text": "good"}\n{"text": "bad"}\n'
    for words in (("predict", "base"), ("explain", "base", "-")):
        done = work.nlpctl(*words, stdin=rows)
        assert done.returncode == 2 and done.stdout == "", done.stderr
        assert "standard input:1: this line is a JSON object" in done.stderr and "--format jsonl" in done.stderr
    done = work.nlpctl("predict", "base", "--format", "jsonl", stdin=rows)
    assert [answer["text"] for answer in answers(done.stdout)] == ["good", "bad"], done.stderr
    done = work.nlpctl("predict", "base", stdin="{good} food\n")
    assert [answer["text"] for answer in answers(done.stdout)] == ["{good} food"], done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "base", "asked.txt"),
        ("predict", "base", "asked.txt", "--layer-outputs", "*", "-o", "asked.npz"),
        ("data", "next", "base", "asked.txt", "-n", "1"),
    ],
)
def test_what_says_how_answers_are_computed_is_refused_where_the_network_is_asked(work, base, words):
    (work / "asked.txt").write_text("good\n")
    for key, value in (("engine", "onnxruntime"), ("precision", "bf16"), ("min_confidence", "0.9")):
        done = work.nlpctl(*words, "--learning_rate", "3", "--set", f"inference.{key}={value}")
        assert done.returncode == 2 and "--learning_rate has no effect" in done.stderr, done.stderr
        assert f"(inference.{key}): this asks the network itself" in done.stderr


def test_what_a_recipe_says_of_answers_does_not_keep_it_from_being_explained(work, base):
    own = "extends: recipe.yaml\ninference: {precision: int8}\ntraining: {output_dir: base}\n"
    (work / "in_int8.yaml").write_text(own)
    done = work.nlpctl("explain", "in_int8.yaml", "-", stdin="good\n")
    assert done.returncode == 0 and done.stdout.startswith("pos"), done.stderr


def test_an_output_file_is_not_overwritten_unasked(work, base):
    (work / "kept.txt").write_text("good\n")
    (work / "kept.jsonl").write_text("precious")
    done = work.nlpctl("predict", "base", "kept.txt", "-o", "kept.jsonl")
    assert done.returncode == 2 and "--overwrite" in done.stderr and (work / "kept.jsonl").read_text() == "precious"
    done = work.nlpctl("predict", "base", "kept.txt", "-o", "kept.jsonl", "--overwrite")
    assert done.returncode == 0 and answers((work / "kept.jsonl").read_text())[0]["label"] == "pos"


def test_what_cannot_be_resumed(work, base):
    (work / "few.txt").write_text("good\n")
    done = work.nlpctl("predict", "base", "few.txt", "--resume")
    assert done.returncode == 2 and "-o FILE" in done.stderr
    done = work.nlpctl("predict", "base", "-", "-o", "from-pipe.jsonl", "--resume", stdin="good\n")
    assert done.returncode == 2 and "read again" in done.stderr and not (work / "from-pipe.jsonl").exists()


@pytest.fixture(scope="session")
def long_input(work) -> Path:
    """Rows of many lengths, every hundredth bad."""
    source = (work / "train.tsv").read_text().splitlines()[1:]
    texts = [" ".join([source[i % len(source)].split("\t")[0]] * (i % 3 + 1)) for i in range(3000)]
    rows = [json.dumps({"text": " " if i % 100 == 50 else text}) for i, text in enumerate(texts)]
    file = work / "long.jsonl"
    file.write_text("".join(f"{row}\n" for row in rows))
    return file


def test_killed_and_resumed(work, base, long_input):
    def words(output: str, *more: str) -> tuple[str, ...]:
        small = ("--batch-size", "2", "--set", "data.on_bad_row=skip")  # 64 rows are a unit of resumption
        return "predict", "base", long_input.name, "-o", output, *small, *more

    done = work.nlpctl(*words("whole.jsonl"))
    assert done.returncode == 0 and "3,000 rows (30 bad)" in done.stderr, done.stderr
    whole = (work / "whole.jsonl").read_bytes()
    assert whole.count(b"\n") == 3000

    partial = work / "killed.jsonl.partial"
    started = work.start(*words("killed.jsonl"))
    work.end(started, lambda: partial.exists() and partial.stat().st_size > len(whole) // 4, signal.SIGKILL)
    assert not (work / "killed.jsonl").exists()
    with partial.open("ab") as stream:
        stream.write(b'{"text": "cut in the mid')

    done = work.nlpctl(*words("killed.jsonl", "--resume", "--set", "data.max_seq_length=8"))
    assert done.returncode == 2 and "other settings" in done.stderr, done.stderr
    done = work.nlpctl(*words("killed.jsonl", "--resume"))
    assert done.returncode == 0, done.stderr
    assert "3,000 rows (30 bad)" in done.stderr
    kept = int(done.stderr.split("resuming after ")[1].split(" ")[0].replace(",", ""))
    assert 0 < kept < 3000 and kept % 64 == 0
    assert (work / "killed.jsonl").read_bytes() == whole
    assert not list(work.folder.glob("killed.jsonl.partial*"))


def test_sentence_pairs(work):
    """Only the second sentence tells; the first ends with a word of either kind."""
    words = ("good", "bad", "clean", "dirty")
    rows = [
        {"a": f"the {thing} was {word}", "b": f"it is {telling}", "fine": telling in ("good", "clean")}
        for thing in ("room", "food", "bed") for word in words for telling in words
    ]  # fmt: skip
    (work / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (work / "pairs.yaml").write_text(
        (work / "recipe.yaml").read_text().replace(
            "data: {train: train.tsv, dev: dev.tsv, test: test.tsv, max_seq_length: 16}",
            "data: {train: pairs.jsonl, dev: pairs.jsonl, columns: {text: a, text_pair: b, label: fine}}",
        )
    )  # fmt: skip
    run = work.train("pairs", "--num_train_epochs", "12", recipe="pairs.yaml")
    assert json.loads((run / "metrics.json").read_text())["dev"]["accuracy"] > 0.9
    done = work.nlpctl("predict", "pairs", "pairs.jsonl")
    assert done.returncode == 0, done.stderr
    found = answers(done.stdout)
    assert [(answer["a"], answer["b"]) for answer in found] == [(row["a"], row["b"]) for row in rows]
    right = sum(answer["label"] == str(row["fine"]).lower() for answer, row in zip(found, rows, strict=True))
    assert right > 0.9 * len(rows)

    done = work.nlpctl("predict", "pairs", stdin="one sentence\n")
    assert done.returncode == 2 and "the model takes 'a' and 'b'" in done.stderr


def test_devices_and_pipes_are_written_into(work, base, device, tmp_path):
    """They stay what they are; -o - is standard output, and /dev/stdout does not replace what the shell opened."""
    null, full = device("null"), device("full")
    text = "".join(f"{text}\n" for text in TEXTS)
    done = work.nlpctl("predict", "base", "-o", "-", stdin=text)
    assert done.returncode == 0 and [answer["text"] for answer in answers(done.stdout)] == TEXTS, done.stderr
    assert not (work / "-").exists()
    link = tmp_path / "stdout"
    link.symlink_to("/proc/self/fd/1")
    assert work.nlpctl("predict", "base", "-o", link, stdin=text).stdout == done.stdout
    done = work.nlpctl("predict", "base", "-o", null, stdin=text)
    assert done.returncode == 0 and f"4 rows (0 bad) -> {null}" in done.stderr
    done = work.nlpctl("predict", "base", "-o", full, "--overwrite", stdin=text)
    assert done.returncode == 2 and "No space left on device" in done.stderr and "--overwrite" not in done.stderr
    assert null.is_char_device() and full.is_char_device() and link.is_symlink()
    done = work.nlpctl("predict", "base", "-o", null, "--resume", stdin=text)
    assert done.returncode == 2 and "cannot be resumed in it" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "null", "stdout"]


def test_a_line_without_end_ends_the_command(work, base, device):
    """Whatever becomes of bad rows: there is no next row."""
    zero = device("zero")
    done = work.nlpctl("predict", "base", zero, "--format", "text", "--set", "data.on_bad_row=skip")
    assert done.returncode == 2 and done.stdout == "", done.stderr
    assert f"{zero}: this is not a text file\n  -> give a file of texts" in done.stderr
