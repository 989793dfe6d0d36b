"""Runs on an MLflow server. Needs neither Paddle nor the data.

The run directory is the source: a sender reads it, asks the server what it has of the run, and sends the rest. So a
server that is away, a killed process and a resumed run lose nothing and send nothing twice.

    RUN/logs/mlflow.json    the MLflow run that this run is, by server
    RUN/logs/mlflow.log     what the sender of a training had to tell
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import select
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nlpctl
from nlpctl import console
from nlpctl.config.checks import MLFLOW
from nlpctl.config.dump import flat, recipe_values
from nlpctl.config.schema import Recipe
from nlpctl.console import display
from nlpctl.documents import Document, whole_content
from nlpctl.errors import EXIT_FAILED, RunFailed, UserError
from nlpctl.extras import require
from nlpctl.layout import CARD
from nlpctl.parent import SAFE_PATH
from nlpctl.report.score_tables import intervals_of, without_counts
from nlpctl.runs.card import card_facts, card_page
from nlpctl.runs.runs import KILLED, RunRecord, open_run
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.runtime.worker import module_path

URI, EXPERIMENT = "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"
DEFAULT_STORE, DEFAULT_EXPERIMENT = "mlruns", "Default"
# The variables of MLflow's client, unless they are set: one retry, since a sender comes back anyway.
_CLIENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_DATABASES = ("sqlite", "mysql", "postgresql", "mssql")  # schemes that mlflow-skinny cannot open
_EVERY = 5.0  # seconds between two looks at the run
_LAST = {True: 30.0, False: 10.0}  # seconds that a training waits at its end, if it finished or not
_MOST = 900  # metrics of a request; MLflow takes 1,000
_MOST_PARAMETERS = 100
_DIGEST = 36  # characters that MLflow takes
_SIGNS = re.compile(r"[^\w\-. /:]")  # MLflow refuses these in names
_LONGEST_NAME = 250

# Events with figures -> the prefix of their names, as in VisualDL, and the figure by which the server is asked.
_KINDS = {"log": ("train", "loss"), "evaluate": ("eval", "eval_loss")}
_STATUS = {"running": "RUNNING", "finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED", KILLED: "KILLED"}
_COMPLETE = "nlpctl.complete"  # a tag: when the run ended of which everything was sent


@dataclass(frozen=True)
class Sent:
    """`uri`: the server, without its password. `events`: how many were sent now; `ended`: the run has, and all is
    there."""

    uri: str
    run_id: str
    events: int
    ended: bool


def tracking_uri() -> str:
    """Where runs are sent: MLFLOW_TRACKING_URI, or the folder mlruns here. UserError for one that cannot work."""
    given = os.environ.get(URI, "")
    if urlsplit(given).scheme.partition("+")[0] in _DATABASES and importlib.util.find_spec("sqlalchemy") is None:
        hint = "pip install mlflow, which opens databases, or name a server: http://HOST:5000"
        raise UserError(f"mlflow-skinny opens no database such as {_without_password(given)}", URI, hint)
    return given or Path(DEFAULT_STORE).absolute().as_uri()


def _without_password(text: str) -> str:
    """`text`, without the users and passwords in its URIs; a password with a / makes no URI, but must not show."""
    return re.sub(r"//([^/?#\s]*@|[^/?#\s@]*:\S*@)", "//", text)


# -- while a run is trained ----------------------------------------------------------------------


@contextlib.contextmanager
def tracked(recipe: Recipe, run: RunDirectory) -> Iterator[Callable[[], None]]:
    """Gives a function to call when the run directory is there: a process then sends it to MLflow while it grows.

    Nothing is sent unless `recipe` reports to mlflow. At the end of the context the process sends what is left.
    """
    if MLFLOW not in (recipe.training.report_to or ()):
        yield lambda: None
        return
    uri = tracking_uri()
    started: list[subprocess.Popen[bytes]] = []
    finished = False
    try:
        yield lambda: started.append(_start(run))
        finished = True
    finally:
        for process in started:
            _end(process, run, uri, _LAST[finished])


def _start(run: RunDirectory) -> subprocess.Popen[bytes]:
    """Its own process, since MLflow's import takes seconds, and its requests may hang."""
    run.logs.mkdir(exist_ok=True)
    command = [sys.executable, *SAFE_PATH, "-m", "nlpctl", "runs", "send", str(run.path), "--follow"]
    env = {**os.environ, "PYTHONPATH": module_path()}
    with (run.logs / "mlflow.log").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=env,
            start_new_session=True,  # Ctrl-C is for the training; this one still has to send its end
        )  # fmt: skip


def _end(process: subprocess.Popen[bytes], run: RunDirectory, uri: str, seconds: float) -> None:
    """Let the process send the rest; tell where the run is, or how to send it."""
    assert process.stdin is not None, "it was started with a pipe"
    with contextlib.suppress(OSError):
        process.stdin.write(b"end\n")
        process.stdin.close()
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    if code == 0:
        console.note(f"mlflow: {_without_password(uri)}, run {_known(run).get(_without_password(uri))}")
    else:
        told = f"MLflow at {_without_password(uri)} has not taken all of the run, and nothing is lost"
        log = display(run.logs / "mlflow.log")
        console.warn(f"{told}: `nlpctl runs send {shlex.quote(display(run.path))}` sends the rest (why: {log})")


def follow_run(path: Path) -> Sent:
    """Send the run until its training, the parent of this process, says that it has ended, or is gone."""
    parent = os.getppid()
    threading.Thread(target=_end_soon_after, args=(parent,), daemon=True).start()
    sender = _Sender(path, tracking_uri())
    told = ""
    while True:
        last = bool(select.select([sys.stdin], [], [], _EVERY)[0]) or os.getppid() != parent
        try:
            sent = sender.send(last)
            told = ""
        except RunFailed as error:
            if last:
                raise
            if str(error) != told:
                console.warn(told := str(error))
            continue
        if last:
            return sent


def _end_soon_after(parent: int) -> None:
    """End this process, whose parent was killed and cannot do so any more: its server may never answer."""
    while os.getppid() == parent:
        time.sleep(_EVERY)
    time.sleep(_LAST[False])
    os._exit(EXIT_FAILED)


def send_run(path: Path) -> Sent:
    """Send what the server does not have yet. UserError: no run, or no MLflow; RunFailed: the server refuses it."""
    open_run(path)
    return _Sender(path, tracking_uri()).send(last=True)


# -- what is sent --------------------------------------------------------------------------------


class _Sender:
    """Sends one run to one server."""

    def __init__(self, path: Path, uri: str):
        require("mlflow")
        for name, value in _CLIENT.items():
            os.environ.setdefault(name, value)
        self.path, self.uri, self.shown = path, uri, _without_password(uri)
        self._client: Any = None
        self._run_id = ""
        self._has: dict[str, set[int]] | None = None  # the steps that the server has, by kind of event

    def send(self, last: bool) -> Sent:
        """Send the rest, of a run that has ended also its scores and pages if this is the `last` call: the training
        writes its page after its end. RunFailed if the server does not take it; what it took is known the next time.
        """
        try:
            return self._send(last)
        except (UserError, KeyboardInterrupt):
            raise
        except Exception as error:  # whatever its client, or the libraries below it, raise
            self._has = None  # part of a request may have arrived
            reason = _without_password(str(error).partition("\n")[0]) or type(error).__name__
            hint = f"`nlpctl runs send {shlex.quote(str(self.path))}` sends the rest when it is there again"
            raise RunFailed(f"MLflow did not take the run: {reason}", self.shown, hint) from error

    def _send(self, last: bool) -> Sent:
        if self._client is None:
            from mlflow.tracking import MlflowClient

            self._client = MlflowClient(self.uri)
        record = open_run(self.path)
        if self._has is None:
            self._run_id = self._run_of(record)
            self._has = {kind: self._steps(_name(kind, marker)) for kind, (_, marker) in _KINDS.items()}
        events = self._send_events(EventLog(record.run.events_file).read())
        status = _STATUS.get(record.state, "FAILED")
        ended = last and status != "RUNNING"
        if ended:
            self._finish(record, status)
        return Sent(self.shown, self._run_id, events, ended)

    def _run_of(self, record: RunRecord) -> str:
        """The MLflow run that this run is: the one it was before, else a new one."""
        known = _known(record.run)
        found = self._found(known.get(self.shown))
        if found is None:
            begun, name = _milliseconds(record.manifest["started"]), record.run.path.resolve().name
            found = self._client.create_run(self._experiment(), start_time=begun, run_name=name)
            record.run.logs.mkdir(exist_ok=True)
            MlflowFile({**known, self.shown: found.info.run_id}).save(record.run.logs / "mlflow.json")
        elif record.state == "running" and found.info.status != "RUNNING":  # a resumed run
            self._client.update_run(found.info.run_id, status="RUNNING")
        if not found.data.params:  # new, or cut off after it was made
            self._describe(found.info.run_id, record)
        return found.info.run_id

    def _found(self, run_id: str | None) -> Any:
        """The run of this id; None if it was deleted there."""
        from mlflow.exceptions import MlflowException

        if run_id is None:
            return None
        try:
            found = self._client.get_run(run_id)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        return None if found.info.lifecycle_stage == "deleted" else found

    def _experiment(self) -> str:
        name = os.environ.get(EXPERIMENT) or DEFAULT_EXPERIMENT
        found = self._client.get_experiment_by_name(name)
        return self._client.create_experiment(name) if found is None else found.experiment_id

    def _describe(self, run_id: str, record: RunRecord) -> None:
        """The data with their hashes, tags, and at last the recipe, by which it is known that all was sent."""
        from mlflow.entities import Dataset, DatasetInput, Param, RunTag

        inputs = [
            DatasetInput(Dataset(Path(file).name, digest[:_DIGEST], "local", _source(file, digest)), [])
            for file, digest in record.manifest["data"].items()
        ]
        if inputs:
            self._client.log_inputs(run_id, inputs)
        self._client.log_batch(run_id, tags=[RunTag(name, value) for name, value in _tags(record).items()])
        values = flat(recipe_values(record.recipe, everything=False))
        parameters = {_cut(name): _text(value) for name, value in values.items()}
        for part in _parts(list(parameters.items()), _MOST_PARAMETERS):
            self._client.log_batch(run_id, params=[Param(name, value) for name, value in part])

    def _steps(self, metric: str) -> set[int]:
        return {each.step for each in self._client.get_metric_history(self._run_id, metric)}

    def _send_events(self, events: Sequence[Mapping[str, Any]]) -> int:
        """A resumed run writes the events after its checkpoint again, with the same figures: the server has them."""
        from mlflow.entities import Metric

        assert self._has is not None
        new = [each for each in events if each["event"] in _KINDS and each["step"] not in self._has[each["event"]]]
        metrics: list[Metric] = []
        for place, event in enumerate(new):
            kind, step = event["event"], event["step"]
            marker = _KINDS[kind][1]
            figures = {name: value for name, value in event.items() if name not in ("time", "event", "step")}
            figures = {name: float(value) for name, value in figures.items() if isinstance(value, int | float)}
            names = sorted(figures, key=lambda name: name == marker)  # the marker says that the others are there
            stamp = int(event.get("time", time.time()) * 1000)
            metrics += [Metric(_name(kind, name), figures[name], stamp, step) for name in names]
            if len(metrics) > _MOST - 100 or place == len(new) - 1:
                self._client.log_batch(self._run_id, metrics=metrics)
                metrics = []
        for event in new:
            self._has[event["event"]].add(event["step"])
        return len(new)

    def _finish(self, record: RunRecord, status: str) -> None:
        """The scores of the model and the pages of the run, once."""
        ended = record.manifest["ended"] or status
        if self._client.get_run(self._run_id).data.tags.get(_COMPLETE) == ended:
            return
        from mlflow.entities import Metric

        stamp, step = int(time.time() * 1000), record.best_step or record.step
        scores = _final(record.metrics)
        if scores and not self._steps(_cut(next(reversed(scores)))):
            metrics = [Metric(_cut(name), value, stamp, step) for name, value in scores.items()]
            for part in _parts(metrics, _MOST):
                self._client.log_batch(self._run_id, metrics=part)
        for file in (record.run.report_file, record.run.recipe_file, record.run.metrics_file):
            if file.is_file():
                self._client.log_artifact(self._run_id, str(file))
        if status == _STATUS["finished"]:
            self._client.log_text(self._run_id, card_page(card_facts(record.run.path)), CARD)
        self._client.set_terminated(self._run_id, status, _milliseconds(record.manifest["ended"]))
        self._client.set_tag(self._run_id, _COMPLETE, ended)


@dataclass(frozen=True)
class MlflowFile(Document):
    """logs/mlflow.json of a run: the MLflow runs that this run is, by server, so that it is not sent twice."""

    runs: Mapping[str, Any] = whole_content()


def _known(run: RunDirectory) -> dict[str, str]:
    """The MLflow runs that this run is, by server."""
    file = MlflowFile.load_if_valid(run.logs / "mlflow.json")
    return {} if file is None else {uri: each for uri, each in file.runs.items() if isinstance(each, str)}


def _milliseconds(time: str | None) -> int | None:
    """A time of the manifest as MLflow counts it."""
    return None if time is None else int(datetime.fromisoformat(time).timestamp() * 1000)


def _tags(record: RunRecord) -> dict[str, str]:
    manifest = record.manifest
    tags = {"nlpctl.version": nlpctl.__version__, "nlpctl.run": str(record.run.path.resolve())}
    tags |= {"nlpctl.command": " ".join(["nlpctl", *manifest["command"][1:]]), "nlpctl.device": str(manifest["device"])}
    tags |= {f"version.{name}": str(each) for name, each in manifest["versions"].items() if name.startswith("paddle")}
    tags |= {"mlflow.source.name": "nlpctl", "mlflow.source.type": "LOCAL"}
    if manifest["git_commit"]:
        tags["mlflow.source.git.commit"] = manifest["git_commit"]
    return tags


def _source(file: str, digest: str) -> str:
    return json.dumps({"uri": file, "sha256": digest}, ensure_ascii=False)


def _final(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """dev/accuracy, and the ends of its interval."""
    found: dict[str, float] = {}
    for split, report in metrics.items():
        ends = intervals_of(report)
        for name, value in without_counts(report).items():
            found[f"{split}/{name}"] = float(value)
            if name in ends:
                low, high = ends[name]
                found |= {f"{split}/{name}_low": float(low), f"{split}/{name}_high": float(high)}
    return found


def _name(kind: str, figure: str) -> str:
    prefix = _KINDS[kind][0]
    return _cut(f"{prefix}/{figure.removeprefix('eval_')}")


def _cut(name: str) -> str:
    """A name that MLflow takes."""
    return _SIGNS.sub("_", name)[:_LONGEST_NAME]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _parts(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
