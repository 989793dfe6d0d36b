"""Which process this is, and where they meet: from flags, or from the variables of each scheduler."""

from __future__ import annotations

import pytest

from nlpctl.errors import UserError
from nlpctl.launch.schedulers import DEFAULT_PORT, ProcessRank, node_names, rank_of

MANY = "9" * 5000  # digits, for which int() raises

SLURM = {
    "SLURM_JOB_ID": "123456",
    "SLURM_NTASKS": "3",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "2",
    "SLURM_JOB_NODELIST": "gpu[07-08],login1",
    "SLURM_TASKS_PER_NODE": "1(x3)",
}
KUBERNETES = {"JOB_COMPLETION_INDEX": "1", "HOSTNAME": "train-1-x7k2p"}
# What the operator of Kubeflow gives a pod; the older one gives the lower three.
PADDLE_JOB = {"PADDLE_JOB_ID": "train", "PADDLE_NNODES": "2", "PADDLE_MASTER": "train-worker-0:36543"}
PADDLE_JOB["HOSTNAME"] = "train-worker-1"
PADDLE_OPERATOR = {"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ID": "1"}
PADDLE_OPERATOR["PADDLE_TRAINER_ENDPOINTS"] = "10.0.0.1:2379,10.0.0.2:2379"
# What Paddle's launcher gives the second of two processes of a machine, the fourth in all.
PADDLE_LAUNCH = {"PADDLE_TRAINERS_NUM": "4", "PADDLE_TRAINER_ID": "3", "PADDLE_MASTER": "10.0.0.1:3000"}
PADDLE_LAUNCH |= {"PADDLE_LOCAL_RANK": "1", "PADDLE_LOCAL_SIZE": "2", "PADDLE_NNODES": "2"}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
OPEN_MPI |= {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}


@pytest.mark.parametrize(
    "flags, environ, place",
    [
        ((None, None, None), SLURM, None),
        (("1", None, None), {}, None),
        (("2", "a:1", 1), {}, ProcessRank(2, 1, "a", 1)),
        (("2", "a", 0), {}, ProcessRank(2, 0, "a", DEFAULT_PORT)),
        (("auto", None, None), SLURM, ProcessRank(3, 2, "gpu07", 23456, 0, 1)),
        (("2", "a:1", 0), SLURM, ProcessRank(2, 0, "a", 1)),
        (("auto", None, None), {**SLURM, "SLURM_STEP_NUM_TASKS": "5", "SLURM_PROCID": "4", "SLURM_LOCALID": "1",
                                "SLURM_STEP_TASKS_PER_NODE": "1,2(x2)", "SLURM_STEP_NODELIST": "gpu08,login1"},
         ProcessRank(5, 4, "gpu08", 23456, 1, 2)),
        (("2", "train-0.train:29417", None), KUBERNETES, ProcessRank(2, 1, "train-0.train", 29417)),
        (("auto", None, None), PADDLE_JOB, ProcessRank(2, 1, "train-worker-0", 36543)),
        (("auto", None, None), PADDLE_OPERATOR, ProcessRank(2, 1, "10.0.0.1", 2379)),
        (("auto", None, None), {**PADDLE_JOB, **PADDLE_LAUNCH}, ProcessRank(4, 3, "10.0.0.1", 3000, 1, 2)),
        (("auto", "a:1", None), OPEN_MPI, ProcessRank(2, 1, "a", 1, 1, 2)),
        (("auto", None, None), {**SLURM, **OPEN_MPI}, ProcessRank(2, 1, "gpu07", 23456, 1, 2)),
    ],
)  # fmt: skip
def test_the_rank_of_a_process(flags, environ, place):
    assert rank_of(*flags, environ) == place


@pytest.mark.parametrize(
    "flags, environ, message",
    [
        ((None, "a:1", None), {}, "--master: this is for several processes"),
        ((None, None, 0), {}, "--node_rank: this is for several processes"),
        (("two", None, None), {}, "--nnodes: 'two' is not a number of processes"),
        (("0", None, None), {}, "--nnodes: '0' is not a number of processes"),
        (("auto", "a:1", 0), {}, "no scheduler says how many processes"),
        (("auto", "a:1", None), KUBERNETES, "Kubernetes does not say how many processes"),
        (("2", "a:1", None), {}, "which process this is, is not known"),
        (("2", "a:1", 2), {}, "--node_rank: 2 is not one of 2 processes"),
        (("2", "a:1", -1), {}, "--node_rank: -1 is not one of 2 processes"),
        (("2", "a:1", None), SLURM, "Slurm: 2 is not one of 2 processes"),
        (("2", None, 0), {}, "where the processes are to meet is not known"),
        (("auto", None, None), OPEN_MPI, "where the processes are to meet is not known"),
        (("2", "a:b", 0), {}, "'a:b' is not HOST:PORT"),
        (("2", "::1:80", 0), {}, "'::1:80' is not HOST:PORT"),
        (("2", "a:70000", 0), {}, "'a:70000' is not HOST:PORT"),
        (("2", "a..b:80", 0), {}, "'a..b' cannot be the name of a machine"),
        (("2", "n" * 300, 0), {}, "cannot be the name of a machine"),
        ((MANY, "a:1", 0), {}, "is not a number of processes"),
        (("2", f"a:{MANY}", 0), {}, "is not HOST:PORT"),
        (("auto", None, None), {**SLURM, "SLURM_NTASKS": MANY}, f"Slurm says {MANY[:40]} processes; the most"),
        (("auto", None, None), {**SLURM, "SLURM_NTASKS": "20000"}, "Slurm says 20000 processes; the most are 10,000"),
        (("auto", None, None), {**SLURM, "SLURM_NTASKS": "0"}, "Slurm does not say how many processes"),
        (("auto", None, None), {**SLURM, "SLURM_NTASKS": "-1"}, "Slurm does not say how many processes"),
        (("auto", None, None), {**SLURM, "SLURM_PROCID": MANY}, "is not one of 3 processes"),
        (("auto", None, None), {**SLURM, "SLURM_STEP_NODELIST": f"n[1-{MANY}]"}, "is not a list of nodes"),
    ],
)
def test_what_is_refused(flags, environ, message):
    with pytest.raises(UserError) as error:
        rank_of(*flags, environ)
    assert message in str(error.value) and error.value.problems[0].hint


def test_what_slurm_says_of_tasks_is_not_counted_one_by_one():
    environ = {**SLURM, "SLURM_STEP_TASKS_PER_NODE": "1(x999999999),7,8", "SLURM_NODEID": "999999999"}
    assert rank_of("auto", None, None, environ).local_size == 7
    for variable in ("SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID", "SLURM_LOCALID", "SLURM_JOB_ID"):
        rank_of("auto", None, None, {**environ, variable: MANY})  # left to the others to say


@pytest.mark.parametrize(
    "text, names",
    [
        ("a", ["a"]),
        ("a,b-1", ["a", "b-1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,12],m", ["n08", "n09", "n10", "n12", "m"]),
        ("n[2024112701-2024112702]", ["n2024112701", "n2024112702"]),
        ("n" + "[1]" * 8, ["n11111111"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
    ],
)
def test_a_node_list_of_slurm(text, names):
    assert node_names(text) == names


@pytest.mark.parametrize(
    "text",
    ["", "n[1-", "n]", "n[a-b]", "n[3-1]", "n[1-99999999]", "n[]", "n[1-9000]" * 9, "n" + "[1]" * 3000, f"n[{10**19}]"],
)
def test_what_is_no_node_list(text):
    with pytest.raises(UserError, match="SLURM_JOB_NODELIST"):
        node_names(text)
