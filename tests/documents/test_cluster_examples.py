"""examples/cluster: the files have the fields that schedulers ask for, and nlpctl finds its place in what these set.

The schemas here hold what the files use of the published ones (batch/v1, v1, kubeflow.org/v1).
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from nlpctl.cli import app
from nlpctl.launch.schedulers import ProcessRank, rank_of

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "cluster"
SLURM, KUBERNETES, PADDLE_JOB = (FOLDER / name for name in ("slurm.sbatch", "kubernetes-job.yaml", "paddlejob.yaml"))

# A field of one of these types, or a mapping of fields; a "?" marks one that may be missing.
CONTAINER = {
    "name": str, "image": str, "command": [str], "args": [str], "ports?": [{"containerPort": int, "name": str}],
    "resources": {"limits": {"nvidia.com/gpu": int}},
    "volumeMounts": [{"name": str, "mountPath": str, "readOnly?": bool}],
}  # fmt: skip
CLAIM = {"claimName": str, "readOnly?": bool}
POD = {
    "subdomain?": str, "restartPolicy?": ("Never", "OnFailure"), "terminationGracePeriodSeconds": int,
    "containers": [CONTAINER],
    "volumes": [{"name": str, "persistentVolumeClaim?": CLAIM, "emptyDir?": {"medium": ("Memory",)}}],
}  # fmt: skip
SERVICE = {
    "apiVersion": ("v1",), "kind": ("Service",), "metadata": {"name": str},
    "spec": {"clusterIP": ("None",), "publishNotReadyAddresses": bool, "selector": {"job-name": str}},
}  # fmt: skip
JOB = {
    "apiVersion": ("batch/v1",), "kind": ("Job",), "metadata": {"name": str},
    "spec": {
        "completionMode": ("Indexed",), "completions": int, "parallelism": int, "backoffLimitPerIndex": int,
        "maxFailedIndexes": int, "template": {"spec": POD},
    },
}  # fmt: skip
PADDLE = {
    "apiVersion": ("kubeflow.org/v1",), "kind": ("PaddleJob",), "metadata": {"name": str},
    "spec": {
        "runPolicy": {"backoffLimit": int, "cleanPodPolicy": ("None", "Running", "All")},
        "paddleReplicaSpecs": {
            "Worker": {"replicas": int, "restartPolicy": ("Never", "OnFailure"), "template": {"spec": POD}},
        },
    },
}  # fmt: skip


def check(value: Any, schema: Any, where: str) -> None:
    """AssertionError at the first field that is missing, unknown, or of another type."""
    if isinstance(schema, dict):
        assert isinstance(value, dict), where
        names = {name.removesuffix("?"): part for name, part in schema.items()}
        assert not value.keys() - names.keys(), f"{where}: {value.keys() - names.keys()}"
        missing = {name for name in schema if not name.endswith("?")} - value.keys()
        assert not missing, f"{where}: {missing}"
        for name in value:
            check(value[name], names[name], f"{where}.{name}")
    elif isinstance(schema, list):
        assert isinstance(value, list) and value, where
        for each in value:
            check(each, schema[0], f"{where}[]")
    elif isinstance(schema, tuple):
        assert value in schema, f"{where}: {value}"
    else:
        assert type(value) is schema, f"{where}: {value!r}"


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


def calls(script: str) -> dict[str, dict[str, Any]]:
    """The nlpctl commands of a shell script, by name, with their parsed values."""
    found = {}
    for line in re.split(r"[;\n]", script):
        if not re.match(r"\s*(srun|exec)\b.*nlpctl", line):
            continue
        words = shlex.split(re.sub(r"\$resume|\"?\$\w+\"?", lambda m: "" if "resume" in m[0] else "my", line))
        name, *rest = words[words.index("nlpctl") + 1 :]
        command = app._load(app._find(name))
        found[name] = command.make_context(name, rest).params
    return found


def placed(params: dict[str, Any], environ: dict[str, str]) -> ProcessRank | None:
    return rank_of(params["nnodes"], params["master"], params["node_rank"], environ)


@pytest.mark.parametrize("file", [SLURM, KUBERNETES, PADDLE_JOB])
def test_a_header_teaches(file):
    lines = file.read_text(encoding="utf-8").splitlines()
    header = [line for line in lines[1 if lines[0].startswith("#!") else 0 :] if line.startswith("# ")]
    assert len(header) >= 12 and max(map(len, lines)) <= 125


def test_the_files_fit_their_schemas():
    service, job = documents(KUBERNETES)
    check(service, SERVICE, "Service")
    check(job, JOB, "Job")
    (paddle,) = documents(PADDLE_JOB)
    check(paddle, PADDLE, "PaddleJob")
    with pytest.raises(AssertionError, match="completionMode"):
        check({**job, "spec": {**job["spec"], "completionMode": "indexed"}}, JOB, "Job")


def test_the_batch_file_of_slurm():
    text = SLURM.read_text(encoding="utf-8")
    options = dict(line.removeprefix("#SBATCH --").partition("=")[::2] for line in re.findall(r"#SBATCH .*", text))
    assert text.index("#SBATCH --output") < text.index("set -eu"), "sbatch reads no line behind the first command"
    assert options["signal"] == "TERM@120" and text.count("srun --kill-on-bad-exit=1 nlpctl") == 2
    nodes, each = int(options["nodes"]), int(options["ntasks-per-node"])
    environ = {
        "SLURM_JOB_ID": "70123", "SLURM_NTASKS": str(nodes * each), "SLURM_JOB_NODELIST": "gpu[11-12]",
        "SLURM_STEP_NUM_TASKS": str(nodes * each), "SLURM_STEP_NODELIST": "gpu[11-12]",
        "SLURM_STEP_TASKS_PER_NODE": f"{each}(x{nodes})",
    }  # fmt: skip
    commands = calls(text)
    assert list(commands) == ["doctor", "train"]
    for params in commands.values():
        for rank in range(nodes * each):
            place = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % each), "SLURM_NODEID": str(rank // each)}
            expected = ProcessRank(nodes * each, rank, "gpu11", 20123, rank % each, each)
            assert placed(params, {**environ, **place}) == expected
    assert int(options["gpus-per-node"]) == each and commands["doctor"]["devices"] == "0,1,2,3"


def test_the_indexed_job_of_kubernetes():
    service, job = documents(KUBERNETES)
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    params = calls(container["args"][0])["train"]
    name, nodes = job["metadata"]["name"], spec["completions"]
    assert spec["parallelism"] == nodes and service["spec"]["selector"] == {"job-name": name}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert spec["backoffLimitPerIndex"] == spec["maxFailedIndexes"] == 0
    for rank in range(nodes):
        place = placed(params, {"JOB_COMPLETION_INDEX": str(rank), "HOSTNAME": f"{name}-{rank}-abcde"})
        assert place == ProcessRank(nodes, rank, f"{name}-0.{pod['subdomain']}", 29417)
    volumes(pod)


def test_the_paddle_job():
    (job,) = documents(PADDLE_JOB)
    worker = job["spec"]["paddleReplicaSpecs"]["Worker"]
    (container,) = worker["template"]["spec"]["containers"]
    assert container["name"] == "paddle" and container["ports"][0]["name"] == "master"
    params = calls(container["args"][0])["train"]
    name, nodes, port = job["metadata"]["name"], worker["replicas"], container["ports"][0]["containerPort"]
    for rank in range(nodes):
        host = "10.1.2.3" if rank == 0 else f"{name}-worker-0"  # the operator gives worker 0 its own address
        environ = {"PADDLE_JOB_ID": name, "PADDLE_NNODES": str(nodes), "PADDLE_MASTER": f"{host}:{port}"}
        assert placed(params, {**environ, "HOSTNAME": f"{name}-worker-{rank}"}) == ProcessRank(nodes, rank, host, port)
    volumes(worker["template"]["spec"])


def volumes(pod: dict[str, Any]) -> None:
    """What is mounted is there, and the command's paths lie in it."""
    (container,) = pod["containers"]
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert {f"/{path}" for path in re.findall(r" /(\w+)/", container["args"][0])} <= mounted
