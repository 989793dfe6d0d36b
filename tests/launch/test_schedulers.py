"""Which node this is, and where the nodes meet: from flags, or from the variables of each scheduler."""

from __future__ import annotations

import pytest

from nlpctl.errors import UserError
from nlpctl.launch.schedulers import DEFAULT_PORT, NodeRank, node_names, place_of

SLURM = {
    "SLURM_JOB_ID": "123456",
    "SLURM_NNODES": "3",
    "SLURM_NODEID": "2",
    "SLURM_JOB_NODELIST": "gpu[07-08],login1",
    "SLURM_NTASKS_PER_NODE": "1",
}
KUBERNETES = {"JOB_COMPLETION_INDEX": "1", "HOSTNAME": "train-1-x7k2p"}
# What the operator of Kubeflow gives a pod; the older one gives the lower three.
PADDLE_JOB = {"PADDLE_JOB_ID": "train", "PADDLE_NNODES": "2", "PADDLE_MASTER": "train-worker-0:36543"}
PADDLE_JOB["HOSTNAME"] = "train-worker-1"
PADDLE_OPERATOR = {"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ID": "1"}
PADDLE_OPERATOR["PADDLE_TRAINER_ENDPOINTS"] = "10.0.0.1:2379,10.0.0.2:2379"
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}


@pytest.mark.parametrize(
    "flags, environ, place",
    [
        ((None, None, None), SLURM, None),
        (("1", None, None), {}, None),
        (("2", "a:1", 1), {}, NodeRank(2, 1, "a", 1)),
        (("2", "a", 0), {}, NodeRank(2, 0, "a", DEFAULT_PORT)),
        (("auto", None, None), SLURM, NodeRank(3, 2, "gpu07", 23456)),
        (("2", "a:1", 0), SLURM, NodeRank(2, 0, "a", 1)),
        (("auto", None, None), {**SLURM, "SLURM_STEP_NUM_NODES": "2", "SLURM_NODEID": "1",
                                "SLURM_STEP_NODELIST": "gpu08,login1"}, NodeRank(2, 1, "gpu08", 23456)),
        (("2", "train-0.train:29417", None), KUBERNETES, NodeRank(2, 1, "train-0.train", 29417)),
        (("auto", None, None), PADDLE_JOB, NodeRank(2, 1, "train-worker-0", 36543)),
        (("auto", None, None), PADDLE_OPERATOR, NodeRank(2, 1, "10.0.0.1", 2379)),
        (("auto", "a:1", None), OPEN_MPI, NodeRank(2, 1, "a", 1)),
        (("auto", None, None), {**SLURM, **OPEN_MPI}, NodeRank(2, 1, "gpu07", 23456)),
    ],
)  # fmt: skip
def test_the_place_of_a_node(flags, environ, place):
    assert place_of(*flags, environ) == place


@pytest.mark.parametrize(
    "flags, environ, message",
    [
        ((None, "a:1", None), {}, "--master: this is for several nodes"),
        ((None, None, 0), {}, "--node_rank: this is for several nodes"),
        (("two", None, None), {}, "--nnodes: 'two' is not a number of nodes"),
        (("0", None, None), {}, "--nnodes: '0' is not a number of nodes"),
        (("auto", "a:1", 0), {}, "no scheduler says how many nodes"),
        (("auto", "a:1", None), KUBERNETES, "Kubernetes does not say how many nodes"),
        (("2", "a:1", None), {}, "which node this is, is not known"),
        (("2", "a:1", 2), {}, "--node_rank: 2 is not one of 2 nodes"),
        (("2", "a:1", -1), {}, "--node_rank: -1 is not one of 2 nodes"),
        (("2", "a:1", None), SLURM, "Slurm: 2 is not one of 2 nodes"),
        (("2", None, 0), {}, "where the nodes are to meet is not known"),
        (("auto", None, None), OPEN_MPI, "where the nodes are to meet is not known"),
        (("2", "a:b", 0), {}, "'a:b' is not HOST:PORT"),
        (("2", "::1:80", 0), {}, "'::1:80' is not HOST:PORT"),
        (("2", "a:70000", 0), {}, "'a:70000' is not HOST:PORT"),
        (("2", "a..b:80", 0), {}, "'a..b' cannot be the name of a machine"),
        (("2", "n" * 300, 0), {}, "cannot be the name of a machine"),
        (("auto", None, None), {**SLURM, "SLURM_NTASKS_PER_NODE": "8"}, "Slurm has started 8 processes on this node"),
        (("auto", "a:1", None), {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "started 2 processes on this node"),
    ],
)
def test_what_is_refused(flags, environ, message):
    with pytest.raises(UserError) as error:
        place_of(*flags, environ)
    assert message in str(error.value) and error.value.problems[0].hint


@pytest.mark.parametrize(
    "text, names",
    [
        ("a", ["a"]),
        ("a,b-1", ["a", "b-1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,12],m", ["n08", "n09", "n10", "n12", "m"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
    ],
)
def test_a_node_list_of_slurm(text, names):
    assert node_names(text) == names


@pytest.mark.parametrize("text", ["", "n[1-", "n]", "n[a-b]", "n[3-1]", "n[1-99999999]", "n[]"])
def test_what_is_no_node_list(text):
    with pytest.raises(UserError, match="SLURM_JOB_NODELIST"):
        node_names(text)
