"""Write down what a user of nlpctl can see, so that a change of the inside can show that nothing outside changed.

    python scripts/net.py record FOLDER                # minutes: commands on models and folders that it makes itself
    python scripts/net.py errors FOLDER [PYTEST ...]   # runs the test suite, or what is named of it: its UserErrors
    python scripts/net.py compare FOLDER OTHER         # names each line that differs; exits 1 if there is one
    python scripts/net.py folders FILE.tar.xz          # folders as this version writes them, finished and killed

Record before a change, with the same interpreter and on the same machine after it, and compare. What differs between
two records of one tree (times, speeds, process numbers, temporary paths) is written as a sign: #, WORK, TIME. A record
is text files of names that stay: help/ and completion/, commands/ (words, exit code, both streams, or the JSON of
--json), pages/ of servers, files/ (all that the commands wrote; of binary files the checksum), api.txt, errors.txt.

tests/end_to_end/old_folders.tar.xz is what `folders` made of the last version whose folders must be read;
test_old_folders.py there opens and resumes them.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import fnmatch
import hashlib
import importlib.metadata
import inspect
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HOOK = Path(__file__).resolve().with_name("net_hook")
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers"), str(ROOT / "scripts")]

import command_lines  # noqa: E402
from chaos_differences import CLOCKS, changed, differences, without_clocks  # noqa: E402
from check_resume import last_step  # noqa: E402
from command_lines import CommandLines  # noqa: E402
from service import listening  # noqa: E402

# Imported before any command; only names that are not nlpctl's own, since these are what changes.
MODULES = ("paddlenlp.trainer", "paddlenlp.transformers", "paddle.inference", "onnxruntime", "nlpctl.api")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "COLUMNS": "100", "TZ": "UTC", "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
ENVIRONMENT |= {"PYTHONHASHSEED": "0"}

# ---------------------------------------------------------------------------------------------------------------- data

ENCODER = "{vocab_size: 80, min_frequency: 1, hidden_size: WIDTH, num_hidden_layers: 1, num_attention_heads: 2,"
ENCODER += " intermediate_size: 32}"
RECURRENT = "{architecture: bigru, min_frequency: 1, hidden_size: 8, embedding_size: 8}"
WORDS = "the room bed was staff view food very a and".split()
RECIPE = """\
task: {task}
model: {{{model}}}
data: {{train: {at}{task}_train.jsonl, dev: {at}{task}_dev.jsonl, {data}max_seq_length: 24}}
{more}training:
  output_dir: {at}out/{task}
  learning_rate: 1e-2
  num_train_epochs: 4
  per_device_train_batch_size: 4
  evaluation_strategy: epoch
  save_strategy: epoch
  load_best_model_at_end: true
  metric_for_best_model: {metric}
  logging_steps: 7
runtime: {{device: cpu}}
"""


def text(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(3, 9)))


def classified(chance: random.Random) -> dict[str, Any]:
    label = chance.choice(("neg", "pos"))
    told = label if chance.random() < 0.9 else chance.choice(("neg", "pos"))  # some labels are wrong
    word = {"neg": "bad", "pos": "good"}[label]
    return {"text": f"{word} {text(chance)} {word}", "label": told}


def with_labels(chance: random.Random) -> dict[str, Any]:
    words = chance.sample(("bed", "view", "food"), chance.randint(0, 3))
    return {"text": f"{text(chance)} {' '.join(words)}", "label": [f"room##{word}" for word in words]}


def paired(chance: random.Random) -> dict[str, Any]:
    one = text(chance)
    return {"a": one, "b": " ".join(reversed(one.split())), "label": 1}


def matched(chance: random.Random) -> dict[str, Any]:
    return {**paired(chance), "label": 1} if chance.random() < 0.5 else {"a": text(chance), "b": "good", "label": 0}


def tagged(chance: random.Random) -> dict[str, Any]:
    words = text(chance).split()
    return {"tokens": [*words, "new", "york"], "tags": ["O"] * len(words) + ["B-LOC", "I-LOC"]}


def cut(chance: random.Random) -> dict[str, Any]:
    pairs = chance.choices((("北京", "LOC"), ("天气", "n"), ("很", "d"), ("好", "a")), k=4)
    tags = [f"{tag}-{'B' if place == 0 else 'I'}" for word, tag in pairs for place in range(len(word))]
    return {"tokens": list("".join(word for word, _ in pairs)), "tags": tags}


def asked(chance: random.Random) -> dict[str, Any]:
    context = f"{text(chance)} in new york ."
    answers = [{"text": "new york", "answer_start": context.index("new york")}]
    return {"question": "where", "context": context, "answers": answers}


# Of each task: what makes a row, the score that chooses, and keys of the recipe.
TASKS: dict[str, tuple[Callable[[random.Random], dict[str, Any]], str, dict[str, str]]] = {
    "sequence_classification": (classified, "accuracy", {}),
    "multi_label_classification": (with_labels, "micro_f1", {}),
    "text_matching": (matched, "auc", {"data": "columns: {text: a, text_pair: b}, "}),
    "semantic_indexing": (paired, "recall@1", {"data": "columns: {text: a, text_pair: b}, "}),
    "question_answering": (asked, "f1", {"data": "doc_stride: 5, "}),
    "token_classification": (tagged, "f1", {"model": "head: crf, ", "data": "doc_stride: 5, "}),
    "lexical_analysis": (cut, "f1", {"model": "head: crf, ", "encoder": RECURRENT}),
    "masked_language_model": (classified, "perplexity", {"data": "columns: {text: text}, "}),
    "few_shot_classification": (
        classified, "accuracy",
        {"name": "out/masked_language_model/model",
         "more": "prompt: {template: \"{'text': 'text'} it was {'mask'}\", verbalizer: {neg: bad, pos: good}}\n"},
    ),
}  # fmt: skip


def write_data(folder: Path, at: str = "", width: int = 16) -> None:
    """Data and a recipe of each task. `at`: what paths in recipes begin with; `width` of the networks."""
    for task, (row, metric, keys) in TASKS.items():
        chance = random.Random(task)
        for split, count in (("train", 56), ("dev", 60)):
            lines = [json.dumps(row(chance), ensure_ascii=False) for _ in range(count)]
            (folder / f"{task}_{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        encoder = keys.get("encoder", ENCODER.replace("WIDTH", str(width)))
        model = f"from_scratch: {encoder}" + ("" if "encoder" in keys else ", config: {max_position_embeddings: 24}")
        model = f"name_or_path: {keys['name']}" if "name" in keys else keys.get("model", "") + model
        words = {"task": task, "metric": metric, "model": model, "at": at}
        words |= {"data": keys.get("data", ""), "more": keys.get("more", "")}
        (folder / f"{task}.yaml").write_text(RECIPE.format(**words), encoding="utf-8")
    chance = random.Random(1)
    (folder / "texts.txt").write_text("".join(f"{number} {text(chance)}\n" for number in range(600)))
    (folder / "few.txt").write_text("the room was good\nbad food\n")
    (folder / "sweep.yaml").write_text(
        "extends: sequence_classification.yaml\n"
        "search: {trials: 3, space: {training.learning_rate: {log: [1e-4, 1e-1]}}}\n"
    )
    (folder / "broken.yaml").write_text("task: sequence_classificatoin\ndata: {train: gone.tsv}\ntraining: {seed: x}\n")


# -------------------------------------------------------------------------------------------------------------- record

# What is typed, in this order, in one folder: a variable, words, `< FILE` as standard input. What is kept, beside both
# streams and the exit code, is all that the commands write. {C} is the recipe and {R} the run of the classification.
COMMANDS = """
recipe ls
recipe ls --json
recipe show {C}
recipe show {C} --origins --json
recipe copy quickstart copied --json
recipe validate {C} broken.yaml
recipe validate {C} broken.yaml --json
recipe flags
recipe flags learning --json
recipe schema
completion bash
completion zsh
completion fish
doctor --json
new sequence_classification_train.jsonl --split parts -o new.yaml --yes
new token_classification_train.jsonl --dev token_classification_dev.jsonl --model scratch -o tags.yaml --yes --json
new sequence_classification_train.jsonl --model scratch -o new.zh.yaml --yes --language zh
data inspect {C} --html inspect.html
data inspect {C} --json
data inspect token_classification.yaml
data inspect token_classification.yaml --language zh
data inspect question_answering.yaml --json
data show {C} -n 2
data show lexical_analysis.yaml -n 2 --json
data split {C} -o split
data split {C} -o split_by_size --dev 9 --test 9 --json
data augment copied/quickstart.yaml -o augmented.jsonl --json
data convert {C} -o label_studio.json --to label_studio
data convert token_classification.yaml -o doccano.jsonl --to doccano --json
train {C}
train multi_label_classification.yaml --json
train text_matching.yaml --json
train semantic_indexing.yaml
train question_answering.yaml --json
train token_classification.yaml
train lexical_analysis.yaml --json
train masked_language_model.yaml
train few_shot_classification.yaml --json
train {C} --overfit-batch --max_steps 10 --json
train {C} --seed 7 --output_dir out/other --json
train {R} --continue 1 --output_dir out/continued
train {C} --folds 2 --output_dir out/folds
train {C} --seeds 1,2 --output_dir out/seeds --json
train {C}
train {C} --resume --json
NLPCTL_PROGRESS=json train {C} --max_steps 14 --output_dir out/told --json
sweep sweep.yaml -o out/sweep
sweep sweep.yaml -o out/sweep --resume --trials 4 --json
eval {R} --by length
eval {R} --against out/other --json
eval {R} --split train --target-precision 0.9
eval out/multi_label_classification --json
eval out/token_classification
eval out/question_answering sequence_classification_dev.jsonl --json
predict {R} few.txt
predict {R} few.txt --json
NLPCTL_PROGRESS=json predict {R} few.txt
predict {R} texts.txt -o out/answers.jsonl --batch-size 4
predict {R} texts.txt -o out/divided.jsonl --batch-size 2 --workers 2 --json
predict {R} texts.txt -o out/parts --parts jsonl
predict {R} few.txt -o out/layers.npz --layer-outputs ernie.encoder.layers.*
predict out/multi_label_classification few.txt
predict out/text_matching text_matching_dev.jsonl
predict out/semantic_indexing few.txt --embeddings out/vectors.npy
predict out/question_answering question_answering_dev.jsonl
predict out/token_classification few.txt
predict out/lexical_analysis lexical_analysis_dev.jsonl --format jsonl
predict out/masked_language_model few.txt
predict out/few_shot_classification few.txt
explain {R} few.txt
explain {R} few.txt --method occlusion --json
explain {R} few.txt -o out/explain.html
params ls {R}
params ls {R} --match classifier.* --json
params export {R} --match classifier.* -o out/classifier.npz --json
params set {R} --value classifier.bias=0 -o out/without_bias
params set {R} --value *.bias=0 -o out/no_biases --json
params add {R} --name extra --shape 1,1 --value 0 -o out/with_extra --json
params diff {R} out/without_bias
params diff {R} out/other --json
calibrate out/other
calibrate out/continued --json
ensemble {R} out/other -o out/ensemble
ensemble {R} out/other out/continued -o out/ensemble_of_three --json
export {R} -o out/export --timing 0
export {R} -o out/triton --layout triton --json
export out/token_classification --format onnx --precision int8 --timing 0 --json
eval out/export --engine onnxruntime
predict out/export few.txt --engine onnxruntime --json
convert-static out/export --to {R} -o out/converted
convert-static out/export --to {R} --plan -o out/map.yaml --json
bench out/export --rows 8 --rounds 1 --batch-size 4 --engine onnxruntime --html out/bench.html
bench out/export --rows 8 --rounds 1 --batch-size 4 --engine onnxruntime --json
bench out/export --rows 8 --rounds 1 --batch-size 4 --engine onnxruntime --details
compress {R} -o out/small --strategy ort-dynamic --target size
compress {R} -o out/small --strategy ort-dynamic --target size --details
compress {R} -o out/small --strategy ort-dynamic --target size --language zh
compress {R} -o out/small --strategy ort-dynamic --target size --json
index build out/semantic_indexing texts.txt -o out/index
index build out/semantic_indexing texts.txt -o out/index_hnsw --kind hnsw --workers 2 --json
index search out/index few.txt -k 2
index search out/index -k 2 --json < few.txt
data audit out/folds
data audit out/folds -o out/audit --json
data apply out/folds/audit/findings.jsonl --all -o out/corrected --json
data next {R} texts.txt -n 5 -o out/next.jsonl
data next {R} texts.txt -n 5 -o out/next.json --to label_studio --json
data curve {C} --shares .3,.5,.75,1 --repeats 1 -o out/curve
data curve {C} --shares .3,.5,.75,1 --repeats 1 -o out/curve --overwrite --json
data retag out/lexical_analysis lexical_analysis_dev.jsonl -o out/retagged.jsonl
data retag out/lexical_analysis lexical_analysis_train.jsonl -o out/retagged.txt --json
runs ls out --sort name
runs ls out --sort name --json
runs ls out --watch --json
runs clean out
runs show {R}
runs show {R} --json
runs diff {R} out/other
runs diff {R} out/other --json
report {R} -o out/report.html
report {R} -o out/report.zh.html --language zh
report out/folds/fold-1 -o out/fold.html --json
card {R} -o out/card.md
card {R} -o out/card.zh.md --language zh --license apache-2.0 --json
trian
train {C} --learning_rat 1
train {C} --set data.max_seq_len=3 --json
predict out/nothing few.txt --json
"""
# What a shell asks about.
PREFIXES = ("", "tr", "runs ", "train ", "train quick", "train out", "train sentiment/", "predict out/", "train x --le")
PREFIXES += ("train x --set data.", "compress x --strategy ", "predict x --engine ", "new --task ", "recipe copy ")
# What a browser and a client of a service ask for.
UI = ("/", "/run?run=sequence_classification", "/compare?run=sequence_classification&run=other", "/run?run=gone", "/x")
SERVICE = ("/health", "/health/ready", "/openapi.json", "/metrics", "/predict", "/x")


def record(folder: Path) -> None:
    """Run all in a temporary folder, and write what is seen to `folder`."""
    if folder.exists() and any(folder.iterdir()):
        raise SystemExit(f"{folder} is not empty")
    public = public_names()
    with workplace() as (work, lines):
        write_data(work)
        book = Book(folder, work)
        book.write("api.txt", public)
        record_help(book, lines)
        given = {file for file in work.rglob("*")}
        task = "sequence_classification"
        for line in COMMANDS.format(C=f"{task}.yaml", R=f"out/{task}").strip().splitlines():
            record_command(book, lines, line)
        for prefix in PREFIXES:
            words = ["nlpctl", *prefix.split(" ")]
            asked_for = {"_NLPCTL_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words)}
            ended = lines.run((), work, env={**asked_for, "COMP_CWORD": str(len(words) - 1)})
            book.write(f"completion/{slug(prefix) or 'nothing'}.txt", ended.out)
        record_pages(book, lines, ("ui", "out", "--port", "0"), UI)
        record_pages(book, lines, ("serve", "out/export", "--port", "0", "--engine", "onnxruntime"), SERVICE)
        for file in sorted(set(work.rglob("*")) - given):
            book.file(file)


@contextlib.contextmanager
def workplace() -> Iterator[tuple[Path, CommandLines]]:
    """A temporary folder, and command lines that find Paddle imported."""
    for name in [name for name in os.environ if name.startswith(("NLPCTL_", "FLAGS_", "MLFLOW_"))]:
        del os.environ[name]
    command_lines.SECONDS = 1800
    with tempfile.TemporaryDirectory(prefix="net-") as scratch:
        work, ours = Path(scratch, "work").resolve(), Path(scratch, "lines")
        os.environ.update(ENVIRONMENT, PPNLP_HOME=str(Path(scratch, "cache")))
        work.mkdir()
        ours.mkdir()
        with command_lines.command_lines(ours, *MODULES) as lines:
            yield work, lines


def record_help(book: Book, lines: CommandLines, words: tuple[str, ...] = ()) -> None:
    """The help of a command, and of each that it lists."""
    told = lines.run((*words, "--help"), book.work).out
    book.write(f"help/{slug(' '.join(words)) or 'nlpctl'}.txt", told)
    for name in re.findall(r"^  ([\w-]+)", told.partition("\nCommands:\n")[2], re.M):
        record_help(book, lines, (*words, name))


def record_command(book: Book, lines: CommandLines, line: str) -> None:
    began = time.monotonic()
    command, _, given = line.partition(" < ")
    words = shlex.split(command)
    variables = dict([words.pop(0).split("=")]) if "=" in words[0] else {}
    ended = lines.run(words, book.work, (book.work / given).read_text() if given else "", variables)
    err = "\n".join(json.dumps(plain(json.loads(each))) if each[:1] == "{" else each for each in ended.err.splitlines())
    whole = "--json" in line and ended.out[:1] == "{"
    out = json.dumps(plain(json.loads(ended.out)), ensure_ascii=False, indent=1) if whole else ended.out
    name, number = slug(line), 1
    while (book.folder / f"commands/{name}.txt").exists():  # typed twice
        number += 1
        name = f"{slug(line)}-{number}"
    numbers = not line.startswith(("doctor", "bench", "compress"))
    book.write(f"commands/{name}.txt", f"{line}\nexit {ended.code}\n--- out\n{out}\n--- err\n{err}", numbers)
    print(f"{time.monotonic() - began:5.1f} s  exit {ended.code}  {line}", file=sys.stderr, flush=True)


def record_pages(book: Book, lines: CommandLines, words: tuple[str, ...], paths: tuple[str, ...]) -> None:
    """What a server answers; POST where there is something to be said."""
    server = lines.start(words, book.work)
    if words[0] == "ui":
        address = re.search(r"http://[^ ]+", server.stderr.readline())[0].rstrip("/")
    else:
        address = listening(server)[0]
    for path in paths:
        body = json.dumps({"text": "good room"}).encode() if path == "/predict" else None
        request = urllib.request.Request(address + path, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as page:
                status, told = page.status, page.read().decode()
        except urllib.error.HTTPError as error:
            status, told = error.code, error.read().decode()
        told = tags_apart(told) if told.startswith("<!") else told
        book.write(f"pages/{words[0]}{slug(path)}.txt", f"{status}\n{told}", numbers=path != "/metrics")
    server.send_signal(signal.SIGTERM)
    book.write(f"pages/{words[0]}.err.txt", server.communicate(timeout=60)[1])


def public_names() -> str:
    """nlpctl.__all__ with signatures and what is said of each."""
    import nlpctl

    lines = []
    for name in sorted(nlpctl.__all__):
        value = getattr(nlpctl, name)
        found = {name: value}
        if inspect.isclass(value):
            ours = [each for each in reversed(value.__mro__) if each.__module__.startswith("nlpctl")]
            found |= {f"{name}.{key}": each for kind in ours for key, each in vars(kind).items() if key[0] != "_"}
        for key, each in found.items():
            told = str(inspect.signature(each)) if callable(each) else type(each).__name__
            lines += [f"{key} {told}", *(f"    {line}" for line in (inspect.getdoc(each) or "").splitlines())]
    return "\n".join(lines)


# --------------------------------------------------------------------------------------------------------- normalising

# Keys of JSON files and answers whose values are of the clock, the processor or the machine.
VOLATILE = CLOCKS - {"source", "output_dir", "command", "resumed", "unreached", "conditions"}
VOLATILE |= {
    "trainer_state.json",
    "versions",
    "host",
    "took",
    "p50_ms",
    "rows_per_second",
    "longest_wait",
    "left",
    "cpu",
    "memory_mb",
    "tail",
}
SIGNS = tuple((re.compile(pattern), sign) for pattern, sign in (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?([.,]\d+)?(\+\d\d:\d\d|Z)?( UTC)?", "TIME"),
    (r"\b\d+m\d\ds\b|\b\d+h\d\dm\b|\b\d+:\d\d:\d\d\b", "TIME"), (r"(time spent: ).*", r"\1#"),
    (r"[\d,.]+(?=(</\w+>)* ?(ms|s|MB|GB|GiB|seconds|[a-z]+/s)\b)", "#"),
    (r"(?<=127\.0\.0\.1:)\d+|(?<=process )\d+|(?<=vdlgraph\.)\d+|(?<=vdlrecords\.)\d+", "#"),
    (r"(?m)^.*(: # s so far|\d/[\d,]+ \w+ \(\d+%\), # [a-z]+/s(, TIME left)?)\n", ""),  # told of what takes long
    (r"\.staging-(\S+)-[a-z0-9_]{8}\b", r".staging-\1-#"),
    (r"(?<=\S) {2,}", "  "), (r"-{3,}", "---"), (r" +(?=\n|$)", ""),
    (r"  [\d.]+  \d+%(?=\n|\\n|\"|$)", "  #  #%"),  # where the time of a training went
    (r"(?<=worker \d: )\d+(?= rows)|(?<=sha256 )[0-9a-f]{16}(?= -->)", "#"),
))  # fmt: skip


def plain(value: Any, key: str = "") -> Any:
    """JSON without what belongs to the clock: the keys stay, their values are signs."""
    if isinstance(value, dict):
        divided = isinstance(value.get("workers"), list)  # which worker does what is a matter of time
        passing = VOLATILE | ({"workers"} if divided else set())
        return {name: plain(each, "time" if {key, name} & passing else name) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each, key) for each in value]
    return "#" if key in VOLATILE else value


def tags_apart(page: str) -> str:
    """HTML with a tag on each line, so that a difference names what differs; without plots and tables of speeds."""
    page = re.sub(r"(<svg[^>]*(?:per second|samples/s|batch)[^>]*>).*?(?=</svg>)", r"\1", page, flags=re.S)
    for pattern, sign in (*SIGNS[:2], (re.compile(r"waiting for data \d+%[^<]*"), "#")):
        page = pattern.sub(sign, page)
    page = re.sub(r"<h2>(Time|Manifest)</h2>.*?(?=<h2>|$)", lambda part: without_numbers(part[0]), page, flags=re.S)
    return re.sub(r"(?<=>)(?=<)", "\n", page)


def without_numbers(content: str) -> str:
    return re.sub(r"(?<![\w.])\d([\d,.]*\d)?k?(e[-+]\d+)?(?!\w)", "#", content)


def with_signs(content: str, work: Path, numbers: bool = True) -> str:
    """Text with signs for what differs from record to record. `numbers`: whether they say something; else each is a
    sign."""
    places = {work: "WORK", os.environ.get("PPNLP_HOME", "/cache"): "CACHE", ROOT: "ROOT", sys.prefix: "VENV"}
    for place, sign in places.items():
        content = content.replace(str(place), sign)
    content = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "HOST", content)
    for pattern, sign in SIGNS:
        content = pattern.sub(sign, content)
    return content if numbers else without_numbers(content)


def slug(words: str) -> str:
    return re.sub(r"[^\w.=+-]+", "_", words.strip())[:150]


@dataclass
class Book:
    """A record that is written: its folder, and the folder where the commands run."""

    folder: Path
    work: Path

    def write(self, name: str, content: str, numbers: bool = True) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(with_signs(content, self.work, numbers).rstrip("\n") + "\n", encoding="utf-8")

    def file(self, file: Path) -> None:
        """Write down a file that a command wrote: as text, or by its checksum."""
        name = "files/" + re.sub(r"(?<=vdl)(graph|records)\.\d+", r"\1", str(file.relative_to(self.work)))
        numbers = not any(fnmatch.fnmatch(name, pattern) for pattern in TIMED)
        if file.is_dir():
            if not any(file.iterdir()):
                self.write(f"{name}/EMPTY", "")
        elif file.suffix in (".json", ".jsonl"):
            lines = file.read_text(encoding="utf-8").splitlines() if file.suffix == ".jsonl" else [file.read_text()]
            indent = None if file.suffix == ".jsonl" else 1
            told = [json.dumps(plain(json.loads(line)), ensure_ascii=False, indent=indent) for line in lines]
            self.write(name, "\n".join(told), numbers)
        elif file.suffix in (".html", ".md", ".yaml", ".txt", ".tsv", ".xml", ".py", ".pbtxt"):
            told = file.read_text(encoding="utf-8")
            self.write(name, tags_apart(told) if file.suffix == ".html" else told, numbers)
        else:
            told = "" if any(fnmatch.fnmatch(name, pattern) for pattern in PASSING) else checksum(file)
            self.write(f"{name}.sum", told)


def checksum(file: Path) -> str:
    """Of an archive, that of each file in it: archives hold the time."""
    if file.suffix != ".npz":
        return hashlib.sha256(file.read_bytes()).hexdigest()
    with zipfile.ZipFile(file) as archive:
        return "\n".join(f"{name} {hashlib.sha256(archive.read(name)).hexdigest()}" for name in archive.namelist())


PASSING = ("*/logs/*", "*/study.journal", "*.pdiparams.info")  # they hold times, or a random order
TIMED = (
    "*/bench.html",
    "*/sweep/report.html",
    "*/small/report.*",
    "*/small/*/report.*",
    "*/times.json",
    "*/small/scores/*",
)


# ------------------------------------------------------------------------------------------------------------- compare


def compare(one: Path, other: Path) -> int:
    """Print each line that differs; the number of differences."""
    count = 0
    names = sorted({str(file.relative_to(top)) for top in (one, other) for file in top.rglob("*") if file.is_file()})
    for name in names:
        there = [(top / name).exists() for top in (one, other)]
        read = [top / name if exists else os.devnull for top, exists in zip((one, other), there, strict=True)]
        texts = [Path(each).read_text(encoding="utf-8").splitlines() for each in read]
        told = [line for line in list(difflib.unified_diff(*texts, n=0, lineterm=""))[2:] if not line.startswith("@@")]
        if told or not all(there):
            print(f"{name}{'' if all(there) else f' (only in {one if there[0] else other})'}")
            print("".join(f"    {line}\n" for line in told), end="")
        count += len(told) or not all(there)
    print(f"{count} lines differ in {len(names)} files")
    return count


# -------------------------------------------------------------------------------------------------------------- errors


def errors(folder: Path, words: list[str]) -> int:
    """Run pytest, and write what the UserErrors said, in this process and in all that it starts; its exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="net-") as scratch:
        found = Path(scratch, "errors.jsonl")
        paths = os.pathsep.join([str(HOOK), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": paths, "NLPCTL_NET_ERRORS": str(found), "COLUMNS": "100"}
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", f"{scratch}/tests"]
        code = subprocess.run([*tests, *words], cwd=ROOT, env=environment).returncode
        lines = found.read_text(encoding="utf-8").splitlines() if found.exists() else []
        told = {with_signs(json.dumps(json.loads(line), ensure_ascii=False), Path(scratch)) for line in lines}
    for pattern, sign in ((r"(WORK|/tmp)/[\w./-]*/", "DIR/"), (r"which holds [^\"]*", "which holds #")):
        told = {re.sub(pattern, sign, line) for line in told}
    (folder / "errors.txt").write_text("\n".join(sorted(told)) + "\n", encoding="utf-8")
    return code


# ------------------------------------------------------------------------------------------------------------- folders

# Paths begin with a link to the folder in which a command runs, so that the folders can be unpacked anywhere.
HERE = "/proc/self/cwd/"
STEPWISE = """\
extends: sequence_classification.yaml
training:
  output_dir: /proc/self/cwd/out/run
  num_train_epochs: 3
  logging_steps: 1
  evaluation_strategy: steps
  save_strategy: steps
  eval_steps: 5
  save_steps: 5
  save_total_limit: 2
"""
PREPARED = ("train {H}sequence_classification.yaml --output_dir {H}base", "export {H}base -o {H}export --timing 0")
PREPARED += ("train {H}semantic_indexing.yaml --output_dir {H}pairs",)
# What is asked of finished folders; the answers are kept with them.
OPENED = {
    "eval": "eval {H}base --json",
    "predict": "predict {H}base {H}few.txt --json",
    "export": "predict {H}export {H}few.txt --engine onnxruntime --json",
    "run": "predict {H}out/run {H}few.txt --json",
    "compress": "predict {H}out/compress/best {H}few.txt --engine onnxruntime --json",
    "folds": "eval {H}out/folds/fold-1 --json",
    "sweep": "runs ls out/sweep --sort name --json",
    "index": "index search {H}out/index {H}few.txt -k 2 --json",
}


@dataclass(frozen=True)
class Unfinished:
    """A command that is killed as soon as `begun` holds of its output, and what is added to its words to go on."""

    words: str
    output: str
    begun: Callable[[Path], bool]
    more: str = " --resume"


def trained(steps: int, inner: str = "") -> Callable[[Path], bool]:
    return lambda output: last_step(output / inner) >= steps


def holds(pattern: str) -> Callable[[Path], bool]:
    return lambda output: next(output.parent.glob(output.name + pattern), None) is not None


UNFINISHED = {
    "run": Unfinished("train {H}run.yaml", "out/run", trained(24)),  # of 14 steps in each of 3 epochs
    "folds": Unfinished("train {H}run.yaml --folds 2 --output_dir {H}out/folds", "out/folds", trained(8, "fold-2")),
    "sweep": Unfinished("sweep {H}sweep.yaml -o {H}out/sweep", "out/sweep", trained(8, "trials/001")),
    "compress": Unfinished("compress {H}base -o {H}out/compress --strategy ort-dynamic --target size", "out/compress",
                           holds("/exports/original"), ""),
    "answers": Unfinished("predict {H}base {H}texts.txt -o {H}out/answers.jsonl --batch-size 2", "out/answers.jsonl",
                          lambda output: any(each.stat().st_size for each in output.parent.glob("answers.*.partial"))),
    "divided": Unfinished("predict {H}base {H}texts.txt -o {H}out/divided.jsonl --batch-size 2 --workers 2",
                          "out/divided.jsonl", holds(".shards/part-*")),
    "index": Unfinished("index build {H}pairs {H}texts.txt -o {H}out/index --batch-size 2 --workers 2", "out/index",
                        holds(".shards/part-*")),
}  # fmt: skip


def folders(archive: Path) -> None:
    """Write an archive of finished/, interrupted/ and made.json."""
    with workplace() as (work, lines):
        for name in ("finished", "interrupted"):
            (work / name).mkdir()
        finished, interrupted = work / "finished", work / "interrupted"
        write_data(finished, HERE, 8)
        (finished / "run.yaml").write_text(STEPWISE)
        sweep = (finished / "sweep.yaml").read_text()
        (finished / "sweep.yaml").write_text(sweep.replace("sequence_classification", "run"))
        for line in PREPARED:
            done(lines, line, finished)
        for file in finished.rglob("*"):  # an interrupted prediction knows its model by these times
            os.utime(file, (1_700_000_000, 1_700_000_000))
        shutil.copytree(finished, interrupted, dirs_exist_ok=True)
        for name, each in UNFINISHED.items():
            done(lines, each.words, finished)
            killed(lines, each, interrupted)
            print(f"{name}: finished and killed", file=sys.stderr, flush=True)
        answers = {name: result(done(lines, line, finished), finished) for name, line in OPENED.items()}
        made = {"folder": str(work), "machine": machine(), "answers": answers}
        (work / "made.json").write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "w:xz", preset=9) as packed:
            for file in sorted(work.rglob("*")):
                if "logs" not in file.relative_to(work).parts:
                    packed.add(file, file.relative_to(work), recursive=False)


def unpack(archive: Path, folder: Path) -> dict[str, Any]:
    """Unpack what `folders` wrote, and have its files name this folder; the content of made.json."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    made = json.loads((folder / "made.json").read_text(encoding="utf-8"))
    for file in folder.rglob("*.json"):
        told, times = file.read_text(encoding="utf-8"), file.stat()
        if made["folder"] in told:
            file.write_text(told.replace(made["folder"], str(folder)), encoding="utf-8")
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    return made


def result(told: str, folder: Path) -> Any:
    """What a command said with --json in `folder`, without that and what belongs to the clock."""
    return plain(json.loads(told.replace(str(folder), "WORK"))["result"])


def done(lines: CommandLines, line: str, folder: Path) -> str:
    """What a command says in `folder`, where it must end well."""
    ended = lines.run(shlex.split(line.format(H=HERE)), folder)
    if ended.code != 0:
        raise SystemExit(f"nlpctl {line} ended with {ended.code}:\n{ended.err}")
    return ended.out


def killed(lines: CommandLines, each: Unfinished, folder: Path) -> None:
    """Start the command and kill it in the midst of its work."""
    output = folder / each.output
    for _ in range(5):
        started = lines.start(shlex.split(each.words.format(H=HERE)), folder)
        while started.poll() is None and not each.begun(output):
            time.sleep(0.001)
        started.kill()
        error = started.communicate(timeout=60)[1]
        if started.returncode == -signal.SIGKILL:
            time.sleep(2)  # its workers end after it
            return
        if started.returncode != 0:
            raise SystemExit(f"{each.words} ended with {started.returncode}:\n{error}")
        shutil.rmtree(output) if output.is_dir() else output.unlink()  # it was too fast
    raise SystemExit(f"{each.words} could not be killed before its end")


def differing(finished: Path, resumed: Path, output: str, same_machine: bool = True) -> list[str]:
    """How the output of a command that was killed and went on differs from that of one that ran through: files that
    lack, leftovers, and on the machine where both were made other bytes. New files, and new keys of JSON, may come."""
    tops = [(folder / output).parent for folder in (finished, resumed)]
    passing = {
        "logs",
        "report.html",
        "study.journal",
        "times.json",  # they hold times; what trials tried is in their runs
        "special_tokens_map.json",  # no longer written: tokenizer_config.json says the same
    }
    passing |= set() if same_machine else {"checkpoints", "scores", "candidates"}  # scores decide which there are
    theirs, ours = (
        {str(file.relative_to(top)) for each in top.glob(f"*{Path(output).name}*") for file in (each, *each.rglob("*"))
         if file.is_file() and not passing & set(file.relative_to(top).parts)}
        for top in tops
    )  # fmt: skip
    found = [f"{name} is missing" for name in sorted(theirs - ours)]
    leftovers = (".staging-", ".partial", ".shards")
    found += [f"{name} is left behind" for name in sorted(ours - theirs) if any(map(name.count, leftovers))]
    for name in sorted(ours & theirs) if same_machine else ():
        old, new = tops[0] / name, tops[1] / name
        if old.suffix == ".json":
            before, after = (without_clocks(plain(json.loads(file.read_text("utf-8")))) for file in (old, new))
            found += [f"{name}: differs in {key}" for key in sorted(changed(before, known(after, before)))]
        elif old.name == "events.jsonl":
            lines = [[plain(json.loads(line)) for line in file.read_text("utf-8").splitlines()] for file in (old, new)]
            kinds = {each["event"] for each in lines[0]} - {"save"}  # a run that was stopped has saved once more
            before, after = ([without_clocks(e) for e in told if e["event"] in kinds] for told in lines)
            found += [f"{name}: differs"] if known(after, before) != before else []
        else:
            found += [f"{name}: {each}" for each in differences(old, new)]
    return [each for each in found if each != "index/manifest.json: differs in .model"]  # its path in this folder


def known(value: Any, before: Any) -> Any:
    """`value` with the keys that `before` has."""
    if isinstance(value, dict) and isinstance(before, dict):
        return {name: known(value[name], each) for name, each in before.items() if name in value}
    if isinstance(value, list) and isinstance(before, list) and len(value) == len(before):
        return [known(*pair) for pair in zip(value, before, strict=True)]
    return value


def machine() -> dict[str, Any]:
    """What the bits of weights and answers depend on."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    facts = {name: re.findall(rf"^{name}\s*: (.*)", info, re.M)[:1] for name in ("model name", "model", "stepping")}
    names = ("paddlepaddle", "paddlenlp", "onnxruntime", "numpy", "scikit-learn", "faiss-cpu", "optuna")
    packages = {each.name: each.version for each in importlib.metadata.distributions() if each.name in names}
    return {**facts, "cores": os.cpu_count(), "packages": packages}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("record", "errors", "compare", "folders"))
    parser.add_argument("folder", type=Path, help="what is written, or compared")
    parser.add_argument("more", nargs=argparse.REMAINDER, help="the other folder of compare; words for pytest")
    options = parser.parse_args()
    if options.command == "errors":
        return errors(options.folder, options.more)
    if options.command == "compare":
        if len(options.more) != 1:
            parser.error("compare takes two folders")
        return int(compare(options.folder, Path(options.more[0])) > 0)
    (record if options.command == "record" else folders)(options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
