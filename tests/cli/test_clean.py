"""`nlpctl runs clean`: what it lists and deletes, and what it never touches."""

from __future__ import annotations

import errno
import filecmp
import io
import json
import os
import sys
from pathlib import Path

import pytest

from nlpctl.errors import RunFailed
from nlpctl.layout import UNMADE, checkpoint_step, checkpoints_in
from nlpctl.models.model_manifest import write_model_sums
from nlpctl.runs import clean
from nlpctl.runs.clean import KINDS, tidy
from nlpctl.runtime.lock import take_lock
from nlpctl.runtime.run_directory import RunDirectory

WEIGHTS = "model_state.pdparams"


@pytest.fixture(autouse=True)
def at_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(*files: Path, text: str = "x") -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def aged(path: Path) -> None:
    """Let it be old enough to have been given up."""
    for each in (path, *path.rglob("*")):
        os.utime(each, (0, 0))


def with_files(run: RunDirectory, *steps: int) -> RunDirectory:
    """`run` with a model, and checkpoints after `steps`, each with other weights."""
    write(run.model / WEIGHTS, text="model")
    for step in steps:
        write(run.checkpoints / f"checkpoint-{step}" / WEIGHTS, text=f"step {step}")
    return run


def failed(run: RunDirectory) -> RunDirectory:
    with pytest.raises(RunFailed), run.recorded():
        raise RunFailed("no")
    return run


def files() -> list[str]:
    return sorted(str(path) for path in Path("outputs").rglob("*") if path.is_file())


def found(nlpctl, *words: str) -> list[tuple[str, str]]:
    """What `runs clean` lists: kind and path."""
    ended = nlpctl("runs", "clean", *words, "--json")
    assert ended.code == 0, ended.err
    return [(each["kind"], os.path.relpath(each["path"])) for each in json.loads(ended.out)["result"]["found"]]


def test_older_checkpoints_go_once_that_is_wanted(nlpctl, made):
    run = with_files(made("run", dev=0.5), 4, 8)
    write(run.checkpoints / "damaged-checkpoint-4" / WEIGHTS, run.path / "export" / "export.json")
    before = files()
    listed = nlpctl("runs", "clean")
    assert listed.code == 0 and "--yes deletes what is listed" in listed.err and files() == before
    lines = [line.split()[:2] for line in listed.out.splitlines()[2:-1]]
    names = ["damaged-checkpoint-4", "checkpoint-4"]
    assert lines == [["checkpoints", f"outputs/run/checkpoints/{name}"] for name in names]
    deleted = json.loads(nlpctl("runs", "clean", "--yes", "--json").out)["result"]["deleted"]
    assert [each["bytes"] for each in deleted] == [len("x"), len("step 4")]
    assert files() == [name for name in before if "checkpoint-4" not in name]
    assert "there is nothing to delete" in nlpctl("runs", "clean", "--yes").err
    assert found(nlpctl, "--keep", "0") == [("checkpoints", "outputs/run/checkpoints/checkpoint-8")]
    assert found(nlpctl, "--keep", "0", "--only", "leftovers,trials") == []
    assert found(nlpctl, "outputs", "outputs/run", "--keep", "0") == found(nlpctl, "--keep", "0")


def test_it_asks_at_a_terminal(nlpctl, made, monkeypatch):
    run = with_files(made("run", dev=0.5), 4, 8)
    for answer, left in (("\n", 2), ("", 2), ("n\n", 2), ("y\n", 1)):
        terminal = io.StringIO(answer)
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", terminal)
        asked = nlpctl("runs", "clean")
        assert "delete this? [y/N]" in asked.err and len(list(run.checkpoints.iterdir())) == left


def test_weights_that_are_there_twice_become_one_file(nlpctl, made):
    run = with_files(made("run", dev=0.5), 8)
    newest = run.checkpoints / "checkpoint-8" / WEIGHTS
    newest.write_text("model")
    listed = [("doubles", f"outputs/run/checkpoints/checkpoint-8/{WEIGHTS}")]
    assert found(nlpctl) == listed
    assert nlpctl("runs", "clean", "--yes").code == 0 and newest.samefile(run.model / WEIGHTS)
    assert newest.read_text() == "model" and found(nlpctl) == []
    # A folder of which other names stay frees nothing of the shared file.
    sizes = json.loads(nlpctl("runs", "clean", "--keep", "0", "--json").out)["result"]["found"]
    assert [each["bytes"] for each in sizes] == [0]


def test_a_run_that_is_not_finished_keeps_what_resume_needs(nlpctl, made):
    killed = with_files(failed(made("killed")), 4, 8)
    manifest = {**killed.read_manifest().content, "state": "running", "pid": 2**30}
    killed.manifest_file.write_text(json.dumps(manifest))
    write(killed.checkpoints / ".staging-checkpoint-12-abc12345" / WEIGHTS)
    write(killed.path / ".staging-export-abc12345" / "export.json")
    leftovers = ["outputs/killed/.staging-export-abc12345"]
    leftovers.append("outputs/killed/checkpoints/.staging-checkpoint-12-abc12345")
    assert found(nlpctl, "--keep", "0") == [("leftovers", each) for each in leftovers]
    killed.manifest_file.write_text(json.dumps({**manifest, "state": "failed"}))
    assert [kind for kind, _ in found(nlpctl, "--keep", "0")] == ["leftovers", "leftovers"]
    killed.manifest_file.write_text(json.dumps({**manifest, "host": "elsewhere"}))  # nobody here can know
    there = nlpctl("runs", "clean", "--keep", "0", "--yes")
    assert "outputs/killed is left alone" in there.err and Path(leftovers[0]).is_dir()
    killed.manifest_file.write_text(json.dumps({**manifest, "state": "pruned"}))  # which no sweep goes on with
    assert [kind for kind, _ in found(nlpctl)] == ["leftovers", "leftovers", "checkpoints", "checkpoints"]
    killed.manifest_file.write_text("{")
    assert found(nlpctl, "--keep", "0") == []


def test_a_folder_in_which_a_command_works_is_left_alone(nlpctl, made):
    run = with_files(made("run", dev=0.5), 4, 8)
    write(Path("outputs/.staging-model-abc12345/export.json"), Path("outputs/.staging-other-abc12345/export.json"))
    aged(Path("outputs/.staging-other-abc12345"))
    write(Path("outputs/.staging-lock-model"), Path("outputs/.staging-vectors.npy-abc12345"))  # without a lock, new
    assert not clean._is_quiet(Path("outputs/.staging-list.json-abc12345"))  # it has got its name meanwhile
    run_lock, output_lock = take_lock(run.path), take_lock(Path("outputs/.staging-lock-model"))
    try:
        assert found(nlpctl) == [("leftovers", "outputs/.staging-other-abc12345")]
        ended = nlpctl("runs", "clean", "--yes")
        assert "outputs/run is left alone: a command works there" in ended.err
        assert len(list(run.checkpoints.iterdir())) == 2 and Path("outputs/.staging-model-abc12345").is_dir()
    finally:
        run_lock.release()
        output_lock.release()


def test_what_was_taken_meanwhile_is_not_deleted(nlpctl, made, monkeypatch):
    """Between the list and the answer somebody begins to work in the run."""
    run = with_files(made("run", dev=0.5), 4, 8)
    locks = []

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def readline(self, *_: int) -> str:
            locks.append(take_lock(run.path))
            return "y\n"

    monkeypatch.setattr(sys, "stdin", Terminal())
    ended = nlpctl("runs", "clean")
    assert "nothing was deleted" in ended.err and len(list(run.checkpoints.iterdir())) == 2
    assert "outputs/run is left alone" in ended.err
    locks[0].release()


def test_links_are_not_followed(nlpctl, made, tmp_path):
    with_files(made("moved", dev=0.5), 4, 8).path.rename(tmp_path / "elsewhere")
    outside = tmp_path / "elsewhere"
    Path("outputs/moved").symlink_to(outside)
    linked = with_files(made("linked", dev=0.5), 4, 8)
    os.rename(linked.checkpoints / "checkpoint-4", tmp_path / "large")
    (linked.checkpoints / "checkpoint-4").symlink_to(tmp_path / "large")
    (linked.path / ".staging-x-abc12345").symlink_to(outside)
    whole = made("whole", dev=0.5)
    whole.checkpoints.rmdir()
    whole.checkpoints.symlink_to(outside / "checkpoints")
    whole.model.symlink_to(outside / "model")
    assert found(nlpctl, "--keep", "1") == []
    assert found(nlpctl, "--keep", "0") == [("checkpoints", "outputs/linked/checkpoints/checkpoint-8")]


def test_candidates_go_once_the_best_is_chosen(nlpctl, made):
    run = with_files(made("run", dev=0.5))
    compress = run.path / "compress"
    names = ("networks/student/model/w", "exports/original/w", "candidates/a/w")
    write(*(compress / name for name in (*names, "plan.json", "best/export.json", "scores/a.json", "report.html")))
    assert found(nlpctl) == []  # without a report
    write(compress / "report.json", text=json.dumps({"rows": [], "failures": [{"reason": UNMADE}]}))
    assert found(nlpctl) == []  # the same command goes on
    write(compress / "report.json", text=json.dumps({"rows": [], "failures": [{"reason": "cannot be quantised"}]}))
    kinds = [("candidates", f"outputs/run/compress/{name}") for name in ("candidates", "exports", "networks")]
    assert found(nlpctl) == kinds == found(nlpctl, "outputs/run/compress")
    ended = nlpctl("runs", "clean", "--yes")
    assert "`nlpctl compress` would make them again" in ended.err
    kept = ["best/export.json", "plan.json", "report.html", "report.json", "scores/a.json"]
    assert [name for name in files() if "/compress/" in name] == [f"outputs/run/compress/{name}" for name in kept]


def test_networks_of_an_unfinished_compress_keep_their_models(nlpctl, made):
    with_files(made("run", dev=0.5))
    network = with_files(made("run/compress/networks/student", dev=0.5), 4)
    content = {**network.read_manifest().content, "made_by": "compress"}
    network.manifest_file.write_text(json.dumps(content))
    write(Path("outputs/run/compress/plan.json"))
    assert found(nlpctl) == [("checkpoints", "outputs/run/compress/networks/student/checkpoints/checkpoint-4")]


def test_of_a_finished_sweep_the_best_model_stays(nlpctl, made):
    for name in ("000", "001"):
        with_files(made(f"sweep/trials/{name}", dev=0.5), 4)
    with_files(failed(made("sweep/trials/002")), 4)
    series = {"format": 1, "kind": "sweep", "state": "running", "own": ["trials"]}
    write(Path("outputs/sweep/series.json"), text=json.dumps(series))
    write(Path("outputs/sweep/sweep.json"), text=json.dumps({"best": "001"}))
    assert found(nlpctl) == []
    write(Path("outputs/sweep/series.json"), text=json.dumps({**series, "state": "finished"}))
    trials = "outputs/sweep/trials"
    listed = [("checkpoints", f"{trials}/000/checkpoints/checkpoint-4"), ("trials", f"{trials}/000/model")]
    listed += [("checkpoints", f"{trials}/{name}/checkpoints/checkpoint-4") for name in ("001", "002")]
    assert found(nlpctl) == listed
    for unknown in ("{}", '{"best": "../trials/001"}'):  # nobody knows which is the best
        write(Path("outputs/sweep/sweep.json"), text=unknown)
        assert not [path for kind, path in found(nlpctl) if kind == "trials"]


def test_of_finished_folds_the_models_stay(nlpctl, made):
    with_files(made("folds/fold-1", dev=0.5), 4, 8)
    with_files(failed(made("folds/mine")), 4)  # goes on with --resume
    series = {"format": 1, "kind": "folds", "state": "finished", "runs": ["fold-1"]}
    write(Path("outputs/folds/series.json"), text=json.dumps(series))
    listed = [("checkpoints", f"outputs/folds/fold-1/checkpoints/checkpoint-{step}") for step in (4, 8)]
    assert found(nlpctl) == listed
    lock = take_lock(Path("outputs/folds"))
    try:
        assert found(nlpctl) == []
    finally:
        lock.release()


@pytest.mark.parametrize(("limit", "kept"), [(None, 3), (0, 3), (1, 1), (2, 1), (3, 2), (9, 3)])
def test_at_its_end_a_training_keeps_the_newest(made, limit, kept):
    """model/ stands for one of those that training.save_total_limit allows; of the others none is a copy of it."""
    run = with_files(made("run", dev=0.5), 4, 8, 12)
    newest = run.checkpoints / "checkpoint-12" / WEIGHTS
    newest.write_text("model")
    tidy(run, limit, model_is_best=True)
    assert [checkpoint_step(path) for path in checkpoints_in(run.checkpoints)] == [4, 8, 12][-kept:]
    assert newest.samefile(run.model / WEIGHTS)


def test_a_run_that_was_begun_again_stays_as_it_is(made):
    """By another command, between the end of the training and this; it is not kept from its lock."""
    run = failed(with_files(made("run", dev=0.5), 4, 8))
    tidy(run, 1, model_is_best=True)
    assert len(checkpoints_in(run.checkpoints)) == 2
    lock = take_lock(run.path)
    assert lock is not None
    lock.release()


def test_checkpoints_of_which_the_best_is_not_the_model_stay(made):
    run = with_files(made("run", dev=0.5), 4, 8, 12)
    tidy(run, 2, model_is_best=False)
    assert [checkpoint_step(path) for path in checkpoints_in(run.checkpoints)] == [4, 8, 12]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_where_files_cannot_have_two_names_both_stay(nlpctl, made, monkeypatch, capsys, number):
    run = with_files(made("run", dev=0.5), 4, 8)
    double = run.checkpoints / "checkpoint-8" / WEIGHTS
    double.write_text("model")

    def no_links(*names, **more):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", no_links)
    tidy(run, 0, model_is_best=True)
    assert capsys.readouterr().err == "" and double.read_text() == "model"
    ended = nlpctl("runs", "clean", "--yes", "--json")
    assert ended.code == 0 and "this file system gives a file one name only" in ended.err
    assert [each["kind"] for each in json.loads(ended.out)["result"]["deleted"]] == ["checkpoints"]
    assert double.read_text() == "model"


def test_what_others_named_like_ours_stays(nlpctl, made):
    with_files(made("run", dev=0.5))
    write(Path("outputs/.staging-area/mine.tsv"), Path("outputs/.staging-env.yaml"), Path("outputs/.staging-abcdefgh"))
    assert found(nlpctl) == []
    write(Path("outputs/.staging-answers.jsonl-abcdefgh"))
    aged(Path("outputs"))
    assert found(nlpctl) == [("leftovers", "outputs/.staging-answers.jsonl-abcdefgh")]


def test_a_part_is_cleaned_with_its_whole_alone(nlpctl, made):
    """Its lock is that of the whole, where a command may work."""
    run = with_files(made("run", dev=0.5), 4, 8)
    write(run.checkpoints / ".staging-checkpoint-8-abcd1234/w", Path("outputs/small/plan.json"))
    write(Path("outputs/small/networks/.staging-start-abcd1234/w"))
    for part, whole in ((run.checkpoints, "run"), (Path("outputs/small/networks"), "small")):
        ended = nlpctl("runs", "clean", part)
        assert ended.code == 2 and f"name that: outputs/{whole}" in ended.err
    lock = take_lock(Path("outputs/small"))
    try:
        assert ("leftovers", "outputs/small/networks/.staging-start-abcd1234") not in found(nlpctl)
    finally:
        lock.release()


def test_mistakes(nlpctl, tmp_path):
    for words, told in (
        (("nowhere",), "there is no such folder"),
        ((tmp_path, "--only", "checkpoint"), "did you mean 'checkpoints'"),
        ((tmp_path, "--only", ""), "there is no kind ''"),
        ((tmp_path, "--keep", "-1"), "-1 is no number of checkpoints"),
    ):
        ended = nlpctl("runs", "clean", *words)
        assert ended.code == 2 and told in ended.err, ended.err


def test_the_help_names_every_kind(nlpctl):
    text = " ".join(nlpctl("runs", "clean", "--help").out.split())
    assert all(f"{kind} " in text or f"{kind}," in text for kind in KINDS)


def test_what_cannot_be_deleted_is_told_and_not_counted(nlpctl, made, monkeypatch):
    """The rest goes all the same, and the next command finds what is left."""
    run = with_files(made("run", dev=0.5), 4, 6, 8)
    stays = run.checkpoints / "checkpoint-4" / "optimizer.pdopt"
    write(stays, text="as long as this")
    unlink = os.unlink

    def refuse(path, *arguments, **more):
        if os.path.basename(path) == stays.name:
            raise PermissionError(errno.EPERM, "Operation not permitted", path)
        unlink(path, *arguments, **more)

    monkeypatch.setattr(os, "unlink", refuse)
    ended = nlpctl("runs", "clean", "--yes", "--json")
    assert ended.code == 2
    told = json.loads(ended.out)
    assert [Path(each["path"]).name for each in told["result"]["deleted"]] == ["checkpoint-6"]
    assert told["result"]["freed"] == len("step 4") + len("step 6")
    assert told["error"]["message"] == "cannot be deleted (Operation not permitted: optimizer.pdopt)"
    (rest,) = [kind for kind, _ in found(nlpctl)]
    assert rest == "leftovers"
    monkeypatch.undo()
    monkeypatch.chdir(run.path.parents[1])
    ended = nlpctl("runs", "clean", "--yes")
    assert ended.code == 0 and "0.0 MB are free" in ended.err and not found(nlpctl)


def test_doubles_are_listed_by_their_checksums_and_read_once(nlpctl, made, monkeypatch):
    run = with_files(made("run", dev=0.5), 4, 8)
    newest = run.checkpoints / "checkpoint-8"
    (newest / WEIGHTS).write_text("model")
    for folder in (run.model, newest, run.checkpoints / "checkpoint-4"):
        write_model_sums(folder)
    read = []
    compare = filecmp.cmp
    monkeypatch.setattr(filecmp, "cmp", lambda *files, **more: read.append(files) or compare(*files, **more))
    assert found(nlpctl, "--only", "doubles", "--keep", "2") == [("doubles", os.path.relpath(newest / WEIGHTS))]
    assert not read
    (newest / WEIGHTS).write_text("mOdel")  # damaged since: as long as the other, which would be lost
    ended = nlpctl("runs", "clean", "--only", "doubles", "--yes")
    assert ended.code == 2 and "not what its checksum says" in ended.err and "nothing was deleted" in ended.err
    (newest / WEIGHTS).write_text("model")
    assert nlpctl("runs", "clean", "--only", "doubles", "--yes").code == 0
    assert (newest / WEIGHTS).samefile(run.model / WEIGHTS) and len(read) == 2


def test_what_goes_at_the_second_try_is_gone(nlpctl, made, monkeypatch):
    run = with_files(made("run", dev=0.5), 4, 8)
    remove, tried = clean.remove_dir, []

    def at_first_not(path):
        tried.append(path)
        return path if len(tried) == 1 else remove(path)

    monkeypatch.setattr(clean, "remove_dir", at_first_not)
    ended = nlpctl("runs", "clean", "--yes")
    assert ended.code == 0, ended.err
    assert tried and not (run.checkpoints / "checkpoint-4").exists()
