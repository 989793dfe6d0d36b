"""Stop commands at random moments, in every way that a machine knows, and check that nothing is lost.

    python scripts/chaos.py [--kills 1000] [--seed 0] [--only train,predict] [--folder FOLDER] [--log FILE]
    python scripts/chaos.py --only train --campaign 17     # one campaign again; seeds and moments are in the log

A campaign runs one command in an empty folder. It is stopped one to three times: by SIGKILL, SIGTERM or SIGINT, by a
disk that is full from a moment on (ENOSPC), or by one write that fails (EIO). After each stop, every file under its
final name must be whole. Then the same command goes on; its end must be identical to that of an uninterrupted run,
bit by bit, except times, with nothing left behind. A line per campaign goes to the log; exits 1 if one failed.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers"), str(ROOT / "scripts")]

import command_lines  # noqa: E402
from chaos_differences import differences, readable  # noqa: E402
from command_lines import CommandLines, Ended, Started  # noqa: E402

SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
FAULTS = {"ENOSPC": 28, "EIO": 5}  # the first lasts to the end of the process, the second hits one write
HARMS = (*SIGNALS, *FAULTS)
STAGING = ".staging-"
UNFINISHED = (".partial", ".partial.json", ".partial.truncated")
IN_PROGRESS = ("checkpoints/", "logs/", ".shards/")  # folders whose files are not final

# Loaded before libc: from a moment on, writes into regular files fail. A process is told by CHAOS_FAULT="ERRNO TIME".
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
static int hit;
static int fails(int fd) {
    const char *told = getenv("CHAOS_FAULT");
    int number; double moment; struct stat facts; struct timespec now;
    if (told == NULL || sscanf(told, "%d %lf", &number, &moment) != 2) return 0;
    if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) return 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec + now.tv_nsec / 1e9 < moment) return 0;
    if (number == EIO && hit) return 0;
    hit = 1; errno = number;
    return 1;
}
#define REAL(name) static __typeof__(name) *real; if (real == NULL) real = dlsym(RTLD_NEXT, #name)
ssize_t write(int fd, const void *bytes, size_t count) { REAL(write); return fails(fd) ? -1 : real(fd, bytes, count); }
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t p) {
    REAL(pwrite64); return fails(fd) ? -1 : real(fd, b, n, p);
}
ssize_t writev(int fd, const struct iovec *parts, int n) { REAL(writev); return fails(fd) ? -1 : real(fd, parts, n); }
int fsync(int fd) { REAL(fsync); return fails(fd) ? -1 : real(fd); }
"""

MODEL = """\
task: sequence_classification
model:
  from_scratch: {vocab_size: 200, min_frequency: 1, hidden_size: 32, num_hidden_layers: 2, intermediate_size: 64}
  config: {hidden_dropout_prob: 0.1}
data: {train: train.tsv, dev: dev.tsv, test: dev.tsv, max_seq_length: 16}
training:
  output_dir: out/run
  learning_rate: 1e-2
  num_train_epochs: 2
  per_device_train_batch_size: 8
  evaluation_strategy: epoch
  save_strategy: epoch
  load_best_model_at_end: true
  metric_for_best_model: accuracy
  logging_steps: 2
runtime: {device: cpu}
"""
PAIRS = """\
task: semantic_indexing
model:
  from_scratch: {vocab_size: 60, min_frequency: 1, hidden_size: 32, num_hidden_layers: 1, intermediate_size: 64}
data: {train: pairs.tsv, dev: pairs.tsv, columns: {text: a, text_pair: b}, max_seq_length: 16}
training: {output_dir: base_pairs, num_train_epochs: 1, per_device_train_batch_size: 16}
runtime: {device: cpu}
"""


@dataclass(frozen=True)
class Scenario:
    """One command. `words`: what is typed; `more`: what is added when an earlier try left something at `begun`.

    `output`: the file or folder that it writes; `grows`: what in it gets its last content only at the end, and is
    compared then. `state`: the file in it that says when all is finished; `by_code`: its exit code alone does. `given`:
    what a command that changes it finds in out/."""

    name: str
    words: tuple[str, ...]
    output: str
    begun: str = ""
    more: tuple[str, ...] = ()
    grows: tuple[str, ...] = ()
    state: str = ""
    by_code: bool = False
    share: int = 1  # of the kills
    given: str = ""


SCENARIOS = (
    Scenario(
        "train", ("train", "recipe.yaml"), "out/run", "out/run/manifest.json", ("--resume",),
        ("manifest.json", "events.jsonl", "recipe.yaml", "metrics.json", "mistakes.json", "report.html"),
        "manifest.json", share=4,
    ),
    Scenario(
        "loaders", ("train", "recipe.yaml", "--dataloader_num_workers", "2"), "out/run", "out/run/manifest.json",
        ("--resume",),
        ("manifest.json", "events.jsonl", "recipe.yaml", "metrics.json", "mistakes.json", "report.html"),
        "manifest.json",
    ),
    Scenario("predict", ("predict", "base", "texts.txt", "-o", "out/a.jsonl", "--batch-size", "4"), "out/a.jsonl",
             "out/a.jsonl.partial.json", ("--resume",), share=3),
    Scenario("export", ("export", "base", "-o", "out/export", "--format", "paddle,onnx"), "out/export", share=3),
    # By size: which of two is the faster is another matter on each day.
    Scenario("compress", ("compress", "base", "-o", "out/small", "--strategy", "ort-dynamic", "--target", "size"),
             "out/small", grows=("plan.json", "times.json", "report.json", "report.md", "best"), by_code=True),
    Scenario("index", ("index", "build", "base_pairs", "texts.txt", "-o", "out/index"), "out/index", share=2),
    Scenario("workers", ("predict", "base", "texts.txt", "-o", "out/w.jsonl", "--batch-size", "4", "--workers", "2"),
             "out/w.jsonl", "out/w.jsonl.shards/plan.json", ("--resume",)),
    Scenario(
        "folds", ("train", "recipe.yaml", "--folds", "2", "--output_dir", "out/folds"), "out/folds",
        "out/folds/series.json", ("--resume",),
        ("manifest.json", "events.jsonl", "recipe.yaml", "metrics.json", "mistakes.json", "report.html", "series.json",
         "scores.json", "timings.json", "train-fold-1.tsv", "train-fold-2.tsv", "vocab.txt"),
        "series.json",
    ),
    Scenario("ensemble", ("ensemble", "base", "other", "-o", "out/both"), "out/both", "out/both", ("--overwrite",),
             ("manifest.json", "recipe.yaml", "metrics.json", "mistakes.json", "report.html"),
             "manifest.json", share=2),
    Scenario("curve", ("data", "curve", "recipe.yaml", "--repeats", "1", "--shares", ".25,.5,.75,1", "-o", "out/curve"),
             "out/curve", "out/curve/series.json", ("--resume",),
             ("manifest.json", "events.jsonl", "recipe.yaml", "metrics.json", "mistakes.json", "report.html",
              "series.json", "timings.json"), "series.json"),
    Scenario("audit", ("data", "audit", "folds", "-o", "out/audit"), "out/audit", "out/audit", ("--overwrite",)),
    Scenario("next", ("data", "next", "base", "texts.txt", "-n", "20", "-o", "out/next.json", "--to", "label_studio"),
             "out/next.json", "out/next.xml", ("--overwrite",)),
    Scenario("card", ("card", "base", "-o", "out/CARD.md"), "out/CARD.md"),
    Scenario("calibrate", ("calibrate", "out/base", "--split", "train"), "out/base", given="base",
             grows=("calibration.json", "manifest.json", "metrics.json", "report.html")),
    Scenario("apply", ("data", "apply", "folds/audit/findings.jsonl", "--all", "-o", "out/corrected"), "out/corrected",
             "out/corrected", ("--overwrite",), share=2),
    Scenario("split", ("data", "split", "recipe.yaml", "-o", "out/data"), "out/data",
             "out/data", ("--overwrite",), share=2),
)  # fmt: skip


@dataclass
class Harm:
    """One stop: its kind, when it came, in seconds after the start, and how the command ended."""

    kind: str
    after: float
    code: int | None = None


@dataclass
class Campaign:
    """What became of one command that was stopped and continued."""

    scenario: str
    number: int
    seed: str
    harms: list[Harm] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="scenarios, joined by commas: " + ", ".join(each.name for each in SCENARIOS))
    parser.add_argument("--campaign", type=int, help="only that of this number, of the one scenario of --only")
    parser.add_argument("--folder", type=Path, help="working folder; default: a temporary folder")
    parser.add_argument("--log", type=Path, help="a line of JSON per campaign is added here")
    options = parser.parse_args()
    known = [each.name for each in SCENARIOS]
    names = options.only.split(",") if options.only is not None else known
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = [each for each in SCENARIOS if each.name in names]
    if options.campaign is not None and len(chosen) > 1:
        parser.error("--campaign is for one scenario: name it with --only")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell in the background has its children ignore it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="chaos-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    done: list[Campaign] = []
    with server(folder) as lines:
        chaos = Chaos(folder, lines)
        chaos.prepare(chosen)
        for scenario, number in turns(chosen, options.campaign):
            campaign = chaos.campaign(scenario, number, f"{options.seed}/{scenario.name}/{number}")
            done.append(campaign)
            report(campaign, options.log)
            if options.campaign is not None or sum(len(each.harms) for each in done) >= options.kills:
                break
    failed = any(campaign.failures for campaign in done)
    print_table(done)
    if options.folder is None and not failed:
        shutil.rmtree(folder)
    return int(failed)


def turns(scenarios: Sequence[Scenario], only: int | None) -> Iterator[tuple[Scenario, int]]:
    """The scenarios for ever, each as often as its share says, with a number that counts each one's campaigns."""
    counts: collections.Counter[str] = collections.Counter()
    while True:
        for scenario in scenarios:
            for _ in range(scenario.share):
                number = counts[scenario.name]
                counts[scenario.name] += 1
                yield scenario, number if only is None else only


def server(folder: Path) -> Any:
    """Command lines in processes that find Paddle imported, and fail to write when they are told so."""
    os.environ["PPNLP_HOME"] = str(folder / "cache")
    shim, source = folder / "shim.so", folder / "shim.c"
    source.write_text(SHIM)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    os.environ["LD_PRELOAD"] = str(shim)
    modules = ("paddlenlp.trainer", "paddlenlp.transformers", "paddle.inference", "onnxruntime", "nlpctl.cli.app")
    modules += ("nlpctl.training.trainer", "nlpctl.engines.auto", "nlpctl.engines.parity")
    modules += ("nlpctl.training.train", "nlpctl.inference.predict", "nlpctl.export.write_export")
    command_lines.SECONDS = 1800  # for `compress`
    return command_lines.command_lines(folder, *modules)


class Chaos:
    """The campaigns in one folder: start/ holds what all begin with, reference/ how each command ends if left alone."""

    def __init__(self, folder: Path, lines: CommandLines):
        self.folder, self.lines = folder, lines
        self.start, self.here = folder / "start", folder / "here"  # one path, so that no answer depends on it
        self.seconds: dict[str, float] = {}

    def prepare(self, scenarios: Sequence[Scenario]) -> None:
        """Make data, models and references; measure how long each command takes."""
        os.environ.pop("LD_PRELOAD", None)
        shutil.rmtree(self.start, ignore_errors=True)
        self.start.mkdir()
        write_data(self.start)
        prepared = [["train", "recipe.yaml", "--output_dir", "base"], ["train", "pairs.yaml"]]
        if "ensemble" in {each.name for each in scenarios}:
            prepared.append(["train", "recipe.yaml", "--output_dir", "other", "--seed", "7"])
        if {"apply", "audit"} & {each.name for each in scenarios}:
            prepared += [["train", "recipe.yaml", "--folds", "2", "--output_dir", "folds"], ["data", "audit", "folds"]]
        for words in prepared:
            self._require(self.lines.run(words, self.start))
        for scenario in scenarios:
            self._begin(scenario)
            began = time.monotonic()
            self._require(self.lines.run(scenario.words, self.here))
            self.seconds[scenario.name] = time.monotonic() - began
            reference = self.folder / "reference" / scenario.name
            shutil.rmtree(reference, ignore_errors=True)
            shutil.copytree(self.here / "out", reference / "out")
            print(f"{scenario.name}: {self.seconds[scenario.name]:.1f} s uninterrupted", file=sys.stderr, flush=True)

    def campaign(self, scenario: Scenario, number: int, seed: str) -> Campaign:
        """Stop the command one to three times, let it end, and compare."""
        chance, made = random.Random(seed), Campaign(scenario.name, number, seed)
        self._begin(scenario)
        for _ in range(chance.randint(1, 3)):
            harm = Harm(chance.choice(HARMS), round(chance.random() * self.seconds[scenario.name] * 1.1, 4))
            if self._finished(scenario, made.harms):
                break
            made.harms.append(harm)
            ended = self._harmed(scenario, harm)
            made.failures += [f"after {harm.kind}: {each}" for each in self._told_wrong(harm, ended)]
            made.failures += [f"after {harm.kind}: {each}" for each in self._damaged(scenario)]
        if not self._finished(scenario, made.harms):
            ended = self._end(self.lines.start(self._words(scenario), self.here))
            if ended.code != 0:
                made.failures.append(f"the command does not go on: {ended.err.strip()[-600:]}")
        if not made.failures:
            made.failures += [f"at the end: {each}" for each in self._differing(scenario)]
        if made.failures:
            kept = self.folder / "failed" / f"{scenario.name}-{number}"
            shutil.copytree(self.here, kept, symlinks=True, dirs_exist_ok=True)
        return made

    def _begin(self, scenario: Scenario) -> None:
        shutil.rmtree(self.here, ignore_errors=True)
        shutil.copytree(self.start, self.here)
        (self.here / "out").mkdir()
        if scenario.given:
            shutil.copytree(self.here / scenario.given, self.here / "out" / scenario.given)

    def _words(self, scenario: Scenario) -> list[str]:
        goes_on = scenario.begun and (self.here / scenario.begun).exists()
        return [*scenario.words, *(scenario.more if goes_on else ())]

    def _finished(self, scenario: Scenario, harms: Sequence[Harm] = ()) -> bool:
        """Whether an earlier try came to its end."""
        if scenario.given or scenario.by_code:
            return any(harm.code == 0 for harm in harms)
        state = (output := self.here / scenario.output) / scenario.state
        if scenario.state:
            whole = state.exists() and readable(state)  # _damaged tells of one that is cut
            return whole and json.loads(state.read_text())["state"] == "finished"
        if output.is_dir():
            reference = self.folder / "reference" / scenario.name / scenario.output
            return names_in(output) >= names_in(reference)
        return output.exists()

    def _harmed(self, scenario: Scenario, harm: Harm) -> Ended:
        env = {}
        if harm.kind in FAULTS:
            env["CHAOS_FAULT"] = f"{FAULTS[harm.kind]} {time.monotonic() + harm.after:.4f}"
        began, started = time.monotonic(), self.lines.start(self._words(scenario), self.here, env)
        if harm.kind in SIGNALS:
            try:
                started.wait(harm.after)
            except subprocess.TimeoutExpired:
                started.send_signal(SIGNALS[harm.kind])
        ended = self._end(started)
        harm.code = ended.code
        if harm.code == 0:  # the reference may have been made while the machine was busy
            self.seconds[scenario.name] = min(self.seconds[scenario.name], time.monotonic() - began)
        return ended

    def _end(self, started: Started) -> Ended:
        """How a command ended; one that hangs is killed, and counts as if its alarm had rung."""
        try:
            out, err = started.communicate(timeout=command_lines.SECONDS)
        except subprocess.TimeoutExpired:
            return Ended(-signal.SIGALRM, "", f"did not end within {command_lines.SECONDS} s", False)
        return Ended(started.returncode, out, err, False)

    def _told_wrong(self, harm: Harm, ended: Ended) -> list[str]:
        """What a stopped command must not do or say."""
        number = SIGNALS.get(harm.kind)
        allowed = {0, 1, 2} if number is None else {0, 130, -number}
        found = [] if ended.code in allowed else [f"exit {ended.code}: {ended.err.strip()[-600:]}"]
        if ended.code != -signal.SIGINT and "atexit" not in ended.err:  # before or after nlpctl runs
            words = ("Traceback", "internal error")
            found += [f"{word}: {ended.err.strip()[-600:]}" for word in words if word in ended.err]
        return found

    def _damaged(self, scenario: Scenario) -> list[str]:
        """Files under their final names that are not whole."""
        from nlpctl.training.checkpoints import damage_of

        out, reference = self.here / "out", self.folder / "reference" / scenario.name / "out"
        found = []
        for file in files_in(out):
            name = str(file.relative_to(out))
            if file.name.endswith(UNFINISHED) or any(map(name.count, IN_PROGRESS)):
                continue
            if set(file.relative_to(out).parts) & set(scenario.grows):
                found += [f"{name} is cut"] if file.suffix == ".json" and not readable(file) else []
            elif not (reference / name).exists():
                found.append(f"{name} is not of an uninterrupted command")
            else:
                found += [f"{name}: {each}" for each in differences(reference / name, file)]
        for checkpoint in out.rglob("checkpoints/checkpoint-*"):
            damage = damage_of(checkpoint)
            found += [] if damage is None else [f"{checkpoint.name}: {damage}"]
        return found

    def _differing(self, scenario: Scenario) -> list[str]:
        """How the end differs from that of the uninterrupted command."""
        out, reference = self.here / "out", self.folder / "reference" / scenario.name / "out"
        ours, theirs = ({str(file.relative_to(top)) for file in files_in(top)} for top in (out, reference))
        left_out = ("logs/", "report.html")  # a page that cannot be written is a warning
        ours, theirs = ({each for each in names if not any(map(each.count, left_out))} for names in (ours, theirs))
        ours -= {name for name in ours - theirs if "/checkpoints/checkpoint-" in name}  # saved when it was stopped
        found = [f"{name} is missing" for name in sorted(theirs - ours)]
        found += [f"{name} is left behind" for name in sorted(ours - theirs)]
        found += [f"{path.relative_to(out)} is left behind" for path in out.rglob(f"{STAGING}*")]
        for name in sorted(ours & theirs):
            found += [f"{name}: {each}" for each in differences(reference / name, out / name)]
        return found

    def _require(self, ended: Ended) -> None:
        if ended.code != 0:
            raise SystemExit(f"without any harm, the command ended with {ended.code}:\n{ended.err}")


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(STAGING)} if folder.is_dir() else set()


def files_in(folder: Path) -> list[Path]:
    """The files below `folder` that are not being written."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if f"/{STAGING}" not in f"/{path.relative_to(folder)}")


def write_data(folder: Path) -> None:
    chance = random.Random(0)
    words = "the room bed was staff view food very a and".split()

    def text() -> str:
        return " ".join(chance.choices(words, k=chance.randint(3, 9)))

    for name, count in (("train", 64), ("dev", 24)):
        rows = "".join(f"{text()} {label}\t{label}\n" for label in chance.choices(("neg", "pos"), k=count))
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + rows)
    (folder / "texts.txt").write_text("".join(f"{i} {text()}\n" for i in range(6000)))
    (folder / "pairs.tsv").write_text("a\tb\n" + "".join(f"{i} {text()}\tx {i}\n" for i in range(64)))
    (folder / "recipe.yaml").write_text(MODEL)
    (folder / "pairs.yaml").write_text(PAIRS)


def report(campaign: Campaign, log: Path | None) -> None:
    line = json.dumps(dataclasses.asdict(campaign))
    if log is not None:
        with log.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
    if campaign.failures:
        print(line, file=sys.stderr, flush=True)


def print_table(done: Sequence[Campaign]) -> None:
    kinds: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for campaign in done:
        kinds[campaign.scenario].update(harm.kind for harm in campaign.harms)
    print(f"{'command':10}" + "".join(f"{kind:>9}" for kind in HARMS) + "  campaigns  failed")
    for name, counts in kinds.items():
        own = [bool(campaign.failures) for campaign in done if campaign.scenario == name]
        print(f"{name:10}" + "".join(f"{counts[kind]:9}" for kind in HARMS) + f"{len(own):11}{sum(own):8}")
    failed = sum(bool(each.failures) for each in done)
    print(f"{sum(len(each.harms) for each in done)} kills in {len(done)} campaigns; {failed} failed")


if __name__ == "__main__":
    sys.exit(main())
